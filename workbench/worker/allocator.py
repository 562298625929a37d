"""Whether glibc keeps freed memory, or returns it, so that the next step has to fault it in again.

It keeps up to twice the largest chunk of at most 32 MiB that the process has freed so far
(mallopt(3), M_MMAP_THRESHOLD).  So a candidate could take twice as long as another because of what
its process did before.
"""

import ctypes
import mmap
import resource
import time
from functools import cache

from ..contract import FAULTING_FRACTION, WorkloadError

LARGEST_CHUNK = 2**25 - 2**13  # bytes, without room for the chunk's header and whole pages
SETTLE = f"bytes({LARGEST_CHUNK})  # from here on glibc keeps up to 64 MiB that calls free"
# M_MMAP_MAX and M_TRIM_THRESHOLD, and the values with which glibc returns nothing (mallopt(3)).
OPTIONS = ((-4, 0), (-1, -1))
KEEP = [
    f"for option, value in {OPTIONS}:  # M_MMAP_MAX, M_TRIM_THRESHOLD",
    "    ctypes.CDLL(None).mallopt(option, value)  # glibc keeps all memory that calls free",
]
PROBED = 2**22  # bytes; faulting them in takes about a millisecond


def settle() -> None:
    """Have glibc keep as much as in a process that has run for long; other allocators ignore it."""
    bytes(LARGEST_CHUNK)


def keep() -> None:
    """Have glibc keep all freed memory until this process ends; WorkloadError elsewhere."""
    try:
        for option, value in OPTIONS:
            ctypes.CDLL(None).mallopt(option, value)
    except AttributeError:
        raise WorkloadError("this C library has no mallopt", code="unsupported") from None


class Faulting:
    """The page faults of this process from now on."""

    def __init__(self) -> None:
        self._before, self._began = _faults(), time.perf_counter()

    def metrics(self) -> dict[str, float]:
        """The share of the time that they took, or more if several threads faulted at once."""
        spent_s = time.perf_counter() - self._began
        share = min(1.0, (_faults() - self._before) * _fault_s() / spent_s)
        return {FAULTING_FRACTION: round(share, 3)}


def _faults() -> int:
    """Pages that this process has faulted in so far without reading a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@cache
def _fault_s() -> float:
    """Seconds to fault in a page, small or huge as the kernel chooses."""
    pages = PROBED // mmap.PAGESIZE
    with mmap.mmap(-1, PROBED, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        before, began = _faults(), time.perf_counter()
        memory[:: mmap.PAGESIZE] = b"1" * pages
        spent_s = time.perf_counter() - began
        return spent_s / max(1, _faults() - before)
