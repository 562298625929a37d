"""Verdicts of small reports, and what may change one: the events in passing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
from builders import case, ceilings, events, scenario

from workbench.advisor.verdict import decide
from workbench.contract import Work
from workbench.records import events as ev
from workbench.records.document import Clocks
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import Verdict
from workbench.report.report import Report

CPU, CPU_B, GPU, GPU_B = case("cpu-a"), case("cpu-b"), case("cuda:0-a"), case("cuda:0-b")
LOW = case("cpu-a", "bf16")
ROW = scenario()
BUSY = Warning("busy_machine", "others were busy", "stop them", "row")
DIED = Reason("worker_died", "the worker died", "look at its log")
FULL = Reason("no_memory", "it needs 90 GiB", "take a smaller size")
SPENT = Reason("budget", "the budget left no time for its turn", "give it a larger --budget")
CUT = Reason("cancelled", "the run was cut short")


NOISY = [[1.0], [2.5], [0.4], [1.6], [0.7]]
BATCHED = replace(GPU, batch=8)


def told(blocks, change: Callable[[ev.AnyEvent], ev.AnyEvent] = lambda e: e, **options) -> Verdict:
    row = options.get("row", ROW)
    options.setdefault("gpus", ["cuda:0"])
    return decide(Report.of(map(change, events(blocks, **options))), row)


def skipped(reason: Reason) -> Callable[[ev.AnyEvent], ev.AnyEvent]:
    """All that were not measured, skipped for `reason`."""
    measured: set[str] = set()

    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured):
            measured.add(event.case)
        if isinstance(event, ev.CaseFinished) and event.case not in measured:
            return msgspec.structs.replace(event, status="skipped", reason=reason)
        return event

    return change


def cut_short(event: ev.AnyEvent) -> ev.AnyEvent:
    if isinstance(event, ev.CaseFinished):
        return msgspec.structs.replace(event, status="cancelled", reason=CUT)
    if isinstance(event, ev.RaceEnded):
        return ev.StatusChanged(at_s=event.at_s, status="running")
    return event


def busy(event: ev.AnyEvent) -> ev.AnyEvent:
    return ev.WarningRaised(at_s=0.4, warning=BUSY) if isinstance(event, ev.RaceStarted) else event


def with_ceilings(blocks, work: Work, *devices: str, **options) -> Verdict:
    """The verdict under ceilings of 100 GFLOP/s and 10 GB/s, every case doing `work`."""

    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.RacePlanned):
            return msgspec.structs.replace(event, work=dict.fromkeys(event.work, work))
        return event

    built = events(blocks, gpus=["cuda:0"], **options)
    built.insert(2, ev.CeilingsKnown(at_s=0.3, ceilings=ceilings(*devices)))
    return decide(Report.of(map(change, built)), ROW)


def clocked(issue_s: float | None) -> Callable[[ev.AnyEvent], ev.AnyEvent]:
    def change(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured) and event.case == BATCHED.id:
            clocks = Clocks("device", 1e-3, 1e-3, issue_s)
            return msgspec.structs.replace(event, clocks=clocks)
        return event

    return change
