"""Labelled facts with hanging indents, and headings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

LABEL_WIDTH = 14


@dataclass(frozen=True)
class Fact:
    """A labelled text; without a label it takes the whole width.  Of several texts each stays
    in one piece when they are wrapped."""

    label: str
    text: Content | Sequence[Content]
    label_style: str = "dim"


def fact(label: str, text: str, style: str = "", *, label_style: str = "dim") -> Fact:
    return Fact(label, Content.styled(text, style) if style else Content(text), label_style)


def heading(title: str, width: int, style: str = "bold") -> Content:
    """A title with a rule to the right edge."""
    rule = "─" * max(0, width - len(title) - 1)
    return Content.assemble((title, style), " ", (rule, "$rule"))


def facts_lines(facts: Sequence[Fact], width: int, label_width: int = LABEL_WIDTH) -> list[Content]:
    """The facts wrapped to `width`, their texts starting in one column."""
    lines: list[Content] = []
    for entry in facts:
        indent = label_width if entry.label else 0
        label = Content.styled(entry.label.ljust(indent), entry.label_style)
        for text in _wrapped(entry.text, max(10, width - indent)):
            lines.append(Content.assemble(label, text))
            label = Content(" " * indent)
    return lines


def _wrapped(text: Content | Sequence[Content], width: int) -> list[Content]:
    if isinstance(text, Content):
        return [line.rstrip() for line in text.wrap(width)]
    lines: list[Content] = []
    for piece in text:
        if lines and lines[-1].cell_length + 2 + piece.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "  ", piece)
        else:
            lines.append(piece)
    return lines or [Content("")]


def label_width(facts: Sequence[Fact]) -> int:
    """Room for the longest label and a gap."""
    return max([LABEL_WIDTH, *(len(entry.label) + 2 for entry in facts)])


def joined(lines: Sequence[Content]) -> Content:
    return Content("\n").join(lines)
