"""The process that measures: one backend on one device, directed line by line.

It answers every request with one JSON line and otherwise blocks on its pipe.
"""

import gc
import sys
import time
import weakref
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..catalog.importing import import_backend, import_workload
from ..contract import Accuracy, Backend, Case, Setup, Task, WorkloadError, kind_of
from ..process.cores import bind_near
from . import allocator
from .block import Prepared, WarmedUp, best_step_s, call_overhead_s, run_block, time_sample, warm_up
from .failures import FULL_HINT, FULL_MARKS, MEMORY_HINT, first_line, is_out_of_memory
from .openmp import clashing_runtimes
from .quiet import wait_until_quiet
from .serve import serve
from .start_up import LOADING, ColdStart, LoadingSetup, StartUp

SMALL_PROBE_S = 0.02  # enough, as a step of a small probe takes a millisecond unless emulated
# Below this size a release does not collect garbage, which takes 0.1 s and would free little.
COLLECTED_BYTES = 2**30


class Worker:
    """Handles requests; each public method is one operation of the protocol."""

    def __init__(self, backend: str, device: str) -> None:
        self.backend = backend
        self.device = device
        self.prepared: dict[str, Prepared] = {}
        self._on_gpu = not kind_of(device).on_host
        self._cases = 0  # prepared so far, also unsuccessfully
        self._cold_start = ColdStart()
        self._latest: str | None = None  # id of the case that was prepared or run last

    @cached_property
    def _library(self) -> Backend:
        return import_backend(self.backend)

    def hello(self) -> dict[str, Any]:
        """Import the backend, start the device, and report versions."""
        versions = {"python": sys.version.split()[0], self.backend: self._library.version()}
        if self._on_gpu:
            try:
                self._library.start(self.device)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                raise WorkloadError(first_line(error), code="no_memory", hint=FULL_HINT) from error
        ready_s = time.monotonic()
        if self._on_gpu:
            self._library.load_rest(self.device)
        gc.freeze()  # to collect among the million objects of a library takes 0.1 s
        return {"versions": {**versions, **clashing_runtimes()}, "ready_s": ready_s}

    def consult(self, workload: str, question: str, **details: Any) -> dict[str, Any]:
        """Have a workload answer a question; see `Workload.consult`."""
        self._cases += 1
        return import_workload(workload).consult(question, **details)

    def prepare(
        self, case: dict[str, Any], latency: bool, warm_up_s: float, from_start: bool, **given: Any
    ) -> dict[str, Any]:
        """Load a case, check its result, warm it up; `given` are fields of its `Setup`.

        `from_start`: start-up costs count, and are reported as for a fresh process.  The first step
        is then timed before the check, which would load kernels and allocate memory for it.
        """
        wanted = Case(**case)
        self._begin_case()
        task, phases, cold = _loaded(wanted, from_start, given)
        try:
            ready = self._ready(task, cold, latency=latency, seconds=warm_up_s)
        except BaseException:
            with suppress(Exception):  # after an error of CUDA, closing fails too
                task.close()
            raise
        accuracy, warmed, transfer_out_s, peak = ready
        loaded = StartUp(phases, warmed.first_s)
        alone = self._cold_start.charged(wanted.workload, loaded, cold)
        warmed.first_s = alone.first_step_s
        self.prepared[wanted.id] = Prepared(task, warmed, latency)
        self._latest = wanted.id
        # The objects of the preparation stay, so collections during blocks can skip them.
        gc.collect()
        gc.freeze()
        return {
            "setup": {f"{phase}_s": spent for phase, spent in alone.phases.items() if spent > 0},
            "transfer_out_s": transfer_out_s,
            "accuracy": asdict(accuracy),
            "warmup": asdict(warmed),
            "call_overhead_s": call_overhead_s(),
            "memory_peak_bytes": peak,
            "cold_s": cold.seconds if cold is not None else 0.0,
            "loading_s": sum(each.phases.get(LOADING, 0.0) for each in (loaded, cold) if each),
        }

    def _ready(
        self, task: Task, cold: StartUp | None, *, latency: bool, seconds: float
    ) -> tuple[Accuracy, WarmedUp, float | None, int | None]:
        """Check a task and warm it up; also returns the time to copy its outputs, and its peak."""
        task.activate()
        gc.freeze()  # building may have imported libraries
        built_bytes = self._memory_peak(task)
        if not task.checks_latest:
            accuracy = task.check()
            gc.collect()
            _restart_resident_peak()  # arrays of the check do not belong to the case
        warmed = _warmed_up(task, cold, latency=latency, seconds=seconds)
        transfer_out_s, peak = task.transfer_out_s(), self._memory_peak(task)
        if task.checks_latest:
            accuracy = task.check()
        if peak is not None and built_bytes is not None:
            peak = max(peak, built_bytes)
        return accuracy, warmed, transfer_out_s, peak

    def block(self, case: str, **bounds: Any) -> dict[str, Any]:
        """Measure a turn within these `bounds`: see `run_block`."""
        prepared = self.prepared[case]
        if self._latest != case:
            wait_until_quiet()  # threads of another session may still spin
        self._latest = case
        # Named for the timeline of a system-wide profiler.
        with self._library.named_range(self.device, case) if self._on_gpu else nullcontext():
            faulting = allocator.Faulting()
            answer = run_block(prepared, **bounds)
        figures = prepared.task.metrics()
        if self.device == "cpu":
            figures = {**figures, **faulting.metrics()}
        return {**answer, "loss": prepared.task.loss(), "figures": figures}

    def attempt(self, case: dict[str, Any], seed: int) -> dict[str, Any]:
        """Two steps to see whether the case fits, since an optimiser allocates after the first."""
        wanted = Case(**case)
        self.release([])  # free memory of an earlier attempt
        self._begin_case()
        task = import_workload(wanted.workload).prepare(wanted, Setup(seed=seed))
        try:
            task.activate()
            time_sample(task, 1)
            step_s = time_sample(task, 1).host_s
            peak = self._memory_peak(task)
        except RuntimeError as error:
            if not any(mark in str(error) for mark in FULL_MARKS):
                raise
            raise WorkloadError(first_line(error), code="no_memory", hint=MEMORY_HINT) from error
        finally:
            task.close()
        return {"step_s": step_s, "memory_peak_bytes": peak}

    def profile(self, case: str, steps: int, events: bool) -> dict[str, Any]:
        """A few steps under the backend's own profiler, with the timeline if `events`."""
        task = self.prepared[case].task
        task.activate()
        profile = task.profile(steps)
        return asdict(profile if events else replace(profile, events=[]))

    def probe_small(self, case: dict[str, Any], other: dict[str, Any], seed: int) -> dict[str, Any]:
        """Seconds per step of two small cases, of which `case` may be in an emulated precision."""
        steps_s = []
        self._cases += 1
        for fields in (other, case):
            wanted = Case(**fields)
            workload = import_workload(wanted.workload)
            with closing(workload.prepare(wanted, Setup(seed=seed))) as task:
                steps_s.append(best_step_s(task, SMALL_PROBE_S))
        return {"other_s": steps_s[0], "case_s": steps_s[1]}

    def release(self, cases: list[str]) -> dict[str, Any]:
        """Release what these cases hold; one that fails to close does not affect the others."""
        released = [weakref.ref(self.prepared[case].task) for case in cases]
        with ExitStack() as stack:
            for case in cases:
                stack.callback(self.prepared.pop(case).task.close)
        is_small = (resident_peak() or COLLECTED_BYTES) < COLLECTED_BYTES
        if self._on_gpu or not is_small or any(task() is not None for task in released):
            gc.unfreeze()  # the slow part: the collection then visits all objects of the library
            gc.collect()
        if self._on_gpu:
            self._library.release(self.device)
        return {}

    def tidy(self) -> None:
        """After a failure, free GPU memory, which another worker may need."""
        gc.collect()
        if self._on_gpu:
            self._library.release(self.device)

    def close(self) -> None:
        """Close tasks whose parts would outlive this process."""
        for prepared in self.prepared.values():
            prepared.task.close()

    def _begin_case(self) -> None:
        self._cases += 1
        if self._on_gpu:
            self._library.reset_memory_peak(self.device)
        _restart_resident_peak()

    def _memory_peak(self, task: Task) -> int | None:
        """Peak bytes of the case: resident in this process on a CPU, allocated on a GPU.

        On a CPU libraries keep memory of earlier cases, so only a worker's first case has a peak.
        """
        if (elsewhere := task.memory_peak_bytes()) is not None:
            return elsewhere
        if self._on_gpu:
            return self._library.memory_peak_bytes(self.device)
        return resident_peak() if self._cases == 1 else None


def _loaded(
    case: Case, from_start: bool, given: dict[str, Any]
) -> tuple[Task, dict[str, float], StartUp | None]:
    """A task, and the seconds of each phase of its preparation; if `from_start`, it is prepared
    twice, and the cost of the first time is the third result."""
    workload, setup = import_workload(case.workload), LoadingSetup(**given)
    task = workload.prepare(case, setup)
    cold = None
    if from_start:
        cold = StartUp(setup.seconds, _first_step_s(task))
        del task  # two tasks at once would need twice the memory
        gc.collect()
        setup = LoadingSetup(**given)
        task = workload.prepare(case, setup)  # since the step may have changed inputs
    return task, setup.seconds, cold


def _first_step_s(task: Task) -> float:
    """Seconds of the very first step of a task, which it then closes."""
    with closing(task):
        task.activate()
        return time_sample(task, 1).host_s


def _warmed_up(task: Task, cold: StartUp | None, *, latency: bool, seconds: float) -> WarmedUp:
    """Warm a task up, unless the first step of a `cold` start already took as long."""
    if cold is None or cold.first_step_s < seconds:
        return warm_up(task, latency=latency, seconds=seconds)
    if task.checks_latest:
        time_sample(task, 1)
    return WarmedUp(0, 0.0, cold.first_step_s, cold.first_step_s, False, 1)


def _restart_resident_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM


def resident_peak() -> int | None:
    """Peak resident bytes of this process since its start or `_restart_resident_peak`."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def main(arguments: list[str]) -> None:
    """Serve requests from the socket whose descriptor is the first argument until it closes."""
    descriptor, backend, device = arguments
    bind_near(device)
    allocator.settle()
    serve(Worker(backend, device), int(descriptor))
