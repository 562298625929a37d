"""The log of a run, the newest line at the bottom."""

from collections.abc import Sequence

from workbench.export.view.events import LogLine
from workbench.export.view.spans import Fact, Text, facts_lines, heading
from workbench.report.candidate import Row

from ..state.session import Session

EMPTY = "no events (a JSON document has none)"
LABEL_WIDTH = 22  # cells of "  41.2 s  eliminated  "


def race_log(row: Row, session: Session) -> list[LogLine]:
    """The events of this row, in their order."""
    return [
        line
        for line in session.log
        if line.scenario == row.plan.scenario and line.word != "planned"
    ]


def log_lines(entries: Sequence[LogLine], width: int) -> list[Text]:
    facts = [
        Fact(f"{entry.at_s:6.1f} s  {entry.word}", Text.of((entry.text, entry.tone)))
        for entry in entries
    ]
    return facts_lines(facts, width, LABEL_WIDTH)


def log_tail(entries: Sequence[LogLine], width: int, height: int) -> list[Text]:
    """A heading and the last lines that fit under it."""
    room = height - 1
    if room < 1:
        return []
    lines = log_lines(entries[-room:], width) or [Text.of((EMPTY, "dim"))]
    return [heading("Log", width), *lines[-room:]]
