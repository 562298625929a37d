"""What only the page of the user's own code has: its facts, modules and further batches."""

from collections.abc import Iterator

from ...advisor.own.overview import ranked_candidates, rows_of
from ...records.code import CodeFacts
from ...report.report import Report
from ...report.row import Row
from ...text import units
from .derived import RunView
from .facts import heading
from .model_facts import count_text
from .ranked import candidate_lines, columns
from .spans import Text
from .table import plain_table, table_lines

KINDS = {"torch": "PyTorch", "function": "Python function", "command": "whole runs of a command"}


def code_facts(facts: CodeFacts) -> Iterator[str]:
    """The code in a line, and a line for each of its inputs."""
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


def at_batch(row: Row) -> str:
    """` at batch 8`; empty for code without batches."""
    batch = row.candidates[0].case.batch if row.candidates else None
    return "" if batch is None else f" at batch {batch}"


def module_lines(report: Report, width: int) -> list[Text]:
    """The modules that a script calls; empty for other code."""
    rows = []
    for each in report.code.facts.modules if report.code else ():
        texts = [each.name, f"{each.calls:,}", units.duration(each.seconds, align=True)]
        texts += [units.percent(each.share), "raced" if each.chosen else "", "; ".join(each.shapes)]
        rows.append(texts)
    title = heading("Modules that the script calls", width)
    header = ("Module", "Calls", "Time", "Share", "", "Inputs")
    return [title, *plain_table(header, rows, (1, 2, 3), width)] if rows else []


def other_races(run: RunView, width: int) -> list[Text]:
    """A table for each batch but the first, with a blank line below it."""
    lines: list[Text] = []
    for row in rows_of(run.report)[1:]:
        found = candidate_lines(ranked_candidates(run.report, row), run)
        table = table_lines(columns(row, bars=False), found, width)
        lines += [heading(f"The race{at_batch(row)}", width), *table, Text()]
    return lines
