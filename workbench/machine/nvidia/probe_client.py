"""This process's side of the children that ask NVML and libcuda (see `probe`).

There are two children, so that a crash of one leaves the other's answer.  They start early and
work while this process reads /proc and /sys.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from ...process.children import command
from ...process.line_process import Ended, QueryProcess
from ...records.machine import CudaDriver, Gpu, Nvml
from ...records.reason import Reason
from .cuda_driver import LIBRARY as CUDA_LIBRARY
from .cuda_driver import CudaAnswer, loading_failure
from .gpu_fields import with_reasons
from .nvml import Links, NvmlHeader

NVML_LIBRARY = "libnvidia-ml.so.1"
# Per answer: the first call after boot takes seconds per GPU without persistence mode.
DEADLINE_S = 30.0

_ENDINGS = {"crashed": "crashed", "silent": "hung", "not_started": "not_started"}
_LOST_GPU = "a lost GPU can cause this: read `dmesg | grep -iE 'nvrm|xid'`, then reboot"

_Answer = TypeVar("_Answer")
_decode_header = msgspec.json.Decoder(NvmlHeader).decode
_decode_links = msgspec.json.Decoder(Links).decode
_decode_gpu = msgspec.json.Decoder(Gpu).decode
_decode_cuda = msgspec.json.Decoder(CudaAnswer).decode


def missing(library: str, *, in_container: bool) -> Reason | None:
    """Why the loader cannot load this library; None if it can.  None of its functions is called."""
    if not sys.platform.startswith("linux"):
        return Reason("unsupported_platform", f"NVIDIA has no driver for {sys.platform}")
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return loading_failure(library, error, in_container=in_container)
    return None


def start_probe(
    *arguments: str, environ: Mapping[str, str] | None, vendor: str = "nvidia"
) -> QueryProcess:
    return QueryProcess(command(f"workbench.machine.{vendor}.probe", *arguments), environ=environ)


def _answer(
    process: QueryProcess, decode: Callable[[bytes], _Answer], deadline_s: float
) -> _Answer | Ended:
    return process.parse(process.line(deadline_s), decode)


def nvml_reason_of(ended: Ended, vendor: str = "nvidia") -> Reason:
    return _reason("NVML" if vendor == "nvidia" else "amdsmi", ended)


def _reason(api: str, ended: Ended) -> Reason:
    code = f"{api.lower()}_{_ENDINGS[ended.kind]}"
    return Reason(code, f"the process that asks {api} {ended.message}", _LOST_GPU)


class NvmlProbe:
    """One survey by NVML, begun at once and collected later."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._process = start_probe("nvml", environ=environ)

    def collect(self, deadline_s: float = DEADLINE_S) -> tuple[Nvml, list[Gpu]]:
        """NVML's state and its GPUs; waits at most `deadline_s` for each; a crash costs one GPU."""
        try:
            return self._collect(deadline_s)
        finally:
            self._process.close()

    def _collect(self, deadline_s: float) -> tuple[Nvml, list[Gpu]]:
        header = _answer(self._process, _decode_header, deadline_s)
        if isinstance(header, Ended):
            return Nvml(available=False, reason=nvml_reason_of(header)), []
        gpus: list[Gpu] = []
        while len(gpus) < header.count:
            gpu = _answer(self._process, _decode_gpu, deadline_s)
            if isinstance(gpu, Gpu):
                gpus.append(gpu)
                continue
            gpus.append(_unread(len(gpus), f"{nvml_reason_of(gpu).message} on this GPU"))
            if gpu.kind == "silent" or not self._restart(len(gpus), deadline_s):
                text = "not read: NVML failed on an earlier GPU"
                gpus += [_unread(index, text) for index in range(len(gpus), header.count)]
        return header.nvml, gpus

    def _restart(self, first: int, deadline_s: float) -> bool:
        """Continue with GPU number `first` in a new process; False if it does not get that far."""
        self._process = start_probe("nvml", str(first), environ=self._environ)
        header = _answer(self._process, _decode_header, deadline_s)
        return not isinstance(header, Ended) and header.nvml.available


def _unread(index: int, reason: str) -> Gpu:
    return with_reasons(Gpu(index, None, None, None, None), reason)


def gpu_links(environ: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> Links:
    """The links between the GPUs, asked in a process of its own."""
    process = start_probe("links", environ=environ)
    answer = _answer(process, _decode_links, deadline_s)
    process.close()
    return Links([], nvml_reason_of(answer)) if isinstance(answer, Ended) else answer


class CudaProbe:
    """One question to libcuda, asked at once and collected later."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._process = start_probe("cuda", environ=environ)

    def collect(self, deadline_s: float = DEADLINE_S) -> CudaAnswer:
        answer = _answer(self._process, _decode_cuda, deadline_s)
        self._process.close()
        if isinstance(answer, Ended):
            return no_cuda(_reason("CUDA", answer))
        return answer


def no_cuda(reason: Reason) -> CudaAnswer:
    return CudaAnswer(CudaDriver(available=False, device_count=0, reason=reason), [])


class GpuProbes:
    """NVML and CUDA asked at the same time; a missing library starts no process."""

    def __init__(self, *, in_container: bool) -> None:
        self._nvml = missing(NVML_LIBRARY, in_container=in_container) or NvmlProbe()
        self._cuda = missing(CUDA_LIBRARY, in_container=in_container) or CudaProbe()

    def collect(self, deadline_s: float = DEADLINE_S) -> tuple[Nvml, list[Gpu], CudaAnswer]:
        if isinstance(self._nvml, Reason):
            nvml, gpus = Nvml(available=False, reason=self._nvml), list[Gpu]()
        else:
            nvml, gpus = self._nvml.collect(deadline_s)
        if isinstance(self._cuda, Reason):
            return nvml, gpus, no_cuda(self._cuda)
        return nvml, gpus, self._cuda.collect(deadline_s)
