"""Why: the reasons of a verdict, its warnings, and the course of its race, as lines of text."""

from __future__ import annotations

from textual.content import Content

from workbench.document import EqualPrecision, Verdict
from workbench.report import Contender, Row

from . import format as fmt
from .figures import Figures, choice_word
from .session import Session
from .styled import TONES, case_text, choice_style
from .tables import accuracy_text, is_over, pending_text, setup_text
from .widgets.text import Fact, fact, facts_lines, heading

INDENT = 10


def answer_lines(row: Row, session: Session, width: int) -> list[Content]:
    """The pane below the table: question, answer, reasons, warnings, command."""
    lines = [heading(row.plan.title, width)]
    facts = [fact("", row.plan.question, "dim")]
    verdict = row.verdict
    if verdict is None:
        facts.append(Fact("", pending_text(row, session)))
        facts += _still_in(row, session)
    else:
        facts += verdict_facts(verdict, session.figures)
    lines += facts_lines(facts, width, INDENT)
    command = session.figures.reproduce(row)
    return [*lines, Content(""), Content.assemble(("$ ", "dim"), (command, "$primary"))]


def _still_in(row: Row, session: Session) -> list[Fact]:
    if not row.started or not session.going:
        return []
    left = [c for c in row.contenders if not is_over(c)]
    names = Content(", ").join(case_text(c.case.id, session.figures) for c in left)
    return [Fact("still in", names)] if left else []


def verdict_facts(verdict: Verdict, figures: Figures) -> list[Fact]:
    facts = [Fact("here", _summary(verdict, figures))]
    facts += [fact("", reason) for reason in verdict.reasons]
    if verdict.crossover is not None:
        facts.append(fact("crossover", _crossover(verdict)))
    for warning in verdict.warnings:
        style = "$warning"
        facts.append(fact("! warning", warning.message, style, label_style=f"bold {style}"))
        facts.append(fact("  remedy", warning.remedy))
    return facts


def _summary(verdict: Verdict, figures: Figures) -> Content:
    """`GPU: cuda:0 torch bf16, 1.31x faster than cuda:0 torch fp16 (1.29-1.33)`."""
    word = Content.styled(choice_word(verdict.choice), choice_style(verdict.choice))
    if verdict.choice == "unknown" and verdict.pick is None:
        return word
    parts: list[Content | str] = [word, ": ", case_text(verdict.pick, figures)]
    if verdict.runner_up is not None and verdict.pick_ratio is not None:
        value, interval = fmt.ratio_parts(verdict.pick_ratio, verdict.pick_ratio_ci95)
        how = "too close to call with" if verdict.tie else f"{value} faster than"
        parts += [f", {how} ", case_text(verdict.runner_up, figures)]
        parts.append(f" ({value + ', ' if verdict.tie else ''}{interval})" if interval else "")
    if verdict.basis != "measured":
        parts.append(Content.styled(f"; {verdict.basis}", "$warning"))
    return Content.assemble(*parts)


def _crossover(verdict: Verdict) -> str:
    crossover = verdict.crossover
    if crossover is None:
        return ""
    low, high = crossover.ci95
    return f"at {crossover.parameter} {crossover.value:,.0f} ({low:,.0f}-{high:,.0f})"


def contender_facts(contender: Contender, figures: Figures) -> list[Fact]:
    """Everything known of one contender, for terminals too narrow for all columns."""
    found = figures.numbers(contender).measurement
    facts = [Fact("", case_text(contender.case.id, figures).stylize("bold"))]
    if found.n:
        times = [f"median {fmt.duration(found.median_s)}"]
        if found.ci95_s is not None:
            times.append(f"95 % {fmt.duration(found.ci95_s[0])} to {fmt.duration(found.ci95_s[1])}")
        times.append(f"min {fmt.duration(found.min_s)}")
        if found.p99_s is not None:
            times.append(f"p99 {fmt.duration(found.p99_s)}")
        facts.append(fact("times", ", ".join(times) + f", n {found.n}"))
    facts.append(fact("set-up", setup_text(contender.setup)))
    if contender.accuracy is not None:
        metric = contender.accuracy.metric.replace("_", " ")
        checked = f"{metric} {accuracy_text(contender)} against {contender.accuracy.reference}"
        facts.append(fact("checked", checked, "" if contender.accuracy.passed else "$error"))
    if contender.reason is not None:
        facts.append(fact(contender.state, contender.reason.message, "$warning"))
        if contender.reason.hint:
            facts.append(fact("  remedy", contender.reason.hint))
    for warning in found.warnings:
        facts.append(fact("! trust", warning.message, "$warning", label_style="$warning"))
        facts.append(fact("  remedy", warning.remedy))
    return facts


def equal_precision_facts(verdict: Verdict, figures: Figures) -> list[Fact]:
    """The best of each device at one precision: like beside like."""
    return [Fact(pair.precision, _pair(pair, figures)) for pair in verdict.equal_precision]


def _pair(pair: EqualPrecision, figures: Figures) -> Content:
    if pair.device_ratio is None:
        have = pair.best_cpu or pair.best_gpu
        return Content.assemble(("only ", "dim"), case_text(have, figures))
    ratio = fmt.ratio(pair.device_ratio, pair.device_ratio_ci95)
    return Content.assemble(
        f"{ratio}   ", case_text(pair.best_gpu, figures), " vs ", case_text(pair.best_cpu, figures)
    )


def race_facts(row: Row, session: Session) -> list[Fact]:
    """What happened in this row, in its order."""
    return [
        Fact(
            f"{line.at_s:6.1f} s",
            Content.assemble((f"{line.word}  ", "dim"), (line.text, TONES[line.tone])),
        )
        for line in session.log
        if line.scenario == row.plan.scenario and line.word != "planned"
    ]
