"""Name and user of a process on a GPU, as far as this system shows them."""

from __future__ import annotations

import pwd
from pathlib import Path

from ...records.machine import GpuProcess
from ...text.sanitize import shown
from ..host.sysfs import read_text


def gpu_process(pid: int, used_memory_bytes: int | None, root: Path = Path("/")) -> GpuProcess:
    """The process with its name and user; without them if `pid` is of another pid namespace."""
    folder = root / "proc" / str(pid)
    # A program chooses its name freely, and it is shown on a terminal.
    name = shown((read_text(folder / "comm") or "").strip()) or None
    return GpuProcess(pid, used_memory_bytes, name, _user(folder) if name else None)


def _user(folder: Path) -> str | None:
    try:
        return pwd.getpwuid(folder.stat().st_uid).pw_name
    except (KeyError, OSError):  # KeyError: a number without a name
        return None
