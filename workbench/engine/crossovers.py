"""Searches for the sizes at which the lead changes, with one race for each size.

The races use the time that the rows left over: bisection on a logarithmic scale where the lead
changes, then in the gaps where another change may hide.  `advisor.crossover` concludes.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

import msgspec

from ..advisor import crossover
from ..advisor.crossover import GAP, MOST_POINTS, Measured, find_change, leaders
from ..advisor.limits import eligible, is_admissible, uncounted
from ..contract import Case, WorkloadError
from ..planning.plan import RowPlan, point_name
from ..planning.scenario import Size
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.reason import Warning
from ..report.candidate import Candidate, ranked
from .context import RunContext
from .schedule import longest_lead_in_s, timed_s
from .workers import worker_key

LEAST_S = 3.0  # shortest useful search: with less, not even both ends are measured
FIELD = 4  # admissible candidates per kind of device
OVER = 2  # inadmissible candidates per kind of device that may be admissible at another size
LEAST_FIELD = 2  # candidates of both kinds together when time is short
ROUNDS = 4  # minimum rounds of a race for one size
AFFORDABLE = 0.5  # share of the time left that one size may take
CLOSE = 1.2  # factor between sizes below which bisection ends
CHECK_S = 0.3  # to check and warm up one candidate, on top of its set-up

RaceRow = Callable[[RowPlan, float], None]  # the float: the end, on the run's clock


def search_crossovers(rows: Sequence[RowPlan], context: RunContext, race: RaceRow) -> None:
    """Search the rows that have a size and a verdict with a pick, until the time is spent."""
    raced = context.report.rows
    picked = [row for row in rows if row.scenario.size and raced[row.scenario.id].picked]
    for position, row in enumerate(picked):
        left_s = context.left_s
        if left_s < LEAST_S:
            return
        try:
            until_s = context.now() + left_s / (len(picked) - position)
            CrossoverSearch(row, until_s, context, race).run()
        except (WorkloadError, ArithmeticError, ValueError) as error:
            name = row.scenario.id
            text = f"the search for the crossover of {name} ended early: {error}"
            warning = Warning("no_crossover", text, f"narrow the size of {name}", name)
            context.record(ev.WarningRaised, warning=warning)


class CrossoverSearch:
    """The search over the size of one row, until a time on the run's clock."""

    def __init__(self, row: RowPlan, until_s: float, context: RunContext, race: RaceRow) -> None:
        self._row, self._until_s, self._context, self._race = row, until_s, context, race
        scenario, size = row.scenario, row.scenario.size
        assert size is not None  # only such rows are searched
        self._size = size
        own = scenario.batch if size.name == "batch" else scenario.params[size.name]
        assert isinstance(own, (int, float))  # sizes are numbers
        self._whole = isinstance(own, int)  # the size takes whole numbers only
        self._field = self._fastest()
        able = [c for c in self._field if is_admissible(c, scenario)]
        self._points = [Measured(float(own), able)]

    def run(self) -> None:
        """Race one size after another, and report the crossover."""
        points, size, whole = self._points, self._size, self._whole
        try:
            while (value := next_value(points, size, whole=whole)) is not None:
                self._context.control.check()
                wanted = entrants(points, self._field, value)
                near, count = self._within_reach(value, wanted)
                if near != value or not count:
                    points.append(Measured(value, ()))  # out of reach
                if not count:
                    continue
                points.append(self._race_at(near, wanted, count))
                refused = not points[-1].candidates and size.low < near < size.high
                if refused or self._context.now() >= self._until_s:
                    break
        finally:
            found = crossover.conclude(points, size.name, whole=whole)
            if found is not None:
                scenario = self._row.scenario.id
                self._context.record(ev.CrossoverFound, scenario=scenario, crossover=found)

    def _fastest(self) -> list[Candidate]:
        """The candidates to race, fastest first: of each kind of device the fastest admissible
        ones, and faster ones that may be admissible at other sizes than the row's own."""
        scenario = self._row.scenario
        found = self._context.report.rows[scenario.id]
        measured = [c for c in found.candidates if c.is_valid]
        counted = [c for c in measured if not found.is_reference_only(c) and uncounted(c) is None]
        taken: Counter[tuple[str, bool]] = Counter()  # by kind of device and whether admissible
        field = []
        for candidate in ranked(counted):
            kind, able = candidate.case.device_kind, is_admissible(candidate, scenario)
            if taken[kind, able] < (FIELD if able else OVER) and (able or not taken[kind, True]):
                taken[kind, able] += 1
                field.append(candidate)
        return field

    def _typed(self, value: float) -> int | float:
        return round(value) if self._whole else value

    def _moved(self, case: Case, value: float) -> Case:
        """The same candidate at another size."""
        if self._size.name == "batch":
            return replace(case, batch=round(value))
        return replace(case, params={**case.params, self._size.name: self._typed(value)})

    def _within_reach(self, value: float, wanted: Sequence[Candidate]) -> tuple[float, int]:
        """`value` or a nearer size, and how many of `wanted` have time there; 0: skip it."""
        known = [point.value for point in self._points if point.candidates]
        nearest = min(known, key=lambda other: abs(math.log(other / value)))
        affordable_s = AFFORDABLE * (self._until_s - self._context.now())
        while True:
            for count in range(len(wanted), min(LEAST_FIELD, len(wanted)) - 1, -1):
                if self._cost_s(value, wanted[:count]) <= affordable_s:
                    return value, count
            low, high = sorted((value, nearest))
            before, value = value, between(low, high, whole=self._whole)
            factor = max(value, nearest) / min(value, nearest)
            if value == before or factor <= CLOSE:
                return value, 0

    def _cost_s(self, value: float, racing: Sequence[Candidate]) -> float:
        """Minimum seconds for a race at `value`, scaled by the work of a step."""
        row, cost_s, started = self._row, 0.0, set[WorkerKey]()
        for candidate in racing:
            at = row.workload.work(self._moved(candidate.case, value))
            here, setup = candidate.work, candidate.setup
            growth = (at.flops or at.items) / (here.flops or here.items or 1.0)
            # A simulated device slower than the CPU takes longer than its reported times.
            step_s = growth * candidate.median_s
            step_s *= self._context.speed(candidate.case.device)
            once_s = sum(part or 0.0 for part in (setup.build_s, setup.transfer_s, setup.compile_s))
            key = worker_key(candidate.case, row)
            if key.alone and key not in started:
                cost_s += setup.import_s or 0.0
            started.add(key)
            lead_in_s = longest_lead_in_s(candidate.case.device, step_s)
            turn_s = timed_s(row.scenario, step_s) + lead_in_s
            cost_s += max(1.0, growth) * once_s + CHECK_S + ROUNDS * turn_s
        return cost_s

    def _race_at(self, value: float, wanted: Sequence[Candidate], count: int) -> Measured:
        """Race the first `count` of the `wanted` candidates at `value`."""
        row, cases = self._row, [self._moved(c.case, value) for c in wanted[:count]]
        at = {self._size.name: self._typed(value)}
        scenario = msgspec.structs.replace(
            row.scenario,
            id=point_name(row.scenario.id, at),
            textbook=None,
            batch=cases[0].batch,
            params=cases[0].params,
        )
        known = leaders(self._points)
        point = replace(
            row,
            scenario=scenario,
            cases=cases,
            refining=[],
            point=at,
            of=row.scenario.id,
            protected=frozenset(case.id for case in cases if case.label in known),
        )
        now = self._context.now()
        self._race(point, now + AFFORDABLE * (self._until_s - now))
        raced = self._context.report.rows[scenario.id].candidates
        valid = eligible(raced, row.scenario)
        late = any(c.reason.is_late for c in raced if c.reason and not c.blocks)
        lost = {c.case.label for c in raced} & known - {c.case.label for c in valid}
        if lost and (late or count < len(wanted)):
            return Measured(value, ())  # one that may lead here was not measured
        return Measured(value, valid)


# ------------------------------------------------- the next size, and who races there


def next_value(points: Sequence[Measured], size: Size, *, whole: bool) -> float | None:
    """The next size to race, or None when enough is known: both ends, then where the lead changes,
    then the widest gap.  A point without candidates could not be measured."""
    tried = sorted({point.value for point in points})
    for end in (size.low, size.high):
        if end not in tried:
            return end
    known = [point.value for point in points if point.candidates]
    if len(tried) >= MOST_POINTS or all(len(point.candidates) < 2 for point in points):
        return None
    change = find_change(points)
    closer = change and _halved(tried, change.bracket, CLOSE, whole=whole)
    return closer or _halved(tried, (min(known), max(known)), GAP, whole=whole)


def _halved(
    tried: Sequence[float], within: tuple[float, float], least: float, *, whole: bool
) -> float | None:
    """The middle of the widest gap `within`; None if no gap is wider than `least`."""
    inside = [value for value in tried if within[0] <= value <= within[1]]
    low, high = max(pairwise(inside), key=lambda pair: pair[1] / pair[0], default=(1.0, 1.0))
    middle = between(low, high, whole=whole)
    return middle if high / low > least and low < middle < high else None


def between(low: float, high: float, *, whole: bool) -> float:
    """The size halfway, on a logarithmic scale."""
    middle = math.sqrt(low * high)
    return float(round(middle)) if whole else float(f"{middle:.3g}")


def entrants(
    points: Sequence[Measured], field: Sequence[Candidate], value: float
) -> list[Candidate]:
    """The candidates of `field` that race at the size `value`, the most promising first: the best
    of each kind of device at the nearest size, then those that lead at any size.

    Left out are those that are behind at both neighbouring sizes by more than the factor between
    them.  If times are straight lines on logarithmic scales, this loses no leader whose slope
    differs by at most 2.
    """
    ahead = {point.value: point.behind() for point in points}
    nearest = min(points, key=lambda p: (not p.candidates, abs(math.log(p.value / value))))
    near, leading = leaders([nearest]), leaders(points)

    def rank(label: str) -> int:
        return (label not in near) + (label not in leading)

    def may_lead(label: str) -> bool:
        low = max((v for v in ahead if v < value and label in ahead[v]), default=None)
        high = min((v for v in ahead if v > value and label in ahead[v]), default=None)
        if low is None or high is None:
            return True
        return min(ahead[low][label], ahead[high][label]) <= high / low

    kinds = dict.fromkeys(candidate.case.device_kind for candidate in field)
    racing = [candidate for candidate in field if may_lead(candidate.case.label)]
    racing.sort(key=lambda candidate: rank(candidate.case.label))
    of_kind = [[c for c in racing if c.case.device_kind == kind] for kind in kinds]
    return [c for tier in zip_longest(*of_kind) for c in tier if c is not None]
