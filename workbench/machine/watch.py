"""What else happened on the machine while something was measured: other programs, a hypervisor,
a quota, swapping, heat.

Every figure is a difference of two readings of the kernel's counters, so nothing runs meanwhile.
Sources: proc(5) for /proc/stat and /proc/vmstat; kernel docs admin-guide/cgroup-v2.rst (cpu.stat)
and scheduler/sched-bwc.rst (its v1 form); Intel SDM 3B, Thermal Monitoring and
Protection, for the thermal events that the kernel counts under thermal_throttle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..document import Warning
from .cgroup import groups, stat_value
from .files import read_int, read_text
from .load import LoadMeter, allowed_cores, disturbs
from .procstat import Ticks, parse_ticks

STOLEN = 0.02  # of the time of our cores
THROTTLED_PERIODS = 0.02  # of the quota's periods
SWAPPED_PAGES = 256  # 1 MiB of 4 KiB pages; a page or two are moved at any time


@dataclass(frozen=True)
class _Counters:
    """The kernel's counts since boot; one that is missing here counts nothing."""

    ticks: dict[str, Ticks]  # by cpu
    quota: dict[str, tuple[int, int]]  # by control group: periods throttled, periods
    swapped_pages: int
    thermal_events: int


class SystemWatch:
    """What disturbed the machine between `start` and `warnings`."""

    def __init__(
        self, effective_cores: int, *, root: Path = Path("/"), allowed: Iterable[int] | None = None
    ) -> None:
        """`allowed` are the cores that count, those this process may run on unless given."""
        self._cores = effective_cores
        self._root = root
        self._allowed = {f"cpu{n}" for n in (allowed_cores() if allowed is None else allowed)}
        self._load = LoadMeter()
        self._before = self._read()

    def start(self, own: Iterable[int]) -> None:
        """Begin an interval; `own` are the ids of the processes that are part of the run."""
        self._load.start(own)
        self._before = self._read()

    def warnings(self, own: Iterable[int], subject: str) -> list[Warning]:
        """What was wrong since `start`, about `subject`, each with its remedy."""
        foreign = self._load.foreign_cores(own)
        before, now = self._before, self._read()
        found = [
            *self._busy(foreign),
            *_stolen(before, now),
            *_over_quota(before, now),
            *_swapped(before, now),
            *_hot(before, now),
        ]
        return [Warning(code, message, remedy, subject) for code, message, remedy in found]

    def _busy(self, foreign_cores: float) -> Iterator[tuple[str, str, str]]:
        if disturbs(foreign_cores, self._cores):
            message = (
                f"other programs used {foreign_cores:.1f} of {self._cores} cores "
                "while this was measured"
            )
            yield "busy_machine", message, "stop them and run it again"

    def _read(self) -> _Counters:
        ticks = parse_ticks(read_text(self._root / "proc/stat"))
        return _Counters(
            ticks={cpu: counts for cpu, counts in ticks.items() if cpu in self._allowed},
            quota=self._quota(),
            swapped_pages=parse_swapped(read_text(self._root / "proc/vmstat")),
            thermal_events=self._thermal_events(),
        )

    def _quota(self) -> dict[str, tuple[int, int]]:
        found = {}
        for group in groups(self._root, "cpu"):
            text = read_text(group.folder / "cpu.stat")
            throttled = stat_value(text, "nr_throttled")
            found[str(group.folder)] = (throttled, stat_value(text, "nr_periods"))
        return found

    def _thermal_events(self) -> int:
        cpus = self._root / "sys/devices/system/cpu"
        counts = cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
        return sum(read_int(count) or 0 for count in counts)


def parse_swapped(text: str | None) -> int:
    """Pages moved to or from swap, of /proc/vmstat."""
    return stat_value(text, "pswpin") + stat_value(text, "pswpout")


def _stolen(before: _Counters, now: _Counters) -> Iterator[tuple[str, str, str]]:
    stolen = total = 0
    for cpu, was in before.ticks.items():
        ticks = now.ticks.get(cpu, was)
        stolen += max(0, ticks.steal - was.steal)
        total += max(0, ticks.total - was.total)
    if total and stolen / total >= STOLEN:
        message = f"the hypervisor gave {stolen / total:.0%} of the cores' time to other machines"
        yield "stolen_time", message, "measure at a quieter hour, or on a host of your own"


def _over_quota(before: _Counters, now: _Counters) -> Iterator[tuple[str, str, str]]:
    shares = []
    for group, (throttled, periods) in now.quota.items():
        was_throttled, was_periods = before.quota.get(group, (throttled, periods))
        if periods > was_periods:
            shares.append((throttled - was_throttled) / (periods - was_periods))
    if shares and max(shares) >= THROTTLED_PERIODS:
        message = f"the CPU quota of the container stopped the work in {max(shares):.0%} of periods"
        remedy = "give the container whole cores (a cpuset), a larger quota, or fewer --threads"
        yield "cgroup_throttled", message, remedy


def _swapped(before: _Counters, now: _Counters) -> Iterator[tuple[str, str, str]]:
    pages = now.swapped_pages - before.swapped_pages
    if pages >= SWAPPED_PAGES:
        message = f"the machine swapped {pages} pages while this was measured"
        yield "swapping", message, "free memory, or measure smaller sizes"


def _hot(before: _Counters, now: _Counters) -> Iterator[tuple[str, str, str]]:
    events = now.thermal_events - before.thermal_events
    if events > 0:
        message = f"the processor slowed down {events} times to stay cool"
        yield "cpu_throttled", message, "cool it better, or let it rest and run it again"
