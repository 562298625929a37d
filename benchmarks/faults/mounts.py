"""File systems of a case's own: full ones and read-only ones, seen by no other process."""

import ctypes
import subprocess
from pathlib import Path

CLONE_NEWNS = 0x00020000  # unshare(2)


def private() -> bool:
    """Give this process and its children mounts of their own; False without the right to."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        return False
    return _mount("--make-rprivate", "/")


def small_disk(folder: Path, kib: int) -> bool:
    """Make `folder` an empty file system of `kib` KiB."""
    return private() and _mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))


def read_only(folder: Path) -> bool:
    """Make `folder` read-only, for root too."""
    words = ("-o", "remount,bind,ro", str(folder))
    return private() and _mount("--bind", str(folder), str(folder)) and _mount(*words)


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True).returncode == 0
