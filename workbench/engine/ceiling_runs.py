"""When a run measures ceilings, takes those that are kept, and keeps what it found."""

from __future__ import annotations

from collections.abc import Callable

from ..contract import is_simulated
from ..planning import admission
from ..planning.cases import gpu_devices
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.pool import WorkerFailed
from ..records.document import Ceilings
from ..records.machine import Machine
from ..report.report import Report
from . import ceilings
from .context import RunContext
from .preparation import BUDGET, START_DEADLINE_S, worker_key

FROM_BUDGET_S = 60.0  # a shorter run cannot spare the time, and uses what is kept
SHARE = 0.12  # of what the budget leaves once the workers are there


def rows(request: Request, machine: Machine, *, brief: bool = False) -> list[RowPlan]:
    """The ceilings to measure on the devices of a request, simulated ones left out."""
    devices = [d for d in gpu_devices(request, machine) if not is_simulated(d)]
    if not request.devices or "cpu" in request.devices:
        devices = ["cpu", *devices]
    return ceilings.plan(machine, devices, threads=max(request.threads, default=None), brief=brief)


def known(
    request: Request, mark: str, machine: Machine, race: Callable[[list[RowPlan], float], Report]
) -> Ceilings | None:
    """Those kept for this machine; before a table, where the budget has room, measured.

    `race` measures rows within a share of the budget, apart from the run's own.
    """
    kept = ceilings.load(mark)
    if kept is not None or request.budget < FROM_BUDGET_S or request.workloads or request.model:
        return kept
    aside = race(rows(request, machine, brief=True), SHARE)
    found = ceilings.of_report(aside, mark, complete=False)
    # What was cut short, or measured beside other work, would pass for this machine's best.
    cut = any(c.reason == BUDGET for c in aside.candidates.values())
    if found is not None and not aside.warnings and not cut:
        ceilings.save(found)
    return found


def start_workers(
    rows: list[RowPlan], table: list[RowPlan], context: RunContext, share: float
) -> bool:
    """Have the workers of `rows` before their share of the time begins, for the table needs most
    of them anyway; False where one takes longer than the run, or of others than the share."""
    machine, software = context.report.machine, context.report.software
    assert machine is not None  # noqa: S101 - it is planned for
    shared = {worker_key(case, row.scenario) for row in table for case in row.cases}
    needed = dict.fromkeys(
        worker_key(case)
        for row in rows
        for case in row.cases
        if admission.beforehand(case, row.workload, machine, software) is None
    )
    for key in needed:
        left_s = max(0.0, context.end_s - context.control.now())
        deadline_s = min(START_DEADLINE_S, left_s if key in shared else share * left_s)
        try:
            context.pool.start(key, deadline_s)
        except WorkerFailed as failure:
            if failure.reason.code == "timeout":
                return False
    return True


def kept_after(request: Request, mark: str, report: Report) -> Ceilings | None:
    """After the race: what `workbench ceilings` measured, or what this run exceeded, if any."""
    if request.ceilings:
        found = ceilings.of_report(report, mark)
    else:
        found = report.ceilings and ceilings.raised(report.ceilings, report)
    if found is None or found == report.ceilings:
        return None
    ceilings.save(found)
    return found
