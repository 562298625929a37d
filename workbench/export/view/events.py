"""Events in words, a sentence each, for the log of both front ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...advisor.crossover import sentence as crossover_sentence
from ...advisor.race_summary import ended_text
from ...advisor.subject import answer
from ...records import events as ev
from ...records.reason import Warning
from ...report.report import Report
from ...report.row import Row
from ...stats.samples import median
from ...text import units
from .derived import RunView
from .model_facts import built_text, facts_lines, saved_text
from .own import code_facts
from .tables import rate_text
from .words import choice_word, reason_text


@dataclass(frozen=True)
class LogLine:
    """`word` names the kind of event; `tone` is "", "good", "warning" or "error".

    `only` names the one log that has the line: "screen" for details, "text" for results that a
    screen shows in a table.
    """

    at_s: float
    word: str
    text: str
    tone: str = ""
    scenario: str | None = None
    only: Literal["", "screen", "text"] = ""


def narrate(event: ev.AnyEvent, run: RunView) -> LogLine | None:
    """The line for `event`, already applied to the report; None for mere detail."""
    if isinstance(event, CaseEvent):
        return _of_case(event, run)
    if isinstance(event, SubjectEvent):
        return _of_subject(event, run.report)
    return _of_run(event, run)


def _of_run(event: ev.AnyEvent, run: RunView) -> LogLine | None:  # noqa: C901 - one flat arm per event
    at = event.at_s
    match event:
        case ev.RunStarted():
            budget = f", budget {units.clock(event.budget_s)}" if event.budget_s else ""
            return LogLine(at, "run", f"{event.id}{budget}")
        case ev.HardwareDetected():
            return LogLine(at, "detected", run.machine_line())
        case ev.CeilingsKnown():
            date = event.ceilings.measured_at[:10]
            return LogLine(at, "ceilings", f"measured {date}", only="screen")
        case ev.WarningRaised():
            tone = "error" if event.warning.code == "no_trace" else "warning"  # it was asked for
            return LogLine(at, "warning", warning_text(event.warning), tone)
        case ev.RacePlanned():
            text = f"{event.title}: {_candidates(event.cases)}"
            return LogLine(at, "planned", text, "", event.scenario, only="screen")
        case ev.RaceStarted():
            row = run.report.rows[event.scenario]
            text = f"{run.title(event.scenario)}: {_candidates(row.candidates)}"
            if event.share_s:  # a document does not keep it
                text += f", {units.clock(event.share_s)}{_left(row, run.report)}"
            return LogLine(at, "race", text, "", event.scenario)
        case ev.BudgetExtended() if event.by_s > 0:
            text = f"{run.title(event.scenario)} is open: up to {units.clock(event.by_s)} more"
            return LogLine(at, "extended", text, "", event.scenario)
        case ev.RaceEnded():
            text = ended_text(event.rounds, event.ended_by)
            return LogLine(at, "ended", text, "", event.scenario, only="screen")
        case ev.CasesJoined():
            names = ", ".join(run.case_name(case.id) for case in event.cases)
            return LogLine(at, "joined", names, "", event.scenario)
        case ev.CrossoverFound():
            text = f"{run.title(event.scenario)}: {crossover_sentence(event.crossover)}"
            return LogLine(at, "crossover", text, "good", event.scenario)
        case ev.WorkerStarted():
            return LogLine(at, "worker", f"{event.worker} up in {units.duration(event.import_s)}")
        case ev.WorkerEnded() if event.reason is not None:
            return LogLine(at, "worker", f"{event.worker}: {reason_text(event.reason)}", "error")
        case ev.MachineRead() if event.gap is not None:
            return LogLine(at, "sensors", reason_text(event.gap), "warning")
        case ev.VerdictReached():
            return LogLine(at, "answer", _answer(event, run), "good", event.verdict.scenario)
        case ev.TraceWritten():
            text = f"{event.trace.file}, for ui.perfetto.dev or chrome://tracing"
            return LogLine(at, "trace", text, "good")
        case ev.StatusChanged():
            return LogLine(at, event.status, "")
        case ev.RunFinished():
            tone = "" if event.status == "done" else "warning"
            return LogLine(at, event.status, f"after {units.duration(event.duration_s)}", tone)
    return None


def warning_text(warning: Warning) -> str:
    """`[row] busy; wait`: the subject, the warning and its remedy."""
    subject = f"[{warning.subject}] " if warning.subject else ""
    return f"{subject}{warning.message}; {warning.remedy}"


def _candidates(found: Sequence[object]) -> str:
    return f"{len(found)} candidate{'' if len(found) == 1 else 's'}"


def _left(row: Row, report: Report) -> str:
    """`; row 3 of 20, 140 s left` where there are several rows; "" in a search for a crossover."""
    rows = [each for each in report.rows.values() if each.plan.of is None]
    if row.plan.of is not None or report.started is None or len(rows) < 2:
        return ""
    number = sum(each.started for each in rows)
    left = units.clock(report.started.budget_s + report.extended_s - report.last_at_s)
    return f"; row {number} of {len(rows)}, {left} left"


def _answer(event: ev.VerdictReached, run: RunView) -> str:
    """`Row: CPU. The CPU is 2.1x faster ...`; for a model or code, the first advice on it."""
    report, verdict = run.report, event.verdict
    if advice := answer(report.rows[verdict.scenario], report):
        return advice[0]
    choice = f"{choice_word(verdict.choice, verdict.best_gpu)} ({verdict.confidence})"
    return " ".join([f"{verdict.title}: {choice}.", *verdict.reasons[:1]])


SubjectEvent = (
    ev.ModelInspected | ev.ModelBuilt | ev.ModelAdvised | ev.CodeExamined | ev.CodeAdvised
)


def _of_subject(event: SubjectEvent, report: Report) -> LogLine | None:
    at = event.at_s
    match event:
        case ev.ModelInspected():
            return LogLine(at, "model", next(facts_lines(event.facts)))
        case ev.ModelBuilt():
            text = f"{event.built.recipe}: {built_text(event.built)}"
            return LogLine(at, "built", text, "warning" if event.built.reason else "")
        case ev.CodeExamined():
            return LogLine(at, "code", next(code_facts(event.facts)))
        case ev.ModelAdvised() | ev.CodeAdvised():
            saved = event.advice.saved if event.advice else None
            if saved and len(report.verdicts) == 1:  # advice after later rows repeats it
                tone = "good" if saved.reason is None else "error"
                return LogLine(at, "saved", saved_text(saved), tone)
    return None


CaseEvent = ev.BatchTried | ev.BlockDiscarded | ev.CaseFinished | ev.CasePrepared | ev.CaseProfiled


def _of_case(event: CaseEvent, run: RunView) -> LogLine | None:
    """The line of an event of one candidate, which its name begins."""
    name = run.case_name(event.case)
    scenario = run.report.candidates[event.case].scenario

    def line(word: str, text: str, tone: str = "", *, only: Literal["", "screen"] = "") -> LogLine:
        return LogLine(event.at_s, word, f"{name}{text}", tone, scenario, only)

    match event:
        case ev.CasePrepared():
            passed = event.accuracy is None or event.accuracy.passed
            text, tone = _prepared(event), "" if passed else "error"
            return line("prepared", f": {text}" if text else "", tone, only="screen")
        case ev.BlockDiscarded():
            return line("discarded", f": {reason_text(event.reason)}", "warning", only="screen")
        case ev.CaseFinished() if event.status == "ok":
            return _measured(event, run, name)
        case ev.CaseFinished() if event.reason is not None:
            tone = "error" if event.status == "failed" else "warning"
            return line(event.status, f": {reason_text(event.reason)}", tone)
        case ev.CaseProfiled() if event.reason is not None:
            return line("profiled", f" was not profiled: {reason_text(event.reason)}", "warning")
        case ev.CaseProfiled():
            return line("profiled", "", only="screen")
        case ev.BatchTried():
            attempt = event.attempt
            outcome = "fits" if attempt.reason is None else reason_text(attempt.reason)
            return line("tried", f": batch {attempt.batch:,}: {outcome}")
    return None


def _prepared(event: ev.CasePrepared) -> str:
    parts = []
    if event.setup.build_s is not None:
        parts.append(f"built in {units.duration(event.setup.build_s)}")
    if event.warmup.n:
        steps = f"{event.warmup.n} step{'' if event.warmup.n == 1 else 's'}"
        steady = f"warm after {steps}" if event.warmup.steady else f"not warm after {steps}"
        parts.append(steady)
    accuracy = event.accuracy
    if accuracy is not None and not accuracy.passed:
        metric, value = accuracy.metric.replace("_", " "), units.figure(accuracy.value)
        parts.append(f"{metric} {value} exceeds {units.figure(accuracy.limit)}")
    return ", ".join(parts)


def _measured(event: ev.CaseFinished, run: RunView, name: str) -> LogLine | None:
    """The elimination of a candidate, or the median of one that raced to the end."""
    candidate = run.report.candidates[event.case]
    samples = candidate.samples_s
    if candidate.eliminated:
        text = f"{name}: {run.elimination_text(candidate)}"
        return LogLine(event.at_s, "eliminated", text, "", event.scenario)
    if not samples:
        return None
    rate = rate_text(candidate, run)
    text = f"{name}: {units.duration(median(samples))} ({rate}, n={len(samples)})"
    return LogLine(event.at_s, "measured", text, "", event.scenario, only="text")
