"""Keeps a process that allocates or prints without end from taking the machine along (Linux)."""

import sys
from contextlib import suppress
from pathlib import Path


def limit(pid: int, **bounds: int | None) -> None:
    """Bound process `pid`, where `DATA=1` is one byte of RLIMIT_DATA and None sets no bound.

    Beyond a bound an allocation or a write fails, which is an error with a reason, not a death.
    """
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # the kernel's first choice (proc(5))
    for name, most in bounds.items():
        with suppress(OSError, ValueError):  # a lower one is set already
            if most is not None:
                resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (most, most))
