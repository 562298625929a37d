"""Where the rows of a run come from: workloads, ceilings, or the user's model or code."""

from dataclasses import dataclass

from ..planning import ceiling_rows
from ..planning.cases import fill_cases
from ..planning.plan import RowPlan
from ..report.candidate import Row
from ..worker.session_options import ONNX_BACKENDS
from . import ceilings
from .context import RunContext
from .model_lab import ModelLab
from .own_code import OwnCode
from .profiling import Profiling


@dataclass
class TableRows:
    """Scenarios and workloads, one row each; the verdict is the end of a row."""

    _context: RunContext
    _rows: list[RowPlan]
    reserved_s: float = 0.0  # seconds that the races leave for `conclude`

    def rows(self) -> list[RowPlan]:
        """The rows with their candidates; UsageError if the request cannot be met here."""
        context = self._context
        fill_cases(self._rows, context.request, context.machine, context.software.packages)
        return self._rows

    def conclude(self, row: Row, profiling: Profiling) -> None:
        """Finish a row after its verdict, while the workers still hold its cases."""


class CeilingRows(TableRows):
    """The rows of `workbench ceilings`, one for each kind of limit."""

    def rows(self) -> list[RowPlan]:
        request = self._context.request
        rows = ceiling_rows.requested_rows(request, self._context.machine)
        products = sum(ceilings.is_gpu_product(case) for row in rows for case in row.cases)
        self.reserved_s = min(ceilings.SUSTAINED_S * products, request.budget / 3)
        return rows


RowSource = TableRows | ModelLab | OwnCode


def row_source(context: RunContext, rows: list[RowPlan]) -> RowSource:
    """The source for this run; `rows` are planned but have no candidates yet."""
    request = context.request
    if request.ceilings:
        return CeilingRows(context, rows)
    if request.model is not None or request.own is not None:
        (row,) = rows
        wanted = request.backends or ("onnxruntime", *context.software.packages)
        backends = tuple(name for name in ONNX_BACKENDS if name in wanted)
        kind = OwnCode if request.model is None else ModelLab
        return kind(context, row, backends)
    return TableRows(context, rows)
