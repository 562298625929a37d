"""A table laid out as lines of text: columns shrink and leave by rank until the rest fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from textual.content import Content

GAP = 2


# What a cell holds: one text, several from long to short, or a drawing made to measure.
Cell = Content | Sequence[Content] | Callable[[int], Content]


@dataclass(frozen=True)
class Column:
    """Rank 0 stays whatever happens; of the others the highest leaves first.

    Between `minimum` and its natural width a column gets what the lower ranks leave; a
    `patient` one waits until all others have their fill.  Without a minimum the shortest form of
    every cell fits whole, for half a number is worse than none.  `names` that are too long lose
    a piece of their middle, and stay different where they can.
    """

    key: str
    title: str
    rank: int = 0
    minimum: int | None = None
    maximum: int = 80
    align: Literal["left", "right"] = "left"
    patient: bool = False
    names: bool = False


@dataclass(frozen=True)
class Line:
    """One row; `span` = (column, texts) runs from that column to the right edge."""

    key: str
    cells: Mapping[str, Cell]
    span: tuple[str, Sequence[Content]] | None = None


def forms(cell: Cell) -> Sequence[Content]:
    """The texts of a cell from long to short; none for a drawing."""
    if isinstance(cell, Content):
        return (cell,)
    return () if callable(cell) else cell


def bounds(column: Column, lines: Sequence[Line]) -> tuple[int, int]:
    """The least width that a column makes sense with, and the most that it can use."""
    cells = [line.cells[column.key] for line in lines if column.key in line.cells]
    drawn = any(callable(cell) for cell in cells)
    longest = [forms(cell)[0].cell_length for cell in cells if not callable(cell)]
    shortest = [forms(cell)[-1].cell_length for cell in cells if not callable(cell)]
    title = len(column.title)
    most = column.maximum if drawn else max([title, *(min(w, column.maximum) for w in longest)])
    least = max([title, *shortest])
    if column.minimum is not None:
        least = max(title, min(column.minimum, least) if column.names else column.minimum)
    return min(least, most), most


def fit(columns: Sequence[Column], lines: Sequence[Line], width: int) -> list[tuple[Column, int]]:
    """The columns that find room in `width` cells, each with its width, in their order."""
    limits = {column.key: bounds(column, lines) for column in columns}
    kept = list(columns)

    def needed() -> int:
        return sum(limits[c.key][0] for c in kept) + GAP * (len(kept) - 1)

    while needed() > width and any(c.rank for c in kept):
        kept.remove(max(kept, key=lambda c: c.rank))
    spare = width - needed()
    widths = {c.key: limits[c.key][0] for c in kept}
    for column in sorted(kept, key=lambda c: (c.patient, c.rank)):
        more = max(0, min(limits[column.key][1] - widths[column.key], spare))
        widths[column.key] += more
        spare -= more
    return [(column, widths[column.key]) for column in kept]


def cell_text(cell: Cell | None, column: Column, width: int) -> Content:
    """The longest form that fits, or the shortest cut off with an ellipsis; padded."""
    if cell is None:
        chosen = Content("")
    elif callable(cell):
        chosen = cell(width)
    else:
        chosen = longest_that_fits(forms(cell), width)
    missing = width - chosen.cell_length
    return chosen.pad_left(missing) if column.align == "right" else chosen.pad_right(missing)


def longest_that_fits(texts: Sequence[Content], width: int) -> Content:
    fitting = (text for text in texts if text.cell_length <= width)
    return next(fitting, texts[-1].truncate(width, ellipsis=True))


def cut_names(column: Column, lines: Sequence[Line], width: int) -> list[Line]:
    """The lines with the names of this column cut to `width`, all at the place that keeps most
    of them apart."""
    texts = {line.key: forms(line.cells[column.key])[-1] for line in lines}
    long = [text for text in texts.values() if text.cell_length > width]
    room = max(0, width - 1)

    def apart(head: int) -> tuple[int, int]:
        cut = {(text.plain[:head], text.plain[len(text) - room + head :]) for text in long}
        return len(cut), -abs(head - room // 2)

    head = max(range(room + 1), key=apart)
    found = []
    for line in lines:
        text = texts[line.key]
        if text in long:
            cut = Content.assemble(text[:head], "…", text[len(text) - room + head :])
            line = replace(line, cells={**line.cells, column.key: cut})
        found.append(line)
    return found


def line_text(line: Line, layout: Sequence[tuple[Column, int]], width: int) -> Content:
    """One drawn row."""
    parts: list[Content] = []
    used = 0
    for column, column_width in layout:
        if line.span is not None and line.span[0] == column.key:
            parts.append(longest_that_fits(line.span[1], max(0, width - used)))
            break
        parts.append(cell_text(line.cells.get(column.key), column, column_width))
        used += column_width + GAP
    return Content(" " * GAP).join(parts)


def table_lines(columns: Sequence[Column], lines: Sequence[Line], width: int) -> list[Content]:
    """The whole table as text: a head and a line for each."""
    layout = fit(columns, lines, width)
    titles = {column.key: Content.styled(column.title, "dim") for column, _ in layout}
    head = line_text(Line("", titles), layout, width)
    for column, column_width in layout:
        if column.names:
            lines = cut_names(column, lines, column_width)
    return [head, *(line_text(line, layout, width) for line in lines)]
