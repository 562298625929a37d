"""The base of all screens: bars, failure notice and repainting."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input, Static

from workbench.export.view.spans import Text, fact, facts_lines
from workbench.report.candidate import Candidate, Row

from ..state.session import Session
from ..terminal import TOO_SMALL
from ..widgets.bars import TopBars
from ..widgets.drawn import Drawn, Made
from ..widgets.filter import FilterBar
from ..widgets.keybar import OPTIONAL, SPARE, KeyBar
from ..widgets.pane import Pane
from ..widgets.table import Table

FAILURE_LINES = 8
ROOMY_HEIGHT = 34
FILTER = Binding(
    "slash",
    "filter",
    "Filter",
    key_display="/",
    tooltip="filter the table; enter keeps the filter, esc clears it",
    group=SPARE,
)
STEPS = (
    Binding(
        "left_square_bracket,left",
        "step(-1)",
        "Row",
        key_display="[ ]",
        tooltip="previous and next row or size of a race",
    ),
    Binding("right_square_bracket,right", "step(1)", "Next row", show=False),
)


class ViewScreen(Screen[None]):
    """A screen that draws a session.  Subclasses implement `body` and `draw`.

    `keys.PAGES` lists those with a tab.  The tooltip of a binding is its line on the help page.
    """

    # Pane has these keys too, but the table has the focus.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "pagedown,ctrl+d",
            "scroll(1)",
            "More",
            key_display="pgdn",
            tooltip="scroll the text; pgup scrolls back",
            group=OPTIONAL,
        ),
        Binding("pageup,ctrl+u", "scroll(-1)", show=False),
    ]

    UNUSED: tuple[str, ...] = ()  # inherited actions that no state of the screen allows
    _drawn_for: Size | None = None
    _followed: Session | None = None
    _seen = False  # whether it is shown, and was drawn for that

    @property
    def label(self) -> str:
        """Its name on the tabs and in the list of words; `Page` has the same."""
        return type(self).__name__.removesuffix("Screen")

    @property
    def shell(self) -> Any:
        """The application, whose module imports this one."""
        return self.app

    @property
    def session(self) -> Session:
        return cast(Session, self.shell.session)

    @property
    def row(self) -> Row | None:
        """The selected row."""
        return None

    @property
    def is_away(self) -> bool:
        """Whether the user looks at another row than the screen shows by itself."""
        return False

    def follow(self) -> None:
        """Show the row again that the screen shows by itself."""
        self.session.looked_at = None
        self.refresh_bindings()
        self.repaint()

    @property
    def chosen(self) -> Candidate | None:
        """The candidate of the selected row under the cursor of the table."""
        row, cursor = self.row, self.query_one(Table).cursor
        return next((c for c in row.candidates if c.case.id == cursor), None) if row else None

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        yield TopBars()
        yield Drawn(id="failure")
        with Vertical(id="body"):
            yield from self.body()
        yield KeyBar()

    @abstractmethod
    def body(self) -> ComposeResult:
        """The widgets between the bars."""

    @abstractmethod
    def draw(self, session: Session) -> None:
        """Show the session in the widgets of the body, except what `draw_chosen` shows."""

    def write(self, part: str, make: Callable[[int], Made], *, when: bool = True) -> None:
        """Show `make(width)` in the widget of this id, or hide the widget."""
        drawn = self.query_one(f"#{part}", Drawn)
        if drawn.display != when:
            drawn.display = when
        if when:
            drawn.show(make)

    def draw_now(self, session: Session) -> None:
        """Draw the sensors in one line, while a run goes on and there is room."""
        if not (session.going and session.report.host and self.size.height >= ROOMY_HEIGHT):
            self.query_one("#now").display = False
            return
        from workbench.export.view.sensors import now_line  # it would delay the first picture

        self.write("now", now_line(session.report).truncate)

    def repaint(self) -> None:
        session, self._drawn_for = self.session, self.size
        if session is not self._followed:
            for table in self.query(Table):
                table.is_led = True  # the row that the user chose belongs to another run
            for pane in self.query(Pane) if self._followed else ():
                pane.scroll_home(animate=False)
            self._followed = session
        tabs = self.shell.tabs
        mode = self.label if self.label in tabs else self.app.current_mode
        self.query_one(TopBars).show(session, tabs, mode)
        failed = session.failure is not None
        self.write("failure", lambda width: failure_lines(session, width), when=failed)
        self.draw(session)
        self.draw_chosen()

    @property
    def size(self) -> Size:
        """The size of the terminal, which is known before the first layout."""
        return self.app.size

    def on_table_moved(self) -> None:
        self.call_after_refresh(self.draw_chosen)  # the cursor first

    def draw_chosen(self) -> None:
        """Draw what belongs to the line under the cursor of the table."""

    def on_input_changed(self, message: Input.Changed) -> None:
        self.repaint()

    def _compositor_refresh(self) -> None:
        if not self.app._batch_count:  # Textual would draw a layout even within a batch
            super()._compositor_refresh()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Draw the current state, once at the first visit, for which Textual sends two events, and
        once while the screen is mounted unseen."""
        event.refresh_styles = False  # they change with what they depend on, hidden or not
        if not self._seen:
            self._seen = self.is_current
            self.repaint()

    def on_screen_suspend(self) -> None:
        self._seen = False

    def on_resize(self, event: events.Resize) -> None:
        if self.is_mounted and self._drawn_for != event.size:
            self.repaint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys for rows only if there are rows, and none while the user types text."""
        if action == "scroll" and parameters == (1,):
            return any(pane.has_more for pane in self.query(Pane))
        if action == "follow":
            return self.is_away or any(bar.value for bar in self.query(FilterBar))
        if action not in ("filter", "step"):
            return True
        least = 2 if action == "step" else 1
        return len(self.session.report.rows) >= least and not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def action_follow(self) -> None:
        """Clear the filter, or else go back to the row that the screen shows by itself."""
        filters = [bar for bar in self.query(FilterBar) if bar.value]
        for bar in filters:
            bar.action_dismiss()
        if not filters:
            self.follow()

    def action_scroll(self, pages: int) -> None:
        for pane in self.query(Pane):
            pane.scroll_relative(y=pages * max(1, pane.size.height - 1), animate=False)

    def command(self) -> str | None:
        """The text that `c` copies: the command that reproduces the selected row."""
        return self.row.plan.reproduce or None if self.row is not None else None


def failure_lines(session: Session, width: int) -> list[Text]:
    """The engine's failure with its remedy and the end of its log."""
    failure = session.failure
    if failure is None:
        return []
    failed = fact("! failed", str(failure), "strong error", label_tone="strong error")
    lines = facts_lines([failed, fact("  remedy", failure.remedy)], width, 10)
    for number, text in enumerate(failure.log_tail[-FAILURE_LINES:]):
        label = "" if number else "  log"
        lines.append(Text.of((label.ljust(10), "dim"), text).truncate(width))
    return lines


def nothing_yet(session: Session) -> str:
    """The text for a table without races."""
    return "Planning the races..." if session.going else "Nothing was raced."
