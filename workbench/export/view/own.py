"""What only the page of the user's own code has: its facts, modules, batches and advice."""

from __future__ import annotations

from collections.abc import Iterator

from ...advisor.own.overview import brief, ranked_candidates, recommendation, rows_of
from ...records.code import CodeFacts, CodeReport, SavedCode
from ...records.verdict import Verdict
from ...report.report import Report
from ...report.row import Row
from ...text import units
from .derived import RunView
from .facts import Fact, fact, heading, listed
from .model_facts import count_text
from .ranked import candidate_lines, columns
from .spans import Text
from .table import Column, Line, table_lines
from .words import reason_text

KINDS = {"torch": "PyTorch", "function": "Python function", "command": "whole runs of a command"}
_MODULES = (
    Column("0", "Module", minimum=10),
    Column("1", "Calls", align="right"),
    Column("2", "Time", rank=2, align="right"),
    Column("3", "Share", align="right"),
    Column("4", ""),
    Column("5", "Inputs", rank=3, minimum=12, patient=True),
)


def code_facts(facts: CodeFacts) -> Iterator[str]:
    """The code in a line, and a line for its inputs."""
    parts = [KINDS.get(facts.kind, facts.kind)]
    if facts.parameters is not None:
        parts += [f"{count_text(facts.parameters)} parameters", facts.precision]
    if facts.batch is not None:
        parts.append(f"batch {facts.batch}")
    if facts.reference:
        parts.append(f"compared with {facts.reference}")
    yield f"{facts.name}: {', '.join(parts)}"
    for each in facts.inputs:
        yield f"input {each.name} {each.type} [{','.join(map(str, each.shape))}]"


def code_stage(report: Report) -> str:
    """The present stage of a run whose code was examined."""
    row = next((row for row in rows_of(report) if row.verdict is None), None)
    if row is None:
        return "finishing" if rows_of(report) else "choosing its candidates"
    if (building := report.building) is not None:
        form = building.recipe
        return "exporting it to ONNX" if form == "onnx" else f"building {form} of its export"
    current = report.candidates.get(report.current_case or "")
    if current is not None and current.state == "preparing" and current.case.is_compiled:
        return f"compiling {brief(current.case.label).replace('/', ' ')}"
    left = sum(not candidate.ended for candidate in row.candidates)
    return f"racing{_batch(row)}, {left} of {len(row.candidates)} candidates left"


def _batch(row: Row) -> str:
    batch = row.candidates[0].case.batch if row.candidates else None
    return "" if batch is None else f" at batch {batch}"


def code_advice(code: CodeReport, report: Report, verdict: Verdict | None) -> Iterator[Fact]:
    """Where and how to run the code, the saved files, the reasons, and notes."""
    yield from listed("run it", (text.removeprefix("Run it ") for text in recommendation(report)))
    if code.advice is not None and code.advice.saved is not None:
        yield fact("saved", *saved_text(code.advice.saved))
    if verdict is not None:
        yield from listed("why", map(brief, verdict.reasons[1:]))
        yield from listed("next", filter(None, [brief(verdict.next_best)]))
    yield from listed("note", code.facts.notes)


def saved_text(saved: SavedCode) -> tuple[str, str]:
    """The files of --save-best or why there are none, and the tone."""
    if saved.reason is not None:
        return f"{saved.folder} was not written: {reason_text(saved.reason)}", "error"
    return f"{saved.folder}: {', '.join(saved.files)}", "good"


def module_lines(report: Report, width: int) -> list[Text]:
    """The modules that a script calls; empty for other code."""
    lines = []
    for each in report.code.facts.modules if report.code else ():
        texts = [each.name, f"{each.calls:,}", units.duration(each.seconds, align=True)]
        texts += [units.percent(each.share), "raced" if each.chosen else "", "; ".join(each.shapes)]
        lines.append(Line(each.name, {str(n): Text.of(text) for n, text in enumerate(texts)}))
    title = heading("Modules that the script calls", width)
    return [title, *table_lines(_MODULES, lines, width)] if lines else []


def other_races(run: RunView, width: int) -> list[Text]:
    """A table for each batch but the first, with a blank line below it."""
    lines: list[Text] = []
    for row in rows_of(run.report)[1:]:
        found = candidate_lines(ranked_candidates(run.report, row), row, run)
        table = table_lines(columns(row, bars=False), found, width)
        lines += [heading(f"The race{_batch(row)}", width), *table, Text()]
    return lines
