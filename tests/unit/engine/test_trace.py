"""Profiles of several candidates in one file that Perfetto opens."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.engine.profiling import GAP_US, TraceFile
from workbench.files import write
from workbench.files.write import Target
from workbench.planning.request import Request
from workbench.records.reason import Warning
from workbench.report.report import Report

EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 77, "args": {"name": "python"}},
    {"ph": "X", "name": "aten::mm", "pid": 77, "tid": 1, "ts": 5000.0, "dur": 10.0},
    {"ph": "X", "name": "kernel", "pid": 0, "tid": 7, "ts": 5004.0, "dur": 30.0},
]


def test_candidates_follow_one_another_under_their_own_names() -> None:
    trace = TraceFile()
    trace.add("a", EVENTS)
    trace.add("b", EVENTS)
    entries = json.loads(trace.dump())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in entries if e["ph"] == "M"}
    assert list(names.values()) == ["a", "a", "b", "b"]
    timed = [e for e in entries if e["ph"] == "X"]
    assert [e["ts"] for e in timed] == [0, 4, 34 + GAP_US, 38 + GAP_US]
    assert [names[e["pid"]] for e in timed] == ["a", "a", "b", "b"]


def test_a_profile_without_events_leaves_no_trace() -> None:
    trace = TraceFile()
    trace.add("a", EVENTS[:1])
    assert not trace.events
    trace.add("a", EVENTS)
    assert trace.events


def test_a_reader_that_takes_nothing_is_given_up_once_the_run_is_to_end(monkeypatch) -> None:
    monkeypatch.setattr(write, "STALLED_MS", 10)
    reader, end = os.pipe()
    target = Target(Path(f"/dev/fd/{end}"))
    target.open()
    trace = TraceFile(target)
    trace.add("a", [{**EVENTS[1], "name": "x" * 1_000_000}])
    control: Any = SimpleNamespace(is_ending=True)
    written = trace.write(Request(), Report(), control)
    assert isinstance(written, Warning) and "its reader takes nothing" in written.message
    assert trace.write(Request(), Report(), control) is None  # once
    os.close(reader)
    os.close(end)
