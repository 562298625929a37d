"""The cores this process may run on.  Standard library only: workers ask too."""

from __future__ import annotations

import os


def affinity_mask() -> set[int] | None:
    """The logical cores in this process's affinity mask; None where there is none to read."""
    if not hasattr(os, "sched_getaffinity"):
        return None  # macOS
    try:
        return os.sched_getaffinity(0)
    except OSError:
        return None


def allowed_cores() -> list[int]:
    """The numbers of the logical cores this process may run on."""
    return sorted(affinity_mask() or range(os.cpu_count() or 1))
