"""A part of a report, for text, Markdown, HTML and screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...text.sanitize import shown
from .spans import PROSE, Fact, Text, fact, facts_lines, heading, label_width, plain_lines
from .table import UNLIMITED, Column, Line, plain_cells, table_lines, texts_of

if TYPE_CHECKING:
    from .svg import Plot


class Section(msgspec.Struct, frozen=True):
    """A title and any of sentences, a table, facts, code and plots."""

    title: str
    notes: Sequence[str] = ()
    columns: Sequence[Column] = ()
    lines: Sequence[Line] = ()
    facts: Sequence[Fact] = ()
    code: str = ""
    plots: Sequence[Plot] = ()
    tone: str = "strong"

    @classmethod
    def of(
        cls,
        title: str,
        notes: Iterable[str],
        header: Sequence[str | Column],
        rows: Iterable[Sequence[str]],
    ) -> Section:
        """A section with a table; texts are made safe to print."""
        titles = [shown(each) if isinstance(each, str) else each for each in header]
        cells = plain_cells(titles, [[*map(shown, row)] for row in rows])
        return cls(title, [*map(shown, notes)], *cells)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        keys = [column.key for column in self.columns]
        spans = ({line.span[0]: line.span[1]} if line.span else {} for line in self.lines)
        cells = [{**line.cells, **span} for line, span in zip(self.lines, spans, strict=True)]
        return [[texts_of(row.get(key, Text()))[0].plain.lstrip() for key in keys] for row in cells]

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """The facts as label and text."""
        return [(entry.label.strip(), entry.text.plain) for entry in self.facts]


def section_lines(found: Sequence[Section], width: int, table_width: int = UNLIMITED) -> list[Text]:
    """The sections one below the other, facts aligned; tables lose columns beyond `table_width`."""
    lines: list[Text] = []
    indent = max((label_width(section.facts) for section in found), default=0)
    for section in found:
        table = table_lines(section.columns, section.lines, table_width) if section.lines else []
        lines += [Text()] if lines else []
        lines += [heading(section.title, width, section.tone)]
        lines += [*facts_lines([fact("", note) for note in section.notes], width), *table]
        lines += facts_lines(section.facts, width, indent)
    return lines


def section_text(
    found: Iterable[Section], width: int | None = None, table_width: int | None = None
) -> str:
    """The sections for a terminal of `width` cells, or for a file, in which no table loses a
    column.  Tables with a `table_width` of their own may be wider."""
    return plain_lines(section_lines([*found], width or PROSE, table_width or width or UNLIMITED))
