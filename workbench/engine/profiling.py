"""Profiles a few steps of each candidate after its race, which are never timed, and writes them as
a Chrome trace, for Perfetto and chrome://tracing."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..contract import kind_of
from ..files.write import Target
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.answers import Profile
from ..pool.control import Control
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.document import OperatorShare, Trace
from ..records.reason import Reason, Warning
from ..report.candidate import Candidate
from ..report.report import Report
from .context import RunContext
from .workers import worker_key

PROFILED_S = 0.2  # for one pass, unless its number of steps ends it earlier
MOST_STEPS, MOST_STEPS_OF_OWN = 5, 20  # more for own code and models, which the profile explains
PROFILE_DEADLINE_S = 20.0
OPENING = 3.0  # times as long to open a session with its profiler as without
OPENING_S = 0.5  # least time to open it
GAP_US = 1000.0  # gap between two candidates in the trace, in microseconds

ALONE = "profile it alone with --mode or --precision"
GONE = Reason("worker_died", "its worker ended with another candidate", ALONE)
UNSEEN = Reason("no_profiler", "its profiler does not time operators on this device")


class TraceFile:
    """Collects the profiles of several candidates, one after another on a single clock."""

    def __init__(self, target: Target | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self._target = target
        self._next_process = 1
        self._end_us = 0.0

    def add(self, case: str, events: list[dict[str, Any]]) -> None:
        """Append the events of one case; their processes get its name."""
        timed = [event for event in events if event.get("ph") != "M" and "ts" in event]
        if not timed:
            return
        shift = self._end_us - min(event["ts"] for event in timed)
        processes: dict[Any, int] = {}
        for event in timed:
            own = event.get("pid")
            if own not in processes:
                processes[own] = self._next_process
                self._next_process += 1
                named = {"ph": "M", "name": "process_name", "pid": processes[own]}
                self.events.append({**named, "args": {"name": case}})
            self.events.append({**event, "pid": processes[own], "ts": event["ts"] + shift})
        last = max(event["ts"] + event.get("dur", 0.0) for event in timed)
        self._end_us = last + shift + GAP_US

    def dump(self) -> bytes:
        """The file's content in the JSON object form of the Trace Event Format."""
        return msgspec.json.encode({"traceEvents": self.events, "displayTimeUnit": "ms"})

    def write(self, request: Request, report: Report, control: Control) -> Trace | Warning | None:
        """Write the file once, if one is wanted; a warning if nothing was profiled or the file
        cannot be written, for example because the reader of a FIFO does not read."""
        target, self._target = self._target, None
        if target is None:
            return None
        file = str(target.named)
        if not self.events:
            why = [c.unprofiled.message for c in report.candidates.values() if c.unprofiled]
            text = f"{file} was not written: nothing was profiled"
            text += f": {'; '.join(dict.fromkeys(why))}" if why else ""
            return Warning("no_trace", text, "raise --budget or choose other candidates")
        try:
            target.write(self.dump(), is_ending=lambda: control.is_ending)
        except OSError as error:
            text = f"{file} could not be written: {error.strerror}"
            return Warning("no_trace", text, "choose another --trace")
        on_gpu = any(kind_of(c.case.device).nsight for c in report.candidates.values())
        command = shlex.join(["workbench", *replace(request, trace=None).arguments()])
        nsys = f"nsys profile --trace=cuda,nvtx,osrt --output=workbench {command}"
        return Trace(file=file, nsys=nsys if on_gpu else None)


@dataclass
class Profiling:
    """Profiles one row after its race, while the workers still hold its cases."""

    _plan: RowPlan
    _context: RunContext

    def run(self, trace: TraceFile) -> None:
        """Profile each measured candidate into `trace`."""
        for case in self._plan.cases:
            candidate = self._context.report.candidates[case.id]
            if candidate.blocks and candidate.state == "ok":
                self.profile(candidate, trace)
        for key in {worker_key(case, self._plan) for case in self._plan.cases}:
            if kind_of(key.device).nsight:
                self._context.pool.end(key)  # CUPTI stays attached and slows every launch

    def has_time_for(self, candidate: Candidate) -> bool:
        """Whether its pass would end in time; a worker that overruns is killed."""
        opening_s = OPENING * (candidate.setup.compile_s or 0.0)
        needed_s = OPENING_S + opening_s + 2 * (PROFILED_S + 2 * candidate.median_s)
        return needed_s <= self._context.left_s

    def profile(self, candidate: Candidate, trace: TraceFile | None = None) -> None:
        """Profile one candidate for the report, and for `trace` if given."""
        context, case = self._context, candidate.case
        key = worker_key(case, self._plan)
        most_steps = MOST_STEPS if self._plan.source is None else MOST_STEPS_OF_OWN
        steps = min(max(round(PROFILED_S / candidate.median_s), 1), most_steps)
        operators: list[OperatorShare] = []
        reason, fallback = None, 0.0
        try:
            if case.id not in context.pool.held(key):
                raise WorkerFailed(GONE)
            deadline_s = context.deadline(PROFILE_DEADLINE_S)
            wanted = {"case": case.id, "steps": steps, "events": trace is not None}
            found = context.pool.ask(key, deadline_s, Profile, op="profile", **wanted).result
            if trace is not None:
                trace.add(case.id, found.events)
            whole = found.total_s or 1.0
            fallback = found.fallback_s / whole
            operators = [
                OperatorShare(each.name, each.calls, each.self_s, share=each.self_s / whole)
                for each in found.operators
            ]
            reason = None if operators else UNSEEN
        except WorkerFailed as failure:
            reason = failure.reason
        context.record(
            ev.CaseProfiled,
            case=case.id,
            operators=operators,
            reason=reason,
            steps=steps,
            fallback_fraction=fallback,
        )
