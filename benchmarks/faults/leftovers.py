"""What a case left behind: processes, files, shared memory."""

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 4.0  # for a guardian to do its work after its engine died


def adopt_orphans() -> None:
    """Become the parent of every orphan among our descendants, so that none gets out of sight."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> None:
    """Bury orphans that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def processes(grace_s: float = GRACE_S) -> list[str]:
    """End the descendants of this process; says which were still there after `grace_s`."""
    until = time.monotonic() + grace_s
    while time.monotonic() < until:
        reap()
        if not psutil.Process().children():
            return []
        time.sleep(0.05)
    words = []
    while found := psutil.Process().children(recursive=True):
        for process in found:
            with suppress(psutil.Error):
                words.append(f"{process.status()}: {' '.join(process.cmdline())[:160]}")
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)
        reap()
    return sorted(set(words))


def files(root: Path) -> dict[str, tuple[int, int]]:
    """Every entry below `root`, by its path relative to it: inode and kind."""
    found = {}
    for folder, names, leaves in os.walk(root):
        for name in [*names, *leaves]:
            path = Path(folder, name)
            with suppress(OSError):
                status = path.lstat()
                found[str(path.relative_to(root))] = (status.st_ino, status.st_mode)
    return found


def shared_memory() -> set[str]:
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def unused(names: set[str]) -> Iterator[str]:
    """Those of `names` in shared memory that no process holds: the others may be a neighbour's."""
    held = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            held |= {Path(line).name for line in maps.read_text().split() if "/dev/shm/" in line}
    for name in names - held:
        if (SHARED_MEMORY / name).exists():
            yield name
