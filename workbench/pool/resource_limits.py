"""Keeps a worker that allocates without end from taking the machine along (Linux)."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "linux":
    import resource

FIRST_KILLED = "1000"  # the highest oom_score_adj: the kernel's first choice (proc(5))


def limit_resources(pid: int, memory_bytes: int | None) -> None:
    """Bound the private memory of process `pid`.

    Beyond the bound an allocation fails, which is an error with a reason instead of a death.
    None sets no bound: CUDA reserves far more address space than it uses.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(FIRST_KILLED)
    if memory_bytes is not None:
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
