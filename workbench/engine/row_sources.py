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
    """Scenarios, workloads or kinds of ceilings, one row each."""

    _context: RunContext
    _rows: list[RowPlan]
    reserved_s: float = 0.0  # seconds that the races leave for what follows them

    def rows(self) -> list[RowPlan]:
        """The rows with their candidates; UsageError if the request cannot be met here."""
        request, machine = self._context.request, self._context.machine
        if not request.ceilings:
            fill_cases(self._rows, request, machine, self._context.software.packages)
            return self._rows
        rows = ceiling_rows.requested_rows(request, machine)
        products = sum(ceilings.is_gpu_product(case) for row in rows for case in row.cases)
        self.reserved_s = min(ceilings.SUSTAINED_S * products, request.budget / 3)
        return rows

    def conclude(self, row: Row, profiling: Profiling) -> None:
        """Finish a row after its verdict, while the workers still hold its cases."""


RowSource = TableRows | ModelLab | OwnCode


def row_source(context: RunContext, rows: list[RowPlan]) -> RowSource:
    """The source for this run; `rows` are planned but have no candidates yet."""
    request = context.request
    if request.question is None:
        return TableRows(context, rows)
    (row,) = rows
    wanted = request.backends or ("onnxruntime", *context.software.packages)
    backends = tuple(name for name in ONNX_BACKENDS if name in wanted)
    kind = OwnCode if request.model is None else ModelLab
    return kind(context, row, backends)
