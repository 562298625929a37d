"""Reads the kernel's small text files; a missing one is an answer, not an error."""

import re
from pathlib import Path

NOT_LINUX = "read from /proc and /sys, which only Linux has"
# Far above the kernel's NR_CPUS (8,192 on x86-64): a longer list is garbage, not a machine.
_MOST_CPUS = 1 << 16
_LARGEST = 1 << 64  # the kernel's counters are 64 bits wide
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def read_text(path: Path) -> str | None:
    """The file's text, or None where it is missing or not ours to read."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a NUL in a path that came from another file
        return None


def read_int(path: Path) -> int | None:
    """The one integer in the file, or None."""
    return parse_int(read_text(path))


def parse_int(text: str | None) -> int | None:
    """A decimal integer of at most 64 bits, or None for anything else ("max", "", garbage)."""
    try:
        value = int((text or "").strip())
    except ValueError:
        return None
    return value if abs(value) < _LARGEST else None


def parse_cpulist(text: str | None) -> set[int] | None:
    """The CPUs of a list such as `0-3,8` (kernel docs, cputopology.rst); None for garbage."""
    cpus: set[int] = set()
    for part in (text or "").strip().split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first = parse_int(match[1])
        last = parse_int(match[2] or match[1])
        if first is None or last is None or not first <= last < _MOST_CPUS:
            return None
        cpus.update(range(first, last + 1))
    return cpus
