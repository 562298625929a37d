"""Keeps a process that allocates or prints endlessly from bringing the machine down (Linux)."""

import sys
from contextlib import suppress
from pathlib import Path


def limit(pid: int, **bounds: int | None) -> None:
    """Set limits of process `pid`: `DATA=1` is one byte of RLIMIT_DATA, None sets no limit.

    Beyond one an allocation or a write fails, which gives an error with a reason.
    """
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # first to be killed (proc(5))
    for name, most in bounds.items():
        with suppress(OSError, ValueError):  # a lower limit is already set
            if most is not None:
                resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (most, most))
