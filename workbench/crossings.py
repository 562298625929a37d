"""Looking for the sizes at which the lead changes: a race for each size, the next by bisection.

What to race and what it says is decided in `advisor.crossover`; here it is run, within the time
that the rows left over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from . import events as ev
from .advisor import crossover, race
from .advisor.crossover import Measured
from .advisor.scenarios import Size
from .advisor.verdict import is_admissible
from .contender import Contender
from .contract import Case
from .control import Control
from .measure.statistics import median
from .pacing import SHORTEST_BLOCK_S
from .plan import RowPlan, point_name
from .report import Report

LEAST_S = 3.0  # of a search: below, not even both ends are known
FIELD = 4  # contenders of each kind of device that race at the ends
ROUNDS, STEPS_A_TURN = 4, 3  # what a race for one size needs at least, lead-in included
AFFORDABLE = 0.5  # of the time left that one size may take
BESIDE_S = 0.3  # of preparing a contender, besides its set-up: checking and warming up


class Crossings:
    """Searches one row after another until the time is spent."""

    def __init__(
        self,
        *,
        report: Report,
        control: Control,
        emit: Callable[[ev.AnyEvent], None],
        race_row: Callable[[RowPlan, float], None],
        end_s: float,
    ) -> None:
        self._report = report
        self._control = control
        self._emit = emit
        self._race_row = race_row  # a row until a time on the run's clock
        self._end_s = end_s

    def run(self, rows: Sequence[RowPlan]) -> None:
        """Search those of `rows` that have a size and a verdict with a pick."""
        open_ = [row for row in rows if row.scenario.size is not None and self._picked(row)]
        for position, row in enumerate(open_):
            now = self._control.now()
            if self._end_s - now < LEAST_S:
                return
            self._search(row, now + (self._end_s - now) / (len(open_) - position))

    def _picked(self, row: RowPlan) -> bool:
        verdict = self._report.rows[row.scenario.id].verdict
        return verdict is not None and verdict.pick is not None

    def _search(self, row: RowPlan, until_s: float) -> None:
        size = row.scenario.size
        assert size is not None  # noqa: S101 - chosen so
        whole = size.name == "batch" or isinstance(row.scenario.params[size.name], int)
        field = self._field(row)
        points = [Measured(_value(row, size), field)]
        try:
            while (value := crossover.next_value(points, size, whole=whole)) is not None:
                near = self._within_reach(row, value, points, until_s, whole=whole)
                if near != value:
                    points.append(Measured(value, ()))  # out of reach
                if near is None:
                    continue
                self._control.check()
                points.append(self._race_at(row, near, _entrants(points, field), until_s))
                if self._control.now() >= until_s:
                    break
        finally:
            found = crossover.conclude(points, size.name, whole=whole)
            if found is not None:
                at_s = self._control.now()
                scenario = row.scenario.id
                self._emit(ev.CrossoverFound(at_s=at_s, scenario=scenario, crossover=found))

    def _field(self, row: RowPlan) -> list[Contender]:
        """Who races at the ends: of each kind of device the fastest that could be picked."""
        known = {
            c.case.id: c
            for c in self._report.rows[row.scenario.id].contenders
            if c.blocks and is_admissible(c, row.scenario)
        }
        order = race.ranking({case: contender.rounds() for case, contender in known.items()})
        ranked = [known[case] for case in order]
        kinds = dict.fromkeys(contender.case.device_kind for contender in ranked)
        return [c for kind in kinds for c in _of_kind(ranked, kind)[:FIELD]]

    def _within_reach(
        self,
        row: RowPlan,
        value: float,
        points: Sequence[Measured],
        until_s: float,
        *,
        whole: bool,
    ) -> float | None:
        """`value`, or one nearer to what was measured whose race fits into the time left."""
        left_s = until_s - self._control.now()
        while self._cost_s(row, value, points) > AFFORDABLE * left_s:
            known = [point.value for point in points if point.contenders]
            nearest = min(known, key=lambda other: abs(math.log(other / value)))
            middle = math.sqrt(value * nearest)
            value = float(round(middle)) if whole else float(f"{middle:.3g}")
            apart = max(value, nearest) / min(value, nearest)
            if apart <= crossover.CLOSE:
                return None
        return value

    def _cost_s(self, row: RowPlan, value: float, points: Sequence[Measured]) -> float:
        """Seconds that a race at `value` takes at least, by the work of a step."""
        cost_s = 0.0
        for contender in _entrants(points, points[0].contenders):
            at = row.workload.work(_moved(contender.case, row, value))
            here = contender.work
            growth = (at.flops or at.items) / (here.flops or here.items)
            step_s = growth * median(contender.samples_s)
            setup = contender.setup
            once = (setup.build_s, setup.transfer_s, setup.compile_s)
            once_s = max(1.0, growth) * sum(part or 0.0 for part in once) + BESIDE_S
            cost_s += once_s + ROUNDS * max(SHORTEST_BLOCK_S, STEPS_A_TURN * step_s)
        return cost_s

    def _race_at(
        self, row: RowPlan, value: float, entrants: Sequence[Contender], until_s: float
    ) -> Measured:
        size = row.scenario.size
        assert size is not None  # noqa: S101 - chosen so
        at = _typed(row, size, value)
        batch, params = row.scenario.batch, dict(row.scenario.params)
        if size.name == "batch":
            batch = int(at)
        else:
            params[size.name] = at
        scenario = msgspec.structs.replace(
            row.scenario,
            id=point_name(row.scenario.id, {size.name: at}),
            textbook=None,
            batch=batch,
            params=params,
        )
        point = replace(
            row,
            scenario=scenario,
            cases=[_moved(contender.case, row, value) for contender in entrants],
            point={size.name: at},
            of=row.scenario.id,
        )
        now = self._control.now()
        self._race_row(point, now + AFFORDABLE * (until_s - now))
        raced = self._report.rows[scenario.id]
        valid = [c for c in raced.contenders if c.blocks and is_admissible(c, row.scenario)]
        return Measured(value, valid)


def _entrants(points: Sequence[Measured], field: Sequence[Contender]) -> list[Contender]:
    """Everybody at the ends; where the lead changes between two, those who lead on either side."""
    change = crossover.find_change(points)
    if change is None:
        return list(field)
    lower, upper = change.bracket
    labels = {
        contender.case.label
        for point in points
        if point.value in (lower, upper)
        for name, contender in point.by_name(change.between).items()
        if name in (change.below, change.above)
    }
    return [contender for contender in field if contender.case.label in labels]


def _of_kind(contenders: Sequence[Contender], kind: str) -> list[Contender]:
    return [contender for contender in contenders if contender.case.device_kind == kind]


def _value(row: RowPlan, size: Size) -> float:
    return float(
        row.scenario.batch or 1 if size.name == "batch" else row.scenario.params[size.name]
    )


def _typed(row: RowPlan, size: Size, value: float) -> int | float:
    whole = size.name == "batch" or isinstance(row.scenario.params[size.name], int)
    return round(value) if whole else value


def _moved(case: Case, row: RowPlan, value: float) -> Case:
    """The same contender at another size."""
    size = row.scenario.size
    assert size is not None  # noqa: S101 - only rows with one get here
    at = _typed(row, size, value)
    if size.name == "batch":
        return replace(case, batch=int(at))
    return replace(case, params={**case.params, size.name: at})
