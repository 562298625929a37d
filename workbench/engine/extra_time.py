"""The time of a row beyond its share, which only a run without --budget has."""

from ..planning.plan import RowPlan
from ..records import events as ev
from .context import RunContext, Share

ROOM_SHARE = 0.5  # most of the run's extension that one row may take while others wait
LEAST_EXTENSION_S = 1.0  # shortest extension for rounds, since less would settle nothing


class ExtraTime:
    """Lengthens one row, and the run with it, and returns what the row does not need."""

    def __init__(self, plan: RowPlan, context: RunContext, share: Share) -> None:
        self._plan, self._context, self._share = plan, context, share
        self._own_s = 0.0  # added to this row so far
        self.is_for_source = False  # granted for a candidate of the source that lacked time

    def spare_s(self, least_share: float = 0.0) -> float:
        """Seconds for more rounds, which rows of a table and lengthened ones may get."""
        plan = self._plan
        may_grow = plan.scenario.owes_verdict and (plan.source is None or self.is_for_source)
        return self.lent_s(least_share) if may_grow else 0.0

    def lent_s(self, least_share: float) -> float:
        """Seconds of the run's extension for this row: an equal share, at least `least_share`."""
        of_others_s = self._context.report.extended_s - self._own_s
        whole_s = self._context.request.extension_s - of_others_s
        return max(least_share, 1 / self._share.rows) * whole_s - self._own_s

    def take(self, by_s: float) -> None:
        """Lengthen the row and the run, or shorten them."""
        if by_s:
            self._share.until_s += by_s
            self._share.end_s += by_s
            self._own_s += by_s
            self._context.record(ev.BudgetExtended, scenario=self._plan.scenario.id, by_s=by_s)

    def give_back(self, keep_s: float = 0.0) -> None:
        """Return the time beyond its share that the row does not need: all but `keep_s`."""
        self.take(-min(self._own_s, max(0.0, self._share.left_s - keep_s)))

    def make_up(self) -> None:
        """Lengthen the run by the time that this row took from the rows to come."""
        over_s = min(-self._share.left_s, self.spare_s(ROOM_SHARE))
        if self._share.rows > 1 and over_s >= LEAST_EXTENSION_S:
            self.take(over_s)
