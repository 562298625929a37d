"""This process's side of the children that ask NVML and libcuda (see `probe`).

There are two children, so that a crash of one leaves the other's answer.  They start early and
work while this process reads /proc and /sys.
"""

import ctypes
import sys
import time

from msgspec.json import Decoder

from ...process.children import command
from ...process.line_process import Ended, QueryProcess
from ...records.machine import Gpu, Nvml
from ...records.reason import Reason
from .cuda_driver import LIBRARY as CUDA_LIBRARY, CudaAnswer, failed
from .driver_errors import loading_failure
from .gpu_fields import with_reasons
from .nvml import Links, NvmlHeader

NVML_LIBRARY = "libnvidia-ml.so.1"
# Per answer: the first call after boot takes seconds per GPU without persistence mode.
DEADLINE_S = 30.0

_LOST_GPU = "a lost GPU can cause this: read `dmesg | grep -iE 'nvrm|xid'`, then reboot"


def missing(library: str) -> Reason | None:
    """Why the loader cannot load this library; None if it can.  None of its functions is called."""
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


def nvml_answer(process: QueryProcess | Reason, deadline_s: float) -> tuple[Nvml, list[Gpu]]:
    """NVML's state and its GPUs, each of which has `deadline_s` seconds; one that ends the
    process leaves those after it unread."""
    if isinstance(process, Reason):
        return Nvml(False, process), []
    header = process.answer(Decoder(NvmlHeader).decode, deadline_s)
    if isinstance(header, Ended):
        return Nvml(available=False, reason=ending(header)), []
    gpus: list[Gpu] = []
    failure, decode = None, Decoder(Gpu).decode
    for index in range(header.count):
        gpu: Gpu | Ended = failure if failure else process.answer(decode, deadline_s)
        if isinstance(gpu, Ended):
            failure = gpu
            gpu = with_reasons(Gpu(index, None, None, None, None), ending(gpu).message)
        gpus.append(gpu)
    process.close()
    return header.nvml, gpus


def cuda_answer(
    process: QueryProcess | Reason, deadline_s: float, since_s: float | None = None
) -> CudaAnswer:
    if isinstance(process, Reason):
        return failed(process)
    answer = process.answer(Decoder(CudaAnswer).decode, deadline_s, since_s)
    process.close()
    return failed(ending(answer, "CUDA")) if isinstance(answer, Ended) else answer


def gpu_links() -> Links:
    """The links between the GPUs, asked in a process of its own."""
    process = start_probe("links")
    answer = process.answer(Decoder(Links).decode, DEADLINE_S)
    process.close()
    return Links([], ending(answer)) if isinstance(answer, Ended) else answer


class GpuProbes:
    """NVML and CUDA asked at the same time; a missing library starts no process."""

    def __init__(self) -> None:
        self._nvml = missing(NVML_LIBRARY) or start_probe("nvml")
        self._cuda = missing(CUDA_LIBRARY) or start_probe("cuda")

    def collect(self, deadline_s: float) -> tuple[Nvml, list[Gpu], CudaAnswer]:
        since_s = time.monotonic()
        nvml, gpus = nvml_answer(self._nvml, deadline_s)
        # A GPU on which NVML hangs makes CUDA hang too, which has had the same time by then.
        hung = time.monotonic() - since_s >= deadline_s
        return nvml, gpus, cuda_answer(self._cuda, deadline_s, since_s if hung else None)
