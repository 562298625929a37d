"""This process's side of the children that ask NVML and libcuda (see `probe`).

Detection has two children, so that a crash of one leaves the answer of the other.  They work while
this process reads /proc and /sys.  Another child reads the GPUs in use during a run.
"""

import ctypes
import sys
import time
from collections.abc import Iterator, Sequence

from msgspec.json import Decoder

from ...process.children import command
from ...process.line_process import Ended, QueryProcess
from ...records.machine import Gpu, Links, Nvml
from ...records.reason import Reason
from .cuda_driver import LIBRARY as CUDA_LIBRARY, CudaAnswer, failed
from .driver_errors import loading_failure
from .gpu_fields import with_reasons
from .nvml import GpuSample, NvmlHeader

NVML_LIBRARY = "libnvidia-ml.so.1"
# For each answer; without persistence mode the first call after boot takes seconds per GPU.
DEADLINE_S = 30.0
# NVML's calls take a lock of the driver that measured programs need too: an overlay that polled at
# 40 Hz held it two thirds of the time (MangoHud#2104).
EVERY_S = 0.5
SILENT_S = 30.0  # a call on a lost GPU can hang; the first after boot takes seconds
MOST_RESTARTS = 3

_APIS = {"nvidia": "NVML", "amd": "amdsmi"}
_LOST_GPU = "a lost GPU can cause this: read `dmesg | grep -iE 'nvrm|xid'`, then reboot"


def missing(library: str) -> Reason | None:
    """Why the loader cannot load this library, without calling it; None if it can."""
    if not sys.platform.startswith("linux"):
        return Reason("unsupported_platform", f"NVIDIA has no driver for {sys.platform}")
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return loading_failure(library, error)
    return None


def start_probe(*arguments: str, vendor: str = "nvidia") -> QueryProcess:
    return QueryProcess(command(f"workbench.machine.{vendor}.probe", *arguments))


def ending(ended: Ended, api: str = "NVML") -> Reason:
    """Why the process that asks NVML, CUDA or amdsmi gave no answer."""
    code = f"{api.lower()}_{'hung' if ended.kind == 'silent' else ended.kind}"
    return Reason(code, f"the process that asks {api} {ended.message}", _LOST_GPU)


def silence(vendor: str, seconds: float) -> Reason:
    """The reason for readings that are missing for this long."""
    return ending(Ended("silent", f"gave no reading for {seconds:.0f} s"), _APIS[vendor])


def nvml_answer(process: QueryProcess | Reason, deadline_s: float) -> tuple[Nvml, list[Gpu]]:
    """NVML's state and its GPUs, with `deadline_s` for each; those after one that ends the process
    stay unread."""
    if isinstance(process, Reason):
        return Nvml(False, process), []
    header = process.parse(process.line(deadline_s), Decoder(NvmlHeader).decode)
    if isinstance(header, Ended):
        return Nvml(available=False, reason=ending(header)), []
    gpus: list[Gpu] = []
    failure, decode = None, Decoder(Gpu).decode
    for index in range(header.count):
        line = failure if failure else process.line(deadline_s)
        gpu: Gpu | Ended = process.parse(line, decode)
        if isinstance(gpu, Ended):
            failure = gpu
            gpu = with_reasons(Gpu(index, None, None, None, None), ending(gpu).message)
        gpus.append(gpu)
    process.close()
    return header.nvml, gpus


def cuda_answer(
    process: QueryProcess | Reason, deadline_s: float, *, since_start: bool = False
) -> CudaAnswer:
    if isinstance(process, Reason):
        return failed(process)
    answer = process.answer(Decoder(CudaAnswer).decode, deadline_s, since_start=since_start)
    return failed(ending(answer, "CUDA")) if isinstance(answer, Ended) else answer


def gpu_links() -> Links:
    """The links between the GPUs, read in a process of its own."""
    answer = start_probe("links").answer(Decoder(Links).decode, DEADLINE_S)
    return Links([], ending(answer)) if isinstance(answer, Ended) else answer


class GpuProbes:
    """Asks NVML and CUDA at the same time; a missing library starts no process."""

    def __init__(self) -> None:
        self._nvml = missing(NVML_LIBRARY) or start_probe("nvml")
        self._cuda = missing(CUDA_LIBRARY) or start_probe("cuda")

    def collect(self, deadline_s: float) -> tuple[Nvml, list[Gpu], CudaAnswer]:
        begun_s = time.monotonic()
        nvml, gpus = nvml_answer(self._nvml, deadline_s)
        # A GPU on which NVML hangs makes CUDA hang too, and CUDA has had the same time by now.
        hung = time.monotonic() - begun_s >= deadline_s
        return nvml, gpus, cuda_answer(self._cuda, deadline_s, since_start=hung)


class GpuSampler:
    """Reads the GPUs with these indices in their vendor's library; a crash leaves only a gap."""

    def __init__(
        self, indices: Sequence[int], *, every_s: float = EVERY_S, vendor: str = "nvidia"
    ) -> None:
        self._vendor = vendor
        self._arguments = ["sample", f"{every_s:g}", *map(str, indices)]
        self._restarts = 0
        self._over = False
        self._start()

    def _start(self) -> None:
        self._process = start_probe(*self._arguments, vendor=self._vendor)
        self._heard_at_s = time.monotonic()

    def drain(self) -> Iterator[GpuSample]:
        """The samples since the last call; one with a reason stands for a gap."""
        while not self._over:
            line = self._process.poll()
            if line is None:
                if time.monotonic() - self._heard_at_s <= SILENT_S:
                    return
                self._process.close()
                line = Ended("silent", f"gave no reading for {SILENT_S:g} s")
            self._heard_at_s = time.monotonic()
            answer = self._process.parse(line, Decoder(GpuSample).decode)
            if isinstance(answer, Ended):
                sample = GpuSample(time.monotonic(), [], ending(answer, _APIS[self._vendor]))
                self._over = self._restarts == MOST_RESTARTS
                if not self._over:
                    self._restarts += 1
                    self._start()
            else:
                sample = answer
                self._over = sample.reason is not None  # a refusal by NVML itself is final
            yield sample
        self.close()

    def close(self) -> None:
        self._process.close()
