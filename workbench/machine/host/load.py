"""How much of the processor other programs take while we measure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

WORTH_TELLING = 0.25  # cores; less is the noise of any living system
SHORTEST_S = 0.2  # the kernel counts in ticks of 10 ms on every core: less time tells nothing


class LoadMeter:
    """Cores in use by others between `start` and `foreign_cores`, from the kernel's counters.

    Only the cores this process may run on are looked at.
    """

    def __init__(self) -> None:
        self._began = self._busy = self._own = 0.0

    def start(self, own: Iterable[int]) -> None:
        """Begin an interval; `own` are the ids of the processes that are part of the run."""
        self._own = _cpu_s(own)
        self._busy = _busy_s()
        self._began = time.monotonic()

    def foreign_cores(self, own: Iterable[int]) -> float:
        """Mean number of cores others used since `start`, from 0 to all; 0 as well where too little
        time has passed, or the accounts do not add up."""
        elapsed, most = time.monotonic() - self._began, len(allowed_cores())
        if elapsed < SHORTEST_S:
            return 0.0
        own_s = _cpu_s(own) - self._own
        found = (_busy_s() - self._busy - own_s) / elapsed
        if own_s < 0 or found > most + WORTH_TELLING:
            return 0.0
        return min(max(0.0, found), most)


def disturbs(foreign_cores: float, effective_cores: int) -> bool:
    """Whether others leave fewer cores free than our candidates use."""
    free = len(allowed_cores()) - foreign_cores
    return foreign_cores >= WORTH_TELLING and free < effective_cores


def allowed_cores() -> list[int]:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(psutil.cpu_count() or 1))


def _busy_s() -> float:
    per_core = psutil.cpu_times(percpu=True)
    total = 0.0
    for core in allowed_cores():
        if core < len(per_core):
            times = per_core[core]
            # guest time is already part of user time
            total += times.user + times.system + getattr(times, "nice", 0.0)
            total += sum(getattr(times, name, 0.0) for name in ("irq", "softirq"))
    return total


def _cpu_s(pids: Iterable[int]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
