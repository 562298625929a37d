"""Searches for the largest batch that fits: doubles it until it fails, then bisects.

Running out of memory is a result.  On a CPU each attempt has a fresh worker; a GPU's worker lives
on.  To fill a GPU can end other processes on it, so the search does not start while it has some.
"""

from collections.abc import Sequence
from dataclasses import replace

from .. import catalog
from ..contract import MOST_BATCH, Case, kind_of
from ..planning import admission
from ..planning.plan import RowPlan
from ..planning.usage import UsageError
from ..pool.answers import Attempt
from ..pool.pool import KILLED_HINT, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.document import BatchAttempt, LargestBatch
from ..records.machine import Machine
from ..records.reason import Reason
from .context import START_S, RunContext
from .overhead import STARTING
from .workers import NO_TURN, outcome, worker_key

LEAST_ATTEMPT_S = 10.0  # for one attempt, even if its share of the budget is over
LEAST_BUILD_S = 1.0  # with less time left, no attempt begins
CLOSE = 1.05  # factor to which the largest batch is determined
GROWTH = 2.5  # most times that an attempt takes longer than the one at half the batch


def check_alone(machine: Machine, cases: Sequence[Case], *, forced: bool) -> None:
    """Raise UsageError if a search would take memory from other users' processes."""
    for gpu in machine.gpus:
        if forced or gpu.simulated or all(case.device != gpu.device for case in cases):
            continue
        if gpu.processes is None:
            text = f"cannot see which processes use {gpu.device}"
            raise UsageError(f"{text}: add --force if it is idle")
        if gpu.processes:
            risk = "running out of memory could end it"
            raise UsageError(f"another process uses {gpu.device}, and {risk}: wait, or add --force")


def search_rows(rows: Sequence[RowPlan], context: RunContext) -> None:
    """Search every candidate of the rows, in equal shares of the time left."""
    left = sum(len(row.cases) for row in rows)
    for row in rows:
        scenario = row.scenario.id
        context.record(ev.RaceStarted, scenario=scenario, share_s=max(0.0, context.left_s))
        for case in row.cases:
            context.control.check()
            search(case, scenario, context.now() + max(0.0, context.left_s) / left, context)
            left -= 1


def search(case: Case, scenario: str, until_s: float, context: RunContext) -> None:
    """Find the largest batch of `case`, starting at its own; `scenario` is its row."""
    attempts, ended_by = list[BatchAttempt](), "cancelled"
    try:
        ended_by = _fill(attempts, case, until_s, context)
    finally:
        context.pool.end(worker_key(case))
        batch = max((each.batch for each in attempts if each.reason is None), default=None)
        found = LargestBatch(case.id, batch, ended_by, attempts)
        context.record(ev.LargestBatchFound, found=found)
    why = attempts[-1].reason if attempts else None
    if batch is not None:
        context.finish(case.id, scenario, "ok", None)
    elif why is None:
        context.finish(case.id, scenario, "skipped", NO_TURN)
    else:
        context.finish(case.id, scenario, *outcome(why, is_late=True))


def _fill(attempts: list[BatchAttempt], case: Case, until_s: float, context: RunContext) -> str:
    """Try batches until the largest is known well enough or time runs out; returns the code of the
    bound that was reached, or of the reason that ended the search."""
    bound, fits, fails, took_s = "range", 0, 0, 0.0
    batch: int | None = case.batch or 1
    while batch is not None:
        grown = GROWTH if batch > fits and not fails else 1.0
        began_s = context.now()
        if began_s + grown * took_s >= until_s:
            return "budget"
        attempt = _try(replace(case, batch=batch), worker_key(case), until_s, context)
        if attempt is None:
            return "budget"
        context.record(ev.BatchTried, case=case.id, attempt=attempt)
        attempts.append(attempt)
        took_s = context.now() - began_s
        if (reason := attempt.reason) is None:
            fits = batch
        elif _is_memory(reason) or reason.code in ("bad_input", "shared_memory"):
            # A smaller batch may fit: memory or the data set was too small.
            fails, bound = batch, "memory" if _is_memory(reason) else reason.code
        else:
            return "budget" if reason.code == "timeout" else reason.code
        batch = _next(fits, fails)
    return bound


def _try(case: Case, key: WorkerKey, until_s: float, context: RunContext) -> BatchAttempt | None:
    """One attempt; None if no time is left to build."""

    def deadline_s() -> float:
        return context.deadline(max(LEAST_ATTEMPT_S, until_s - context.now()))

    assert case.batch is not None  # the plan has only cases with one
    if deadline_s() < LEAST_BUILD_S:
        return None
    # A GPU's worker has no limit on main memory, so the kernel might end another process.
    if refusal := admission.beyond_host(catalog.load(case.workload).work(case), context.machine):
        return BatchAttempt(case.batch, None, None, refusal)
    pool, seed = context.pool, context.request.seed
    try:
        with context.overhead.spending(STARTING):
            pool.start(key, min(START_S, deadline_s()))
        if deadline_s() < LEAST_BUILD_S:
            return None
        answer = pool.ask(key, deadline_s(), Attempt, op="attempt", case=case, seed=seed)
    except WorkerFailed as failure:
        return BatchAttempt(case.batch, None, None, failure.reason)
    finally:
        if kind_of(case.device).on_host:
            pool.end(key)
    step_s = answer.result.step_s / context.speed(case.device)
    return BatchAttempt(case.batch, step_s, answer.result.memory_peak_bytes, None)


def _is_memory(reason: Reason) -> bool:
    """Whether memory ran out: the library refused, or the kernel killed the worker."""
    return reason.code == "no_memory" or reason.hint == KILLED_HINT


def _next(fits: int, fails: int) -> int | None:
    """The next batch to try; None when the largest is known well enough."""
    if not fails:
        return min(2 * fits, MOST_BATCH) if fits < MOST_BATCH else None
    if fits == 0:
        return fails // 2 or None
    middle = (fits + fails) // 2
    return middle if fails > max(CLOSE * fits, fits + 1) else None
