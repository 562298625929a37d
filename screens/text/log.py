"""The log, newest at the bottom."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from ..state.log_entries import LogLine
from .facts import Fact, facts_lines, heading, joined
from .styles import TONES

LABEL_WIDTH = 20  # "  41.2 s  discarded "


def log_lines(entries: Sequence[LogLine], width: int) -> list[Content]:
    facts = [
        Fact(f"{_at(entry)}  {entry.word}", Content.styled(entry.text, TONES[entry.tone]))
        for entry in entries
    ]
    return facts_lines(facts, width, LABEL_WIDTH)


def _at(entry: LogLine) -> str:
    """Blank where a document does not tell it."""
    return f"{entry.at_s:6.1f} s" if entry.at_s else " " * 8


def log_tail(entries: Sequence[LogLine], width: int, height: int) -> Content:
    """A heading and the last lines that fit under it."""
    room = height - 1
    if room < 1:
        return Content("")
    return joined([heading("Log", width), *log_lines(entries[-room:], width)[-room:]])
