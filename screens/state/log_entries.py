"""Events as lines of a log: what happened, to whom, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.advisor.crossover_text import sentence
from workbench.advisor.race_summary import ended_text
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.text import units

from .derived import Figures


@dataclass(frozen=True)
class LogLine:
    """`word` says what kind of thing happened; `tone` is "", "good", "warn" or "bad"."""

    at_s: float
    word: str
    text: str
    tone: str = ""
    scenario: str | None = None


def narrate(event: ev.AnyEvent, figures: Figures) -> LogLine | None:  # noqa: C901 - one flat arm per event
    """The line for `event`, already applied to the report; None for what a table shows better."""
    at = event.at_s
    match event:
        case ev.RunStarted():
            budget = f", budget {units.clock(event.budget_s)}" if event.budget_s else ""
            return LogLine(at, "run", f"{event.id}{budget}")
        case ev.HardwareDetected():
            return LogLine(at, "detected", figures.machine_line())
        case ev.CeilingsKnown():
            return LogLine(at, "ceilings", f"measured {event.ceilings.measured_at[:10]}")
        case ev.WarningRaised():
            return LogLine(
                at, "warning", f"{event.warning.message}: {event.warning.remedy}", "warn"
            )
        case ev.RacePlanned():
            count = len(event.cases)
            noun = "candidate" if count == 1 else "candidates"
            return LogLine(at, "planned", f"{event.title}: {count} {noun}", "", event.scenario)
        case ev.RaceStarted():
            title = figures.title(event.scenario)
            share = f", {units.clock(event.share_s)}" if event.share_s else ""
            return LogLine(at, "race", f"{title}{share}", "", event.scenario)
        case ev.RaceEnded():
            return LogLine(
                at, "ended", ended_text(event.rounds, event.ended_by), "", event.scenario
            )
        case ev.CrossoverFound():
            told = f"{figures.title(event.scenario)}: {sentence(event.crossover)}"
            return LogLine(at, "crossover", told, "good", event.scenario)
        case ev.WorkerStarted():
            return LogLine(at, "worker", f"{event.worker} up in {units.duration(event.import_s)}")
        case ev.WorkerEnded():
            if event.reason is None:
                return None
            return LogLine(at, "worker", f"{event.worker}: {reason_text(event.reason)}", "bad")
        case ev.CasePreparing():
            return None
        case ev.CasePrepared():
            return _prepared(event, figures)
        case ev.BlockDiscarded():
            return _of_case(event, figures, "discarded", reason_text(event.reason), "warn")
        case ev.CaseFinished():
            candidate = figures.report.candidates[event.case]
            if candidate.eliminated:
                return _of_case(event, figures, "dropped", figures.elimination_text(candidate))
            if event.status == "ok" or event.reason is None:
                return None
            tone = "bad" if event.status == "failed" else "warn"
            return _of_case(event, figures, event.status, reason_text(event.reason), tone)
        case ev.VerdictReached():
            return LogLine(
                at,
                "answer",
                f"{event.verdict.title}: {figures.answer(event.verdict)}",
                "good",
                event.verdict.scenario,
            )
        case ev.StatusChanged():
            return LogLine(at, event.status, "")
        case ev.RunFinished():
            tone = "" if event.status == "done" else "warn"
            return LogLine(at, event.status, f"after {units.duration(event.duration_s)}", tone)
        case ev.MachineRead():
            return LogLine(at, "telemetry", reason_text(event.gap), "warn") if event.gap else None
        case ev.CaseProfiled():
            if event.reason is None:
                return _of_case(event, figures, "profiled", "")
            return _of_case(event, figures, "profiled", reason_text(event.reason), "warn")
        case ev.BatchTried():
            attempt = event.attempt
            outcome = "fits" if attempt.reason is None else reason_text(attempt.reason)
            return _of_case(event, figures, "tried", f"batch {attempt.batch:,}: {outcome}")
        case ev.LargestBatchFound():
            return None
        case ev.CasesJoined():
            names = ", ".join(figures.case_name(case.id) for case in event.cases)
            return LogLine(at, "joined", names, "", event.scenario)
        case ev.ModelInspected():
            facts = event.facts
            size = f"{units.size(facts.size_bytes)}, opset {facts.opset}"
            return LogLine(at, "model", f"{facts.file}: {size}, {facts.inputs_from} inputs")
        case ev.ModelBuilding():
            return None
        case ev.ModelBuilt():
            built = event.built
            if built.reason is not None:
                return LogLine(at, "built", f"{built.recipe}: {reason_text(built.reason)}", "warn")
            return LogLine(at, "built", f"{built.recipe}: {units.size(built.size_bytes)}")
        case ev.ModelAdvised():
            return None
        case ev.TraceWritten():
            return LogLine(at, "trace", event.trace.file, "good")
        case ev.BlockMeasured():
            return None


def _prepared(event: ev.CasePrepared, figures: Figures) -> LogLine:
    parts = []
    if event.setup.build_s is not None:
        parts.append(f"built in {units.duration(event.setup.build_s)}")
    if event.warmup.n:
        steady = "" if event.warmup.steady else ", not steady"
        parts.append(f"warm after {event.warmup.n} steps{steady}")
    accuracy = event.accuracy
    if accuracy is not None and not accuracy.passed:
        parts.append(
            f"{accuracy.metric.replace('_', ' ')} {units.figure(accuracy.value)} "
            f"is beyond {units.figure(accuracy.limit)}"
        )
        return _of_case(event, figures, "prepared", ", ".join(parts), "bad")
    return _of_case(event, figures, "prepared", ", ".join(parts))


CaseEvent = ev.BatchTried | ev.BlockDiscarded | ev.CaseFinished | ev.CasePrepared | ev.CaseProfiled


def _of_case(
    event: CaseEvent,
    figures: Figures,
    word: str,
    text: str,
    tone: str = "",
) -> LogLine:
    name = figures.case_name(event.case)
    scenario = figures.report.candidates[event.case].scenario
    return LogLine(event.at_s, word, f"{name}: {text}" if text else name, tone, scenario)


def reason_text(reason: Reason) -> str:
    """The reason and, after a dash, its remedy."""
    return f"{reason.message} - {reason.hint}" if reason.hint else reason.message
