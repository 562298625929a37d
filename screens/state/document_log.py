"""The log of a run that was opened from its JSON document, which keeps no events."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.export.view.derived import DerivedValues
from workbench.export.view.events import LogLine, narrate
from workbench.records import events as ev
from workbench.records.document import SetupTimes
from workbench.report.candidate import Candidate
from workbench.report.report import Report
from workbench.report.row import Row


def document_log(derived: DerivedValues) -> Iterator[LogLine]:
    """What the log can say of a report; the times within the run are not known."""
    for event in _events(derived.report):
        line = narrate(event, derived)
        if line is not None and line.only != "text":
            yield line


def _events(report: Report) -> Iterator[ev.AnyEvent]:
    yield from _setting(report)
    for row in report.rows.values():
        yield from _planned(row)
    for row in report.rows.values():
        yield from _raced(row)
    if report.model is not None:
        yield ev.ModelInspected(at_s=0.0, facts=report.model.facts)
        for built in report.model.built:
            yield ev.ModelBuilt(at_s=0.0, built=built)
    if report.trace is not None:
        yield ev.TraceWritten(at_s=0.0, trace=report.trace)
    if report.finished is not None:
        yield report.finished


def _setting(report: Report) -> Iterator[ev.AnyEvent]:
    if report.started is not None:
        yield report.started
    if report.machine is not None and report.software is not None:
        yield ev.HardwareDetected(at_s=0.0, machine=report.machine, software=report.software)
    if report.ceilings is not None:
        yield ev.CeilingsKnown(at_s=0.0, ceilings=report.ceilings)
    for warning in report.warnings:
        yield ev.WarningRaised(at_s=0.0, warning=warning)


def _planned(row: Row) -> Iterator[ev.AnyEvent]:
    yield row.plan
    joined = [c.case for c in row.candidates if c.joined_after is not None]
    for case in joined:
        yield ev.CasesJoined(at_s=0.0, scenario=row.plan.scenario, cases=[case], work={})


def _raced(row: Row) -> Iterator[ev.AnyEvent]:
    scenario = row.plan.scenario
    if row.started:
        yield ev.RaceStarted(at_s=0.0, scenario=scenario, share_s=0.0)
    for candidate in row.candidates:
        yield from _measured(candidate)
    race = row.verdict.race if row.verdict is not None else None
    left = [elimination.id for elimination in race.left] if race is not None else []
    for candidate in sorted(
        row.candidates,
        key=lambda c: left.index(c.case.id) if c.case.id in left else len(left),
    ):
        yield ev.CaseFinished(
            at_s=0.0,
            case=candidate.case.id,
            scenario=scenario,
            status=candidate.state,
            reason=candidate.reason,
        )
    if row.ended_by is not None:
        yield ev.RaceEnded(at_s=0.0, scenario=scenario, rounds=row.rounds, ended_by=row.ended_by)
    if row.verdict is not None:
        yield ev.VerdictReached(at_s=0.0, verdict=row.verdict)


def _measured(candidate: Candidate) -> Iterator[ev.AnyEvent]:
    if candidate.accuracy is not None or candidate.setup != SetupTimes():
        yield ev.CasePrepared(
            at_s=0.0,
            case=candidate.case.id,
            setup=candidate.setup,
            accuracy=candidate.accuracy,
            warmup=candidate.warmup,
            iterations_per_sample=candidate.iterations_per_sample,
            memory_peak_bytes=candidate.memory_peak_bytes,
        )
    if candidate.operators or candidate.unprofiled:
        yield ev.CaseProfiled(
            at_s=0.0,
            case=candidate.case.id,
            operators=candidate.operators,
            reason=candidate.unprofiled,
        )
