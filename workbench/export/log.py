"""A run as log lines: what happened, for people without a screen and for CI logs."""

from __future__ import annotations

from ..advisor.crossover_text import sentence
from ..advisor.model.overview import recommendation, row_of
from ..records import events as ev
from ..records.machine import Machine
from ..records.reason import Warning
from ..report.names import short
from ..report.report import Report
from ..report.row import Row
from ..stats.samples import median
from ..text import units
from .curves import value_text
from .model import built_text, facts_lines, saved_lines
from .text import gpu_line, rate_text


def machine_line(machine: Machine) -> str:
    cpu = machine.cpu
    cores = f"{cpu.effective_cores} cores"
    if cpu.effective_cores != cpu.logical_cores:
        cores = f"{cpu.effective_cores} of {cpu.logical_cores} cores ({cpu.limited_by})"
    gpus = ", ".join(map(gpu_line, machine.gpus)) or "no GPU"
    return f"{cpu.model or cpu.architecture}, {cores} | {gpus}"


def warning_line(warning: Warning) -> str:
    subject = f" [{warning.subject}]" if warning.subject else ""
    return f"warning{subject}: {warning.message}; {warning.remedy}"


def line(event: ev.AnyEvent, report: Report) -> str | None:
    """One line for an event that `report` has already taken in; None for what is mere detail."""
    text = _text(event, report)
    return None if text is None else f"{event.at_s:7.1f} s  {text}"


def _text(event: ev.AnyEvent, report: Report) -> str | None:  # noqa: C901 - one flat arm per event
    match event:
        case ev.RunStarted():
            return f"run {event.id}, budget {event.budget_s:g} s"
        case ev.HardwareDetected():
            return machine_line(event.machine)
        case ev.WarningRaised():
            return warning_line(event.warning)
        case ev.WorkerStarted():
            return f"worker {event.worker} is up after {units.duration(event.import_s)}"
        case ev.WorkerEnded() if event.reason is not None:
            return f"worker {event.worker} ended: {event.reason.message}"
        case ev.RaceStarted():
            row = report.rows[event.scenario]
            count = len(row.candidates)
            who = f"{count} candidate{'' if count == 1 else 's'}"
            return f"{row.plan.title}{_place(row)}: {who}, {units.clock(event.share_s)}" + _left(
                row, report
            )
        case ev.CaseProfiled() if event.reason is not None:
            return f"  {_name(event.case, report)} not profiled: {event.reason.message}"
        case ev.BatchTried():
            attempt = event.attempt
            outcome = attempt.reason.message if attempt.reason else "fits"
            return f"  {_name(event.case, report)} batch {attempt.batch:,}: {outcome}"
        case ev.ModelInspected():
            return next(facts_lines(event.facts))
        case ev.ModelBuilt():
            return f"  {event.built.recipe}: {built_text(event.built)}"
        case ev.CasesJoined():
            return f"  joined: {', '.join(short(case) for case in event.cases)}"
        case ev.ModelAdvised() if event.advice.saved is not None:
            return f"saved: {next(saved_lines(event.advice.saved))}"
        case ev.TraceWritten():
            return f"wrote {event.trace.file}: open it in ui.perfetto.dev or chrome://tracing"
        case ev.CaseFinished() if event.status in ("failed", "skipped"):
            reason = event.reason
            hint = f" - {reason.hint}" if reason and reason.hint else ""
            why = f": {reason.message}{hint}" if reason else ""
            return f"  {_name(event.case, report)} {event.status}{why}"
        case ev.CaseFinished() if event.status == "ok":
            return _finished(event, report)
        case ev.MachineRead() if event.gap is not None:
            return f"GPU readings: {event.gap.message}"
        case ev.VerdictReached():
            verdict = event.verdict
            if report.model is not None and report.rows[verdict.scenario] is row_of(report):
                return f"  -> {recommendation(report)[0]}"
            return f"  -> {verdict.choice}: {' '.join(verdict.reasons[:1])}"
        case ev.CrossoverFound():
            return f"  {report.rows[event.scenario].plan.title}: {sentence(event.crossover)}"
        case ev.StatusChanged():
            return event.status
        case ev.RunFinished():
            return f"{event.status} after {event.duration_s:.1f} s"
    return None


def _place(row: Row) -> str:
    """` at batch 12` of a row that is one of several points."""
    listed = ", ".join(f"{name} {value_text(value)}" for name, value in row.plan.point.items())
    return f" at {listed}" if listed else ""


def _left(row: Row, report: Report) -> str:
    """`; row 3 of 20, 140 s left` where there are several, none of a search for a crossover."""
    if row.plan.of is not None:
        return ""
    rows = [row for row in report.rows.values() if row.plan.of is None]
    if report.started is None or len(rows) < 2:
        return ""
    number = sum(row.started for row in rows)
    left = units.clock(report.started.budget_s - report.last_at_s)
    return f"; row {number} of {len(rows)}, {left} left"


def _finished(event: ev.CaseFinished, report: Report) -> str | None:
    candidate = report.candidates[event.case]
    samples = candidate.samples_s
    if candidate.eliminated and event.reason is not None:
        return f"  {_name(event.case, report)} out: {event.reason.message}"
    if not samples:
        return None
    return (
        f"  {_name(event.case, report)} {units.duration(median(samples))} "
        f"({rate_text(candidate)}, n={len(samples)})"
    )


def _name(case_id: str, report: Report) -> str:
    """The candidate in words, its parameters first where others of its row differ in them only."""
    candidate = report.candidates[case_id]
    row = report.rows[candidate.scenario].candidates
    alike = [other for other in row if other.case.label == candidate.case.label]
    name = short(candidate.case)
    return name if len(alike) == 1 else f"{case_id.partition('/')[0]} {name}"
