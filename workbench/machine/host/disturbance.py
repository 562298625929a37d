"""Detects what disturbs a measurement: other processes, a hypervisor, a quota, swapping, heat.

It compares two readings of the kernel's counters, so nothing of ours runs in between.  Sources:
proc(5) for /proc/vmstat; kernel docs admin-guide/cgroup-v2.rst (cpu.stat) and
scheduler/sched-bwc.rst (its v1 form); Intel SDM 3B, Thermal Monitoring and Protection, for the
thermal events that the kernel counts under thermal_throttle.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ...process.cores import allowed_cores
from ...records.reason import OVERLOADED_MACHINE, Warning
from ...text.sanitize import shown
from ...text.units import counted
from .cgroup import groups, stat_value
from .readings import busy_s, core_times, total_s
from .sysfs import read_int, read_text

NOTICEABLE = 0.25  # cores; an ordinary system uses less in the background
OVERLOADED = 0.75  # share of the cores that others used
NAMED_SHARE = 0.25  # share of others' use above which a program is named
SHORTEST_S = 0.2  # shorter times are too few of the kernel's ticks, 10 ms per core
STOLEN = 0.02  # share of our cores' time
THROTTLED_PERIODS = 0.02  # share of the quota's periods
SWAPPED_PAGES = 256  # 1 MiB in pages of 4 KiB; a page or two move at any time

_Disturbance = tuple[str, str, str]  # code, message, remedy


@dataclass(frozen=True)
class _Counters:
    """The kernel's counts since boot; missing ones do not count."""

    at_s: float
    own_s: float  # CPU seconds of the run's own processes
    core_times: dict[int, Any]  # core -> psutil's times, in seconds
    quota: dict[str, tuple[int, int]]  # control group -> periods throttled, periods
    swapped_pages: int
    thermal_events: int


class DisturbanceMonitor:
    """Compares the kernel's counters at the beginning with those at `warnings`."""

    def __init__(
        self, effective_cores: int, own: Callable[[], Iterable[int]], *, root: Path = Path("/")
    ) -> None:
        """`own` returns the ids of the processes of the run."""
        self._cores, self._own, self._root = effective_cores, own, root
        self._allowed = allowed_cores()
        self._found: dict[str, _Disturbance] = {}  # by code, up to the last pause
        self._begin()

    def _begin(self) -> None:
        self._programs, self._before = _programs(), self._read()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore disturbances during the block."""
        self._look()
        yield
        self._begin()

    def warnings(self, subject: str) -> list[Warning]:
        """Warnings about `subject` for all disturbances outside of pauses."""
        self._look()
        return [Warning(*found, subject) for found in self._found.values()]

    def _look(self) -> None:
        now = self._read()
        found = (*self._busy(now), *_disturbances(self._before, now))
        self._found |= {each[0]: each for each in found}

    def _foreign_cores(self, now: _Counters) -> float:
        """Mean number of cores that others used meanwhile; 0 if too little time has passed or the
        counters contradict each other."""
        before, most = self._before, len(self._allowed)
        elapsed_s, own_s = now.at_s - before.at_s, now.own_s - before.own_s
        if elapsed_s < SHORTEST_S:
            return 0.0
        total, was = (sum(map(busy_s, each.core_times.values())) for each in (now, before))
        cores = (total - was - own_s) / elapsed_s
        return 0.0 if own_s < 0 or cores > most + NOTICEABLE else min(max(0.0, cores), most)

    def _busy(self, now: _Counters) -> Iterator[_Disturbance]:
        foreign_cores = self._foreign_cores(now)
        free = len(self._allowed) - foreign_cores
        if foreign_cores >= NOTICEABLE and free < self._cores:  # too few left for our candidates
            busiest = " and ".join(self._busiest(foreign_cores, now))
            which = f" (mostly {busiest})" if busiest else ""
            allowed = counted(len(self._allowed), "core")
            used = f"other processes used {foreign_cores:.1f} of {allowed}"
            is_overloaded = foreign_cores > OVERLOADED * len(self._allowed)
            code = OVERLOADED_MACHINE if is_overloaded else "busy_machine"
            yield code, used + which, "stop them and rerun"

    def _busiest(self, foreign_cores: float, now: _Counters) -> list[str]:
        """Names of at most two visible programs that used a good part of it."""
        used_s, own = dict[str, float](), set(self._own())
        for pid, (name, cpu_s) in _programs().items():
            _, before_s = self._programs.get(pid, (name, 0.0))
            if pid not in own and cpu_s > before_s:
                used_s[name] = used_s.get(name, 0.0) + cpu_s - before_s
        elapsed_s = max((passed for _, passed in _passed(self._before, now)), default=0.0)
        least_s = NAMED_SHARE * foreign_cores * elapsed_s
        busiest = heapq.nlargest(2, used_s, key=used_s.__getitem__)
        return [name for name in busiest if used_s[name] >= least_s]

    def _read(self) -> _Counters:
        vmstat = read_text(self._root / "proc/vmstat")  # psutil prints a warning if it is missing
        return _Counters(
            at_s=time.monotonic(),
            own_s=_cpu_seconds(self._own()),
            core_times=core_times(self._allowed),
            quota=self._quota(),
            swapped_pages=stat_value(vmstat, "pswpin") + stat_value(vmstat, "pswpout"),
            thermal_events=self._thermal_events(),
        )

    def _quota(self) -> dict[str, tuple[int, int]]:
        counts = {}
        for _, folder in groups(self._root, "cpu"):
            text = read_text(folder / "cpu.stat")
            throttled = stat_value(text, "nr_throttled")
            counts[str(folder)] = (throttled, stat_value(text, "nr_periods"))
        return counts

    def _thermal_events(self) -> int:
        cpus = self._root / "sys/devices/system/cpu"
        counts = cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
        return sum(read_int(count) or 0 for count in counts)


def _cpu_seconds(pids: Iterable[int]) -> float:
    """CPU seconds of these processes and of their children that have ended."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            # User and system time, its own and on Linux that of its children.
            total += sum(psutil.Process(pid).cpu_times()[:4])
    return total


def _programs() -> dict[int, tuple[str, float]]:
    """Process id -> name without arguments, and CPU seconds."""
    programs = {}
    with suppress(IndexError):  # psutil's, where /proc is empty
        for process in psutil.process_iter(["name", "cpu_times"]):
            times = process.info["cpu_times"]
            # A program chooses its name freely, and the name is shown on a terminal.
            name = shown(process.info["name"] or "")
            if name and times is not None:
                programs[process.pid] = (name, times.user + times.system)
    return programs


def _passed(before: _Counters, now: _Counters) -> Iterator[tuple[float, float]]:
    """Seconds stolen and seconds passed, for each core."""
    for core, was in before.core_times.items():
        times = now.core_times.get(core, was)
        stolen = getattr(times, "steal", 0.0) - getattr(was, "steal", 0.0)
        yield max(0.0, stolen), max(0.0, total_s(times) - total_s(was))


def _disturbances(before: _Counters, now: _Counters) -> Iterator[_Disturbance]:
    passed = list(_passed(before, now))
    stolen, total = sum(steal for steal, _ in passed), sum(seconds for _, seconds in passed)
    if total and stolen / total >= STOLEN:
        message = f"{stolen / total:.0%} CPU steal: the hypervisor gave this time to other machines"
        yield "stolen_time", message, "rerun later or use a dedicated host"
    shares = []
    for group, (throttled, periods) in now.quota.items():
        was_throttled, was_periods = before.quota.get(group, (throttled, periods))
        if periods > was_periods:
            shares.append((throttled - was_throttled) / (periods - was_periods))
    if shares and max(shares) >= THROTTLED_PERIODS:
        message = f"the container's CPU quota paused the work in {max(shares):.0%} of its periods"
        remedy = "give the container whole cores (a cpuset) or a larger quota, or lower --threads"
        yield "cgroup_throttled", message, remedy
    pages = now.swapped_pages - before.swapped_pages
    if pages >= SWAPPED_PAGES:
        message = f"the machine swapped {pages} pages during the measurement"
        yield "swapping", message, "free memory or measure smaller sizes"
    if now.thermal_events > before.thermal_events:
        message = "the CPU slowed down to stay cool during the measurement"
        yield "cpu_throttled", message, "improve the CPU's cooling or let it cool down, then rerun"
