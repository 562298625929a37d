"""The workers of a run: start, ask, freeze and end them.

At most one is awake: the spinning threads of an idle ONNX Runtime slowed a torch candidate by
15-60% (docs/decisions/003).
"""

import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from ..contract import kind_of
from ..machine.warnings import library_warnings
from ..process import children
from ..process.children import ending
from ..process.line_process import LineTooLong
from ..records import events as ev
from ..records.reason import Reason, Warning
from ..records.reply import Failure, Unreadable, read
from ..report.plausible import absurdity
from ..worker.launcher import launch_of
from .answers import Block, Hello
from .control import Cancelled, Control
from .guardian_client import Guardian
from .worker_process import PATIENCE_S, WorkerKey, WorkerProcess, WorkerSettings, keep_headers

HINTS = {
    "timeout": "choose a smaller size or raise --budget",
    "worker_died": "run it alone to see whether it dies again",
}
SLOW_START = "raise --budget; `workbench doctor` tries to load it"
LOG_S = 0.2  # between looks at the log of a busy worker; a loop prints 1 GB in a second
DEATH_S = 1.0  # for a worker to end once its pipe has closed
HANGS_S = 20.0  # after which a first start on a GPU counts as hanging
RESTART_SHARES, RESTART_S = 5.0, 10.0  # longest restart: times the first start, but at least
MADE_ROOM = Reason("exclusive_gpu", "ended for another process: its GPU admits one at a time")
KILLED_HINT = "killed from outside, most often by the kernel for lack of memory: see dmesg"
CPU_LIMIT_HINT = "processor time is limited here, which may have ended it: raise `ulimit -t`"


class WorkerFailed(Exception):
    """A request ended without a result; `Pool.is_alive` says whether its worker survived."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


Listener = Callable[[ev.AnyEvent], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A worker's result; `interrupted` if a pause or a suspend fell into its time."""

    result: T
    interrupted: bool


class Pool:
    """The workers of a run, at most one of them awake unless torchrun or srun started the run."""

    def __init__(self, settings: WorkerSettings, *, control: Control, listener: Listener) -> None:
        self._settings = settings
        self._control = control
        self._listener = listener
        # Under a launcher nothing is frozen, since a frozen rank would block all others.
        self._freezes = launch_of(os.environ) is None
        self._guardian = Guardian(settings.run_id)
        # Workers write here; the guardian removes it at the end, since some of them are killed.
        self.scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
        self._guardian.own_folder(self.scratch)
        keep_headers(self.scratch)
        self._workers: dict[WorkerKey, WorkerProcess] = {}
        self._begun: dict[WorkerKey, WorkerProcess] = {}  # launched by `starting`
        self._ending: list[WorkerProcess] = []  # killed or asked to end, not yet waited for
        self._unusable: dict[tuple[str, ...], Reason] = {}  # by `_use`: GPUs that a backend refused
        self.import_s: dict[WorkerKey, float] = {}  # seconds from start to imported backend
        self.longest_gpu_start_s = 0.0
        self._pauses: list[tuple[float, float]] = []  # start and end, on the host's clock

    def folder_next_to(self, target: Path) -> Path:
        """A hidden folder in which a worker writes `target`; the guardian removes what is left."""
        hidden = target.absolute().with_name(f".{self.scratch.name}")
        self._guardian.own_folder(hidden)
        return hidden

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        """Make sure that a worker runs and has imported its backend; WorkerFailed if it cannot.

        A backend that cannot use a GPU is not started on it again, since each start takes seconds.
        """
        if key in self._workers:
            return
        if known := self._unusable.get(self._use(key)):
            raise WorkerFailed(known)
        if deadline_s <= 0:
            raise WorkerFailed(Reason("timeout", "no time was left to start it", "raise --budget"))
        on_gpu = kind_of(key.device).column == "gpu"
        took_s = [s for other, s in self.import_s.items() if self._use(other) == self._use(key)]
        if on_gpu and took_s:
            deadline_s = min(deadline_s, max(RESTART_S, RESTART_SHARES * max(took_s)))
        self._workers[key] = self._begun.pop(key) if key in self._begun else self._launch(key)
        try:
            hello = self._reply(key, deadline_s, Hello).result
        except WorkerFailed as failure:
            if on_gpu:
                # These codes may be temporary: too little time, or memory that our own cases fill.
                code = failure.reason.code
                lacked_time = not took_s and code == "timeout" and deadline_s < HANGS_S
                lacked_memory = took_s and code == "no_memory"
                if not (lacked_time or lacked_memory):
                    self._unusable.setdefault(self._use(key), failure.reason)
                self.end(key)
            raise
        self._record_start(key, hello)

    def _record_start(self, key: WorkerKey, hello: Hello) -> None:
        worker = self._workers[key]
        began, ended = worker.began, time.monotonic()
        if hello.ready_s is not None and began <= hello.ready_s <= ended:
            ended = hello.ready_s  # the answer may have waited while others were read
        paused_s = sum(end - start for start, end in self._pauses if began <= start < ended)
        self.import_s[key] = import_s = ended - began - paused_s
        if not kind_of(key.device).on_host:
            self.longest_gpu_start_s = max(self.longest_gpu_start_s, import_s)
        started: Any = {"pid": worker.pid, "import_s": import_s, "versions": hello.versions}
        self._listener(ev.WorkerStarted(at_s=self._control.now(), worker=key.name, **started))
        version, openmp = (hello.versions.get(name) for name in (key.backend, "OpenMP"))
        for warning in library_warnings(key.backend, version, openmp):
            self._warn(warning)

    @contextmanager
    def starting(self, keys: Iterable[WorkerKey]) -> Iterator[None]:
        """Let the processes of `keys` import in parallel while the block calls `start` for each.

        Those that were not started are killed at its end, so that none disturbs a measurement.
        """
        try:
            for key in keys:
                if key not in self._workers and self._use(key) not in self._unusable:
                    with suppress(WorkerFailed):  # `start` tries again, and reports it
                        self._begun[key] = self._launch(key)
            yield
        finally:
            for worker in self._begun.values():
                worker.kill()
                self._ending.append(worker)
            self._begun.clear()

    def _launch(self, key: WorkerKey) -> WorkerProcess:
        """A new worker, asked to import its backend."""
        if key.device in self._settings.exclusive:
            for other in [other for other in self._workers if other.device == key.device]:
                self._remove(other, MADE_ROOM, self._workers[other].stop)
        try:
            worker = WorkerProcess(key, self._settings, self.scratch)
        except OSError as error:
            text = f"its worker could not be started: {error.strerror}"
            hint = "free memory, disk or processes (ulimit -a), or check --python"
            raise WorkerFailed(Reason("not_started", text, hint)) from None
        self._guardian.add_group(worker.pid)
        with suppress(OSError):  # it has died, and the wait for its answer will fail
            worker.request({"op": "hello"})
        return worker

    def _use(self, key: WorkerKey) -> tuple[str, ...]:
        """Device and backend of a worker, and its side of `ab`, which may have another Python."""
        return key.device, key.backend, key.alone if key.alone in self._settings.sides else ""

    def end(self, key: WorkerKey) -> None:
        """End one worker if it lives; the next case gets a fresh one."""
        if key in self._workers:
            self._remove(key, None, self._workers[key].stop)

    def is_alive(self, key: WorkerKey) -> bool:
        return key in self._workers

    def held(self, key: WorkerKey) -> set[str]:
        """The names of everything that a worker has loaded; empty if it does not live."""
        return self._workers[key].held if key in self._workers else set()

    def process_ids(self) -> list[int]:
        """All processes of the run: workers, this one, its front end, and other ranks."""
        workers = (children.family(worker.pid) for worker in self._workers.values())
        front_end = [self._control.front_end] if self._control.front_end else []
        own = [os.getpid(), *front_end, *(pid for members in workers for pid in members)]
        return own if self._freezes else [*own, *_other_ranks(own)]

    def ask(self, key: WorkerKey, deadline_s: float, kind: type[T], **request: Any) -> Answer[T]:
        """Wake the worker, let it carry out one request, and freeze it again.

        `kind` is a type in `answers`; an answer of another type ends the worker.
        """
        if deadline_s <= 0:
            raise WorkerFailed(Reason("timeout", "no time was left to ask it", "raise --budget"))
        worker = self._workers[key]
        worker.thaw()
        try:
            worker.request(request)
        except OSError:
            raise self._lost(key, "worker_died", "the worker process was gone") from None
        return self._reply(key, deadline_s, kind)

    def _reply(self, key: WorkerKey, deadline_s: float, kind: type[T]) -> Answer[T]:
        """The answer of an awake worker, which is then frozen."""
        worker = self._workers[key]
        line, interrupted = self._await(key, deadline_s, kind)
        try:
            reply = read(line, kind)
            if absurd := absurdity(reply):  # else `workbench open` would refuse the journal
                raise Unreadable(absurd)
        except Unreadable as error:
            text = f"it gave an answer that cannot be read: {error}"
            raise self._lost(key, "worker_died", text, gone=False) from None
        worker.compiling_since = None
        if isinstance(reply, Failure) and reply.fatal:
            self._remove(key, reply.reason, worker.stop)
        else:
            self._freeze(key)
        if isinstance(reply, Failure):
            raise WorkerFailed(reply.reason)
        return Answer(reply, interrupted)

    def _await(self, key: WorkerKey, deadline_s: float, kind: type[T]) -> tuple[bytes, bool]:
        """The answer, and whether a pause interrupted it; meanwhile a long log is emptied."""
        worker, interrupted = self._workers[key], False
        # Nothing of ours wakes while a block is timed.
        look_s = deadline_s if kind is Block else LOG_S
        self._control.was_continued()
        until = time.monotonic() + deadline_s
        while True:
            left_s = until - time.monotonic()
            happening = self._control.wait(worker.fileno(), min(left_s, look_s))
            if happening == "deadline" and left_s > look_s:
                worker.empty_log_if_long()
                continue
            if happening == "deadline":
                within, hint = f"within {max(0.1, round(deadline_s, 1)):g} s", ""
                text = f"no answer {within}"
                if kind is Hello:
                    text, hint = f"its library was not loaded {within}", SLOW_START
                raise self._lost(key, "timeout", text, hint, gone=False)
            if happening in ("readable", "child"):
                try:
                    line = worker.answer()
                except EOFError:
                    raise self._lost(key, "worker_died", "the worker process died") from None
                except LineTooLong:
                    text = "it gave an answer without an end"
                    raise self._lost(key, "worker_died", text, gone=False) from None
                if line is not None:
                    interrupted = interrupted or self._control.was_continued()
                    return line, interrupted
            else:
                until += self._pause(worker, happening)
                interrupted = True

    def _pause(self, worker: WorkerProcess, wish: str) -> float:
        """Stop all workers until the user resumes; returns the length in seconds."""
        # The clock stands still from here on, so a later reading would lie after the pause.
        at_s, began = self._control.now(), time.monotonic()
        awake = [worker, *self._begun.values()]
        for each in awake:
            each.freeze()
        self._listener(ev.StatusChanged(at_s=at_s, status="paused"))
        try:
            with self._control.at_pause():
                if wish == "suspend":
                    os.kill(os.getpid(), signal.SIGSTOP)  # returns on SIGCONT
                else:
                    self._control.wait_for_resume()
        finally:  # also when the run is cancelled meanwhile
            ended = time.monotonic()
            self._pauses.append((began, ended))
            self._control.exclude(away_s := ended - began)
        self._listener(ev.StatusChanged(at_s=self._control.now(), status="running"))
        for each in awake:
            each.thaw()
        return away_s

    def _freeze(self, key: WorkerKey) -> None:
        if self._freezes and not self._workers[key].freeze():
            text = "idle workers could not be stopped between turns and may disturb the others"
            check = "on Linux, check that signals reach child processes"
            remedy = f"do not rely on ratios below 1.5x; {check}"
            self._warn(Warning("not_frozen", text, remedy, key.name))

    def _warn(self, warning: Warning) -> None:
        self._listener(ev.WarningRaised(at_s=self._control.now(), warning=warning))

    def _lost(
        self, key: WorkerKey, code: str, text: str, hint: str = "", *, gone: bool = True
    ) -> WorkerFailed:
        """Remove a worker that is `gone`, or else kill it; returns the error to raise."""
        worker = self._workers[key]
        if gone:
            # Reap first, so that our own SIGKILL is not taken for the cause of death.
            worker.exit_code(DEATH_S)
        exit_code = worker.exit_code()
        hint = KILLED_HINT if exit_code == -signal.SIGKILL else hint or HINTS[code]
        is_limited = resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY
        if is_limited and exit_code in (-signal.SIGKILL, -signal.SIGXCPU):
            hint = CPU_LIMIT_HINT
        reason = Reason(code, ending(text, exit_code, worker.log_tail()), hint)
        self._remove(key, reason, worker.kill)
        return WorkerFailed(reason)

    def _remove(self, key: WorkerKey, reason: Reason | None, end: Callable[[], None]) -> None:
        """End one worker in the middle of the run."""
        worker = self._workers[key]
        end()
        self._forget(key, reason)
        if self._reap(worker):
            return
        text = f"{key.name} (process {worker.pid}) cannot be ended: the driver holds it"
        hint = "read `dmesg | grep -iE 'nvrm|xid'`, then reboot"
        if kind_of(key.device).column == "gpu":
            self._unusable[self._use(key)] = Reason("not_ended", text, hint)
        self._warn(Warning("not_ended", text, hint, key.name))

    def _forget(self, key: WorkerKey, reason: Reason | None) -> None:
        del self._workers[key]
        self._listener(ev.WorkerEnded(at_s=self._control.now(), worker=key.name, reason=reason))

    def _reap(self, worker: WorkerProcess) -> bool:
        """Clean up after a killed worker; False if it cannot be ended, as when a driver hangs."""
        ended = worker.reap() is not None
        if ended:
            self._guardian.remove_group(worker.pid)
        worker.drop_compiled()
        return ended

    def end_all(self, *, at_once: bool) -> None:
        """Kill all workers if `at_once`, else ask them to end; does not wait for them."""
        for key, worker in list(self._workers.items()):
            if at_once:
                worker.kill()
            else:
                worker.ask_to_end()
            self._ending.append(worker)
            self._forget(key, None)

    def close(self) -> None:
        """Wait, but not forever, for the processes of this run to end."""
        try:
            # A further signal ends the wait.
            with suppress(Cancelled), self._control.raising(self._control.ends + 1):
                until = time.monotonic() + PATIENCE_S
                for worker in self._ending:
                    worker.exit_code(until - time.monotonic())
        finally:
            children.kill_all()
        try:
            with suppress(Cancelled), self._control.raising(self._control.ends + 1):
                for worker in self._ending:
                    self._reap(worker)
                self._guardian.close()
        finally:
            self._guardian.kill()
            shutil.rmtree(self.scratch, ignore_errors=True)  # in case the guardian was killed


def _other_ranks(own: Sequence[int]) -> list[int]:
    """The processes that the launcher of this rank started on this machine, and the launcher."""
    with suppress(psutil.Error):
        launchers = {psutil.Process(pid).ppid() for pid in own[:2]} - set(own)
        return [pid for parent in launchers if parent > 1 for pid in children.family(parent)]
    return []
