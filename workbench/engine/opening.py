"""The opening of a run: its machine, with the simulated GPUs that it asks for, its workers, and
where its rows come from: scenarios, workloads, ceilings, or the user's model or code."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ..machine import detect
from ..machine.nvidia.probe_client import DEADLINE_S
from ..planning import ceiling_rows
from ..planning.cases import fill_cases
from ..planning.plan import RowPlan
from ..planning.questions import OwnQuestion
from ..planning.request import NAME_PYTHON, Request, fake_devices
from ..planning.usage import UsageError
from ..pool.control import FIRST, Control
from ..pool.pool import Pool
from ..pool.worker_process import WorkerSettings
from ..records import events as ev
from ..records.comparison import Side
from ..records.machine import Gpu, Machine, Software
from ..report.candidate import Row
from ..report.report import Report
from ..worker.session_options import ONNX_BACKENDS
from . import ceilings
from .context import SLACK_S, Listener, RunContext
from .model_lab import ModelLab
from .overhead import OverheadMeter
from .own_code import OwnCode
from .telemetry import MachineTelemetry

LEAST_S = 1.0  # to detect the machine, however short the budget is


def opened(
    request: Request,
    run_id: str,
    control: Control,
    emit: Listener,
    report: Report,
    overhead: OverheadMeter,
    sides: Mapping[str, Side] = {},
) -> RunContext:
    """The context of a run, after detecting its machine; no worker has started."""
    now = control.now
    with control.raising(FIRST):
        control.check()
        machine, software = detected(request, within_s=request.budget - SLACK_S - now())
    emit(ev.HardwareDetected(at_s=now(), machine=machine, software=software))
    return RunContext(
        request=request,
        pool=Pool(settings_of(request, machine, run_id, sides), control=control, listener=emit),
        control=control,
        report=report,
        emit=emit,
        telemetry=MachineTelemetry(now=now, emit=emit),
        overhead=overhead,
    )


def detected(request: Request, within_s: float) -> tuple[Machine, Software]:
    """The machine with its simulated GPUs, and its software; UsageError if --python fails."""
    machine, software = detect(request.python, deadline_s=min(DEADLINE_S, max(LEAST_S, within_s)))
    if (failure := software.unavailable.get("python")) is not None:
        raise UsageError(f"--python: {failure}; {NAME_PYTHON}")
    fakes = [
        Gpu(
            index=None,
            device=device,
            uuid=None,
            pci_bus_id=None,
            name=f"Simulated GPU, {speed:g}x this CPU",
            simulated=True,
            unavailable={"*": "simulated: no sensors"},
        )
        for device, speed in fake_devices(request).items()
    ]
    return msgspec.structs.replace(machine, gpus=[*machine.gpus, *fakes]), software


def settings_of(
    request: Request, machine: Machine, run_id: str, sides: Mapping[str, Side] = {}
) -> WorkerSettings:
    """The settings that all workers of a run share."""
    return WorkerSettings(
        run_id=run_id,
        python=request.python or sys.executable,
        threads=max(request.threads, default=machine.cpu.effective_cores),
        memory_bytes=machine.memory.available_bytes,
        hide_gpus=any(not gpu.simulated for gpu in machine.gpus),
        sides=sides,
        gpu_cores={g.device or "": g.worker_cores for g in machine.gpus if g.worker_cores},
        exclusive=machine.exclusive,
    )


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

    def conclude(self, row: Row) -> None:
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
    if isinstance(request.question, OwnQuestion):
        return OwnCode(context, row, request.question, backends)
    return ModelLab(context, row, request.question, backends)
