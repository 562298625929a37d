"""Starts workers at once, before a row is raced that needs them; see decision 024."""

from collections.abc import Iterable, Iterator, Sequence

from ..planning.admission import beforehand
from ..planning.plan import RowPlan
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records.machine import Machine
from .context import RunContext
from .overhead import STARTING
from .preparation import START_DEADLINE_S, worker_key


def start_workers(
    rows: Sequence[RowPlan], table: Sequence[RowPlan], context: RunContext, share: float
) -> bool:
    """Start the workers that `rows` share before their share of the time begins.

    The table needs most of them anyway.  False if one takes longer than the run, or, for a worker
    that the table does not need, longer than the share.
    """
    machine, in_time = context.machine, True
    shared = {worker_key(case, row.scenario) for row in table for case in row.cases}
    needed = dict.fromkeys(
        worker_key(case, row.scenario)
        for row in rows
        for case in row.cases
        if beforehand(case, row.workload, machine, context.report.software) is None
    )
    # A row that takes these start-up times for its own needs some that no other import slowed, and
    # compares those of one library.
    compares = any(row.scenario.shares_workers for row in table)
    most = max(1, machine.cpu.effective_cores // (2 if compares else 1))
    for keys in _together(needed, machine, most, by_library=compares):
        if context.now() >= context.end_s:
            return False
        with context.overhead.spending(STARTING), context.pool.starting(keys):
            for key in keys:
                left_s = max(0.0, context.end_s - context.now())
                deadline_s = min(START_DEADLINE_S, left_s if key in shared else share * left_s)
                try:
                    context.pool.start(key, deadline_s)
                except WorkerFailed as failure:
                    in_time = in_time and failure.reason.code != "timeout"
    return in_time


def _together(
    keys: Iterable[WorkerKey], machine: Machine, most: int, *, by_library: bool
) -> Iterator[list[WorkerKey]]:
    """The workers that start at once: up to `most`, of one library only if asked for."""
    taken: set[str] = set()  # GPUs on which a second worker would end the first
    groups: dict[str, list[WorkerKey]] = {}
    for key in keys:
        if not key.alone and key.device not in taken:
            taken |= {key.device} & machine.exclusive
            groups.setdefault(key.backend if by_library else "", []).append(key)
    for group in groups.values():
        yield from (group[at : at + most] for at in range(0, len(group), most))
