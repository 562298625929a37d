"""Searches for the sizes at which the lead changes, with one race for each size.

`advisor.crossover_search` chooses the next size and its candidates, `advisor.crossover` draws the
conclusion.  This module runs the races in the time that the rows left over.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from ..advisor import crossover, crossover_search
from ..advisor.comparison import ranked
from ..advisor.crossover import Measured
from ..advisor.limits import eligible, is_admissible, uncounted
from ..contract import Case, WorkloadError
from ..planning.plan import RowPlan, point_name
from ..planning.scenario import Size
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.reason import Warning
from ..report.candidate import Candidate
from .context import RunContext
from .schedule import longest_lead_in_s, timed_s
from .workers import worker_key

LEAST_S = 3.0  # shortest useful search: with less, not even both ends are measured
FIELD = 4  # admissible candidates per kind of device
OVER = 2  # inadmissible candidates per kind of device that may be admissible at another size
LEAST_FIELD = 2  # candidates of both kinds together when time is short
ROUNDS = 4  # minimum rounds of a race for one size
AFFORDABLE = 0.5  # share of the time left that one size may take
CHECK_S = 0.3  # checking and warming up one candidate, on top of its set-up


@dataclass(frozen=True)
class Axis:
    """A row and the size over which its crossover is searched."""

    row: RowPlan
    size: Size

    @property
    def own(self) -> int | float:
        """The row's own size."""
        scenario = self.row.scenario
        value = scenario.batch if self.size.name == "batch" else scenario.params[self.size.name]
        assert isinstance(value, (int, float))  # text is no size
        return value

    @property
    def whole(self) -> bool:
        """Whether the size takes whole numbers only."""
        return isinstance(self.own, int)

    def typed(self, value: float) -> int | float:
        return round(value) if self.whole else value

    def moved(self, case: Case, value: float) -> Case:
        """The same candidate at another size."""
        if self.size.name == "batch":
            return replace(case, batch=round(value))
        return replace(case, params={**case.params, self.size.name: self.typed(value)})


@dataclass
class CrossoverSearch:
    """Searches one row after another until the time is spent."""

    _context: RunContext
    _race_row: Callable[[RowPlan, float], None]  # until a time on the run's clock
    _warn: Callable[[Warning], None]

    def run(self, rows: Sequence[RowPlan]) -> None:
        """Search the rows that have a size and a verdict with a pick."""
        sized = [Axis(row, row.scenario.size) for row in rows if row.scenario.size is not None]
        raced = self._context.report.rows
        open_ = [axis for axis in sized if raced[axis.row.scenario.id].picked is not None]
        for position, axis in enumerate(open_):
            now, end_s = self._context.now(), self._context.end_s
            if end_s - now < LEAST_S:
                return
            try:
                self._search(axis, now + (end_s - now) / (len(open_) - position))
            except (WorkloadError, ArithmeticError, ValueError) as error:
                name = axis.row.scenario.id
                text = f"the search for the crossover of {name} ended early: {error}"
                self._warn(Warning("no_crossover", text, f"narrow the size of {name}", name))

    def _search(self, axis: Axis, until_s: float) -> None:
        context, size, field = self._context, axis.size, self._field(axis.row)
        able = [c for c in field if is_admissible(c, axis.row.scenario)]
        points = [Measured(float(axis.own), able)]
        try:
            while (
                value := crossover_search.next_value(points, size, whole=axis.whole)
            ) is not None:
                context.control.check()
                wanted = crossover_search.entrants(points, field, value)
                near, count = self._within_reach(axis, value, points, wanted, until_s)
                if near != value or not count:
                    points.append(Measured(value, ()))  # out of reach
                if not count:
                    continue
                points.append(self._race_at(axis, near, points, wanted, count, until_s))
                refused = not points[-1].candidates and size.low < near < size.high
                if refused or context.now() >= until_s:
                    break
        finally:
            found = crossover.conclude(points, size.name, whole=axis.whole)
            if found is not None:
                at_s, scenario = context.now(), axis.row.scenario.id
                context.emit(ev.CrossoverFound(at_s=at_s, scenario=scenario, crossover=found))

    def _field(self, row: RowPlan) -> list[Candidate]:
        """The candidates to race, fastest first.

        For each kind of device these are the fastest admissible ones, and faster ones whose error
        or limits forbid them at the row's own size only.
        """
        found = self._context.report.rows[row.scenario.id]
        measured = [c for c in found.candidates if c.is_valid]
        counted = [c for c in measured if not found.is_reference_only(c) and uncounted(c) is None]
        taken: Counter[tuple[str, bool]] = Counter()  # by kind of device and whether admissible
        field = []
        for candidate in ranked(counted):
            kind, able = candidate.case.device_kind, is_admissible(candidate, row.scenario)
            if taken[kind, able] < (FIELD if able else OVER) and (able or not taken[kind, True]):
                taken[kind, able] += 1
                field.append(candidate)
        return field

    def _within_reach(
        self,
        axis: Axis,
        value: float,
        points: Sequence[Measured],
        wanted: Sequence[Candidate],
        until_s: float,
    ) -> tuple[float, int]:
        """`value` or a nearer size, and how many of the `wanted` candidates the time left allows.

        The count is 0 if no size remains that would add information.
        """
        known = [point.value for point in points if point.candidates]
        nearest = min(known, key=lambda other: abs(math.log(other / value)))
        affordable_s = AFFORDABLE * (until_s - self._context.now())
        while True:
            for count in range(len(wanted), min(LEAST_FIELD, len(wanted)) - 1, -1):
                if self._cost_s(axis, value, wanted[:count]) <= affordable_s:
                    return value, count
            low, high = sorted((value, nearest))
            before, value = value, crossover_search.between(low, high, whole=axis.whole)
            factor = max(value, nearest) / min(value, nearest)
            if value == before or factor <= crossover_search.CLOSE:
                return value, 0

    def _cost_s(self, axis: Axis, value: float, racing: Sequence[Candidate]) -> float:
        """Minimum seconds for a race at `value`, scaled by the work of a step."""
        row, cost_s, started = axis.row, 0.0, set[WorkerKey]()
        for candidate in racing:
            at = row.workload.work(axis.moved(candidate.case, value))
            here, setup = candidate.work, candidate.setup
            growth = (at.flops or at.items) / (here.flops or here.items or 1.0)
            # A slow simulated device takes longer than it says.
            step_s = growth * candidate.median_s
            step_s *= self._context.speed(candidate.case.device)
            once_s = sum(part or 0.0 for part in (setup.build_s, setup.transfer_s, setup.compile_s))
            key = worker_key(candidate.case, row.scenario)
            if key.alone and key not in started:
                cost_s += setup.import_s or 0.0
            started.add(key)
            lead_in_s = longest_lead_in_s(candidate.case.device, step_s)
            turn_s = timed_s(row.scenario, step_s) + lead_in_s
            cost_s += max(1.0, growth) * once_s + CHECK_S + ROUNDS * turn_s
        return cost_s

    def _race_at(
        self,
        axis: Axis,
        value: float,
        points: Sequence[Measured],
        wanted: Sequence[Candidate],
        count: int,
        until_s: float,
    ) -> Measured:
        """Race the first `count` of the `wanted` candidates at `value`."""
        row, cases = axis.row, [axis.moved(candidate.case, value) for candidate in wanted[:count]]
        at = {axis.size.name: axis.typed(value)}
        scenario = msgspec.structs.replace(
            row.scenario,
            id=point_name(row.scenario.id, at),
            textbook=None,
            batch=cases[0].batch,
            params=cases[0].params,
        )
        known = crossover.leaders(points)
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
        self._race_row(point, now + AFFORDABLE * (until_s - now))
        raced = self._context.report.rows[scenario.id].candidates
        valid = eligible(raced, row.scenario)
        late = any(c.reason.is_late for c in raced if c.reason and not c.blocks)
        lost = {c.case.label for c in raced} & known - {c.case.label for c in valid}
        if lost and (late or count < len(wanted)):
            return Measured(value, ())  # the next leader may not have been raced
        return Measured(value, valid)
