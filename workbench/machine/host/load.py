"""Measures how many cores other processes use while something is measured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ...process.cores import allowed_cores
from .topology import online_cpus

NOTICEABLE = 0.25  # cores; any living system uses less than this in the background
SHORTEST_S = 0.2  # the kernel counts in ticks of 10 ms per core: a shorter time says nothing

_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time is part of user time
_IDLE = ("idle", "iowait", "steal")


class LoadMeter:
    """Cores in use by others between `start` and `foreign_cores`, from the kernel's counters.

    Only the cores this process may run on count.
    """

    def __init__(self) -> None:
        self._began = self._busy = self._own = 0.0

    def start(self, own: Iterable[int]) -> None:
        """Begin an interval; `own` are the ids of the processes that are part of the run."""
        self._own = _cpu_s(own)
        self._busy = _busy_s()
        self._began = time.monotonic()

    def foreign_cores(self, own: Iterable[int]) -> float:
        """Mean number of cores that others used since `start`, from 0 to all.

        0 also where too little time has passed, or where the counters contradict each other.
        """
        elapsed, most = time.monotonic() - self._began, len(allowed_cores())
        if elapsed < SHORTEST_S:
            return 0.0
        own_s = _cpu_s(own) - self._own
        cores = (_busy_s() - self._busy - own_s) / elapsed
        if own_s < 0 or cores > most + NOTICEABLE:
            return 0.0
        return min(max(0.0, cores), most)


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


def _busy_s() -> float:
    return sum(map(busy_s, core_times(allowed_cores()).values()))


def _cpu_s(pids: Iterable[int]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
