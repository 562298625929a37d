"""What else happened on the machine while something was measured: other programs, a hypervisor,
a quota, swapping, heat.

Every figure is a difference of two readings of the kernel's counters, so nothing runs meanwhile.
Sources: proc(5) for /proc/stat and /proc/vmstat; kernel docs admin-guide/cgroup-v2.rst (cpu.stat)
and scheduler/sched-bwc.rst (its v1 form); Intel SDM 3B, Thermal Monitoring and
Protection, for the thermal events that the kernel counts under thermal_throttle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from ...records.reason import Warning
from .cgroup import groups, stat_value
from .load import LoadMeter, allowed_cores, disturbs
from .proc_stat import Ticks, parse_ticks
from .sysfs import parse_int, read_int, read_text

GOOD_PART = 0.25  # of what others used: a program that took less is not worth naming
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


class DisturbanceMonitor:
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
        self._programs: dict[int, tuple[str, int]] = {}

    def start(self, own: Iterable[int]) -> None:
        """Begin an interval; `own` are the ids of the processes that are part of the run."""
        self._programs = _programs(self._root)
        self._load.start(own)
        self._before = self._read()

    def warnings(self, own: Iterable[int], subject: str) -> list[Warning]:
        """What was wrong since `start`, about `subject`, each with its remedy."""
        foreign = self._load.foreign_cores(own)
        before, now = self._before, self._read()
        found = [
            *self._busy(foreign, set(own), now),
            *_stolen(before, now),
            *_over_quota(before, now),
            *_swapped(before, now),
            *_hot(before, now),
        ]
        return [Warning(code, message, remedy, subject) for code, message, remedy in found]

    def _busy(
        self, foreign_cores: float, own: Set[int], now: _Counters
    ) -> Iterator[tuple[str, str, str]]:
        if disturbs(foreign_cores, self._cores):
            message = (
                f"other programs used {foreign_cores:.1f} of {len(self._allowed)} cores "
                "while this was measured"
            )
            busiest = " and ".join(self._busiest(foreign_cores, own, now))
            which = f" (most of all {busiest})" if busiest else ""
            yield "busy_machine", message, f"stop them{which} and run it again"

    def _busiest(self, foreign_cores: float, own: Set[int], now: _Counters) -> list[str]:
        """Names of programs, two at most, that took a good part of it and can be seen from here."""
        used: dict[str, int] = {}
        for pid, (name, ticks) in _programs(self._root).items():
            _, before = self._programs.get(pid, (name, 0))
            if pid not in own and ticks > before:
                used[name] = used.get(name, 0) + ticks - before
        was = self._before.ticks
        passed = max((t.total - was.get(cpu, t).total for cpu, t in now.ticks.items()), default=0)
        least = GOOD_PART * foreign_cores * passed
        ranked = sorted(used, key=used.__getitem__, reverse=True)
        return [name for name in ranked if used[name] >= least][:2]

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


def _programs(root: Path) -> dict[int, tuple[str, int]]:
    """By process: the name that the kernel keeps for it, without arguments, and its ticks."""
    found = {}
    for file in root.glob("proc/[0-9]*/stat"):
        if (known := parse_program(read_text(file))) is not None:
            found[int(file.parent.name)] = known
    return found


def parse_program(text: str | None) -> tuple[str, int] | None:
    """Name and ticks, user and system, of /proc/PID/stat; None for anything else."""
    head, _, rest = (text or "").rpartition(")")  # a name may hold brackets itself
    fields = rest.split()
    ticks = [parse_int(field) for field in fields[11:13]]
    name = "".join(filter(str.isprintable, head.partition("(")[2]))
    if len(ticks) < 2 or ticks[0] is None or ticks[1] is None or not name:
        return None
    return name, ticks[0] + ticks[1]


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
