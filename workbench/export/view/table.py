"""Tables as lines of text: columns shrink, then disappear by rank, until the rest fits."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Literal

import msgspec
from msgspec.structs import replace

from .spans import ELLIPSIS, Text, join

GAP = 2
UNLIMITED = 10_000  # cells: the width of a table in a file
LAST = 7  # columns of this rank and above disappear before a name is cut
DRAWN = 40  # cells of a drawing whose text is needed to sort it

# One text, several from long to short, or a drawing made for the width that it gets.
Cell = Text | Sequence[Text] | Callable[[int], Text]


class Column(msgspec.Struct, frozen=True):
    """A column, whose width lies between `minimum` and its natural one, see `fit`."""

    key: str
    title: str
    rank: int = 0  # 0 always stays; of the others empty ones disappear first, then the highest
    # Cells.  Without it the shortest texts fit whole, since half a number is worse than none.
    minimum: int | None = None
    maximum: int = 80
    align: Literal["left", "right"] = "left"
    patient: bool = False  # gets cells after all others; of these the lowest rank comes first
    # Its texts share one form: if it is too long, `LAST` columns disappear, then texts are cut.
    names: bool = False
    bare: int = 0  # cells of a drawing's text alone, which stays when the drawing goes; 0: none
    head: Callable[[str, int], Text] | None = None  # draws the title for a width


class Line(msgspec.Struct, frozen=True):
    """One row; `span` = (column, texts) runs from that column to the right edge."""

    key: str
    cells: Mapping[str, Cell]
    span: tuple[str, Sequence[Text]] | None = None

    @property
    def is_heading(self) -> bool:
        """Whether it has no key and one text that spans columns; the cursor skips it."""
        return not self.key and self.span is not None

    @property
    def words(self) -> list[str]:
        """All texts that its cells may show."""
        cells = [*self.cells.values(), *([self.span[1]] if self.span else [])]
        return [text.plain for cell in cells for text in texts_of(cell)]


def texts_of(cell: Cell) -> Sequence[Text]:
    """The texts of a cell from long to short; () for a drawing."""
    if isinstance(cell, Text):
        return (cell,)
    return () if callable(cell) else cell


def bounds(column: Column, lines: Sequence[Line]) -> tuple[int, int]:
    """The least and the most cells that a column can use."""
    cells = [line.cells[column.key] for line in lines if column.key in line.cells]
    drawn = any(callable(cell) for cell in cells)
    longest = [texts_of(cell)[0].cell_length for cell in cells if not callable(cell)]
    shortest = [texts_of(cell)[-1].cell_length for cell in cells if not callable(cell)]
    title = len(column.title)
    most = column.maximum if drawn else max([title, *(min(w, column.maximum) for w in longest)])
    least = max([title, *shortest])
    if column.minimum is not None:
        least = max(title, min(column.minimum, least) if column.names else column.minimum)
    return min(least, most), most


def _is_empty(column: Column, lines: Sequence[Line]) -> bool:
    """Whether no line has more than a dash in this column, nor a span that covers it."""
    cells = [line.cells.get(column.key, Text()) for line in lines]
    drawn = any(callable(cell) or texts_of(cell)[0].plain.strip(" -") for cell in cells)
    return not drawn and not any(line.span for line in lines)


def _turn(column: Column) -> tuple[bool, int]:
    """The sort key by which columns get the cells that are left."""
    return column.patient, column.rank


def fit(columns: Sequence[Column], lines: Sequence[Line], width: int) -> list[tuple[Column, int]]:
    """The columns that fit into `width` cells, in order, each with its width."""
    limits = {column.key: bounds(column, lines) for column in columns}
    whole = {c.key: bounds(replace(c, minimum=None), lines)[0] for c in columns if c.names}
    kept = list(columns)

    def needed(least: Mapping[str, int]) -> int:
        return sum(least.get(c.key, limits[c.key][0]) for c in kept) + GAP * (len(kept) - 1)

    for least, rank in ((whole, LAST), ({}, 1)):
        while needed(least) > width and any(c.rank >= rank for c in kept):
            last = max(kept, key=lambda c: (c.rank > 0 and _is_empty(c, lines), c.rank))
            if limits[last.key][0] > last.bare > 0:
                limits[last.key] = last.bare, last.bare
            else:
                kept.remove(last)
    spare = width - needed({})
    widths = {c.key: limits[c.key][0] for c in kept}
    for _, equals in groupby(sorted(kept, key=_turn), _turn):
        able = group = list(equals)
        while spare > 0 and (able := [c for c in able if widths[c.key] < limits[c.key][1]]):
            widths[min(able, key=lambda c: widths[c.key]).key] += 1
            spare -= 1
        for column in group:  # cells that no text of the column can use go to others
            low, high = limits[column.key]
            if low < widths[column.key] < high:
                used = max(low, _shown_width(column, lines, widths[column.key]))
                spare += widths[column.key] - used
                widths[column.key] = used
    return [(column, widths[column.key]) for column in kept]


def cell_text(cell: Cell | None, column: Column, width: int) -> Text:
    """The longest text that fits, or the shortest one cut with an ellipsis; padded to `width`."""
    if cell is None:
        chosen = Text()
    elif callable(cell):
        chosen = cell(width)
    else:
        chosen = longest_that_fits(texts_of(cell), width)
    blank = " " * (width - chosen.cell_length)
    return Text.of(blank, chosen) if column.align == "right" else Text.of(chosen, blank)


def _shown_width(column: Column, lines: Sequence[Line], width: int) -> int:
    """The cells of this width that the texts of a column take."""
    named = cut_names(column, lines, width) if column.names else lines
    cells = [line.cells[column.key] for line in named if column.key in line.cells]
    if any(callable(cell) for cell in cells):
        return width
    taken = (longest_that_fits(texts_of(cell), width).cell_length for cell in cells)
    return max([len(column.title), *taken])


def longest_that_fits(texts: Sequence[Text], width: int) -> Text:
    fitting = (text for text in texts if text.cell_length <= width)
    return next(fitting, texts[-1].truncate(width))


def cut_names(column: Column, lines: Sequence[Line], width: int) -> list[Line]:
    """The lines with the names of this column in the longest form in which all fit; if none does,
    in the shortest, cut to `width` where most of them stay different."""
    cells = {n: line.cells[column.key] for n, line in enumerate(lines) if column.key in line.cells}
    names = {number: texts_of(cell) for number, cell in cells.items()}
    most = max(map(len, names.values()), default=1)
    forms = [{n: each[min(at, len(each) - 1)] for n, each in names.items()} for at in range(most)]
    fitting = (form for form in forms if all(t.cell_length <= width for t in form.values()))
    texts = next(fitting, forms[-1])
    long = [text.plain for text in texts.values() if text.cell_length > width]
    room = max(0, width - 1)

    def different(head: int) -> tuple[int, int]:
        cut = {(text[:head], text[len(text) - room + head :]) for text in long}
        return len(cut), -abs(head - room // 2)

    head = max(range(room + 1), key=different)
    found = list(lines)
    for number, text in texts.items():
        if text.cell_length > width:
            end = len(text.plain)
            text = Text.of(text.part(0, head), ELLIPSIS, text.part(end - room + head, end))
        found[number] = replace(found[number], cells={**found[number].cells, column.key: text})
    return found


def line_text(line: Line, layout: Sequence[tuple[Column, int]], width: int) -> Text:
    """One row as text."""
    parts: list[Text] = []
    used = 0
    for column, column_width in layout:
        if line.span is not None and line.span[0] == column.key:
            parts.append(longest_that_fits(line.span[1], max(0, width - used)))
            break
        parts.append(cell_text(line.cells.get(column.key), column, column_width))
        used += column_width + GAP
    return join(parts, " " * GAP)


def table_lines(
    columns: Sequence[Column], lines: Sequence[Line], width: int = UNLIMITED
) -> list[Text]:
    """The whole table as text: a head and a line for each row."""
    layout = fit(columns, lines, width)
    titles: dict[str, Cell] = {
        c.key: partial(c.head, c.title) if c.head else Text.of((c.title, "dim")) for c, _ in layout
    }
    head = line_text(Line("", titles), layout, width)
    for column, column_width in layout:
        if column.names:
            lines = cut_names(column, lines, column_width)
    return [head, *(line_text(line, layout, width) for line in lines)]


_AMOUNT = re.compile(
    r"(?:[CG]PU |[±<!>=]+ ?)*(?:1/)?(-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)"
    r"\s*(min\b|h\b|[KMGT]i|[nuµmkMGTP](?= ?[a-zA-Z]))?"
)
_TIMES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "min": 60.0, "h": 3600.0}
_TIMES |= {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIMES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def holds(words: str, *texts: str) -> bool:
    """Whether each of the words occurs in one of the texts, as a filter requires."""
    together = " ".join(texts).casefold()
    return all(word in together for word in words.casefold().split())


def sorted_lines(lines: Sequence[Line], key: str, backwards: bool) -> list[Line]:
    """The lines sorted by one column: amounts by size and unit, then words, then empty cells (last
    in both directions).  Lines stay below their heading."""
    at = next((number for number, line in enumerate(lines) if line.is_heading), None)
    if at is not None:
        parts = lines[:at], lines[at + 1 :]
        above, below = (sorted_lines(part, key, backwards) for part in parts)
        return [*above, lines[at], *below]
    keyed = [(_amount(line.cells.get(key)), line) for line in lines]
    known = [(found, line) for found, line in keyed if found is not None]
    ordered = sorted(known, key=lambda pair: pair[0], reverse=backwards)
    return [line for _, line in ordered] + [line for found, line in keyed if found is None]


_WORSE = re.compile(r"x (slower|higher)\b|(?<!\S)1/")  # a ratio that is shown inverted


def _amount(cell: Cell | None) -> tuple[bool, float, str] | None:
    """The sort key of a cell: whether it is a word, its amount, its text."""
    if cell is None:
        return None
    text = (cell(DRAWN) if callable(cell) else texts_of(cell)[0]).plain.strip()
    found = _AMOUNT.match(text)
    if found is None:
        filled = re.sub(r"\d+", lambda digits: digits[0].zfill(12), text)  # n=64 before n=128
        return (True, 0.0, filled.casefold()) if text else None
    value = float(found[1].replace(",", "")) * _TIMES.get(found[2] or "", 1.0)
    return False, 1 / value if value and _WORSE.search(text) else value, text


def plain_cells(
    header: Sequence[str | Column], rows: Iterable[Sequence[str]], right: Collection[int] = ()
) -> tuple[list[Column], list[Line]]:
    """Columns and lines of cells with one text each.  A title makes a column of natural width; the
    last ones disappear first, and those with numbers in `right` are aligned to the right."""
    columns = [
        Column(str(i), each, i, maximum=UNLIMITED, align="right" if i in right else "left")
        if isinstance(each, str)
        else each
        for i, each in enumerate(header)
    ]
    keys = [column.key for column in columns]
    return columns, [
        Line(str(number), dict(zip(keys, map(Text.of, cells), strict=False)))
        for number, cells in enumerate(rows)
    ]
