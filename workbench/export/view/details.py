"""The answer of a row and everything known of a candidate, as labelled facts."""

from __future__ import annotations

from ...advisor import break_even, costs, crossover, whatif
from ...advisor.model.overview import brief, error_text, recommendation, row_of
from ...advisor.race_summary import course_text
from ...contract import OutputAccuracy
from ...records.document import BatchAttempt, LargestBatch, Measurement, Telemetry, Trace
from ...records.reason import Warning
from ...records.verdict import EqualPrecision, Verdict
from ...report import sweeps
from ...report.candidate import Candidate
from ...report.report import Report
from ...report.row import Row
from ...text import units
from .curves import curve_lines, curve_marks
from .derived import DerivedValues, RunView, is_eliminated, is_over, row_title
from .facts import Fact, fact, facts_lines, heading
from .spans import Text, join
from .table import UNLIMITED, Column, Line, table_lines
from .tables import (
    accuracy_text,
    candidate_line,
    pending_texts,
    result_columns,
    run_columns,
    setup_text,
)
from .words import case_text, choice_text, largest_text, pick_texts, reason_text

INDENT = 12  # the longest label is `break-even`
PLOT_HEIGHT = 14  # lines of the curves, their axis and title included
TOP_OPERATORS = 8

# ---------------------------------------------------------------- answers


def answer_lines(row: Row, run: RunView, width: int, *, roomy: bool) -> list[Text]:
    """Question, answer, reasons, warnings and command of a row; `roomy` adds the candidates."""
    facts = [fact("", row.plan.question, "dim")] if row.plan.question else []
    facts += answer_facts(row, run)
    if row.verdict is None:
        facts += _still_in(row, run)
    lines = [heading(row_title(row), width), *facts_lines(facts, width, INDENT)]
    lines += command_lines(row.plan.reproduce)
    if roomy and row.started:
        found = [candidate_line(candidate, row, run) for candidate in row.candidates]
        lines += [Text(), *table_lines(run_columns(row), found, width)]
    return lines


def result_lines(row: Row, run: RunView, width: int, table_width: int) -> list[Text]:
    """A row of a finished run: the answer, if one was asked for, the race and the candidates."""
    verdict = row.verdict
    facts = _fastest(row, run) if verdict is None else []
    if verdict is not None:
        facts = answer_facts(row, run)
        if verdict.race is not None:
            facts.append(fact("race", course_text(verdict.race)))
    lines = [heading(row_title(row), width), *facts_lines(facts, width, INDENT)]
    if verdict is not None:
        lines += [*command_lines(verdict.reproduce)[1:], Text()]
    found = [candidate_line(candidate, row, run) for candidate in row.candidates]
    lines += table_lines(result_columns(row), found, table_width) if found else []
    return lines + facts_lines(_notes(row, run), width, INDENT)


def _fastest(row: Row, run: RunView) -> list[Fact]:
    """The fastest candidate of a plain run, beside the second."""
    measured = (run.derived.numbers(c).measurement for c in row.candidates if c.state != "failed")
    others = [m for m in measured if m.n and m.against is not None]
    second = min(others, key=lambda m: m.against.ratio if m.against else 0.0, default=None)
    if second is None or second.against is None:
        return []
    name, against = run.derived.case_name(second.id), second.against
    ratio = units.ratio(against.ratio, against.ci95)
    close = f"too close to {name} to call: {ratio}"
    lead = f"{name} takes {ratio} the time" if against.word == "slower" else close
    return [fact("fastest", f"{run.derived.case_name(against.id)}; {lead}")]


def command_lines(command: str) -> list[Text]:
    """A blank line and the command; empty without one, as for a plain run from a document."""
    return [Text(), Text.of(("$ ", "dim"), (command, "command"))] if command else []


def answer_facts(row: Row, run: RunView) -> list[Fact]:
    """The verdict, or its substitute while there is none."""
    if row.verdict is None:
        return [Fact("answer", pending_texts(row, run)[0])]
    facts = verdict_facts(row.verdict, run.derived)
    if run.report.model is not None and row is row_of(run.report):
        # The variant of a model counts, not the kind of device.
        ship = recommendation(run.report)
        found = [fact(" " if number else "answer", text) for number, text in enumerate(ship)]
        return [*found, *facts[1:]]
    return facts


def _still_in(row: Row, run: RunView) -> list[Fact]:
    if not row.started or not run.going:
        return []
    left = [case_text(c.case.id, run.derived) for c in row.candidates if not is_over(c)]
    return [Fact("still in", join(left, ", "))] if left else []


def verdict_facts(verdict: Verdict, derived: DerivedValues) -> list[Fact]:
    facts = [Fact("answer", _answer(verdict))]
    if verdict.pick is not None:
        facts.append(Fact("pick", pick_texts(verdict, derived)[0]))
    facts += _listed("why", verdict.reasons[1:])
    facts += advice_facts(verdict)
    for warning in verdict.warnings:
        facts += warning_facts(warning, derived)
    if verdict.next_best:
        facts.append(fact("next", verdict.next_best))
    return facts


def warning_facts(warning: Warning, derived: DerivedValues) -> list[Fact]:
    """A warning, its candidate, if it has one, and the remedy."""
    facts = [fact("! warning", warning.message, "warning", label_tone="strong warning")]
    if warning.subject in derived.report.candidates:
        facts.append(Fact("  for", case_text(warning.subject, derived)))
    return [*facts, fact("  remedy", warning.remedy)]


def _listed(label: str, sentences: list[str]) -> list[Fact]:
    """A fact for each sentence, the first with the label."""
    return [fact(" " if number else label, text) for number, text in enumerate(sentences)]


def _answer(verdict: Verdict) -> Text:
    """The choice and the first reason: the result of the measurement."""
    parts: list[Text | tuple[str, str] | str] = [choice_text(verdict.choice)]
    if verdict.basis == "simulated":
        parts += [" (", (verdict.basis, "warning"), ")"]
    if verdict.reasons:
        parts.append(f".  {verdict.reasons[0]}")
    return Text.of(*parts)


def _notes(row: Row, run: RunView) -> list[Fact]:
    """Metrics, operators and warnings that no column shows; each text once, with its candidates."""
    notes: dict[tuple[str, str], list[str]] = {}
    warned = row.verdict.warnings if row.verdict is not None else []
    if row.verdict is None:
        for warning in run.report.disturbances(row):
            notes[("! warning", f"{warning.message}; {warning.remedy}")] = []
    for candidate in row.candidates:
        name = run.derived.case_name(candidate.case.id)
        for label, text in candidate_notes(candidate, run.derived):
            if label != "! warning" or all(w.message != text for w in warned):
                notes.setdefault((label, text), []).append(name)
    facts, last = [], ""
    for (label, text), names in sorted(notes.items(), key=lambda item: item[0][0]):
        named = f"{', '.join(names)}: {text}" if names else text
        facts.append(fact(" " if label == last else label, named))
        last = label
    return facts


def candidate_notes(candidate: Candidate, derived: DerivedValues) -> list[tuple[str, str]]:
    """Label and text of each remark on one candidate."""
    found = derived.numbers(candidate).measurement
    notes = [("metrics", metrics_text(found))] if found.figures else []
    if candidate.operators:
        notes.append(("profile", _top_operators(candidate)))
    if candidate.simulated:
        notes.append(("simulated", "a CPU worker poses as this GPU"))
    own = (w for w in found.warnings if w.subject != candidate.scenario)
    return [*notes, *(("! warning", warning.message) for warning in own)]


def _top_operators(candidate: Candidate) -> str:
    top = candidate.operators[:5]
    return ", ".join(f"{found.name} {units.percent(found.share)}" for found in top)


# ----------------------------------------------- crossover, break-even, costs


def advice_facts(verdict: Verdict) -> list[Fact]:
    """Crossover, break-even points, other devices, and the best by each objective."""
    facts = []
    if verdict.crossover is not None:
        facts.append(fact("crossover", crossover.sentence(verdict.crossover)))
    facts += _listed("break-even", break_even.sentences(verdict))
    for number, found in enumerate(verdict.what_if):
        text = whatif.sentence(found, verdict.objective)
        facts.append(fact(" " if number else "what if", text, "dim" if found.missing else ""))
    # The longest name is wider than the column of labels.
    facts += [fact(name.removeprefix("most "), text) for name, text in costs.lines(verdict)]
    return facts + [fact(" ", sentence, "dim") for sentence in costs.notes(verdict)]


_COST_COLUMNS = (
    Column("0", ""),
    Column("1", "Candidate", minimum=18),
    Column("2", "Value"),
    Column("4", "Lead (95%)", rank=1),
    Column("3", "Runner-up", rank=2, minimum=18),
)


def costs_lines(verdict: Verdict, width: int = UNLIMITED) -> list[Text]:
    """Fastest, cheapest and most frugal side by side; empty where only time was known."""
    lines = [
        Line(cells[0], {str(place): Text.of(text) for place, text in enumerate(cells)})
        for cells in costs.rows(verdict)
    ]
    return table_lines(_COST_COLUMNS, lines, width) if lines else []


def crossover_lines(row: Row, report: Report, width: int) -> list[Text]:
    """The curves over the size of a scenario; empty without a search for its crossover."""
    name = row.plan.scenario
    rows = [r for r in report.rows.values() if r.plan.of == name or r is row]
    found = [sweep for sweep in sweeps.sweeps(rows) if sweep.scenario == name]
    if not found:
        return []
    at = sweeps.place_of(row, list(found[0].axes))
    pick = row.verdict.pick if row.verdict is not None else None
    label = report.candidates[pick].case.label if pick in report.candidates else None
    marks = [
        Text.of(mark, f" {curve.replace('/', ' ')}")
        for curve, mark in curve_marks(found[0]).items()
    ]
    legend = facts_lines([Fact("", marks)], width, 0)
    return [*curve_lines(found[0], at, label, width, PLOT_HEIGHT), *legend]


# ------------------------------------------------------------ a candidate


def candidate_facts(candidate: Candidate, derived: DerivedValues) -> list[Fact]:
    """Everything known of one candidate, for terminals too narrow for all columns."""
    found = derived.numbers(candidate).measurement
    facts = [Fact("", case_text(candidate.case.id, derived).toned("strong"))]
    if found.n:
        facts += [fact("times", _times(found)), *_speed(found)]
    if found.figures:
        facts.append(fact("metrics", metrics_text(found)))
    if (largest := derived.largest(candidate)) is not None:
        facts += _largest(largest)
    facts.append(fact("set-up", setup_text(candidate.setup)))
    if candidate.accuracy is not None:
        metric = candidate.accuracy.metric.replace("_", " ")
        checked = f"{metric} {accuracy_text(candidate)} against {candidate.accuracy.reference}"
        facts.append(fact("checked", checked, "" if candidate.accuracy.passed else "error"))
        for each in candidate.accuracy.outputs if len(candidate.accuracy.outputs) > 1 else ():
            facts.append(fact("  output", f"{each.name}: {output_text(each)}"))
    if is_eliminated(candidate):
        facts.append(fact("eliminated", derived.elimination_text(candidate)))
    elif candidate.reason is not None:
        facts.append(fact(candidate.state, candidate.reason.message, "warning"))
    if candidate.reason is not None and candidate.reason.hint:
        facts.append(fact("  remedy", candidate.reason.hint))
    for warning in found.warnings:
        facts.append(fact("! warning", warning.message, "warning", label_tone="warning"))
        facts.append(fact("  remedy", warning.remedy))
    return facts


def _times(found: Measurement) -> str:
    times = [f"median {units.duration(found.median_s)}"]
    if found.ci95_s is not None:
        low, high = map(units.duration, found.ci95_s)
        times.append(f"95% {low} to {high}")
    times.append(f"min {units.duration(found.min_s)}")
    if found.p99_s is not None:
        times.append(f"p99 {units.duration(found.p99_s)}")
    outliers = f", {found.outliers} outliers" if found.outliers else ""
    return ", ".join([*times, f"n {found.n}{outliers}"])


def output_text(found: OutputAccuracy) -> str:
    """The error of one output of a model."""
    parts = [f"error {error_text(found.relative_error)}"]
    if found.cosine is not None:
        parts.append(f"cosine {found.cosine:.5f}")
    if found.top1_agreement is not None:
        parts.append(f"top-1 {found.top1_agreement:.1%}")
    worst = f"worst sample {found.worst_sample + 1} ({error_text(found.worst_error)})"
    return ", ".join([*parts, worst])


def _speed(found: Measurement) -> list[Fact]:
    """The peak rate, and its share of the machine's ceilings."""
    facts = []
    if found.capability is not None:
        peak = units.rate(found.capability.value, found.capability.unit)
        facts.append(fact("peak", f"{peak} (fastest 10% of samples)"))
    roof = found.roofline
    if roof is not None:
        facts.append(
            fact(
                "roofline",
                f"{units.percent(roof.fraction)} of the limit by {roof.limited_by} at "
                f"{units.significant(roof.intensity_flops_per_byte)} FLOP/byte "
                f"({units.rate(roof.attainable_flops_per_s, 'FLOP/s')})",
            )
        )
    elif found.peak_fraction is not None:
        facts.append(fact("of peak", units.percent(found.peak_fraction)))
    if found.clocks is not None:
        clocks = found.clocks
        parts = [f"device {units.duration(clocks.device_s)}"]
        parts.append(f"host {units.duration(clocks.host_s)}")
        if clocks.issue_s is not None:
            parts.append(f"queueing {units.duration(clocks.issue_s)}")
        facts.append(fact("clocks", f"{', '.join(parts)}; the {clocks.counted} clock counts"))
    if found.telemetry is not None:
        facts.append(fact("sensors", _telemetry(found.telemetry)))
    return facts


def metrics_text(found: Measurement) -> str:
    """The metrics of this workload alone: `waiting 12 %, epochs 3`."""
    return ", ".join(units.named(name, value) for name, value in found.figures.items())


def _largest(found: LargestBatch) -> list[Fact]:
    """The largest batch that fitted, and every attempt on the way."""
    facts = [fact("largest", f"batch {largest_text(found)}, ended by {found.ended_by}")]
    for number, attempt in enumerate(found.attempts):
        tone = "" if attempt.reason is None else "warning"
        facts.append(fact(" " if number else "tried", attempt_text(attempt), tone))
    return facts


def attempt_text(attempt: BatchAttempt) -> str:
    if attempt.reason is not None:
        return f"batch {attempt.batch:,}: {reason_text(attempt.reason)}"
    step, memory = units.duration(attempt.step_s), units.size(attempt.memory_peak_bytes)
    return f"batch {attempt.batch:,}: a step in {step}, peak memory {memory}"


def why_facts(candidate: Candidate, report: Report) -> list[Fact]:
    """Why this variant of a user's model won or lost."""
    advice = report.model.advice if report.model else None
    found = [e for e in advice.explanations if e.case == candidate.case.id] if advice else []
    return [fact("", brief(text)) for each in found for text in each.sentences]


def profile_facts(candidate: Candidate, trace: Trace | None) -> list[Fact]:
    """The operators that took the time of a profiled pass, and the file with all of it."""
    facts = []
    for number, found in enumerate(candidate.operators[:TOP_OPERATORS]):
        times = f"{found.calls} call{'' if found.calls == 1 else 's'}"
        text = f"{units.percent(found.share):>6}  {found.name}, {times}"
        facts.append(fact(" " if number else "top", f"{text}, {units.duration(found.self_s)}"))
    return [*facts, *trace_facts(trace)]


def trace_facts(trace: Trace | None) -> list[Fact]:
    """The files of a trace, and the programs that open them."""
    if trace is None:
        return []
    facts = [fact("trace", f"{trace.file}, for ui.perfetto.dev or chrome://tracing")]
    return [*facts, fact("nsys", trace.nsys)] if trace.nsys is not None else facts


def _telemetry(found: Telemetry) -> str:
    parts = []
    if found.clock_mhz is not None:
        around = (("before", found.clock_before_mhz), ("after", found.clock_after_mhz))
        others = ", ".join(f"{mhz:.0f} {when}" for when, mhz in around if mhz is not None)
        parts.append(f"{found.clock_mhz:.0f} MHz" + (f" ({others})" if others else ""))
    if found.counted_power_w is not None:
        parts.append(f"{found.counted_power_w:.0f} W by its counter")
    elif found.power_w is not None:
        parts.append(f"{found.power_w:.0f} W")
    if found.temperature_c is not None:
        parts.append(f"{found.temperature_c:.0f} C")
    for cause, share in found.slowed.items():
        parts.append(f"{cause.replace('_', ' ')} {units.percent(share)} of the time")
    return ", ".join(parts) or "no reading while it ran"


def equal_precision_facts(verdict: Verdict, derived: DerivedValues) -> list[Fact]:
    """The best candidates of both devices at one precision; none where no pair exists."""
    if all(pair.device_ratio is None for pair in verdict.equal_precision):
        return []
    return [Fact(pair.precision, _pair(pair, derived)) for pair in verdict.equal_precision]


def _pair(pair: EqualPrecision, derived: DerivedValues) -> Text:
    if pair.device_ratio is None:
        have = pair.best_cpu or pair.best_gpu
        return Text.of(("only ", "dim"), case_text(have, derived))
    ratio = units.ratio(pair.device_ratio, pair.device_ratio_ci95)
    gpu, cpu = case_text(pair.best_gpu, derived), case_text(pair.best_cpu, derived)
    return Text.of(f"{ratio}   ", gpu, " vs ", cpu)
