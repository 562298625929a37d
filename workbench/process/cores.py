"""The cores this process may run on.  Standard library only: workers ask too."""

from __future__ import annotations

import os

HAS_AFFINITY = hasattr(os, "sched_getaffinity")  # not on macOS and Windows


def allowed_cores() -> list[int]:
    """The numbers of the logical cores in this process's affinity mask; all without a mask."""
    if HAS_AFFINITY:
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
