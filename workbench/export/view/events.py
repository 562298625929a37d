"""Events in words, and the log of a run that both front ends show."""

from collections.abc import Iterable, Sequence

import msgspec

from ...advisor.race_summary import ended_text
from ...advisor.subject import answer
from ...records import events as ev
from ...report.candidate import Candidate, Row
from ...report.report import Report
from ...text import units
from .derived import RunView
from .details import trace_facts
from .model_facts import built_text, code_facts, model_and_inputs, saved_text
from .spans import ELLIPSIS, Text, fact, facts_lines, heading
from .tables import MORE_IS_BETTER, rate_text
from .words import choice_word

# Warnings to show at once: a requested file is missing, no run is kept, or ratios are unreliable.
ALARMING = ("no_trace", "no_journal", "not_frozen")
NOTABLE_S = 1.0  # a shorter extension of a run is in the whole log only
WORD_WIDTH = 10  # the longest word is `eliminated`
LOG_LABEL = 22  # cells of "  41.2 s  eliminated  "
NO_EVENTS = "no events: the row has not begun"


class LogLine(msgspec.Struct, frozen=True):
    """`word` names the kind of event; `tone` is "", "good", "warning" or "error"."""

    at_s: float
    word: str
    text: str
    tone: str = ""
    scenario: str | None = None


Said = tuple[str, str] | tuple[str, str, str] | None  # word, text, tone; None for mere detail


def narrate(event: ev.AnyEvent, run: RunView) -> LogLine | None:
    """The line for `event`, already applied to the report; None for mere detail."""
    if isinstance(event, ev.BlockMeasured):  # most events of a long run
        return None
    scenario: str | None = getattr(event, "scenario", None)
    if (case := getattr(event, "case", None)) is not None:
        scenario = run.report.candidates[case].scenario
    if isinstance(event, ev.VerdictReached):
        scenario = event.verdict.scenario
    if (said := _said(event, run)) is None:
        return None
    word, text, *tone = said
    return LogLine(event.at_s, word, text, "".join(tone), scenario)


def _said(event: ev.AnyEvent, run: RunView) -> Said:  # noqa: C901 - one flat arm per event
    name = run.case_name(getattr(event, "case", None))  # for the events of one candidate
    match event:
        case ev.RunStarted():
            budget = f", budget {units.clock(event.budget_s)}" if event.budget_s else ""
            return "run", f"{event.id}{budget}"
        case ev.HardwareDetected():
            return "detected", run.machine_line()
        case ev.CeilingsKnown():
            return "ceilings", f"measured {event.ceilings.measured_at[:10]}"
        case ev.WarningRaised():
            tone = "error" if event.warning.code in ALARMING else "warning"
            return "warning", event.warning.about(run.title(event.warning.subject or "")), tone
        case ev.RacePlanned():
            return "planned", f"{run.title(event.scenario)}: {_candidates(event.cases)}"
        case ev.RaceStarted():
            row = run.report.rows[event.scenario]
            text = f"{run.title(event.scenario)}: {_candidates(row.candidates)}"
            if event.share_s:  # a document does not keep it
                text += f", {units.clock(event.share_s)}{_left(row, run.report)}"
            return "race", text
        case ev.BudgetExtended() if event.by_s > 0:
            more = units.duration(event.by_s)
            return "extended", f"{run.title(event.scenario)}: up to {more} more"
        case ev.RaceEnded():
            return "ended", ended_text(event.rounds, event.ended_by)
        case ev.CasesJoined():
            return "joined", ", ".join(run.case_name(case.id) for case in event.cases)
        case ev.CrossoverFound():
            from ...advisor.crossover import sentence  # here, since most runs have none

            found = sentence(event.crossover)
            return "crossover", f"{run.title(event.scenario)}: {found}", "good"
        case ev.WorkerStarted():
            return "worker", f"{event.worker} up in {units.duration(event.import_s)}"
        case ev.WorkerEnded() if event.reason is not None:
            # If time ran out, the status of its case shows whether that is a failure.
            tone = "warning" if event.reason.code == "timeout" else "error"
            return "worker", f"{event.worker}: {event.reason.dashed}", tone
        case ev.MachineRead() if event.gap is not None:
            return "sensors", event.gap.dashed, "warning"
        case ev.ModelInspected():
            return "model", next(model_and_inputs(event.facts))
        case ev.ModelBuilt():
            text = f"{event.built.recipe}: {built_text(event.built)}"
            return "built", text, "warning" if event.built.reason else ""
        case ev.CodeExamined():
            return "code", next(code_facts(event.facts))
        case ev.ModelAdvised() | ev.CodeAdvised():
            saved = event.advice.saved if event.advice else None
            if saved and len(run.report.verdicts) == 1:  # advice after later rows repeats it
                return "saved", saved_text(saved), "good" if saved.reason is None else "error"
        case ev.VerdictReached():
            return "answer", _verdict(event, run), "good"
        case ev.TraceWritten():
            return "trace", trace_facts(event.trace)[0].text.plain, "good"
        case ev.StatusChanged():
            return event.status, ""
        case ev.RunFinished():
            tone = "" if event.status == "done" else "warning"
            return event.status, f"after {units.duration(event.duration_s)}", tone
        case ev.CasePrepared():
            passed = event.accuracy is None or event.accuracy.passed
            return "prepared", ": ".join([name, *_prepared(event)]), "" if passed else "error"
        case ev.BlockDiscarded():
            return "discarded", f"{name}: {event.reason.dashed}", "warning"
        case ev.CaseFinished() if event.status == "ok":
            return _measured(run.report.candidates[event.case], name, run)
        case ev.CaseFinished() if event.reason is not None:
            tone = "error" if event.status == "failed" else "warning"
            return event.status, f"{name}: {event.reason.dashed}", tone
        case ev.CaseProfiled() if event.reason is not None:
            return "profiled", f"{name} was not profiled: {event.reason.dashed}", "warning"
        case ev.CaseProfiled():
            return "profiled", name
        case ev.BatchTried():
            attempt = event.attempt
            outcome = "fits" if attempt.reason is None else attempt.reason.dashed
            return "tried", f"{name}: batch {attempt.batch:,}: {outcome}"
    return None


def _candidates(found: Sequence[object]) -> str:
    return units.counted(len(found), "candidate")


def _left(row: Row, report: Report) -> str:
    """`; race 3 of 20, 140 s left`; "" for a single row or in a search for a crossover."""
    rows = report.asked_rows
    if row.plan.is_crossover_point or report.started is None or len(rows) < 2:
        return ""
    number = sum(each.started for each in rows)
    left = units.clock(report.most_s - report.last_at_s)
    return f"; race {number} of {len(rows)}, {left} left"


def _verdict(event: ev.VerdictReached, run: RunView) -> str:
    """`Row: CPU. The CPU is 2.1x faster ...`; for a model or code, the first advice on it."""
    report, verdict = run.report, event.verdict
    if advice := answer(report.rows[verdict.scenario], report):
        return advice[0]
    choice = f"{choice_word(verdict.choice, verdict.best_gpu)} ({verdict.confidence})"
    return " ".join([f"{verdict.title}: {choice}.", *verdict.reasons[:1]])


def _prepared(event: ev.CasePrepared) -> list[str]:
    """The parts of the set-up in words."""
    parts, accuracy, warmup = list[str](), event.accuracy, event.warmup
    if event.setup.build_s is not None:
        parts.append(f"built in {units.duration(event.setup.build_s)}")
    if warmup.n:
        steps = units.counted(warmup.n, "step")
        parts.append(f"{'' if warmup.steady else 'not '}warm after {steps}")
    if accuracy is not None and not accuracy.passed:
        metric, value = accuracy.metric.replace("_", " "), units.figure(accuracy.value)
        verb = "is below" if accuracy.metric == MORE_IS_BETTER else "exceeds"
        parts.append(f"{metric} {value} {verb} {units.figure(accuracy.limit)}")
    return [", ".join(parts)] if parts else []


def _measured(candidate: Candidate, name: str, run: RunView) -> Said:
    """The elimination of a candidate, or the median of one that raced to the end."""
    if candidate.eliminated:
        return "eliminated", f"{name}: {run.elimination_text(candidate)}"
    if not (samples := candidate.samples_s):
        return None
    rate = rate_text(candidate, run)
    return "measured", f"{name}: {units.duration(candidate.median_s)} ({rate}, n={len(samples)})"


def log_line(event: ev.AnyEvent, report: Report, *, verbose: bool = True) -> str | None:
    """One line for an event that is already applied to `report`; None for mere detail.  Without
    `verbose`, only failures and the first notable extension of the run have a line."""
    found = narrate(event, RunView(report))
    extends = isinstance(event, ev.BudgetExtended) and (
        report.extended_s - event.by_s < NOTABLE_S <= report.extended_s
    )
    if found is None or not (verbose or extends or found.tone == "error"):
        return None
    return f"{found.at_s:7.1f} s  {found.word:<{WORD_WIDTH}}  {found.text}".rstrip()


def race_log(row: Row, log: Iterable[LogLine]) -> list[LogLine]:
    """The events of this row in order."""
    return [each for each in log if each.scenario == row.plan.scenario and each.word != "planned"]


def log_lines(entries: Sequence[LogLine], width: int) -> list[Text]:
    facts = [fact(f"{e.at_s:6.1f} s  {e.word}", e.text, e.tone) for e in entries]
    return facts_lines(facts, width, LOG_LABEL)


def log_page(entries: Iterable[LogLine], width: int, room: int) -> list[list[Text]]:
    """The lines of the entries that fit whole into `room` lines, but always those of the first."""
    found = list[list[Text]]()
    for entry in entries:
        lines = log_lines([entry], width)
        room -= len(lines)
        if found and room < 0:
            break
        found.append(lines)
    return found


def log_tail(
    entries: Sequence[LogLine], width: int, height: int, end: int | None = None
) -> list[Text]:
    """A heading and the last entries that fit under it; with `end`, only the first `end` count."""
    room = height - 1
    if room < 1:
        return []
    page = log_page(reversed(entries[:end]), width, room)
    lines = [line for each in reversed(page) for line in each]
    if len(lines) > room:
        lines[room - 1] = Text.of(lines[room - 1], ELLIPSIS).truncate(width)
    return [heading("Log", width), *(lines[:room] or [Text.of((NO_EVENTS, "dim"))])]
