"""Reads the kernel's small text files; a missing one is not an error."""

from pathlib import Path

NOT_LINUX = "read from /proc and /sys, which only Linux has"
_LARGEST = 1 << 64  # the kernel's counters are 64 bits wide


def read_text(path: Path) -> str:
    """The file's text; "" if it is missing or not readable."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a NUL in a path that came from another file
        return ""


def read_int(path: Path) -> int | None:
    """The one integer in the file, or None."""
    return parse_int(read_text(path))


def parse_int(text: str) -> int | None:
    """A decimal integer of at most 64 bits, or None for anything else such as "max"."""
    try:
        value = int(text.strip())
    except ValueError:
        return None
    return value if abs(value) < _LARGEST else None
