"""A Chrome trace of the profiled passes, for Perfetto and chrome://tracing."""

import shlex
from dataclasses import replace
from typing import Any

import msgspec

from ..contract import kind_of
from ..files.write import Target
from ..planning.request import Request
from ..pool.control import Control
from ..records.document import Trace
from ..records.reason import Warning
from ..report.report import Report

GAP_US = 1000.0  # gap between two candidates, in microseconds


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
            text = f"{file} was not written: nothing was profiled{_why_unprofiled(report)}"
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


def _why_unprofiled(report: Report) -> str:
    """`: this backend has no profiler`, each reason once; empty where none is known."""
    reasons = [c.unprofiled.message for c in report.candidates.values() if c.unprofiled is not None]
    return f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""
