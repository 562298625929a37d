"""The workers of a run: how many threads and how much memory they may use, and word of them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..planning.request import Request
from ..records import events as ev
from ..records.machine import Machine
from ..records.reason import Reason, Warning
from .control import Control
from .pool import Pool
from .worker_process import WorkerKey


def make_pool(
    request: Request,
    machine: Machine,
    *,
    run_id: str,
    control: Control,
    emit: Callable[[ev.AnyEvent], None],
    warn: Callable[[Warning], None],
) -> Pool:
    """A pool that tells of its workers' beginning and end by events."""

    def started(key: WorkerKey, pid: int, import_s: float, versions: dict[str, str]) -> None:
        emit(
            ev.WorkerStarted(
                at_s=control.now(),
                worker=key.name,
                pid=pid,
                import_s=import_s,
                versions=versions,
            )
        )

    def ended(key: WorkerKey, reason: Reason | None) -> None:
        emit(ev.WorkerEnded(at_s=control.now(), worker=key.name, reason=reason))

    def not_frozen(key: WorkerKey) -> None:
        warn(
            Warning(
                "not_frozen",
                "idle workers could not be stopped between turns and may disturb the others",
                "trust ratios below 1.5x less; on Linux, check that signals reach child processes",
                key.name,
            )
        )

    return Pool(
        control=control,
        run_id=run_id,
        python=request.python or sys.executable,
        threads=max(request.threads, default=machine.cpu.effective_cores),
        memory_bytes=machine.memory.available_bytes,
        hide_gpus=any(not gpu.simulated for gpu in machine.gpus),
        on_start=started,
        on_end=ended,
        on_status=lambda status: emit(ev.StatusChanged(at_s=control.now(), status=status)),
        on_freeze_failure=not_frozen,
    )
