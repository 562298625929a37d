"""Where the rows of a run come from: its workloads, the ceilings, or a model of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..planning.model_question import ModelQuestion
from ..planning.plan import RowPlan, fill_cases
from ..planning.request import Request
from ..pool.control import Control
from ..pool.pool import Pool
from ..records.machine import Machine
from ..records.reason import Reason
from ..report.report import Report
from ..report.row import Row
from . import ceilings, model_conclusion
from .context import Listener
from .model_child import Refused
from .model_lab import ModelLab
from .profiling import PROFILED_STEPS, Profiling

CONCLUSION_S, CONCLUSION_SHARE = 6.0, 0.2  # seconds, and share of the budget, whichever is less


class RowSource(Protocol):
    """Plans the rows of a run, and finishes each one after its race."""

    profiled_steps: int  # at most, in one profiling pass
    refusal: Reason | None  # why the rows cannot be raced at all

    def rows(self, machine: Machine, pool: Pool) -> list[RowPlan]:
        """The rows with their candidates; UsageError if the request cannot be met here."""

    @property
    def reserved_s(self) -> float:
        """Seconds that the races leave for `conclude`."""

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """Finish a row after its verdict, while the workers still hold its cases."""


class TableRows:
    """Scenarios and workloads, one row each."""

    profiled_steps = PROFILED_STEPS
    refusal: Reason | None = None
    reserved_s = 0.0

    def __init__(self, request: Request, rows: list[RowPlan]) -> None:
        self._request = request
        self._rows = rows

    def rows(self, machine: Machine, pool: Pool) -> list[RowPlan]:
        fill_cases(self._rows, self._request, machine)
        return self._rows

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """The verdict is the end of such a row."""


class CeilingRows(TableRows):
    """The rows of `workbench ceilings`, one for each kind of limit."""

    def rows(self, machine: Machine, pool: Pool) -> list[RowPlan]:
        return ceilings.requested_rows(self._request, machine)


class ModelRow:
    """The one row of `advise --model`: the variants of a user's model."""

    profiled_steps = model_conclusion.PROFILED_STEPS

    def __init__(
        self,
        question: ModelQuestion,
        request: Request,
        plan: RowPlan,
        *,
        control: Control,
        emit: Listener,
    ) -> None:
        self._question = question
        self._request = request
        self._plan = plan
        self._control = control
        self._emit = emit
        self._lab: ModelLab | None = None
        self.refusal: Reason | None = None

    def rows(self, machine: Machine, pool: Pool) -> list[RowPlan]:
        self._lab = ModelLab(
            self._question,
            self._request,
            self._plan,
            pool=pool,
            machine=machine,
            control=self._control,
            emit=self._emit,
        )
        try:
            return [self._lab.open()]
        except Refused as refused:
            self.refusal = refused.reason
            return [self._lab.refused()]

    @property
    def reserved_s(self) -> float:
        return min(CONCLUSION_S, CONCLUSION_SHARE * self._request.budget)

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """Profile and explain the candidates that matter, and save the best variant."""
        assert self._lab is not None  # noqa: S101 - the row was planned by it
        model_conclusion.conclude(self._question, self._lab, row, report, profiling)


def row_source(
    request: Request, rows: Sequence[RowPlan], *, control: Control, emit: Listener
) -> RowSource:
    """The source for this request; `rows` are planned but have no candidates yet."""
    if request.ceilings:
        return CeilingRows(request, list(rows))
    if request.model is not None:
        return ModelRow(request.model, request, rows[0], control=control, emit=emit)
    return TableRows(request, list(rows))
