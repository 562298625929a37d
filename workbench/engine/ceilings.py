"""Ceilings: the rates that this machine can reach, measured by ordinary workloads in a race.

A ceiling is the rate of the fastest tenth of a device's samples, a burst.  `workbench ceilings`
also runs the products of a GPU until its power limit sets their rate, the sustained one.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial

import msgspec

from .. import catalog
from ..contract import Case
from ..planning import ceiling_rows
from ..planning.admission import most_ops_per_s
from ..planning.ceiling_rows import LARGE_MIB, LAUNCH, MEMORY, PRODUCT, TRANSFER, last_level_cache
from ..planning.plan import RowPlan
from ..planning.request import TABLE_BUDGET_S
from ..pool.answers import Block
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.document import Ceilings, DeviceCeilings
from ..records.machine import Machine
from ..records.reason import Warning
from ..report.candidate import Candidate
from ..report.report import Report
from ..stats.samples import median, quantile
from . import ceiling_store
from .context import RunContext
from .workers import worker_key

FAST = 0.10  # quantile of the step times that gives the ceiling
# The fields of a device that each row measures.
FIELDS = {
    PRODUCT: ("peak_ops_per_s", "sustained_ops_per_s"),
    MEMORY: ("memory", "memory_bytes_per_s", "cache_bytes_per_s"),
    TRANSFER: ("transfer_bytes_per_s",),
    LAUNCH: ceiling_store.LATENCIES,
}
# Warnings about the machine itself: a later measurement would have them too.
LASTING = ("cgroup_throttled", "clock_low", "pcie_slow")
SUSTAINED_S = 5.0  # under load without a pause
SHARE = 0.12  # share of the budget that is left once the workers have started


def of_report(
    report: Report,
    fingerprint: str,
    *,
    complete: bool = True,
    without: Container[tuple[str, str]] = (),
) -> Ceilings | None:
    """The ceilings measured by the rows of a plan, except those in `without` (device and field);
    None if nothing was measured."""
    assert report.machine is not None and report.started is not None  # a run has both
    groups: dict[str, list[Candidate]] = {"cpu": []}
    for candidate in report.candidates.values():
        device = candidate.case.device
        if (device, _field(candidate.case)) not in without:
            groups.setdefault(device, []).append(candidate)
    if not any(candidate.blocks for group in groups.values() for candidate in group):
        return None
    devices = [_device(name, group, report.machine) for name, group in groups.items() if group]
    return Ceilings(fingerprint, report.started.started_at, complete, devices)


def _device(device: str, group: Sequence[Candidate], machine: Machine) -> DeviceCeilings:
    # Not valid are those that failed after a block because their rate was impossible.
    valid = [c for c in group if c.is_valid]

    def of(workload: str) -> list[Candidate]:
        return [candidate for candidate in valid if candidate.case.workload == workload]

    peaks: dict[str, float] = {}
    for candidate in of(PRODUCT):
        rate = _per_s(candidate, candidate.work.flops)
        peaks[candidate.case.precision] = max(peaks.get(candidate.case.precision, 0.0), rate)
    memory: dict[str, float] = {}
    cached: float | None = None
    for candidate in of(MEMORY):
        rate = _per_s(candidate, candidate.work.bytes_moved)
        if float(candidate.case.params["mib"]) < LARGE_MIB:
            cached = rate
        else:
            memory[str(candidate.case.params["kernel"])] = rate
    launches = {str(c.case.params["wait"]): quantile(c.samples_s, FAST) for c in of(LAUNCH)}
    gpu = machine.by_device.get(device)
    return DeviceCeilings(
        device=device,
        name=gpu.name if gpu else machine.cpu.model,
        threads=group[0].case.threads,
        peak_ops_per_s=peaks,
        memory_bytes_per_s=max(memory.values(), default=None),
        memory=memory,
        cache_bytes=last_level_cache(machine, device),
        cache_bytes_per_s=cached,
        transfer_bytes_per_s={_way(c.case): _per_s(c, c.work.bytes_moved) for c in of(TRANSFER)},
        launch_s=launches.get("no"),
        step_latency_s=launches.get("yes"),
        unavailable={  # the next run measures what lacked time
            field: c.reason.message
            for c in group
            if c.reason and not (c.reason.is_late or c.blocks)
            if (field := _field(c.case)) not in peaks
        },
    )


def _way(transfer: Case) -> str:
    return f"{transfer.params['direction']}/{transfer.mode or 'pageable'}"


def _per_s(candidate: Candidate, amount: float | None) -> float:
    return (amount or 0.0) / quantile(candidate.samples_s, FAST)


def _field(case: Case) -> str:
    """The field of the ceiling that a case measures: a precision, or a workload with its size."""
    return case.precision if case.workload == PRODUCT else case.id.partition("/")[0]


def _fields(report: Report, *, late: bool = False) -> set[tuple[str, str]]:
    """Device and field of each candidate that was measured or, if `late`, lacked time."""
    return {
        (c.case.device, _field(c.case))
        for c in report.candidates.values()
        if (c.reason and c.reason.is_late if late else c.is_valid)
    }


def _without_answered(kept: Ceilings | None, report: Report) -> Ceilings | None:
    """`kept`, without its reasons for the absence of what this run has measured."""
    measured, devices = _fields(report), []
    for device in kept.devices if kept else ():
        reasons = device.unavailable.items()
        still = {field: why for field, why in reasons if (device.device, field) not in measured}
        devices.append(msgspec.structs.replace(device, unavailable=still))
    return kept and msgspec.structs.replace(kept, devices=devices)


def _is_known(case: Case, kept: Ceilings) -> bool:
    """Whether `kept` has the ceiling of `case`, or a reason for its absence that will last."""
    device = next((d for d in kept.devices if d.device == case.device), None)
    if device is None:
        return False
    if float(case.params.get("mib", LARGE_MIB)) < LARGE_MIB:
        measured = device.cache_bytes_per_s
    else:
        name = str(case.params.get("kernel", case.precision))
        measured = {**device.peak_ops_per_s, **device.memory}.get(name)
    return measured is not None or _field(case) in device.unavailable


def raised(ceilings: Ceilings, report: Report) -> Ceilings:
    """`ceilings`, raised to each faster result of this run that is possible on the device.

    Results of several devices, and of convolutions, which may save operations, do not count.
    """
    assert report.machine is not None  # a run has one
    devices = []
    for device in ceilings.devices:
        peaks = dict(device.peak_ops_per_s)
        for candidate in report.candidates.values():
            case, work = candidate.case, candidate.work
            peak = peaks.get(case.precision) if case.device == device.device else None
            if peak is None or not candidate.is_valid:
                continue
            rate = _per_s(candidate, work.flops)
            is_more = peak < rate <= most_ops_per_s(case, report.machine) and work.ranks == 1
            if is_more and not catalog.load(case.workload).convolves:
                peaks[case.precision] = rate
        devices.append(msgspec.structs.replace(device, peak_ops_per_s=peaks))
    return msgspec.structs.replace(ceilings, devices=devices)


def missing(kept: Ceilings | None, context: RunContext) -> list[RowPlan]:
    """The rows that measure what `kept` lacks; none if the budget is below that of a table."""
    request = context.request
    alone = request.workloads or request.question
    if request.budget < TABLE_BUDGET_S or alone or (kept and request.threads):
        return []
    rows = ceiling_rows.requested_rows(request, context.machine, brief=True)
    for row in rows:
        row.cases = [case for case in row.cases if kept is None or not _is_known(case, kept)]
    return [row for row in rows if row.cases]


def completed(
    kept: Ceilings | None,
    rows: list[RowPlan],
    fingerprint: str,
    context: RunContext,
    race: Callable[[list[RowPlan], float], Report],
) -> Ceilings | None:
    """The `kept` ceilings with those that `rows` measure.

    `race` measures them within a share of the budget, in a report of their own.
    """
    if not rows:
        return kept
    aside = race(rows, SHARE)
    # A measurement that was cut short or disturbed must not become the machine's ceiling.
    found = of_report(aside, fingerprint, complete=False, without=_fields(aside, late=True))
    if found is None:
        return kept
    found = ceiling_store.merged(_without_answered(kept, aside), found)
    disturbed = any(warning.code not in LASTING for warning in aside.warnings)
    if not (disturbed or context.request.threads):  # fewer threads do not reach the ceiling
        ceiling_store.save(found)
    return found


def is_gpu_product(case: Case) -> bool:
    return case.workload == PRODUCT and case.device_kind == "gpu"


def _with_sustained(found: Ceilings, context: RunContext) -> Ceilings:
    """`found` with the sustained rates of products, fastest first, while time is left.

    The row of products is the last, so their workers still hold them.
    """
    rates: dict[str, dict[str, float]] = {}
    measured = [c for c in context.report.candidates.values() if c.is_valid]
    for candidate in sorted(measured, key=lambda c: c.median_s):
        case = candidate.case
        if is_gpu_product(case) and (step_s := _sustained_step_s(case, context)):
            of_device = rates.setdefault(case.device, {})
            of_device[case.precision] = (candidate.work.flops or 0.0) / step_s
    devices = [
        msgspec.structs.replace(device, sustained_ops_per_s=rates.get(device.device, {}))
        for device in found.devices
    ]
    return msgspec.structs.replace(found, devices=devices)


def _sustained_step_s(case: Case, context: RunContext) -> float | None:
    """Seconds of a step at the end of a long load; None if it fails or time is short."""
    key, now, step_s = worker_key(case), context.now, None
    until_s = now() + SUSTAINED_S
    if until_s > context.end_s or not context.pool.is_alive(key):
        return None
    block = partial(context.pool.ask, key, 3 * SUSTAINED_S, Block, op="block", case=case.id)
    try:
        while now() < until_s:
            step_s = median(block(seconds=1.0, min_samples=1, settle_s=0.0).result.samples_s)
    except WorkerFailed:
        return None
    return step_s


def measured_or_raised(fingerprint: str, context: RunContext) -> Ceilings | None:
    """After the races: the ceilings measured by `workbench ceilings`, or raised by this run."""
    report, request, kept = context.report, context.request, ceiling_store.load(fingerprint)
    known = report.ceilings and raised(report.ceilings, report)
    lasting = kept and raised(kept, report)  # None after a disturbed run or one with few threads
    subjects = {warning.subject for warning in report.warnings if warning.code not in LASTING}
    disturbed = [row for row in report.rows if row in subjects]
    late = _fields(report, late=True) - _fields(report)
    complete = not (disturbed or late)
    own = of_report(report, fingerprint, complete=complete) if request.ceilings else None
    if own is not None:
        if late:
            names = ", ".join(map(" ".join, sorted(late)))
            text = f"not measured this time, as time ran out: {names}"
            warning = Warning("unmeasured", text, "raise --budget")
            context.record(ev.WarningRaised, warning=warning)
        known = _with_sustained(own, context)
        if not request.threads:
            raising = disturbed if request.again else FIELDS
            keep_better = [field for row in raising for field in FIELDS[row]]
            before = _without_answered(kept, report)
            lasting = known = ceiling_store.merged(before, known, keep_better)
    if lasting is not None and lasting != kept:
        ceiling_store.save(lasting)
    return None if known == report.ceilings else known
