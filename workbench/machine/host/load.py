"""Seconds for which cores were busy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from .topology import online_cpus

_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time is part of user time
_IDLE = ("idle", "iowait", "steal")


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
