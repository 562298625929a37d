"""`workbench fleet show`: the tables of a fleet, which fill while its jobs run."""

from collections.abc import Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from workbench.engine.exit_codes import OK
from workbench.export.view.fleet import sections
from workbench.export.view.section import section_lines
from workbench.records.fleet import FleetDocument
from workbench.text.sanitize import shown

from .state.threads import in_thread
from .terminal import TOO_SMALL, TerminalApp
from .widgets.drawn import Drawn
from .widgets.keybar import KeyBar
from .widgets.pane import Pane

EVERY_S = 5.0
GOING = ("pending", "running")


class FleetApp(TerminalApp):
    """Shows the document that `read` returns, and reads it again while jobs run."""

    TITLE = "workbench fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "shift(-1)", "Left", key_display="←", priority=True),
        Binding("right", "shift(1)", "Right", key_display="→", priority=True),
        Binding("r", "reread", "Read again"),
        Binding("q", "interrupt", "Quit"),
        Binding("ctrl+c,ctrl+q,escape", "interrupt", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
    ]

    def __init__(self, read: Callable[[], FleetDocument], found: FleetDocument) -> None:
        super().__init__()
        self._read, self.found, self._skip = read, found, 0

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        with Pane(id="body"):
            yield Drawn(id="fleet")
        yield KeyBar()

    def on_mount(self) -> None:
        self._take(self.found)
        self.query_one(Pane).focus()
        self.set_interval(EVERY_S, self.reread_while_going)
        self.show_first()

    def reread_while_going(self) -> None:
        self._take(self.found)  # the terminal may not have been reading before
        is_reading = any(worker.is_running for worker in self.workers)
        if not is_reading and any(node.state in GOING for node in self.found.nodes):
            self.action_reread()

    @work(exclusive=True)
    async def action_reread(self) -> None:
        """Read the folder in a thread, since a shared file system may stall."""
        try:
            found = await in_thread(self._read)
        except Exception as error:  # the folder is gone, or holds other node types now
            self.notify(shown(str(error)), severity="error", markup=False)
        else:
            self._take(found)

    def _take(self, found: FleetDocument) -> None:
        self.found = found
        if not self.is_unread:
            self.action_shift(0)

    def action_shift(self, by: int) -> None:
        """Hide `by` more columns of each table after its first; a negative number shows them."""
        widest = max(len(section.columns) for section in sections(self.found))
        self._skip = max(0, min(self._skip + by, widest - 2))
        self.query_one("#fleet", Drawn).show(
            lambda width: section_lines([*sections(self.found, self._skip)], width, width)
        )

    def action_interrupt(self) -> None:
        if self._exit:
            self.hurry(OK)
        else:
            self.exit(return_code=OK)
