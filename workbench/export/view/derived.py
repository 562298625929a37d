"""Values that front ends derive from a report, cached until they change."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ...advisor.comparison import worse
from ...advisor.ranking import is_vague
from ...contract import Case, ParameterValue
from ...records.document import LargestBatch, Measurement, Sweep
from ...report import sweeps
from ...report.candidate import Candidate, Row, ranked
from ...report.names import machine_name, value_text
from ...report.report import Report
from ...stats import ratios
from ...stats.paired import Ratio
from ...text import units
from ...worker.code import OWN

T = TypeVar("T")


class Lead(NamedTuple):
    """The best of a row, the runner-up, and their ratio after each round."""

    best: Candidate
    other: Candidate
    course: list[tuple[int, Ratio]]


class RunView:
    """A run as text and screens read it.  Numbers are cached until there is a new block or state,
    since sorting all samples at each repaint would cost more than drawing."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._kept: dict[tuple[str, ...], tuple[object, Any]] = {}

    @property
    def going(self) -> bool:
        """Whether more events will come."""
        return False

    @property
    def elapsed_s(self) -> float:
        """Seconds on the run's clock."""
        return self.report.last_at_s

    def _once(self, key: tuple[str, ...], stamp: object, make: Callable[[], T]) -> T:
        """The cached value of `key`, made again when the stamp changes."""
        if key not in self._kept or self._kept[key][0] != stamp:
            self._kept[key] = stamp, make()
        value: T = self._kept[key][1]
        return value

    def measured(self, candidate: Candidate) -> Measurement:
        known = len(self.report.warnings), self.report.ceilings
        stamp = (len(candidate.blocks), candidate.state, *known)
        key = "measured", candidate.scenario, candidate.case.id
        return self._once(key, stamp, lambda: self.report.statistics(candidate))

    def best(self, row: Row) -> Candidate | None:
        """The pick, or else the first by the ranking of the race."""
        return self._once(("best", row.plan.scenario), _progress(row), lambda: self._best(row))

    def _best(self, row: Row) -> Candidate | None:
        group = [c for c in row.candidates if not row.is_reference_only(c) and c.state != "failed"]
        group.sort(key=lambda candidate: candidate.case.id)
        able = ranked(c for c in group if not row.is_barred(c))
        return row.picked or next(iter(able or ranked(group)), None)

    def behind(self, row: Row) -> dict[str, Ratio]:
        """By case: the value of each candidate over that of the best, where known."""
        return self._once(("behind", row.plan.scenario), _progress(row), lambda: self._behind(row))

    def _behind(self, row: Row) -> dict[str, Ratio]:
        found, best = dict[str, Ratio](), self.best(row)
        fastest = best.rounds() if best is not None else {}
        for candidate in row.candidates if fastest else ():
            name, rounds = candidate.case.id, candidate.rounds()
            if candidate is best:
                found[name] = Ratio(1.0, 1.0, 1.0, len(rounds))
            elif (paired := ratios.ratio_between(rounds, fastest)) is not None:
                found[name] = paired
            elif rounds and (candidate.ended or rounds.keys() & fastest.keys()):
                times = 1 / ratios.relative(fastest, rounds)
                found[name] = Ratio(times, times, times, 0)
        return found

    def stated(self, row: Row) -> dict[str, Ratio]:
        """`behind` without the ratios that are left out, see `is_vague`."""
        return self._once(("stated", row.plan.scenario), _progress(row), lambda: self._stated(row))

    def _stated(self, row: Row) -> dict[str, Ratio]:
        best, behind = self.best(row), self.behind(row)
        found = [c for c in row.candidates if c.case.id in behind]
        return {c.case.id: behind[c.case.id] for c in found if best and not is_vague(c, best)}

    def runner_up(self, row: Row) -> Candidate | None:
        """The runner-up of the verdict, or else the fastest other candidate that may be picked."""
        best, behind = self.best(row), self.behind(row)
        able = [c for c in row.candidates if c.case.id in behind and not row.is_barred(c)]
        others = (c for c in able if c is not best and c.state != "failed")
        named = row.verdict.runner_up if row.verdict is not None else None
        order = {c.case.id: (c.case.id != named, behind[c.case.id].value) for c in able}
        return min(others, key=lambda c: order[c.case.id], default=None)

    def lead(self, row: Row) -> Lead | None:
        """The lead after each round, or after fewer for long races; None without a runner-up."""
        best, other = self.best(row), self.runner_up(row)
        if best is None or other is None or other.case.id not in self.stated(row):
            return None
        left, course = copy.copy(other.rounds()), list[tuple[int, Ratio]]()
        common = sorted(left.keys() & best.rounds().keys())
        step = len(common) // 60 + 1  # a plot shows no more points
        while (ratio := ratios.ratio_between(left, best.rounds())) is not None:
            course.insert(0, (common[-1], ratio))
            for number in common[-step:]:
                del left[number]
            del common[-step:]
        return Lead(best, other, course)

    def ordered(self, row: Row) -> list[Candidate]:
        """The candidates, the pick first and the slowest last, then those for reference only; the
        order may change after each round."""
        stamp = row.round, row.finished, row.verdict is None, len(row.candidates)
        return self._once(("ordered", row.plan.scenario), stamp, lambda: self._ordered(row))

    def _ordered(self, row: Row) -> list[Candidate]:
        best, behind = self.best(row), self.behind(row)

        def place(candidate: Candidate) -> tuple[bool, bool, float]:
            far = behind.get(candidate.case.id)
            is_reference = row.is_reference_only(candidate)
            return is_reference, candidate is not best, far.value if far else math.inf

        return sorted(row.candidates, key=place)

    def sweep(self, row: Row) -> Sweep | None:
        """The sweep that the row is a point of; None if it is not."""
        if row.sweep is None:
            return None
        known = self.report.rows.values()
        rows = [each for each in known if row.sweep in (each.sweep, each.plan.scenario)]
        stamp = list(map(_progress, rows))
        return self._once(("sweep", row.sweep), stamp, lambda: sweeps.sweeps(rows)[0])

    def walk(self) -> list[str]:
        """The ids of the rows as planned, but those of a sweep ordered by their values."""
        first: dict[str, int] = {}
        for number, row in enumerate(self.report.rows.values()):
            first.setdefault(row.sweep or row.plan.scenario, number)

        def place(row: Row) -> tuple[int, list[float]]:
            point = row.plan.point
            values = [0.0 if isinstance(value, str) else float(value) for value in point.values()]
            return first[row.sweep or row.plan.scenario], values

        return [row.plan.scenario for row in sorted(self.report.rows.values(), key=place)]

    def largest(self, candidate: Candidate) -> LargestBatch | None:
        """The result of the search for the largest batch of this candidate."""
        found = self.report.largest_batches
        return next((each for each in found if each.case == candidate.case.id), None)

    def title(self, subject: str) -> str:
        """The title of a row, or the name of a GPU."""
        if (row := self.report.rows.get(subject)) is not None:
            return row.title
        return self.report.machine.name_of(subject) if self.report.machine else subject

    def case_name(self, case_id: str | None) -> str:
        """`cuda:0 torch bf16` for a case id, with parameters that differ within its row."""
        candidate = self.report.candidates.get(case_id or "")
        if candidate is None:
            return case_id or "none"
        row = self.report.rows.get(candidate.scenario)
        own = _own_parameters(candidate.case, row) if row else {}
        return " ".join([candidate.name, *(f"{n}={value_text(v)}" for n, v in own.items())])

    def elimination_text(self, candidate: Candidate) -> str:
        """`2.1x slower than cuda:0 torch bf16`, or the reason if no ratio is known."""
        by = self.report.candidates.get(candidate.beaten_by or "")
        if candidate.ratio is None or by is None:
            return candidate.reason.message if candidate.reason is not None else ""
        lead = f"{worse(candidate.objective)} than {self.case_name(candidate.beaten_by)}"
        return lead if is_vague(candidate, by) else f"{units.ratio(candidate.ratio)} {lead}"

    def machine_line(self, *, brief: bool = False) -> str:
        """`EPYC 9654, 16 of 192 cores (cgroup) | NVIDIA H200`; "" before detection."""
        machine = self.report.machine
        return "" if machine is None else machine_name(machine, brief=brief)


def _progress(row: Row) -> list[object]:
    """A stamp that changes whenever the order of the candidates may change."""
    return [row.verdict, *((len(c.blocks), c.state) for c in row.candidates)]


def _own_parameters(case: Case, row: Row) -> Mapping[str, ParameterValue]:
    """The parameters in which candidates of one row differ, such as `channels_last`; not those of
    own code, which only set the steps per sample."""
    cases = [candidate.case for candidate in row.candidates if case.workload != OWN]
    return {
        name: value
        for name, value in sorted(case.params.items())
        if len({str(other.params.get(name)) for other in cases}) > 1
    }
