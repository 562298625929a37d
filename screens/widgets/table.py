"""A table that fits: columns shrink and leave by rank, and only lines that changed are drawn.

Textual's DataTable repaints as a whole and scrolls sideways; over SSH the first costs
bandwidth, and the second hides the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

GAP = 2
MARK = "▌"  # of the chosen line: a change of background alone is easily missed

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


class TableLine(Static):
    """One row on the screen."""

    def __init__(self, index: int | None, classes: str | None = None) -> None:
        super().__init__("", classes=classes)
        self.index = index  # None: the head
        self.drawn = Content("")

    def draw(self, content: Content) -> None:
        if not content.is_same(self.drawn) or not self.drawn:
            self.drawn = content
            self.update(content, layout=False)

    def on_click(self) -> None:
        if self.index is not None:
            self.post_message(Table.LineClicked(self.index))


@dataclass
class _Shown:
    columns: Sequence[Column] = ()
    lines: Sequence[Line] = ()
    empty: Content = field(default_factory=lambda: Content(""))


class Table(Widget, can_focus=True):
    """Columns, lines and a cursor that stays with its line's key when others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("home,g", "move(-1000)", "First", show=False),
        Binding("end,G", "move(1000)", "Last", show=False),
        Binding("enter", "select", "Details", key_display="enter"),
    ]

    cursor: reactive[str | None] = reactive(None, init=False)

    class Moved(Message):
        """The cursor is on another line."""

    class Selected(Message):
        """Enter or a click on the line under the cursor."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class LineClicked(Message):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, *, id: str | None = None, opens: bool = True) -> None:  # noqa: A002 - Textual's name
        """`opens`: something answers to `Selected`."""
        super().__init__(id=id)
        self._opens = opens
        self._shown = _Shown()

    def compose(self) -> ComposeResult:
        yield TableLine(None, classes="table-head")
        yield VerticalScroll(classes="table-body", can_focus=False)

    def show(self, columns: Sequence[Column], lines: Sequence[Line], empty: Content) -> None:
        """Draw these lines; `empty` stands there when there are none."""
        self._shown = _Shown(columns, lines, empty)
        keys = [line.key for line in lines]
        if self.cursor not in keys:
            self.cursor = keys[0] if keys else None
        self._draw()

    def _draw(self) -> None:
        width = self.size.width
        if not self.is_mounted or width == 0:
            return
        shown = self._shown
        head, body = self.query_one(".table-head", TableLine), self.query_one(VerticalScroll)
        widgets = self._as_many(body, max(1, len(shown.lines)))
        if not shown.lines:
            head.draw(Content(""))
            empty = shown.empty.truncate(width - len(MARK), ellipsis=True)
            widgets[0].draw(empty.pad_left(len(MARK)))
            widgets[0].set_class(False, "-cursor")
            return
        scrolls = len(shown.lines) > self.size.height - 1  # and the bar takes a column
        titles, *texts = table_lines(shown.columns, shown.lines, width - scrolls - len(MARK))
        head.draw(titles.pad_left(len(MARK)))
        for widget, line, text in zip(widgets, shown.lines, texts, strict=True):
            chosen = line.key == self.cursor
            unmarked = text.pad_left(len(MARK))
            if not chosen:
                widget.draw(unmarked)
            elif self.app.native_ansi_color:
                # Inverse video is mark enough, and would make coloured boxes of coloured words.
                widget.draw(unmarked.without_spans)
            else:
                widget.draw(Content.assemble((MARK, "$primary"), text))
            widget.set_class(chosen, "-cursor")

    def _as_many(self, body: VerticalScroll, count: int) -> list[TableLine]:
        """The line widgets, grown or shrunk to `count`."""
        widgets = list(body.query(TableLine))
        for surplus in widgets[count:]:
            surplus.remove()
        new = [TableLine(index) for index in range(len(widgets), count)]
        if new:
            body.mount_all(new)
        return widgets[:count] + new

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()

    def watch_cursor(self) -> None:
        self.refresh_bindings()
        self._draw()
        index = self._index()
        if index is not None:
            lines = list(self.query_one(VerticalScroll).query(TableLine))
            if index < len(lines):
                lines[index].scroll_visible(animate=False)
        self.post_message(self.Moved())

    def _index(self) -> int | None:
        keys = [line.key for line in self._shown.lines]
        return keys.index(self.cursor) if self.cursor in keys else None

    def action_move(self, step: int) -> None:
        index = self._index()
        if index is not None:
            last = len(self._shown.lines) - 1
            self.cursor = self._shown.lines[min(max(0, index + step), last)].key

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._opens and self.cursor is not None if action == "select" else True

    def action_select(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Selected(self.cursor))

    def on_table_line_clicked(self, message: LineClicked) -> None:
        message.stop()
        if message.index < len(self._shown.lines):
            key = self._shown.lines[message.index].key
            if key == self.cursor:
                self.post_message(self.Selected(key))
            self.cursor = key
