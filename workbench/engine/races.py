"""Races row after row, each within its share of the time."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..planning.announcing import planned
from ..planning.plan import RowPlan
from ..records import events as ev
from ..report.report import Report
from .context import RunContext
from .overhead import IDLE
from .race import Race
from .schedule import RowTime
from .workers import start_workers

LEAST_SHARE_S = 1.5  # for a light row with a GPU, whose first candidate takes most of a second
PROFILE_SHARE = 0.25  # share of a row's time with --trace

Conclude = Callable[[RowPlan], None]


class Races:
    """The races of a run, one at a time; the workers hold the cases of the latest row."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._latest: Race | None = None

    def start_workers(self, rows: Sequence[RowPlan]) -> None:
        """Start shared workers together: all if a GPU races, since importing a CUDA build outlasts
        the share of a light row, else those of the first row, unless starts are its result."""
        in_order = sorted(rows, key=_place)
        if not all(row.is_on_host for row in rows):
            start_workers(in_order, in_order, self._context, 1.0)
        elif in_order and not in_order[0].shares_workers:  # a resumed run may have none
            start_workers(in_order[:1], in_order, self._context, 1.0)

    def rows(self, rows: Sequence[RowPlan], end_s: float, conclude: Conclude | None) -> None:
        """Race `rows` until `end_s` on the run's clock, and conclude each after its race."""
        context = self._context
        in_order = sorted(rows, key=_place)
        for position, row in enumerate(in_order):
            context.control.check()
            now = context.now()
            weights = [r.scenario.weight for r in in_order[position:]]
            row_end_s = end_s + context.report.extended_s
            left_s = max(0.0, row_end_s - now)
            share_s = left_s * weights[0] / sum(weights)
            if not row.is_on_host:
                share_s = max(share_s, min(LEAST_SHARE_S, left_s / len(weights)))
            if context.request.trace is not None:
                share_s *= 1 - PROFILE_SHARE
            self._race(RowTime(row, context, now + share_s, row_end_s, len(weights)), conclude)

    def aside(self, rows: list[RowPlan], share: float, *, table: list[RowPlan]) -> Report:
        """Race `rows` within a share of the budget, on workers of `table`, in their own report."""
        context, main = self._context, self._context.report
        report = Report(started=main.started, machine=main.machine, software=main.software)
        for row in rows:
            report.apply(planned(row, context.request, context.now()))
        aside = Races(replace(context, report=report, emit=report.apply))
        if start_workers(rows, table, aside._context, share):
            aside.rows(rows, context.now() + share * context.left_s, None)
            self._latest = aside._latest
        return report

    def point(self, row: RowPlan, until_s: float) -> None:
        """Announce and race one point of a crossover."""
        context = self._context
        context.emit(planned(row, context.request, context.now()))
        self._race(RowTime(row, context, until_s, context.end_s))

    def _race(self, row_time: RowTime, conclude: Conclude | None = None) -> None:
        """Race a row after the one before it has released its cases; the last never does."""
        context, name = self._context, row_time.plan.scenario.id
        context.record(ev.RaceStarted, scenario=name, share_s=row_time.left_s)
        with context.overhead.spending(IDLE, name):
            if self._latest is not None:
                self._latest.preparation.release()
            self._latest = Race(row_time)
            self._latest.run()
            if conclude is not None:
                conclude(row_time.plan)


def _place(row: RowPlan) -> tuple[bool, bool, bool, float]:
    """The sort key of rows: first the one whose fresh workers the others reuse, last those with
    tails and heavy ones, which gain most from the time that others leave over."""
    scenario = row.scenario
    follows = row.source is not None and row.source.follows
    begins = row.shares_workers and row.is_on_host
    return follows, not begins, scenario.measures_tails, scenario.weight
