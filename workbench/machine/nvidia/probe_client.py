"""Our side of the child processes that speak to NVML and libcuda (see `probe`).

Two children, so that what crashes the one leaves the other's answer, and started early, so
that they work while this process reads /proc and /sys.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from ...process.line_process import Ended, Helper
from ...records.machine import CudaDriver, Gpu, Nvml
from ...records.reason import Reason
from .cuda_driver import LIBRARY as CUDA_LIBRARY
from .cuda_driver import CudaAnswer, loading_failure
from .gpu_fields import with_reasons
from .nvml import Links, NvmlHeader

NVML_LIBRARY = "libnvidia-ml.so.1"
# For each answer: the first call after boot takes seconds per GPU without persistence mode.
DEADLINE_S = 30.0

# The child finds modules exactly where we do, whatever was done to this process's path.
_BOOT = (
    "import os, sys; sys.path[:] = sys.argv.pop(1).split(os.pathsep);"
    "from workbench.machine.nvidia.probe import main; main()"
)
_ENDINGS = {"crashed": "crashed", "silent": "hung", "not_started": "not_started"}
_LOST_GPU = "a lost GPU can do this: read the kernel log (`dmesg | grep -iE 'nvrm|xid'`), reboot"

_Answer = TypeVar("_Answer")
_decode_header = msgspec.json.Decoder(NvmlHeader).decode
_decode_links = msgspec.json.Decoder(Links).decode
_decode_gpu = msgspec.json.Decoder(Gpu).decode
_decode_cuda = msgspec.json.Decoder(CudaAnswer).decode


def missing(library: str, *, in_container: bool) -> Reason | None:
    """Why the loader has no such library, None where it has; no function of it is called."""
    if sys.platform == "win32":
        return None  # the child looks in the driver's own folders
    if not sys.platform.startswith("linux"):
        return Reason("unsupported_platform", f"NVIDIA has no driver for {sys.platform}")
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return loading_failure(library, error, in_container=in_container)
    return None


def start_probe(*arguments: str, environ: Mapping[str, str] | None) -> Helper:
    """The child of `probe`, with these arguments."""
    argv = [sys.executable, "-c", _BOOT, os.pathsep.join(sys.path), *arguments]
    return Helper(argv, environ=environ)


def _answer(
    helper: Helper, decode: Callable[[bytes], _Answer], deadline_s: float
) -> _Answer | Ended:
    line = helper.line(deadline_s)
    if isinstance(line, Ended):
        return line
    try:
        return decode(line)
    except msgspec.MsgspecError:
        helper.close()
        return Ended("crashed", "gave an answer that cannot be read")


def nvml_reason_of(ended: Ended) -> Reason:
    """Why the process that asks NVML gave no answer."""
    return _reason("NVML", ended)


def _reason(api: str, ended: Ended) -> Reason:
    code = f"{api.lower()}_{_ENDINGS[ended.kind]}"
    return Reason(code, f"the process that asks {api} {ended.message}", _LOST_GPU)


class NvmlProbe:
    """One pass over NVML: begun at once, collected later."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._helper = start_probe("nvml", environ=environ)

    def collect(self, deadline_s: float = DEADLINE_S) -> tuple[Nvml, list[Gpu]]:
        """Waits at most `deadline_s` for each answer; a crash costs one GPU's row only."""
        try:
            return self._collect(deadline_s)
        finally:
            self._helper.close()

    def _collect(self, deadline_s: float) -> tuple[Nvml, list[Gpu]]:
        header = _answer(self._helper, _decode_header, deadline_s)
        if isinstance(header, Ended):
            return Nvml(available=False, reason=nvml_reason_of(header)), []
        rows: list[Gpu] = []
        while len(rows) < header.count:
            row = _answer(self._helper, _decode_gpu, deadline_s)
            if isinstance(row, Gpu):
                rows.append(row)
                continue
            rows.append(_unread(len(rows), f"{nvml_reason_of(row).message} on this GPU"))
            if row.kind == "silent" or not self._restart(len(rows), deadline_s):
                text = "not read: NVML failed on an earlier GPU"
                rows += [_unread(index, text) for index in range(len(rows), header.count)]
        return header.nvml, rows

    def _restart(self, first: int, deadline_s: float) -> bool:
        """Go on with GPU number `first` in a fresh process."""
        self._helper = start_probe("nvml", str(first), environ=self._environ)
        header = _answer(self._helper, _decode_header, deadline_s)
        return not isinstance(header, Ended) and header.nvml.available


def _unread(index: int, reason: str) -> Gpu:
    return with_reasons(Gpu(index, None, None, None, None), reason)


def gpu_links(environ: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> Links:
    """How the GPUs reach one another, asked in a process of its own."""
    helper = start_probe("links", environ=environ)
    answer = _answer(helper, _decode_links, deadline_s)
    helper.close()
    return Links([], nvml_reason_of(answer)) if isinstance(answer, Ended) else answer


class CudaProbe:
    """One question to libcuda: begun at once, collected later."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._helper = start_probe("cuda", environ=environ)

    def collect(self, deadline_s: float = DEADLINE_S) -> CudaAnswer:
        answer = _answer(self._helper, _decode_cuda, deadline_s)
        self._helper.close()
        if isinstance(answer, Ended):
            return no_cuda(_reason("CUDA", answer))
        return answer


def no_cuda(reason: Reason) -> CudaAnswer:
    return CudaAnswer(CudaDriver(available=False, device_count=0, reason=reason), [])


class GpuProbes:
    """NVML and CUDA side by side; a library that is not there starts no process."""

    def __init__(self, *, in_container: bool) -> None:
        self._nvml = missing(NVML_LIBRARY, in_container=in_container) or NvmlProbe()
        self._cuda = missing(CUDA_LIBRARY, in_container=in_container) or CudaProbe()

    def collect(self, deadline_s: float = DEADLINE_S) -> tuple[Nvml, list[Gpu], CudaAnswer]:
        if isinstance(self._nvml, Reason):
            nvml, rows = Nvml(available=False, reason=self._nvml), list[Gpu]()
        else:
            nvml, rows = self._nvml.collect(deadline_s)
        if isinstance(self._cuda, Reason):
            return nvml, rows, no_cuda(self._cuda)
        return nvml, rows, self._cuda.collect(deadline_s)
