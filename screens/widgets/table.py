"""A table that fits: columns shrink or go by rank, and only lines that changed are drawn.

Textual's DataTable repaints as a whole and scrolls sideways; over SSH the first costs
bandwidth, and the second hides the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, cast

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from workbench.export.view.table import GAP, Column, Line, fit, sorted_lines, table_lines

from .drawn import Drawn
from .styles import content

MARK = "▌"  # marks the selected line: its background alone is easily missed


class Titles(Drawn):
    """The head of a table."""

    def on_click(self, event: events.Click) -> None:
        self.query_ancestor(Table).click_title(event.x - len(MARK))


class Lines(Drawn):
    """The rows below it, a line each."""

    def on_click(self, event: events.Click) -> None:
        self.query_ancestor(Table).click_line(event.y)


@dataclass
class _Shown:
    columns: Sequence[Column] = ()
    lines: Sequence[Line] = ()
    empty: str = ""
    made: dict[int, list[Content]] = field(default_factory=dict)  # titles and lines, by width


def _nearest(key: str | None, before: Sequence[str], now: Sequence[str]) -> str | None:
    """Where the cursor goes when its line has gone: the nearest line below that is still there,
    else above, else the first."""
    at = before.index(key) if key in before else len(before)
    neighbours = (*before[at:], *reversed(before[:at])) if key in before else ()
    return next((each for each in (*neighbours, *now) if each in now), None)


class Table(Widget, can_focus=True):
    """Columns, lines and a cursor that stays with its line's key when others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "up,k",
            "move(-1)",
            "Up",
            show=False,
            key_display="up down",
            tooltip="move; enter opens, esc goes back",
        ),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("home,g", "move(-1000)", "First", show=False),
        Binding("end,G", "move(1000)", "Last", show=False),
        Binding("enter", "select('details')", "Details"),
        Binding("enter", "select('run')", "Open"),
        Binding(
            "greater_than_sign",
            "sort(1)",
            show=False,
            key_display="< >",
            tooltip="sort by the column before or after; = reverses; a click on a title does both",
        ),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("equals_sign", "reverse", show=False),
    ]

    cursor: reactive[str | None] = reactive(None, init=False)

    class Moved(Message):
        """The cursor is on another line."""

    @dataclass
    class Selected(Message):
        """Enter or a click on the line under the cursor."""

        key: str

    def __init__(self, *, id: str | None = None, opens: str = "details") -> None:  # noqa: A002 - Textual's name
        """`opens`: what `Selected` leads to, details, another run or nothing."""
        super().__init__(id=id)
        self.opens = opens
        self._shown = _Shown()
        self._given: Sequence[Line] = ()  # in the order of the page
        self._sorted, self._backwards = "", False  # key of a column; "": the page's order
        self.is_led = True  # by `lead`, until the user moves the cursor

    def compose(self) -> ComposeResult:
        yield Titles()
        with VerticalScroll(can_focus=False):
            yield Lines()

    def show(self, columns: Sequence[Column], lines: Sequence[Line], empty: str = "") -> None:
        """Draw these lines, or `empty` if there are none."""
        self._given = lines
        if self._sorted:
            lines = sorted_lines(lines, self._sorted, self._backwards)
        before, self._shown = self._keys, _Shown(columns, lines, empty)
        keys = self._keys
        if self.cursor not in keys:
            able = [line.key for line in lines if not line.is_heading]
            self.cursor = _nearest(self.cursor, before, able)
        elif self.cursor in before and before.index(self.cursor) != keys.index(self.cursor):
            self.call_after_refresh(self._reveal)
        self._draw()

    def lead(self, key: str | None) -> None:
        """Move the cursor to this line, unless the user has moved it."""
        if self.is_led and key in self._keys:
            self.cursor = key

    def choose(self, key: str) -> None:
        """Move the cursor to this line as the user would."""
        if key in self._keys:
            self.is_led, self.cursor = False, key

    @property
    def is_at_end(self) -> bool:
        """Whether the cursor is on the last line as shown."""
        return self._keys[-1:] == [self.cursor]

    @property
    def _keys(self) -> list[str]:
        return [line.key for line in self._shown.lines]

    def _draw(self) -> None:
        if self.is_attached:
            self.query_one(Titles).show(lambda width: self._made(self._room(width))[0])
            self.query_one(Lines).show(self._lines)

    def _made(self, room: int) -> list[Content]:
        """The titles, then the lines without the cursor, `room` cells wide."""
        shown = self._shown
        if not shown.lines:
            empty = Content.styled(shown.empty, "dim").truncate(room, ellipsis=True)
            return [Content(""), empty.pad_left(len(MARK))]
        if room not in shown.made:  # else only the cursor has moved
            found = table_lines(self._titled(), shown.lines, room)
            shown.made[room] = [content(text).pad_left(len(MARK)) for text in found]
        return shown.made[room]

    def _lines(self, width: int) -> list[Content]:
        _, *texts = self._made(width - len(MARK))
        if (at := self._index()) is not None:
            texts[at] = self._marked(texts[at], width)
        return texts

    def _marked(self, text: Content, width: int) -> Content:
        """The line under the cursor; a background goes to the right edge."""
        if self.app.native_ansi_color:
            # Inverse video is mark enough, and would make coloured boxes of coloured words.
            return text.without_spans.stylize("reverse")
        line = Content.assemble((MARK, "$primary"), text[len(MARK) :]).stylize("on $cursor")
        return Content.assemble(line, (" " * (width - text.cell_length), "on $cursor"))

    def _room(self, width: int) -> int:
        scrolls = len(self._shown.lines) > self.size.height - 1  # and the bar takes a column
        return width - scrolls - len(MARK)

    def _titled(self) -> Sequence[Column]:
        """The columns, with an arrow after the title of the one that sorts the lines."""
        name, arrow = self._sorted, "▼" if self._backwards else "▲"
        return [
            replace(column, title=f"{column.title}{arrow}") if column.key == name else column
            for column in self._shown.columns
        ]

    def _fitted(self) -> list[tuple[Column, int]]:
        """The columns that there is room for, with their widths."""
        return fit(self._titled(), self._shown.lines, self._room(self.size.width))

    def sort_by(self, key: str, *, backwards: bool = False) -> None:
        """Sort by a column, or "" for the page's order."""
        self._sorted, self._backwards, shown = key, backwards, self._shown
        self.show(shown.columns, self._given, shown.empty)
        self._reveal()

    def action_sort(self, step: int) -> None:
        keys = ["", *(column.key for column, _ in self._fitted() if column.title)]
        at = keys.index(self._sorted) if self._sorted in keys else 0
        self.sort_by(keys[(at + step) % len(keys)])

    def action_reverse(self) -> None:
        if self._sorted:
            self.sort_by(self._sorted, backwards=not self._backwards)

    def click_title(self, x: int) -> None:
        """Sort by the column at this place, a second time backwards."""
        end = 0
        for column, width in self._fitted() if self._shown.lines else ():
            end += width + GAP
            if x < end:
                again = self._sorted == column.key
                self.sort_by(column.key, backwards=again and not self._backwards)
                return

    def on_resize(self, _event: events.Resize) -> None:
        self._draw()
        self.call_after_refresh(self._reveal)

    def _reveal(self) -> None:
        """Scroll to the line under the cursor."""
        body, index = self.query_one(VerticalScroll), self._index()
        if index is not None:
            reveal = partial(body.scroll_to_region, Region(0, index, 1, 1), animate=False)
            # Lines that have just come have no place yet.
            reveal() if index < body.virtual_size.height else self.call_after_refresh(reveal)

    def watch_cursor(self) -> None:
        self._draw()
        self._reveal()
        self.post_message(self.Moved())
        self.screen.call_after_refresh(self.screen.refresh_bindings)  # the cursor first

    def _index(self) -> int | None:
        return self._keys.index(self.cursor) if self.cursor in self._keys else None

    def action_move(self, step: int) -> None:
        keys = [line.key for line in self._shown.lines if not line.is_heading]
        self.is_led = False
        if self.cursor in keys:
            self.cursor = keys[min(max(0, keys.index(self.cursor) + step), len(keys) - 1)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "select":
            return True
        # Reading a journal would disturb the measurement.
        can = self.opens != "run" or not cast(Any, self.app).session.going
        return can and self.opens in parameters and bool(self.cursor)

    def action_select(self, _: str) -> None:
        if self.cursor:
            self.post_message(self.Selected(self.cursor))

    def click_line(self, index: int) -> None:
        """Move the cursor here, a second time open the line."""
        if index < len(self._shown.lines) and not self._shown.lines[index].is_heading:
            self.is_led, key = False, self._shown.lines[index].key
            if key == self.cursor and self.check_action("select", (self.opens,)):
                self.post_message(self.Selected(key))
            self.cursor = key
