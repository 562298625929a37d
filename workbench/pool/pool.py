"""The workers of a run: start one, ask it, freeze it, end it.

Only one is ever awake: an idle ONNX Runtime pool that spins slows a torch candidate by 15-60 %
(measured; see docs/decisions/003).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from ..process.exit_status import ending
from ..records.reason import Reason
from ..worker.ranks import launch_of
from . import guardian
from .control import Control
from .worker_process import WorkerKey, WorkerProcess, drop_compiled, group_members


class WorkerFailed(Exception):  # noqa: N818 - the outcome of a request
    """A request ended without a result; whether the worker went with it, `Pool.is_alive` says."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class Guardian:
    """The process that outlives the engine just long enough to end its workers."""

    def __init__(self, run_id: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            bufsize=1,
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def _ranks_beside(own: Sequence[int]) -> list[int]:
    """What the launcher of this rank started on this machine, itself included."""
    with suppress(psutil.Error):
        launchers = {psutil.Process(pid).ppid() for pid in own[:2]} - set(own)
        return [pid for parent in launchers if parent > 1 for pid in group_members(parent)]
    return []


@dataclass(frozen=True)
class Answer:
    """A worker's result; `interrupted` if the time it took includes a pause or a suspend."""

    result: dict[str, Any]
    interrupted: bool


class Pool:
    """The workers of a run, of which at most one is awake, unless torchrun or srun started it."""

    def __init__(
        self,
        *,
        control: Control,
        run_id: str,
        python: str,
        threads: int,
        memory_bytes: int,
        hide_gpus: bool,
        on_start: Callable[[WorkerKey, int, float, dict[str, str]], None],
        on_end: Callable[[WorkerKey, Reason | None], None],
        on_status: Callable[[str], None],
        on_freeze_failure: Callable[[WorkerKey], None],
    ) -> None:
        self._control = control
        self._run_id = run_id
        self._python = python
        self._threads = threads
        self._memory_bytes = memory_bytes
        self._hide_gpus = hide_gpus  # from workers on the CPU
        self._alone = launch_of(os.environ) is None  # a stopped rank would stop all others
        self._on_start = on_start
        self._on_end = on_end
        self._on_status = on_status
        self._on_freeze_failure = on_freeze_failure
        self._guardian = Guardian(run_id)
        # For what workers write, of whom some are killed; the guardian removes it at the end.
        self.scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
        self._guardian.tell(str(self.scratch))
        self._workers: dict[WorkerKey, WorkerProcess] = {}
        self.import_s: dict[WorkerKey, float] = {}  # from the start to an imported backend
        self.generation: dict[WorkerKey, int] = {}  # how often a worker had to be replaced

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        """Have a worker with its backend imported; WorkerFailed if it cannot be."""
        if key in self._workers:
            return
        began = time.monotonic()
        try:
            worker = WorkerProcess(
                key,
                self._python,
                self._run_id,
                self._threads,
                self._memory_bytes,
                scratch=self.scratch,
                hide_gpus=self._hide_gpus,
            )
        except OSError as error:
            text = f"its worker could not be started: {error.strerror}"
            hint = "free memory, disk or processes (ulimit -a), or check --python"
            raise WorkerFailed(Reason("not_started", text, hint)) from None
        self._workers[key] = worker
        self._guardian.tell(f"+{worker.pid}")
        hello = self.ask(key, deadline_s, op="hello").result
        self.import_s[key] = time.monotonic() - began
        self._on_start(key, worker.pid, self.import_s[key], hello["versions"])

    def end(self, key: WorkerKey) -> None:
        """End one worker, if it lives: the next case gets a fresh one."""
        if key in self._workers:
            self._remove(key, None, self._workers[key].stop)

    def is_alive(self, key: WorkerKey) -> bool:
        return key in self._workers

    def process_ids(self) -> list[int]:
        """Every process of the run: workers, this one, the one that draws it, and other ranks."""
        workers = (group_members(worker.pid) for worker in self._workers.values())
        front_end = [self._control.front_end] if self._control.front_end else []
        own = [os.getpid(), *front_end, *(pid for members in workers for pid in members)]
        return own if self._alone else [*own, *_ranks_beside(own)]

    def ask(self, key: WorkerKey, deadline_s: float, **request: Any) -> Answer:
        """Wake the worker, let it carry out one request, freeze it again."""
        worker = self._workers[key]
        worker.thaw()
        worker.begin(request.get("case"))
        try:
            worker.send(request)
        except OSError:
            raise self._lost(key, "worker_died", "the worker process was gone") from None
        reply, interrupted = self._await(key, worker, deadline_s)
        worker.compiling = False
        if "error" in reply:
            error = reply["error"]
            fatal = error.pop("fatal")
            reason = Reason(**error)
            if fatal:
                self._remove(key, reason, worker.stop)
            else:
                self._freeze(key, worker)
            raise WorkerFailed(reason)
        self._freeze(key, worker)
        return Answer(reply["ok"], interrupted)

    def _await(
        self, key: WorkerKey, worker: WorkerProcess, deadline_s: float
    ) -> tuple[dict[str, Any], bool]:
        interrupted = False
        self._control.was_continued()
        until = time.monotonic() + deadline_s
        while True:
            happening = self._control.wait(worker.fileno(), until - time.monotonic())
            if happening == "deadline":
                text = f"no answer within {deadline_s:.0f} s"
                raise self._lost(key, "timeout", text)
            if happening in ("readable", "child"):
                try:
                    line = worker.receive()
                except EOFError:
                    raise self._lost(key, "worker_died", "the worker process died") from None
                if line is not None:
                    interrupted = interrupted or self._control.was_continued()
                    return msgspec.json.decode(line), interrupted
            else:
                until += self._stand_by(worker, happening)
                interrupted = True

    def _stand_by(self, worker: WorkerProcess, wish: str) -> float:
        """Hold everything still until the user comes back; returns how long it took."""
        began = time.monotonic()
        worker.freeze()
        self._on_status("paused")
        if wish == "suspend":
            os.kill(os.getpid(), signal.SIGSTOP)  # returns when the shell says fg
        else:
            self._control.wait_for_resume()
        away = time.monotonic() - began
        self._control.exclude(away)
        self._on_status("running")
        worker.thaw()
        return away

    def _freeze(self, key: WorkerKey, worker: WorkerProcess) -> None:
        if self._alone and not worker.freeze():
            self._on_freeze_failure(key)

    def _lost(self, key: WorkerKey, code: str, text: str) -> WorkerFailed:
        """Clear away a worker that died or has to be killed."""
        worker = self._workers[key]
        if code == "worker_died":
            # Reap first, so that our own SIGKILL does not pass for the cause of death.
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(1.0)
        code_seen = worker.process.poll()
        message = ending(text, code_seen, worker.log_tail())
        hint = {
            "timeout": "take a smaller size, or give it a larger --budget",
            "worker_died": "run its workload alone to see whether it dies again",
        }[code]
        if code_seen == -signal.SIGKILL:
            hint = "killed from outside, most often by the kernel for lack of memory: see dmesg"
        reason = Reason(code, message, hint)
        self._remove(key, reason, worker.kill)
        return WorkerFailed(reason)

    def _remove(self, key: WorkerKey, reason: Reason | None, end: Callable[[], int]) -> None:
        worker = self._workers.pop(key)
        self.generation[key] = self.generation.get(key, 0) + 1
        end()
        if worker.compiling:
            drop_compiled()
        self._guardian.tell(f"-{worker.pid}")
        self._on_end(key, reason)

    def close(self, *, at_once: bool) -> None:
        """End all workers: killed when the run was cut short, asked to otherwise."""
        if not at_once:
            for worker in self._workers.values():
                worker.ask_to_end()  # all at once, so that they end side by side
        for key, worker in list(self._workers.items()):
            self._remove(key, None, worker.kill if at_once else worker.stop)
        self._guardian.close()
