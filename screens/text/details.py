"""Why: the reasons of a verdict, its warnings, and the course of its race, as lines of text."""

from __future__ import annotations

from textual.content import Content

from workbench.advisor.model.overview import brief, error_text, recommendation, row_of
from workbench.contract import OutputAccuracy
from workbench.records.document import BatchAttempt, LargestBatch, Measurement, Telemetry, Trace
from workbench.records.verdict import EqualPrecision, Verdict
from workbench.report.candidate import Candidate
from workbench.report.report import Report
from workbench.report.row import Row
from workbench.text import units

from ..state.derived import Figures, choice_word, row_title
from ..state.log_entries import LogLine, reason_text
from ..state.session import Session
from .advice import advice_facts
from .facts import Fact, fact, facts_lines, heading
from .styles import case_text, choice_style, largest_text, pick_texts
from .table import table_lines
from .tables import accuracy_text, is_over, pending_texts, run_columns, run_line, setup_text

INDENT = 10
TOP_OPERATORS = 8


def answer_lines(row: Row, session: Session, width: int, *, roomy: bool) -> list[Content]:
    """The pane below the table: question, answer, reasons, warnings, command.

    A `roomy` terminal shows the candidates as well.
    """
    lines = [heading(row_title(row), width)]
    facts = answer_facts(row, session)
    if row.plan.question:
        facts.insert(0, fact("", row.plan.question, "dim"))
    if row.verdict is None:
        facts += _still_in(row, session)
    lines += facts_lines(facts, width, INDENT)
    if command := row.plan.reproduce:  # the document of a plain run does not carry it
        lines += [Content(""), Content.assemble(("$ ", "dim"), (command, "$primary"))]
    if roomy and row.started:
        found = [run_line(candidate, row, session) for candidate in row.candidates]
        lines += [Content(""), *table_lines(run_columns(row), found, width)]
    return lines


def answer_facts(row: Row, session: Session) -> list[Fact]:
    """The verdict, or what stands in its place."""
    if row.verdict is None:
        return [Fact("answer", pending_texts(row, session)[0])]
    facts = verdict_facts(row.verdict, session.figures)
    if session.report.model is not None and row is row_of(session.report):
        # Of a model the form counts, not the kind of device.
        ship = recommendation(session.report)
        told = [fact(" " if number else "answer", text) for number, text in enumerate(ship)]
        return [*told, *facts[1:]]
    return facts


def _still_in(row: Row, session: Session) -> list[Fact]:
    if not row.started or not session.going:
        return []
    left = [c for c in row.candidates if not is_over(c)]
    names = Content(", ").join(case_text(c.case.id, session.figures) for c in left)
    return [Fact("still in", names)] if left else []


def verdict_facts(verdict: Verdict, figures: Figures) -> list[Fact]:
    facts = [Fact("answer", _answer(verdict))]
    if verdict.pick is not None:
        facts.append(Fact("pick", pick_texts(verdict, figures)[0]))
    for number, reason in enumerate(verdict.reasons[1:]):
        facts.append(fact(" " if number else "why", reason))
    facts += advice_facts(verdict)
    for warning in verdict.warnings:
        facts.append(fact("! warning", warning.message, "$warning", label_style="bold $warning"))
        if warning.subject in figures.report.candidates:
            facts.append(Fact("  of", case_text(warning.subject, figures)))
        facts.append(fact("  remedy", warning.remedy))
    if verdict.next_best:
        facts.append(fact("next", verdict.next_best))
    return facts


def _answer(verdict: Verdict) -> Content:
    """The choice, and the first of the reasons: what the measurement said."""
    parts: list[Content | str] = [
        Content.styled(choice_word(verdict.choice), choice_style(verdict.choice))
    ]
    if verdict.basis == "simulated":
        parts += [" (", Content.styled(verdict.basis, "$warning"), ")"]
    if verdict.reasons:
        parts.append(f".  {verdict.reasons[0]}")
    return Content.assemble(*parts)


def candidate_facts(candidate: Candidate, figures: Figures) -> list[Fact]:
    """Everything known of one candidate, for terminals too narrow for all columns."""
    found = figures.numbers(candidate).measurement
    facts = [Fact("", case_text(candidate.case.id, figures).stylize("bold"))]
    if found.n:
        times = [f"median {units.duration(found.median_s)}"]
        if found.ci95_s is not None:
            times.append(
                f"95 % {units.duration(found.ci95_s[0])} to {units.duration(found.ci95_s[1])}"
            )
        times.append(f"min {units.duration(found.min_s)}")
        if found.p99_s is not None:
            times.append(f"p99 {units.duration(found.p99_s)}")
        times.append(f"n {found.n}" + (f", {found.outliers} outlying" if found.outliers else ""))
        facts.append(fact("times", ", ".join(times)))
        facts += _speed(found)
    if found.metrics:
        facts.append(fact("figures", figures_text(found)))
    largest = figures.largest(candidate)
    if largest is not None:
        facts += _largest(largest)
    facts.append(fact("set-up", setup_text(candidate.setup)))
    if candidate.accuracy is not None:
        metric = candidate.accuracy.metric.replace("_", " ")
        checked = f"{metric} {accuracy_text(candidate)} against {candidate.accuracy.reference}"
        facts.append(fact("checked", checked, "" if candidate.accuracy.passed else "$error"))
        for each in candidate.accuracy.outputs if len(candidate.accuracy.outputs) > 1 else ():
            facts.append(fact("  output", f"{each.name}: {output_text(each)}"))
    if candidate.eliminated:
        facts.append(fact("dropped", figures.elimination_text(candidate)))
    elif candidate.reason is not None:
        facts.append(fact(candidate.state, candidate.reason.message, "$warning"))
    if candidate.reason is not None and candidate.reason.hint:
        facts.append(fact("  remedy", candidate.reason.hint))
    for warning in found.warnings:
        facts.append(fact("! trust", warning.message, "$warning", label_style="$warning"))
        facts.append(fact("  remedy", warning.remedy))
    return facts


def output_text(found: OutputAccuracy) -> str:
    """How far one output of a model is off."""
    told = [f"error {error_text(found.relative_error)}"]
    if found.cosine is not None:
        told.append(f"cosine {found.cosine:.5f}")
    if found.top1_agreement is not None:
        told.append(f"top-1 {found.top1_agreement:.1%}")
    worst = f"sample {found.worst_sample + 1} is off most, by {error_text(found.worst_error)}"
    return ", ".join([*told, worst])


def _speed(found: Measurement) -> list[Fact]:
    """What the machine can do in the best of cases, and how far that is from its ceilings."""
    facts = []
    if found.capability is not None:
        best = units.rate(found.capability.value, found.capability.unit)
        facts.append(fact("at best", f"{best} in the best tenth of samples"))
    roof = found.roofline
    if roof is not None:
        facts.append(
            fact(
                "roofline",
                f"{units.percent(roof.fraction)} of what {roof.limited_by} allows at "
                f"{units.significant(roof.intensity_flops_per_byte)} FLOP/byte "
                f"({units.rate(roof.attainable_flops_per_s, 'FLOP/s')})",
            )
        )
    elif found.peak_fraction is not None:
        facts.append(fact("of peak", units.percent(found.peak_fraction)))
    if found.clocks is not None:
        told = found.clocks
        parts = [f"device {units.duration(told.device_s)}", f"host {units.duration(told.host_s)}"]
        if told.issue_s is not None:
            parts.append(f"queueing {units.duration(told.issue_s)}")
        facts.append(fact("clocks", f"{', '.join(parts)}; the {told.counted}'s counts"))
    if found.telemetry is not None:
        facts.append(fact("device", _telemetry(found.telemetry)))
    return facts


def figures_text(found: Measurement) -> str:
    """What this workload alone tells of itself: `waiting 12 %, epochs 3`."""
    return ", ".join(units.named(name, value) for name, value in found.metrics.items())


def _largest(found: LargestBatch) -> list[Fact]:
    """The largest batch that fitted, and every attempt on the way."""
    facts = [fact("largest", f"batch {largest_text(found)}, ended by {found.ended_by}")]
    for number, attempt in enumerate(found.attempts):
        style = "" if attempt.reason is None else "$warning"
        facts.append(fact(" " if number else "tried", _attempt(attempt), style))
    return facts


def _attempt(attempt: BatchAttempt) -> str:
    if attempt.reason is not None:
        return f"batch {attempt.batch:,}: {reason_text(attempt.reason)}"
    step, memory = units.duration(attempt.step_s), units.size(attempt.memory_peak_bytes)
    return f"batch {attempt.batch:,}: a step in {step}, {memory} at most"


def why_facts(candidate: Candidate, report: Report) -> list[Fact]:
    """Why this form of a user's model won or lost."""
    advice = report.model.advice if report.model else None
    told = [e for e in advice.explanations if e.case == candidate.case.id] if advice else []
    return [fact("", brief(text)) for each in told for text in each.sentences]


def profile_facts(candidate: Candidate, trace: Trace | None) -> list[Fact]:
    """Where a profiled pass spent its time, and the file that shows it in full."""
    top = candidate.operators[:TOP_OPERATORS]
    facts = []
    for number, found in enumerate(top):
        times = f"{found.calls} call{'' if found.calls == 1 else 's'}"
        text = f"{units.percent(found.share):>6}  {found.name}, {times}"
        facts.append(fact(" " if number else "top", f"{text}, {units.duration(found.self_s)}"))
    if trace is not None:
        facts.append(fact("trace", f"{trace.file}, for ui.perfetto.dev or chrome://tracing"))
        if trace.nsys is not None:
            facts.append(fact("nsys", trace.nsys))
    return facts


def _telemetry(found: Telemetry) -> str:
    parts = []
    if found.clock_mhz is not None:
        beside = (("before", found.clock_before_mhz), ("after", found.clock_after_mhz))
        others = ", ".join(f"{mhz:.0f} {when}" for when, mhz in beside if mhz is not None)
        parts.append(f"{found.clock_mhz:.0f} MHz" + (f" ({others})" if others else ""))
    if found.counted_power_w is not None:
        parts.append(f"{found.counted_power_w:.0f} W by its counter")
    elif found.power_w is not None:
        parts.append(f"{found.power_w:.0f} W")
    if found.temperature_c is not None:
        parts.append(f"{found.temperature_c:.0f} C")
    for cause, share in found.slowed.items():
        parts.append(f"{cause.replace('_', ' ')} {units.percent(share)} of the time")
    return ", ".join(parts) or "no reading fell into its blocks"


def equal_precision_facts(verdict: Verdict, figures: Figures) -> list[Fact]:
    """The best of each device at one precision: like beside like; none where no pair exists."""
    if all(pair.device_ratio is None for pair in verdict.equal_precision):
        return []
    return [Fact(pair.precision, _pair(pair, figures)) for pair in verdict.equal_precision]


def _pair(pair: EqualPrecision, figures: Figures) -> Content:
    if pair.device_ratio is None:
        have = pair.best_cpu or pair.best_gpu
        return Content.assemble(("only ", "dim"), case_text(have, figures))
    ratio = units.ratio(pair.device_ratio, pair.device_ratio_ci95)
    return Content.assemble(
        f"{ratio}   ", case_text(pair.best_gpu, figures), " vs ", case_text(pair.best_cpu, figures)
    )


def race_log(row: Row, session: Session) -> list[LogLine]:
    """What happened in this row, in its order."""
    return [
        line
        for line in session.log
        if line.scenario == row.plan.scenario and line.word != "planned"
    ]
