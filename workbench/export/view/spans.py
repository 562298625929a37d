"""Text in spans, each with a tone; a front end prints them plain or maps tones to its colours."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Span = tuple[str, str]  # text and tone: words such as "dim", "good", "warning", "strong cpu"

ELLIPSIS = "…"
# Replacements of equal width where there is room for them: a file may be read anywhere.
NO_BREAK = "\u00a0"
ASCII = {"  ±": " +-", "±": "+-", "°": "", ELLIPSIS: "~", NO_BREAK: " "} | dict(
    zip("─━╸█▌░", "-==##.", strict=True)
)


def cells_of(text: str) -> int:
    """The width of `text` in a terminal: wide characters take two cells, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of_character(character) for character in text)


def _cells_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@dataclass(frozen=True)
class Text:
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
        return sum(cells_of(text) for text, _ in self.spans)

    def part(self, start: int, end: int) -> Text:
        """The characters from `start` to before `end`, with their tones."""
        kept: list[Span] = []
        at = 0
        for text, tone in self.spans:
            kept.append((text[max(0, start - at) : max(0, end - at)], tone))
            at += len(text)
        return Text(tuple(span for span in kept if span[0]))

    def toned(self, tone: str) -> Text:
        """The same with a further tone on every span."""
        return Text(tuple((text, f"{own} {tone}".strip()) for text, own in self.spans))

    def truncate(self, width: int) -> Text:
        """At most `width` cells; an ellipsis stands for what is cut off."""
        if self.cell_length <= width:
            return self
        if width < 1:
            return Text()
        kept = self.part(0, _fitting(self.plain, width - 1))
        return Text.of(kept, (ELLIPSIS, self.spans[-1][1]))

    def pad_left(self, cells: int) -> Text:
        return Text.of(" " * max(0, cells), self)

    def pad_right(self, cells: int) -> Text:
        return Text.of(self, " " * max(0, cells))

    def wrap(self, width: int) -> list[Text]:
        """Lines of at most `width` cells, broken at spaces; only a longer word is broken itself."""
        return [self.part(start, end) for start, end in _lines(self.plain, max(1, width))]


def unbroken(text: str) -> str:
    """The text with spaces at which no line breaks."""
    return text.replace(" ", NO_BREAK)


def join(texts: Iterable[Text], separator: str) -> Text:
    """The texts with `separator` between them."""
    parts: list[Text | str] = []
    for text in texts:
        parts += [separator, text] if parts else [text]
    return Text.of(*parts)


def plain_lines(lines: Sequence[Text]) -> str:
    """The lines without tones and in ASCII, but for the words of the user, for logs and mails."""
    text = "\n".join(line.plain.rstrip() for line in lines)
    for drawn, ascii_ in ASCII.items():
        text = text.replace(drawn, ascii_)
    return text


def _fitting(text: str, width: int) -> int:
    """The number of leading characters that fit into `width` cells, at least one of a text."""
    if text.isascii():
        return width
    used = 0
    for number, character in enumerate(text):
        used += _cells_of_character(character)
        if used > width:
            return number
    return len(text)


def _lines(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Start and end of each line in `text`."""
    start = end = 0
    for word in re.finditer(r"\n|[^ \n]+", text):
        if word.group() == "\n":
            yield start, end
            start = end = word.end()
            continue
        if end > start and cells_of(text[start : word.end()]) > width:
            yield start, end
            start = word.start()
        end = word.end()
        while cells_of(text[start:end]) > width:
            cut = start + max(1, _fitting(text[start:end], width))
            yield start, cut
            start = cut
    yield start, end
