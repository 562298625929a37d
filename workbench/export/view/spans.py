"""Text in spans, each with a tone; a front end prints them plain or maps tones to its colours.

Labelled facts with hanging indents, and headings, are built from them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.cells import cell_len

Span = tuple[str, str]  # text and tone: words such as "dim", "good", "warning", "strong cpu"

LABEL_WIDTH = 14
PROSE = 100  # cells of a line of prose in a file
ELLIPSIS = "…"
# ASCII replacements for files, of equal width where possible.
NO_BREAK = "\u00a0"
ASCII = {"  ±": " +-", "±": "+-", "°": "", ELLIPSIS: "~", NO_BREAK: " "} | dict(
    zip("─━╸█▌░", "-==##.", strict=True)
)


class Text(msgspec.Struct, frozen=True):
    """A text in spans."""

    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, *parts: Text | Span | str) -> Text:
        """The parts one after another."""
        spans: list[Span] = []
        for part in parts:
            if isinstance(part, Text):
                spans += part.spans
            else:
                spans.append((part, "") if isinstance(part, str) else part)
        return cls(tuple(span for span in spans if span[0]))

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.spans)

    @property
    def cell_length(self) -> int:
        return cell_len(self.plain)

    def part(self, start: int, end: int) -> Text:
        """The characters from `start` to before `end`, with their tones."""
        kept: list[Span] = []
        at = 0
        for text, tone in self.spans:
            kept.append((text[max(0, start - at) : max(0, end - at)], tone))
            at += len(text)
        return Text(tuple(span for span in kept if span[0]))

    def replace(self, old: str, new: str) -> Text:
        """A copy with `old` replaced wherever it lies within one span."""
        return Text.of(*((text.replace(old, new), tone) for text, tone in self.spans))

    def truncate(self, width: int) -> Text:
        """At most `width` cells; an ellipsis stands for what is cut off."""
        if self.cell_length <= width:
            return self
        if width < 1:
            return Text()
        kept = self.part(0, _fitting(self.plain, width - 1))
        return Text.of(kept, (ELLIPSIS, self.spans[-1][1]))

    def wrap(self, width: int) -> list[Text]:
        """Lines of at most `width` cells, broken at spaces, then at those of `unbroken` phrases,
        and within a word only if it is longer than a line."""
        return [self.part(start, end) for start, end in _lines(self.plain, max(1, width))]


def unbroken(text: str) -> str:
    """The text with no-break spaces."""
    return text.replace(" ", NO_BREAK)


def join(texts: Iterable[Text], separator: str) -> Text:
    """The texts with `separator` between them."""
    parts: list[Text | str] = []
    for text in texts:
        parts += [separator, text] if parts else [text]
    return Text.of(*parts)


def plain_lines(lines: Sequence[Text]) -> str:
    """The lines without tones and in ASCII, except words of the user, for logs and mails."""
    text = "\n".join(line.plain.rstrip() for line in lines)
    for drawn, ascii_ in ASCII.items():
        text = text.replace(drawn, ascii_)
    return text


def _fitting(text: str, width: int) -> int:
    """The number of leading characters that fit into `width` cells."""
    return bisect_right(range(len(text)), width, key=lambda last: cell_len(text[: last + 1]))


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Start and end of each line in `text`."""
    start = end = 0
    for word in re.finditer(r"\n|[^ \n]+", text):
        if word.group() == "\n":
            yield start, end
            start = end = word.end()
            continue
        if end > start and cell_len(text[start : word.end()]) > width:
            yield start, end
            start = word.start()
        end = word.end()
        while cell_len(text[start:end]) > width:
            cut = start + max(1, _fitting(text[start:end], width))
            cut = text.rfind(NO_BREAK, start, cut) + 1 or cut
            yield start, cut
            start = cut
    yield start, end


class Fact(msgspec.Struct, frozen=True):
    """A labelled text; without a label it takes the whole width."""

    label: str
    text: Text
    label_tone: str = "dim"


def fact(label: str, text: str, tone: str = "", *, label_tone: str = "dim") -> Fact:
    return Fact(label, Text.of((text, tone)), label_tone)


def listed(label: str, texts: Iterable[str]) -> list[Fact]:
    """A fact for each text, the first with the label."""
    return [fact(" " if number else label, text) for number, text in enumerate(texts)]


def warning_fact(text: str) -> Fact:
    return fact("! warning", text, "warning", label_tone="strong warning")


def heading(title: str, width: int, tone: str = "strong") -> Text:
    """A title with a rule to the right edge."""
    name = Text.of((title, tone)).truncate(width - 1)
    return Text.of(name, " ", ("─" * max(0, width - name.cell_length - 1), "rule"))


def facts_lines(facts: Sequence[Fact], width: int, label_width: int = LABEL_WIDTH) -> list[Text]:
    """The facts wrapped to `width`, their texts starting in one column."""
    lines: list[Text] = []
    for entry in facts:
        indent = label_width if entry.label else 0
        blank = " " * (indent - cell_len(entry.label))
        label = Text.of((f"{entry.label}{blank}", entry.label_tone))
        for text in entry.text.wrap(max(10, width - indent)):
            lines.append(Text.of(label, text))
            label = Text.of(" " * indent)
    return lines


def label_width(facts: Sequence[Fact], least: int = LABEL_WIDTH) -> int:
    """Cells for the longest label and a gap."""
    return max([least, *(cell_len(entry.label) + 2 for entry in facts)])
