"""A user's model as lines: its candidates, what to ship and why, where the time goes, the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from textual.content import Content

from workbench.advisor.model.overview import (
    LESS,
    Entry,
    agreement,
    brief,
    compared,
    counted,
    error_text,
    is_as_given,
    is_too_far_off,
    name_of,
    original,
    recommendation,
    row_of,
    unprofiled,
)
from workbench.export.model import (
    RACED,
    TIMES,
    built_text,
    facts_lines,
    forms_lines,
    left_out,
    saved_lines,
)
from workbench.records.model import Explanation, ModelFacts
from workbench.records.verdict import Verdict
from workbench.report.candidate import Candidate
from workbench.report.report import Report
from workbench.report.row import Row
from workbench.stats.samples import median
from workbench.text import units

from ..state.session import Session
from . import glyphs
from .details import output_text
from .facts import Fact, fact, heading
from .facts import facts_lines as wrapped
from .styles import device_style, marked, state_texts
from .table import Cell, Column, Line, table_lines
from .tables import is_over, median_texts

INDENT = 10
BAR = 24  # cells of the longest bar

# --------------------------------------------------------------- candidates

_COLUMNS = (
    Column("form", "Form", minimum=16, names=True),
    Column("run", "Run"),
    Column("median", "Median", rank=2, align="right"),
    Column("counted", "", rank=2, align="right"),
    Column("gain", "Gain", rank=1, align="right"),
    Column("bar", "", rank=8, minimum=6, maximum=BAR),
    Column("error", "Error", rank=1, align="right"),
    Column("top1", "Top-1", rank=7, align="right"),
    Column("size", "Size", rank=6, align="right"),
    Column("state", "State", rank=1, patient=True),
)


def columns(row: Row) -> list[Column]:
    """With what the objective counts, where that is no time."""
    asked = row.plan.objective.capitalize() if row.plan.objective in LESS else None
    told = [replace(c, title=asked or "") if c.key == "counted" else c for c in _COLUMNS]
    return [column for column in told if asked or column.key != "counted"]


def entry_lines(found: Sequence[Entry], row: Row, session: Session) -> list[Line]:
    """A line for each candidate, the bars to one scale."""
    most = max((entry.gain for entry in found if entry.gain is not None), default=1.0)
    model = session.report.model
    return [_entry_line(entry, row, session, model.facts, most) for entry in found if model]


def _entry_line(entry: Entry, row: Row, session: Session, facts: ModelFacts, most: float) -> Line:
    candidate, figures = entry.candidate, session.figures
    share = agreement(candidate)
    cells: dict[str, Cell] = {
        "form": Content(entry.form),
        "run": Content(entry.how),
        "state": _states(entry, row, session),
        "error": error_texts(candidate, facts),
        "top1": Content("" if share is None else f"{share:.0%}"),
        "size": Content("" if entry.size_bytes is None else units.size(entry.size_bytes)),
    }
    if candidate.blocks:
        cells["median"] = median_texts(candidate, figures)
    cells["counted"] = Content(counted(candidate))
    if entry.gain is not None:
        cells["gain"] = Content(units.ratio(entry.gain))
        cells["bar"] = _bar(entry.gain / most, device_style(candidate.case))
    return Line(candidate.case.id, cells)


def _bar(share: float, style: str) -> Callable[[int], Content]:
    return lambda width: Content.styled(glyphs.bar(share, width), style)


def error_texts(candidate: Candidate, facts: ModelFacts) -> list[Content]:
    """How far off it is; red and marked beyond the limit."""
    if candidate.accuracy is None:
        return [Content("")]
    text = error_text(candidate.accuracy.value)
    if is_too_far_off(candidate, facts):
        return [Content.styled(f"! {text}", "$error")]
    style = "dim" if is_as_given(candidate.case, facts) else "$success"
    return [Content.styled(text, style)]


def _states(entry: Entry, row: Row, session: Session) -> list[Content]:
    candidate, figures = entry.candidate, session.figures
    if entry.word == "pick":
        return [marked(Content.styled("pick", "bold $success"), candidate, figures)]
    if entry.word == "error" and (is_over(candidate) or not session.going):
        texts = [Content.styled(text, "$error") for text in (entry.why, "error")]
        return [marked(text, candidate, figures) for text in texts]
    if entry.word == "slower":
        texts = [Content.styled(text, "dim") for text in (entry.why, "slower")]
        return [marked(text, candidate, figures) for text in texts]
    return state_texts(candidate, row, figures, racing=session.going)


# ---------------------------------------------------------------- the head


def head_lines(session: Session, width: int, *, roomy: bool) -> list[Content]:
    """The model in a line and its inputs; on a low terminal one input only."""
    model = session.report.model
    if model is None:
        row = row_of(session.report)
        return [Content.styled(row.plan.title if row else session.model_file or "", "bold")]
    first, *rest = facts_lines(model.facts)
    name, told = model.facts.file, first.removeprefix(model.facts.file)
    lines = [Content.assemble((name, "bold"), told)]
    lines += [Content.styled(line.strip(), "dim") for line in rest]
    if not roomy and len(lines) > 2:
        lines[1] = Content.assemble(lines[1], (f"  and {len(lines) - 2} more", "dim"))
    kept = lines if roomy else lines[:2]
    return [line.truncate(width, ellipsis=True) for line in kept]


def stage(session: Session) -> str:
    """What the lab is doing now; "" when it is over."""
    report, row = session.report, row_of(session.report)
    if not session.going:
        return ""
    if report.model is None:
        return "reading the model, making inputs, running it as given"
    if (building := report.building) is not None:
        if building.search:
            return f"searching the nodes of {building.recipe} to leave in FP32"
        return f"building {building.recipe}"
    if row is None:
        return "choosing its forms"
    if row.verdict is None:
        left = sum(not is_over(candidate) for candidate in row.candidates)
        return f"racing, {left} of {len(row.candidates)} candidates left"
    return "profiling, to tell why" if report.model.advice is None else "finishing"


# --------------------------------------------------------------- the answer


def answer_lines(
    found: Sequence[Entry], chosen: Candidate | None, session: Session, width: int
) -> list[Content]:
    """What to ship, what weakens that, and why; of the candidate under the cursor as well."""
    report, row = session.report, row_of(session.report)
    verdict = row.verdict if row else None
    facts = list(_advice(found, session))
    lines = wrapped(facts, width, INDENT)
    if facts:
        lines.insert(0, heading("Answer" if verdict else "So far", width))
    why = _explanations(report)
    pick = report.candidates.get((verdict.pick if verdict else "") or "")
    for candidate in (pick, None if chosen is pick else chosen):
        told = why.get(candidate.case.id) if candidate else None
        if candidate is None or (told is None and not candidate.reason):
            continue
        sentences = list(told.sentences) if told else []
        if told is None or candidate.state == "failed":
            sentences.insert(0, _sentence(found, candidate))
        title = f"Why {name_of(candidate.case)}"
        lines += [Content(""), heading(title, width)]
        lines += wrapped([Fact("", Content(brief(text))) for text in sentences], width, 0)
    return lines


def _explanations(report: Report) -> dict[str, Explanation]:
    advice = report.model.advice if report.model else None
    return {each.case: each for each in advice.explanations} if advice else {}


def _sentence(found: Sequence[Entry], candidate: Candidate) -> str:
    why = next((entry.why for entry in found if entry.candidate is candidate), "")
    text = f"{candidate.state}: {why}" if candidate.state == "failed" else why
    return f"{text[:1].upper()}{text[1:]}."


def _advice(found: Sequence[Entry], session: Session) -> Iterator[Fact]:
    report, row = session.report, row_of(session.report)
    if report.model is None and row is not None:
        yield from _refused(row)
        return
    if now := stage(session):
        yield fact("now", now, "bold")
    if session.going and (row is None or row.verdict is None):
        yield from _leader(found, report)
        return
    for number, sentence in enumerate(recommendation(report)):
        yield fact(" " if number else "ship", sentence.removeprefix("Ship "))
    advice, verdict = report.model.advice if report.model else None, row.verdict if row else None
    if advice and advice.weak_evidence:
        yield fact("! weak", advice.weak_evidence, "$warning", label_style="bold $warning")
    if advice and advice.saved:
        tone = "$success" if advice.saved.reason is None else "$error"
        yield fact("saved", next(saved_lines(advice.saved)), tone)
    yield from _warnings(verdict, report)


def _refused(row: Row) -> Iterator[Fact]:
    """Why the model could not be read."""
    for candidate in row.candidates:
        if candidate.reason is not None:
            message = candidate.reason.message
            yield fact("! failed", message, "bold $error", label_style="bold $error")
            yield fact("  remedy", candidate.reason.hint or "")


def _leader(found: Sequence[Entry], report: Report) -> Iterator[Fact]:
    """The fastest so far that may be picked."""
    model = report.model
    for entry in found:
        if model is None or entry.gain is None:
            continue
        if not is_too_far_off(entry.candidate, model.facts):
            name = name_of(entry.candidate.case)
            gain = f", {units.ratio(entry.gain)} against the model as given"
            if is_as_given(entry.candidate.case, model.facts):
                gain = ", the model as given"
            yield fact("leading", f"{name}{gain}")
            return


def _warnings(verdict: Verdict | None, report: Report) -> Iterator[Fact]:
    for warning in verdict.warnings if verdict else ():
        candidate = report.candidates.get(warning.subject or "")
        about = f"{name_of(candidate.case)}: " if candidate else ""
        text = f"{about}{brief(warning.message)}; {warning.remedy}"
        yield fact("! warning", text, "$warning", label_style="bold $warning")


# ------------------------------------------------- operators, code, the rest


def code_lines(chosen: Candidate | None, session: Session, width: int) -> list[Content]:
    """Where the time goes, and the code."""
    model = session.report.model
    lines = _operators(chosen, session.report, width)
    if model is not None and model.advice is not None:
        lines += [heading("Code, copied by c", width)]
        for text in model.advice.snippet.splitlines():
            lines += Content(text).wrap(width) if text else [Content("")]
        lines.append(Content(""))
    return lines


def rest_lines(chosen: Candidate | None, session: Session, width: int) -> list[Content]:
    """Each output, what was made of the model and what was not, and the command."""
    report = session.report
    model, row = report.model, row_of(report)
    if model is None:
        return []
    verdict = row.verdict if row else None
    lines: list[Content] = []
    for title, facts in (
        _outputs(chosen, verdict, report),
        ("Forms", [Fact(built.recipe, Content(built_text(built))) for built in model.built]),
        ("Not tried", _not_tried(report, verdict)),
        ("Preparation", [fact("", text) for text in forms_lines(model.facts.forms)]),
    ):
        if facts:
            label = max(len(each.label) for each in facts) + 2
            lines += [heading(title, width), *wrapped(facts, width, label), Content("")]
    if verdict is not None:
        lines.append(Content.assemble(("$ ", "dim"), (verdict.reproduce, "$primary")))
    return lines


def _not_tried(report: Report, verdict: Verdict | None) -> list[Fact]:
    return [fact(name, why) for name, why in left_out(report, verdict).items()]


def _outputs(
    chosen: Candidate | None, verdict: Verdict | None, report: Report
) -> tuple[str, list[Fact]]:
    """The error of each output of the chosen candidate, where there are several."""
    candidate = chosen or report.candidates.get((verdict.pick if verdict else "") or "")
    accuracy = candidate.accuracy if candidate else None
    if candidate is None or accuracy is None or len(accuracy.outputs) < 2:
        return "", []
    facts = [fact(each.name, output_text(each)) for each in accuracy.outputs]
    return f"Outputs of {name_of(candidate.case)}", facts


def _operators(chosen: Candidate | None, report: Report, width: int) -> list[Content]:
    found = compared(report, chosen.case.id if chosen else None)
    row, model = row_of(report), report.model
    title = heading(TIMES, width)
    if found is None or row is None or model is None:
        why = unprofiled(report)
        return [title, *wrapped([fact("", why)], width), Content("")] if why else []
    candidate = report.candidates[found.case]
    case = candidate.case
    given = original(row, model.facts, case.device_kind)
    longest = max(max(each.fp32_s, each.int8_s) for each in found.operators) or 1.0
    columns = (
        Column("operator", "Operator", minimum=10),
        Column("fp32", name_of(given.case) if given else "as given", minimum=16, maximum=44),
        Column("int8", name_of(case), minimum=16, maximum=44),
        Column("gain", "Gain", rank=1, align="right"),
    )
    lines = []
    for each in found.operators:
        both = each.fp32_s and each.int8_s
        cells: dict[str, Cell] = {
            "operator": Content(each.operator),
            "fp32": _timed(each.fp32_s, longest, "$cpu-1"),
            "int8": _timed(each.int8_s, longest, "$cpu-0"),
            "gain": Content(units.ratio(each.fp32_s / each.int8_s) if both else ""),
        }
        lines.append(Line(each.operator, cells))
    if given is not None:  # for a profiled run is slower, and may mislead
        raced = [median(c.samples_s) for c in (given, candidate)]
        cells = {"operator": Content(RACED), "gain": Content(units.ratio(raced[0] / raced[1]))}
        for key, seconds in zip(("fp32", "int8"), raced, strict=True):
            cells[key] = Content(f"{units.duration(seconds, align=True):>7}")
        lines.append(Line(RACED, cells))
    return [title, *table_lines(columns, lines, width), Content("")]


def _timed(seconds: float, longest: float, style: str) -> Callable[[int], Content]:
    """`3.70 ms ━━━━━━━`, or a dash where the form has no such operator."""
    if not seconds:
        return lambda _: Content.styled("      -", "dim")
    text = f"{units.duration(seconds, align=True):>7}"

    def draw(width: int) -> Content:
        bar = glyphs.bar(seconds / longest, max(1, width - len(text) - 1))
        return Content.assemble(text, " ", (bar, style))

    return draw
