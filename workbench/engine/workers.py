"""Assigns cases to workers, starts workers together, and classifies their failures."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .. import catalog
from ..contract import Case
from ..planning.admission import beforehand
from ..planning.plan import RowPlan
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records.machine import Machine
from ..records.reason import BUDGET, Reason
from ..stats.objectives import BY_DEVICE
from .context import START_S, RunContext
from .overhead import STARTING

# Codes of reasons that mean "cannot run on this machine", which is not a failure.
CANNOT_HERE = (
    "driver_too_old",
    "gpu_busy",
    "missing_package",
    "no_compiler",
    "no_device",
    "not_quantised",
    "provider_fallback",
    "unsupported",
    "unsupported_device",
    "unsupported_precision",
)
NO_TURN = Reason(BUDGET, "no time was left for its turn", "raise --budget")


def worker_key(case: Case, row: RowPlan | None = None) -> WorkerKey:
    """The worker of `case`: shared, or its own if `row` requires that or it may crash."""
    on_gpu, words = case.device_kind == "gpu", case.mode_words
    # A failed capture of a CUDA graph ends its process; see `isolates` for the others.
    is_risky = case.is_compiled or case.tuning.get("workers") or (on_gpu and "graph" in words)
    apart = (
        (on_gpu and case.is_compiled)
        or "keep" in words  # it holds for the whole process
        or "cudnn-benchmark" in words  # torch keeps its first plan for a convolution (Conv_v8.cpp)
        or (is_risky and catalog.load(case.workload).isolates)
    )
    alone = ""
    if apart or (row is not None and row.scenario.weighs_memory):
        alone = case.id
    elif row is not None and row.scenario.counts_start_up and not row.shares_workers:
        alone = row.scenario.id
    return WorkerKey(*catalog.process_of(case), alone)


def to_prepare(case: Case, row: RowPlan, context: RunContext, warm_up_s: float) -> dict[str, Any]:
    """The request to a worker to prepare a case of this row."""
    return {
        "op": "prepare",
        "case": case,
        "seed": context.request.seed,
        "latency": row.scenario.objective not in BY_DEVICE,
        "warm_up_s": warm_up_s,
        "cache_bytes": context.machine.cpu.cache_bytes,
        "from_start": row.scenario.counts_start_up,
        "files": row.source.files(case) if row.source is not None else {},
    }


def outcome(reason: Reason, *, is_late: bool) -> tuple[str, Reason]:
    """The status and reason of a case whose worker failed or refused it.

    A timeout with `is_late`, or a case that cannot run on this machine, is not a failure.
    """
    if reason.code == "timeout" and is_late:
        return "skipped", NO_TURN
    return "skipped" if reason.code in CANNOT_HERE else "failed", reason


def start_workers(
    rows: Sequence[RowPlan], table: Sequence[RowPlan], context: RunContext, share: float
) -> bool:
    """Start the workers of `rows` before their share of the time begins; see decision 024.

    A worker that `table` uses too has until the end of the run, another only `share` of that.
    False if one was not ready in time.
    """
    machine, in_time = context.machine, True
    shared = {worker_key(case, row) for row in table for case in row.cases}
    needed = dict.fromkeys(
        worker_key(case, row)
        for row in rows
        for case in row.cases
        if beforehand(case, row.workload, machine, context.software) is None
    )
    # If start-up times are a row's result, other imports must not slow them down, and those that
    # are compared, of one library, must run under the same load.
    compares = any(row.shares_workers for row in table)
    most = max(1, machine.cpu.effective_cores // (2 if compares else 1))
    for keys in _together(needed, machine, most, by_library=compares):
        if context.left_s <= 0:
            return False
        with context.overhead.spending(STARTING), context.pool.starting(keys):
            for key in keys:
                left_s = max(0.0, context.left_s)
                deadline_s = min(START_S, left_s if key in shared else share * left_s)
                try:
                    context.pool.start(key, deadline_s)
                except WorkerFailed as failure:
                    in_time = in_time and failure.reason.code != "timeout"
    return in_time


def _together(
    keys: Iterable[WorkerKey], machine: Machine, most: int, *, by_library: bool
) -> Iterator[list[WorkerKey]]:
    """The workers in groups that start at once, of up to `most`, each of one library if asked."""
    taken: set[str] = set()  # GPUs on which a second worker would end the first
    groups: dict[str, list[WorkerKey]] = {}
    for key in keys:
        if not key.alone and key.device not in taken:
            taken |= {key.device} & machine.exclusive
            groups.setdefault(key.backend if by_library else "", []).append(key)
    for group in groups.values():
        yield from (group[at : at + most] for at in range(0, len(group), most))
