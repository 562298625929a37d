"""Where the rows of a run come from: its workloads, the ceilings, or a model of the user."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from ..planning import ceiling_rows
from ..planning.cases import fill_cases
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.control import Control
from ..pool.pool import Pool
from ..records.machine import Machine
from ..report.candidate import Row
from ..report.report import Report
from ..worker.session_options import ONNX_BACKENDS
from . import ceilings
from .context import Listener
from .model_lab import ModelLab
from .own_code import OwnCode
from .profiling import Profiling


class RowSource(Protocol):
    """Plans the rows of a run, and finishes each one after its race."""

    profiled_steps: int  # at most, in one profiling pass

    @property
    def reserved_s(self) -> float:
        """Seconds that the races leave for `conclude`."""

    def rows(self) -> list[RowPlan]:
        """The rows with their candidates; UsageError if the request cannot be met here."""

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """Finish a row after its verdict, while the workers still hold its cases."""


@dataclass
class TableRows:
    """Scenarios and workloads, one row each; the verdict is the end of a row."""

    _request: Request
    _rows: list[RowPlan]
    _machine: Machine
    _installed: Collection[str]
    reserved_s: float = 0.0
    profiled_steps: int = 5

    def rows(self) -> list[RowPlan]:
        fill_cases(self._rows, self._request, self._machine, self._installed)
        return self._rows

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        pass


class CeilingRows(TableRows):
    """The rows of `workbench ceilings`, one for each kind of limit."""

    def rows(self) -> list[RowPlan]:
        rows = ceiling_rows.requested_rows(self._request, self._machine)
        products = sum(ceilings.is_gpu_product(case) for row in rows for case in row.cases)
        self.reserved_s = min(ceilings.SUSTAINED_S * products, self._request.budget / 3)
        return rows


def row_source(
    request: Request,
    rows: list[RowPlan],
    machine: Machine,
    installed: Collection[str],
    *,
    pool: Pool,
    control: Control,
    emit: Listener,
) -> RowSource:
    """The source for this request; `rows` are planned but have no candidates yet.  Optional
    backends race if they are `installed`."""
    if request.ceilings:
        return CeilingRows(request, rows, machine, installed)
    if request.model is not None or request.own is not None:
        (row,) = rows
        wanted = request.backends or ("onnxruntime", *installed)
        backends = tuple(name for name in ONNX_BACKENDS if name in wanted)
        parts: Any = {"pool": pool, "machine": machine, "control": control, "emit": emit}
        kind = OwnCode if request.model is None else ModelLab
        return kind(request, row, backends=backends, **parts)
    return TableRows(request, rows, machine, installed)
