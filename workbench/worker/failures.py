"""The exceptions of backends in words: one line, and whether memory ran out.

Standard library only, since workers may run under a foreign interpreter.
"""

from __future__ import annotations

from ..text.sanitize import shown

LONGEST = 600  # characters of a message

MEMORY_MARKS = (
    "bad_alloc",
    "Failed to allocate memory",
    "can't allocate",
    "Unable to allocate",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
# The process cannot use its GPU any more.
FATAL_MARKS = ("CUDA error", "device-side assert", "illegal memory access")
MEMORY_HINT = "choose a smaller batch or size, or free memory"


def first_line(error: BaseException) -> str:
    """`ValueError: no such axis`: the type and the first line of its message."""
    line = (str(error).strip().splitlines() or [""])[0]
    return shown(f"{type(error).__name__}: {line}" if line else type(error).__name__, LONGEST)


def is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, MemoryError)
        or "OutOfMemory" in type(error).__name__
        or any(mark in str(error) for mark in MEMORY_MARKS)
    )


def is_fatal(error: BaseException) -> bool:
    return any(mark in str(error) for mark in FATAL_MARKS)
