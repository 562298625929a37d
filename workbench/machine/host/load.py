"""How long cores and processes were busy, and whether others leave us the cores we use."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ...process.cores import allowed_cores
from .topology import online_cpus

NOTICEABLE = 0.25  # cores; any living system uses less than this in the background

_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time is part of user time
_IDLE = ("idle", "iowait", "steal")


def disturbs(foreign_cores: float, effective_cores: int) -> bool:
    """Whether others leave fewer cores free than our candidates use."""
    free = len(allowed_cores()) - foreign_cores
    return foreign_cores >= NOTICEABLE and free < effective_cores


def core_times(cores: Iterable[int]) -> dict[int, Any]:
    """psutil's times of these cores since boot, in seconds by kind; {} where it cannot read any."""
    try:
        times = psutil.cpu_times(percpu=True)
    except OSError:
        return {}
    numbers = sorted(online_cpus(Path("/")) or ())  # psutil leaves them out
    if len(numbers) != len(times):  # in some containers psutil sees fewer cores than sysfs shows
        numbers = list(range(len(times)))
    numbered = dict(zip(numbers, times, strict=True))
    return {core: numbered[core] for core in cores if core in numbered}


def busy_s(times: Any) -> float:
    """Seconds used by programs and the kernel; time stolen by a hypervisor is not among them."""
    return sum(getattr(times, kind, 0.0) for kind in _BUSY)


def total_s(times: Any) -> float:
    return busy_s(times) + sum(getattr(times, kind, 0.0) for kind in _IDLE)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU seconds of these processes and of their children that have ended."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
