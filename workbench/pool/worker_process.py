"""One worker: its process, the pipe to it, and how it is frozen, thawed and ended.

Each worker leads its own session and process group, so that a signal reaches its children too.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from .. import catalog
from ..contract import DEVICE_KINDS, Case, kind_of
from ..machine.packages.software import PRECISION_VARIABLES
from ..process.exit_status import tail
from ..report.journal import runs_folder
from ..worker.ranks import BOOTSTRAP
from .guardian import RUN_ID_VARIABLE
from .resource_limits import confine

CAN_FREEZE = hasattr(signal, "SIGSTOP")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def compiled_folder() -> Path:
    """What torch.compile keeps from run to run: apart from the user's own cache, since a worker
    that is killed while it compiles spoils it; elsewhere if TORCHINDUCTOR_CACHE_DIR says so."""
    return runs_folder().with_name("compiled")


def drop_compiled() -> None:
    """A compilation cut short leaves half a library, on which every later one would fail."""
    shutil.rmtree(compiled_folder(), ignore_errors=True)


@dataclass(frozen=True)
class WorkerKey:
    """What makes two cases share a worker.

    `threads` is that of `catalog.process_of`; `alone` names the case that has a worker to itself,
    so that its memory can be told, or the row that has, so that its workers begin from nothing.
    """

    device: str
    backend: str
    threads: int | None = None
    alone: str = ""

    @property
    def name(self) -> str:
        suffix = "" if self.threads is None else f"/t{self.threads}"
        return f"{self.device}/{self.backend}{suffix}{self.alone and ' for '}{self.alone}"


class WorkerProcess:
    """One worker, awake only between `ask` and its answer."""

    def __init__(
        self,
        key: WorkerKey,
        python: str,
        run_id: str,
        threads: int,
        memory_bytes: int,
        *,
        scratch: Path,
        hide_gpus: bool,
    ) -> None:
        self.key = key
        # Unlinked from the start: nothing to clean up, however we end.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        device = "cpu" if kind_of(key.device).on_host else key.device
        environment = dict(os.environ)
        for name in PRECISION_VARIABLES:
            environment.pop(name, None)
        variables = (*THREAD_VARIABLES, *catalog.backend(key.backend).thread_variables)
        environment.update(dict.fromkeys(variables, str(key.threads or threads)))
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled_folder()))
        if device == "cpu" and hide_gpus:
            # Both torch.compile and Adam open CUDA where they see it (pytorch#150622).
            environment.update({k.hidden_by: "" for k in DEVICE_KINDS.values() if k.hidden_by})
        environment.update(
            {"ORT_DISABLE_TELEMETRY": "1", RUN_ID_VARIABLE: run_id, "TMPDIR": str(scratch)}
        )
        module = catalog.LAB_MODULE if key.backend == catalog.LAB else "workbench.worker.worker"
        with theirs:
            self.process = subprocess.Popen(
                [
                    python,
                    str(BOOTSTRAP),
                    module,
                    str(theirs.fileno()),
                    key.backend,
                    device,
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        confine(self.pid, memory_bytes if device == "cpu" else None)
        self._channel = ours
        self._unread = b""
        self.compiling = False  # perhaps, at this moment
        self._fresh: set[str] = set()  # ids of compiled cases that had no turn yet

    @property
    def pid(self) -> int:
        """Process id, and the id of the worker's process group."""
        return self.process.pid

    def fileno(self) -> int:
        return self._channel.fileno()

    def send(self, request: dict[str, Any]) -> None:
        self._channel.sendall(msgspec.json.encode(request) + b"\n")

    def begin(self, case: Any) -> None:
        """What it is asked now is about `case`, or the case of that id: torch compiles from the
        preparation on, and what is left over at the first turn."""
        if isinstance(case, Case):
            self.compiling = case.is_compiled
            if self.compiling:
                self._fresh.add(case.id)
        else:
            self.compiling = case in self._fresh
            self._fresh.discard(case)

    def receive(self) -> bytes | None:
        """A whole answer, None while it is incomplete; EOFError when the worker is gone."""
        try:
            data = self._channel.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if self.process.poll() is None:
                return None
            data = b""
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError
        self._unread += data
        line, newline, rest = self._unread.partition(b"\n")
        if not newline:
            return None
        self._unread = rest
        return line

    def freeze(self) -> bool:
        """Stop the whole group; True once every process of it is seen to stand still."""
        if not CAN_FREEZE:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP)
        until = time.monotonic() + 1.0
        while not all(map(_stands_still, group_members(self.pid))):
            if time.monotonic() > until:
                return False
            time.sleep(0.0002)
        return True

    def thaw(self) -> None:
        if CAN_FREEZE:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> int:
        """End the whole group at once; returns the exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._channel.close()
        return self.process.wait()

    def ask_to_end(self) -> None:
        """Close the pipe of an awake worker, which then ends by itself."""
        self.thaw()
        self._channel.close()

    def stop(self, patience_s: float = 1.0) -> int:
        """Ask the worker to end, then make sure that its whole group did."""
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        return self.kill()

    def log_tail(self) -> str:
        """The last lines the worker and its libraries wrote."""
        return tail(self._log)


def group_members(group: int) -> list[int]:
    """The group's leader and its descendants."""
    tree = Path("/proc")
    if not (tree / "self/task").exists():
        with suppress(psutil.NoSuchProcess):
            return [group, *(child.pid for child in psutil.Process(group).children(recursive=True))]
        return [group]
    found, to_visit = [], [group]
    while to_visit:
        pid = to_visit.pop()
        found.append(pid)
        for thread_children in tree.glob(f"{pid}/task/*/children"):
            with suppress(OSError):
                to_visit += [int(child) for child in thread_children.read_text().split()]
    return found


def _stands_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (
            psutil.STATUS_STOPPED,
            psutil.STATUS_TRACING_STOP,
            psutil.STATUS_ZOMBIE,
        )
    except psutil.NoSuchProcess:
        return True
