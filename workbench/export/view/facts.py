"""Labelled facts with hanging indents, and headings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .spans import Text

LABEL_WIDTH = 14
PROSE = 100  # cells of a line of prose in a file


@dataclass(frozen=True)
class Fact:
    """A labelled text; without a label it takes the whole width."""

    label: str
    text: Text
    label_tone: str = "dim"


def fact(label: str, text: str, tone: str = "", *, label_tone: str = "dim") -> Fact:
    return Fact(label, Text.of((text, tone)), label_tone)


def listed(label: str, texts: Iterable[str], tone: str = "") -> list[Fact]:
    """A fact for each text, the first with the label."""
    return [fact(" " if number else label, text, tone) for number, text in enumerate(texts)]


def warning_fact(message: str, remedy: str) -> Fact:
    """A warning and its remedy."""
    return fact("! warning", f"{message}; {remedy}", "warning", label_tone="strong warning")


def heading(title: str, width: int, tone: str = "strong") -> Text:
    """A title with a rule to the right edge."""
    name = Text.of((title, tone)).truncate(width - 1)
    return Text.of(name, " ", ("─" * max(0, width - name.cell_length - 1), "rule"))


def facts_lines(facts: Sequence[Fact], width: int, label_width: int = LABEL_WIDTH) -> list[Text]:
    """The facts wrapped to `width`, their texts starting in one column."""
    lines: list[Text] = []
    for entry in facts:
        indent = label_width if entry.label else 0
        label = Text.of((entry.label.ljust(indent), entry.label_tone))
        for text in entry.text.wrap(max(10, width - indent)):
            lines.append(Text.of(label, text))
            label = Text.of(" " * indent)
    return lines


def label_width(facts: Sequence[Fact]) -> int:
    """Room for the longest label and a gap."""
    return max([LABEL_WIDTH, *(len(entry.label) + 2 for entry in facts)])
