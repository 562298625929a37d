"""The process that measures: one backend on one device, told what to do line by line.

It answers every request with one JSON line and otherwise blocks on its pipe.  Standard
library, the backend and NumPy only: it may run under a foreign interpreter.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import socket
import sys
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .. import catalog
from ..contract import Setup, Task, WorkloadError, decode_case, is_cuda
from .block import WarmedUp, best_step_s, call_overhead_s, run_block, time_sample, warm_up
from .failures import first_line, is_out_of_memory
from .quiet import wait_until_quiet

FIRST = "first"  # step, beside the phases of a preparation
SCOUT_S = 0.02  # of a small_probe: its steps take a millisecond where nothing is wrong
FATAL_MARKS = ("CUDA error", "device-side assert", "illegal memory access")
MISSING_HINTS = {
    "torch": "`pip install torch`, or run the workers under an interpreter that has it: --python",
    "onnxruntime": "`pip install onnxruntime`, or onnxruntime-gpu beside an NVIDIA GPU",
    "numpy": "`pip install numpy`",
    "onnx": "`pip install onnx`",
    "PIL": "`pip install pillow`",
}


class Prepared:
    """A case that is ready for its blocks."""

    def __init__(self, task: Task, warmed: WarmedUp, latency: bool) -> None:
        self.task = task
        self.warmed = warmed
        self.latency = latency


class Worker:
    """Handles requests; each public method is one operation of the protocol."""

    def __init__(self, backend: str, device: str) -> None:
        self.backend = backend
        self.device = device
        self.prepared: dict[str, Prepared] = {}
        self._held_bytes = 0
        self._cases = 0  # prepared so far, or tried
        self._once_s: dict[str, float] | None = None  # by phase: what the first case paid for all
        self._latest: str | None = None  # the case that was prepared or run last

    @property
    def _on_gpu(self) -> bool:
        """Whether torch has a GPU of its own here; ONNX Runtime tells nothing of its."""
        return self.backend == "torch" and is_cuda(self.device)

    def hello(self) -> dict[str, Any]:
        """Import the backend, wake the device, and say what is here."""
        module = importlib.import_module(self.backend)
        versions = {"python": sys.version.split()[0], self.backend: str(module.__version__)}
        if self._on_gpu:
            module.cuda.set_device(self.device)  # what takes the current device must not open GPU 0
            few = module.ones(8, 8, device=self.device)
            few @ few  # loads cuBLAS, which otherwise only the first case of the run would pay for
            module.cuda.synchronize(self.device)
        return {"versions": versions}

    def accelerators(self) -> dict[str, Any]:
        """The GPUs torch itself can use.  Asked only where no GPU is known: it opens CUDA, which
        stays open beside the CPU candidates of this worker."""
        return {"devices": _torch_devices(importlib.import_module("torch"))}

    def prepare(
        self,
        case: dict[str, Any],
        seed: int,
        latency: bool,
        warm_up_s: float,
        cache_bytes: int,
        files: dict[str, str],
        from_start: bool,
    ) -> dict[str, Any]:
        """Load a case, check its result, warm it up.

        `from_start`: what comes once counts.  The first step is timed before a check, which would
        load kernels and take memory for it, and what the process loads with its first case counts
        for all of them.
        """
        wanted = decode_case(case)
        setup = Setup(seed=seed, cache_bytes=cache_bytes, files=files)
        self._cases += 1
        self._forget_memory_peak()
        workload = catalog.load(wanted.workload)
        task = workload.prepare(wanted, setup)
        seconds = setup.seconds
        if from_start:
            seconds[FIRST] = _first_step_s(task)
            setup = Setup(seed=seed, cache_bytes=cache_bytes, files=files)
            task = workload.prepare(wanted, setup)  # a check may need what a step has changed
        try:
            task.activate()
            accuracy = task.check()
            if from_start and seconds[FIRST] >= warm_up_s:
                warmed = WarmedUp(0, 0.0, seconds[FIRST], seconds[FIRST], False, 1)
            else:
                warmed = warm_up(task, latency=latency, seconds=warm_up_s)
            if from_start:
                seconds = self._with_what_comes_once(seconds, setup.seconds, warmed.first_s)
                warmed.first_s = seconds.pop(FIRST)
            transfer_out = task.transfer_out_s()
        except BaseException:
            task.close()
            raise
        self.prepared[wanted.id] = Prepared(task, warmed, latency)
        self._latest = wanted.id
        # What the preparation left behind is not garbage: keep collections inside blocks short.
        gc.collect()
        gc.freeze()
        return {
            "setup": {f"{phase}_s": spent for phase, spent in seconds.items()},
            "transfer_out_s": transfer_out,
            "accuracy": asdict(accuracy),
            "warmup": asdict(warmed),
            "call_overhead_s": call_overhead_s(),
            "memory_peak_bytes": self._memory_peak(task),
        }

    def _with_what_comes_once(
        self, seen: dict[str, float], again: dict[str, float], first_again_s: float
    ) -> dict[str, float]:
        """The seconds of each phase from an empty process: as seen by its first case, and of later
        ones with what that took more than the same done again."""
        known = self._once_s
        if known is not None:
            told = {phase: spent + known.get(phase, 0.0) for phase, spent in seen.items()}
            # Kernels of its own that a case loads are in both, so the longer one counts.
            return {**told, FIRST: max(seen[FIRST], known[FIRST])}
        done_again = {**again, FIRST: first_again_s, "compile": math.inf}  # compiled is the case
        self._once_s = {
            phase: max(0.0, spent - done_again.get(phase, 0.0)) for phase, spent in seen.items()
        }
        return seen

    def block(self, case: str, seconds: float, min_samples: int, settle_s: float) -> dict[str, Any]:
        """Measure for about `seconds`, after a lead-in of up to `settle_s`."""
        prepared = self.prepared[case]
        warmed = prepared.warmed
        if self._latest != case:
            wait_until_quiet()  # the pool of another session spins on
        self._latest = case
        with self._named_range(case):
            answer = run_block(
                prepared.task,
                iterations=warmed.iterations,
                step_s=warmed.step_s,
                seconds=seconds,
                min_samples=min_samples,
                latency=prepared.latency,
                settle_s=settle_s,
            )
        ended = time.perf_counter()
        told = {"loss": prepared.task.loss(), "figures": prepared.task.figures()}
        return {**answer, **told, "after_s": time.perf_counter() - ended}

    def attempt(self, case: dict[str, Any], seed: int) -> dict[str, Any]:
        """Two steps, to see whether the case fits: an optimiser allocates after the first."""
        wanted = decode_case(case)
        self._cases += 1
        self._forget_memory_peak()
        task = catalog.load(wanted.workload).prepare(wanted, Setup(seed=seed))
        try:
            task.activate()
            time_sample(task, 1)
            step_s = time_sample(task, 1).host_s
            peak = self._memory_peak(task)
        finally:
            task.close()
        return {"step_s": step_s, "memory_peak_bytes": peak}

    def profile(self, case: str, steps: int, events: bool) -> dict[str, Any]:
        """A few steps under the backend's own profiler; the timeline's `events` where wanted."""
        task = self.prepared[case].task
        task.activate()
        found = task.profile(steps)
        return asdict(found if events else replace(found, events=[]))

    def _named_range(self, case: str) -> AbstractContextManager[Any]:
        """A range of the case's name on the timeline of NVIDIA Nsight Systems."""
        if not self._on_gpu:
            return nullcontext()
        return importlib.import_module("torch").cuda.nvtx.range(case)  # type: ignore[no-any-return]

    def probe_small(
        self, case: dict[str, Any], beside: dict[str, Any], seed: int
    ) -> dict[str, Any]:
        """Seconds per step of two small cases, to find a precision that is only emulated here."""
        found = []
        self._cases += 1
        for fields in (beside, case):
            wanted = decode_case(fields)
            task = catalog.load(wanted.workload).prepare(wanted, Setup(seed=seed))
            try:
                found.append(best_step_s(task, SCOUT_S))
            finally:
                task.close()
        return {"beside_s": found[0], "case_s": found[1]}

    def release(self, cases: list[str]) -> dict[str, Any]:
        """Give back what these cases hold; what one of them fails at costs no other."""
        with ExitStack() as closing:
            for case in cases:
                closing.callback(self.prepared.pop(case).task.close)
        gc.unfreeze()
        gc.collect()
        if self._on_gpu:
            torch = importlib.import_module("torch")
            torch.cuda.empty_cache()
            if hasattr(torch.accelerator, "empty_host_cache"):  # since torch 2.10
                torch.accelerator.empty_host_cache()  # page-locked memory cannot be swapped
        return {}

    def close(self) -> None:
        """Only what would outlive this process; the rest goes with it."""
        for prepared in self.prepared.values():
            prepared.task.close()

    def _forget_memory_peak(self) -> None:
        """Begin to look for a peak; what other cases hold on a GPU will not count."""
        if self._on_gpu:
            cuda = importlib.import_module("torch").cuda
            cuda.reset_peak_memory_stats(self.device)
            self._held_bytes = cuda.memory_allocated(self.device)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak below

    def _memory_peak(self, task: Task) -> int | None:
        """Peak bytes since the preparation began: of torch's allocator on a GPU, without what other
        cases held; resident in this process, backend included, on a CPU.

        There libraries keep what earlier cases needed, so only the first case of a worker can be
        told: None for the others, for ONNX Runtime on a GPU, and where the kernel does not tell.
        """
        if (elsewhere := task.memory_peak_bytes()) is not None:
            return elsewhere
        if self._on_gpu:
            cuda = importlib.import_module("torch").cuda
            return int(cuda.max_memory_allocated(self.device) - self._held_bytes)
        return _resident_peak() if self._cases == 1 and self.device == "cpu" else None


def _first_step_s(task: Task) -> float:
    """Seconds of the very first step of a task, which it then closes."""
    try:
        task.activate()
        return time_sample(task, 1).host_s
    finally:
        task.close()


def _resident_peak() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _torch_devices(torch: Any) -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = []
    for ordinal in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(ordinal)
        uuid = getattr(properties, "uuid", None)
        found.append(
            {
                "device": f"cuda:{ordinal}",
                "name": properties.name,
                "uuid": None if uuid is None else f"GPU-{uuid}",
                "memory_total_bytes": properties.total_memory,
                "compute_capability": f"{properties.major}.{properties.minor}",
            }
        )
    return found


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the protocol's error object; `fatal` ends the worker."""
    message = first_line(error)
    if isinstance(error, WorkloadError):
        return {"code": error.code, "message": str(error), "hint": error.hint, "fatal": False}
    if isinstance(error, ModuleNotFoundError):
        remedy = MISSING_HINTS.get(error.name or "", f"`pip install {error.name}`")
        text = f"{error.name} is not installed here"
        return {"code": "missing_package", "message": text, "hint": remedy, "fatal": False}
    if is_out_of_memory(error):
        remedy = "take a smaller batch or size, or free memory"
        return {"code": "no_memory", "message": message, "hint": remedy, "fatal": False}
    fatal = any(mark in str(error) for mark in FATAL_MARKS)
    hint = "run it again; if it stays, the GPU or its driver is at fault" if fatal else None
    return {"code": "failed", "message": message, "hint": hint, "fatal": fatal}


def answer(worker: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; every failure is part of the answer."""
    operation = getattr(worker, request.pop("op"))
    try:
        return {"ok": operation(**request)}
    except Exception as error:
        import traceback

        with suppress(OSError):  # the disk is full
            traceback.print_exc()  # into the log, whose tail the engine quotes
        return {"error": describe(error)}


def serialise(reply: dict[str, Any]) -> bytes:
    """One JSON line; a NaN or infinity becomes an error instead of an invalid document."""
    try:
        return json.dumps(reply, allow_nan=False).encode() + b"\n"
    except ValueError:
        error = {
            "code": "non_finite",
            "message": "the workload produced NaN or infinity",
            "hint": "a diverging training or an overflow: try a higher precision",
            "fatal": False,
        }
        return json.dumps({"error": error}).encode() + b"\n"


def main(arguments: list[str]) -> None:
    """Serve requests from the socket whose descriptor is the first argument until it closes."""
    descriptor, backend, device = arguments
    serve(Worker(backend, device), int(descriptor))


def serve(worker: Any, descriptor: int) -> None:
    """Answer with the methods of `worker` until the socket closes."""
    # Before any import of onnxruntime: afterwards it has already written files and a thread runs.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rb") as requests:
        for line in requests:
            reply = answer(worker, json.loads(line))
            channel.sendall(serialise(reply))
            if reply.get("error", {}).get("fatal"):
                break
    worker.close()
