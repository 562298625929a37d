"""What all screens share: the bars, the failure notice, and one way to be repainted."""

from __future__ import annotations

from typing import ClassVar, Protocol, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from workbench.export.view.facts import fact, facts_lines
from workbench.export.view.spans import Text

from ..state.session import Session
from ..text.styles import joined
from ..widgets.bars import TopBars
from ..widgets.drawn import Drawn
from ..widgets.keybar import KeyBar
from ..widgets.pane import Pane

FAILURE_LINES = 8


class HasSession(Protocol):
    """The application, as far as a screen needs it."""

    @property
    def session(self) -> Session: ...


class ReportChanged(Message):
    """The run has moved on; sent to the visible screen, at most a few times a second."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session


class ViewScreen(Screen[None]):
    """A screen that draws a session.  Subclasses fill `body` and `draw`."""

    COPIES: ClassVar[bool] = True  # there is a chosen row, whose command `c` copies
    # Here too, for the table has the focus.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown,ctrl+d", "scroll(1)", "More", key_display="pgdn"),
        Binding("pageup,ctrl+u", "scroll(-1)", show=False),
    ]

    @property
    def session(self) -> Session:
        return cast(HasSession, self.app).session

    def compose(self) -> ComposeResult:
        yield TopBars()
        yield Drawn(id="failure")
        with Vertical(id="body"):
            yield from self.body()
        yield KeyBar()

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def draw(self, session: Session) -> None:
        raise NotImplementedError

    def repaint(self) -> None:
        session = self.session
        self.query_one(TopBars).show(session, self.app.current_mode)
        failure = self.query_one("#failure", Drawn)
        failure.display = session.failure is not None
        failure.show(lambda width, _: failure_text(session, width))
        self.draw(session)

    def on_mount(self) -> None:
        self.repaint()

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self.repaint()

    def on_resize(self, _event: events.Resize) -> None:
        if self.is_mounted:
            self.repaint()

    def on_report_changed(self, _message: ReportChanged) -> None:
        self.repaint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys about rows are offered only where there are rows, and none while text is typed."""
        if action == "scroll" and parameters == (1,):
            return any(pane.has_more for pane in self.query(Pane))
        if action not in ("filter", "step"):
            return True
        return bool(self.session.report.rows) and not isinstance(self.focused, Input)

    def action_scroll(self, pages: int) -> None:
        for pane in self.query(Pane):
            pane.scroll_relative(y=pages * max(1, pane.size.height - 1), animate=False)

    def command(self) -> str | None:
        """What `c` copies: the command that measures the selected row again."""
        return None


def failure_text(session: Session, width: int) -> Content:
    """How the engine died, the remedy, and the last things it said."""
    failure = session.failure
    if failure is None:
        return Content("")
    lines = facts_lines(
        [
            fact("! failed", failure.message, "strong error", label_tone="strong error"),
            fact("  remedy", failure.remedy),
        ],
        width,
        label_width=10,
    )
    label = "  log"
    for text in failure.log_tail[-FAILURE_LINES:]:
        line = Text.of((label.ljust(10), "dim"), text)
        lines.append(line.truncate(width))
        label = ""
    return joined(lines)
