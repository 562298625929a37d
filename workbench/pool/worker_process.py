"""One worker: its process, the pipe to it, and how it is frozen, thawed and ended.

Each worker leads its own session and process group, so that a signal reaches its children too.
"""

import getpass
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from .. import catalog
from ..contract import DEVICE_KINDS, THREAD_VARIABLES, Case, kind_of
from ..machine.packages.software import PRECISION_VARIABLES
from ..process import children
from ..process.children import command, limit
from ..process.cores import GPU_CORES, cpulist
from ..process.line_process import LineProcess
from ..records.comparison import Side
from ..report.journal import can_be_written, runs_folder
from ..worker import onnx_gpu
from .guardian import RUN_ID_VARIABLE

COMPILED = "TORCHINDUCTOR_CACHE_DIR"
LAB_MODULE = "workloads.lab.child"
PATIENCE_S = 1.0  # for a worker to end by itself
LEAST_HEADER_BYTES = 1 << 20  # smaller ones are incomplete: a precompiled header takes 150 MB
HALF_WRITTEN_S = 5.0  # age from which a compiled file is surely complete


def compiled_folder() -> Path:
    """The folder in which torch.compile keeps its code between runs.

    Not the user's own cache, which a worker killed while it compiles would spoil, unless
    TORCHINDUCTOR_CACHE_DIR names it.
    """
    return runs_folder().with_name("compiled")


def knows_compiler() -> bool:
    """Whether an earlier compilation left torch's facts about the compiler and its headers."""
    return any(compiled_folder().glob("precompiled_headers/*.gch"))


def drop_compiled(folder: Path, began: float) -> None:
    """Remove the latest files in `folder` of a compilation that began at `began` and was killed,
    since half a library breaks later compilations."""
    since = max(began, time.time() - HALF_WRITTEN_S)
    paths: list[Path] = []
    with suppress(OSError):  # another run may remove a folder meanwhile
        paths.extend(folder.rglob("*"))
    for path in paths:
        with suppress(OSError):
            if path.is_file():
                found = path.stat()
                # g++ creates a header's file long before it fills it.
                is_opened = path.suffix == ".gch" and found.st_size < LEAST_HEADER_BYTES
                if found.st_mtime >= (began if is_opened else since):
                    path.unlink()


def keep_headers(scratch: Path) -> None:
    """Link torch's folder for precompiled headers, which is below TMPDIR, to ours
    (`default_cache_dir` in torch/_inductor/runtime/cache_dir_utils.py)."""
    with suppress(OSError, KeyError):  # as for a user without a name; headers last for one run then
        folder = compiled_folder()
        folder.mkdir(parents=True, exist_ok=True)
        (scratch / f"torchinductor_{getpass.getuser()}").symlink_to(folder)


@dataclass(frozen=True)
class WorkerKey:
    """Cases with equal keys share a worker.

    `threads` is that of `catalog.process_of`.  `alone` names the case that has a worker of its own,
    the row whose workers must be fresh, or a side of `ab`.
    """

    device: str
    backend: str
    threads: int | None = None
    alone: str = ""

    @property
    def name(self) -> str:
        suffix = "" if self.threads is None else f"/t{self.threads}"
        return f"{self.device}/{self.backend}{suffix}{self.alone and ' for '}{self.alone}"


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that all workers of a run share."""

    run_id: str
    python: str  # their interpreter
    threads: int  # most threads of a case without a number of its own
    memory_bytes: int  # most private memory of a worker on the CPU
    hide_gpus: bool  # from workers on the CPU
    sides: Mapping[str, Side] = field(default_factory=dict)  # for `ab`, by `WorkerKey.alone`
    gpu_cores: dict[str, str] = field(default_factory=dict)  # by device: a list of those near it
    exclusive: frozenset[str] = frozenset()  # GPUs that admit one process at a time


class WorkerProcess(LineProcess):
    """One worker, awake only between a request and its answer."""

    def __init__(self, key: WorkerKey, settings: WorkerSettings, scratch: Path) -> None:
        self.began = time.monotonic()
        self.compiling_since: float | None = None  # time at which torch may have begun to compile
        self._not_run: set[str] = set()  # ids of compiled cases that have had no turn yet
        self.held: set[str] = set()  # ids of cases that it has loaded, and the user's code
        device = "cpu" if kind_of(key.device).on_host else key.device
        module = LAB_MODULE if key.backend == catalog.LAB else "workbench.worker.worker"
        side = settings.sides.get(key.alone) or Side("", "")
        variables = {**_environment(key, device, settings, side, scratch), **side.variables}
        # torch's headers go to our own folder, even if its code goes elsewhere.
        ours = compiled_folder()
        self.compiled_folders = {ours, Path(variables.get(COMPILED, ours))}
        super().__init__(
            command(module, python=side.python or settings.python),
            key.backend,
            device,
            environ=variables,
            new_session=True,
        )
        bounded = device == "cpu" and not catalog.backend(key.backend).own_environment
        # CUDA reserves far more address space than it uses.
        limit(self.pid, DATA=settings.memory_bytes if bounded else None)

    @property
    def pid(self) -> int:
        """Process id, and the id of the worker's process group."""
        return self.process.pid

    def fileno(self) -> int:
        return self.socket.fileno()

    def request(self, request: dict[str, Any]) -> None:
        """Send a request; `compiling_since` is set while torch may compile, which is during the
        preparation and the first turn of a compiled case."""
        case = request.get("case")
        if isinstance(case, Case):
            compiles = case.is_compiled
            if compiles:
                self._not_run.add(case.id)
        else:
            compiles = case in self._not_run
            self._not_run.discard(str(case))
        self.compiling_since = time.time() if compiles else None
        self.send(json.dumps(msgspec.to_builtins(request)).encode())  # keeps surrogates in paths

    def answer(self) -> bytes | None:
        """The answer if it is complete, else None; EOFError when the worker is gone."""
        try:
            lines = self.receive()
        except BlockingIOError:
            if self.exit_code() is None:
                return None
            raise EOFError from None
        return lines[0] if lines else None

    def freeze(self) -> bool:
        """Stop the whole group; True once all its processes are seen to have stopped."""
        self.signal_group(signal.SIGSTOP)
        until = time.monotonic() + 1.0
        while not all(map(_stands_still, children.family(self.pid))):
            if time.monotonic() > until:
                return False
            time.sleep(0.0002)
        return True

    def thaw(self) -> None:
        self.signal_group(signal.SIGCONT)

    def drop_compiled(self) -> None:
        """Remove the latest compiled files if the worker was killed while it compiled."""
        if self.compiling_since is not None:
            for folder in self.compiled_folders:
                drop_compiled(folder, self.compiling_since)

    def ask_to_end(self) -> None:
        """Close the pipe of an awake worker, which then ends by itself."""
        self.thaw()
        self.socket.close()

    def stop(self) -> None:
        """Ask the worker to end, then make sure that its whole group has ended."""
        self.ask_to_end()
        self.exit_code(PATIENCE_S)
        self.kill()


def _environment(
    key: WorkerKey, device: str, settings: WorkerSettings, side: Side, scratch: Path
) -> dict[str, str]:
    environment = {**os.environ, RUN_ID_VARIABLE: settings.run_id}
    backend = catalog.backend(key.backend)
    if backend.own_environment:
        python = side.python or settings.python
        if os.sep in python and python != sys.executable:
            # A command finds the user's own programs first.
            folders = str(Path(python).absolute().parent), environment.get("PATH", "")
            environment["PATH"] = os.pathsep.join(filter(None, folders))
        return environment
    for name in PRECISION_VARIABLES:
        environment.pop(name, None)
    variables = (*THREAD_VARIABLES, *backend.thread_variables)
    near = cpulist(settings.gpu_cores.get(device, ""))
    threads = key.threads or min(settings.threads, len(near) or settings.threads)
    environment.update(dict.fromkeys(variables, str(threads)))
    environment[GPU_CORES] = json.dumps(settings.gpu_cores if near else {})
    kept = compiled_folder()
    compiled = kept if can_be_written(kept) else scratch / "compiled"  # which lasts for this run
    environment.setdefault(COMPILED, str(compiled))
    environment.setdefault(onnx_gpu.CACHE, str(compiled / "tensorrt"))
    if device == "cpu" and settings.hide_gpus:
        # torch.compile and Adam initialise CUDA wherever they see it (pytorch#150622).
        environment.update({k.hidden_by: "" for k in DEVICE_KINDS.values() if k.hidden_by})
    # Else JAX and TensorFlow would take most of a GPU's memory, which workers share.
    environment.update(XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_FORCE_GPU_ALLOW_GROWTH="true")
    environment["ORT_DISABLE_TELEMETRY"] = "1"
    environment.setdefault("MPLBACKEND", "Agg")  # a plot in the user's code would open a window
    environment["TMPDIR"] = str(scratch)
    return environment


def _stands_still(pid: int) -> bool:
    try:
        at_rest = psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE
        return psutil.Process(pid).status() in at_rest
    except psutil.NoSuchProcess:
        return True
