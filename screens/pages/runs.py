"""The Runs screen: the kept runs, one to open, two to compare."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from workbench.export.view.runs import COLUMNS, MARKED, is_found, run_details, run_line
from workbench.export.view.spans import Text
from workbench.records.comparison import RunSummary
from workbench.records.errors import JournalError
from workbench.report import history, journal
from workbench.text import units
from workbench.text.sanitize import shown

from ..state.session import Session, can_follow
from ..state.threads import in_thread
from ..widgets.drawn import Drawn
from ..widgets.filter import FilterBar
from ..widgets.keybar import SPARE
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import FILTER, ViewScreen
from .compare import CompareScreen

PAGE = 60  # runs that the list grows by when the cursor reaches its end
EMPTY = "No run is kept yet{}."
NEW = ": n starts one, and it appears here"
LATER = "The list is read when the run has ended."  # reading would disturb the run
NOT_KEPT = "Runs are not kept: set XDG_STATE_HOME to a folder that can be written, unlike {}."


class RunsScreen(ViewScreen):
    AUTO_FOCUS = "Table"
    UNUSED = ("next_step",)
    BINDINGS: ClassVar[list[BindingType]] = [
        FILTER,
        Binding("escape", "follow", "Back"),
        Binding("v", "mark", "Mark", tooltip="mark a run as A, another as B"),
        Binding("c", "compare", "Compare", tooltip="compare A with B"),
        Binding("s", "again", "Start", tooltip="start the command of this run again", group=SPARE),
        Binding("e", "export", "Export", tooltip="write an HTML page of this run", group=SPARE),
        Binding(
            "delete,backspace",  # a Mac's delete key sends the latter
            "delete",
            "Delete",
            key_display="del",
            tooltip="twice: delete this run",
            group=SPARE,
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._kept: Sequence[tuple[Path, RunSummary]] | None = None  # all runs
        self._problem = ""
        self._found: dict[str, tuple[Path, RunSummary]] = {}
        self._wanted = PAGE
        self._marks: dict[str, Path] = {}  # by id, A first
        self._going = False  # whether a run was in progress when this was drawn

    def body(self) -> ComposeResult:
        yield Drawn(id="runs-title")
        yield Table(id="runs", opens="run")
        yield FilterBar()
        with Pane(id="run-pane", can_focus=False):
            yield Drawn(id="run-detail")

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Reading would disturb a run.
        if self.is_current and not self._seen and not self.session.going:
            self._refresh_index()

    @work(exclusive=True)
    async def _refresh_index(self) -> None:
        """Read new journals in a thread: the first time there may be thousands."""
        try:
            kept = await in_thread(history.refreshed)
        except JournalError as error:
            self._problem = shown(str(error))
        else:
            self._kept, self._problem = kept, ""
        self._search()

    def _search(self) -> None:
        """Take as many matching runs as the table shows."""
        if not self.is_mounted:
            return
        if self._kept is None:
            self.repaint()  # with the problem
            return
        words, kept = self.query_one(FilterBar).value, history.matching(self._kept)
        matching = (each for each in kept if is_found(each[1], words))
        self._found = {run.id: (path, run) for path, run in islice(matching, self._wanted)}
        self.repaint()

    @property
    def _chosen(self) -> tuple[Path, RunSummary] | None:
        return self._found.get(self.query_one(Table).cursor or "")

    def draw(self, session: Session) -> None:
        if self._going and not session.going:
            self._refresh_index()
        self._going = session.going
        sides = dict(zip(self._marks, "AB", strict=False))
        lines = [run_line(run, sides) for _, run in self._found.values()]
        folder = journal.runs_folder()
        empty = EMPTY.format(NEW if self.app.check_action("new", ()) else "")
        if not lines and not journal.can_be_written(folder):
            empty = NOT_KEPT.format(folder)
        if self._kept is None:
            empty = LATER if session.going else "reading the runs..."
        elif self.query_one(FilterBar).value:
            empty = "nothing matches the filter"
        self.query_one(Table).show((MARKED, *COLUMNS), lines, self._problem or empty)
        said = []
        if self._kept is not None:
            count = len(self._kept)
            some = f", {len(lines):,} shown" if len(lines) < count else ""
            said.append(units.counted(count, "run") + some)
        if len(self._marks) == 1:
            said.append("v on another run marks it as B")
        if session.going:
            said.append("a run is in progress: wait for it to end, or stop it with x")
        self.write("runs-title", Text.of(("   ".join(said), "dim")).truncate)

    def draw_chosen(self) -> None:
        chosen = self._chosen
        self.write("run-detail", lambda width: run_details(chosen[1], width) if chosen else [])

    def on_input_changed(self, message: Input.Changed) -> None:
        message.prevent_default()  # the search repaints, and the base class would do so again
        self._wanted = PAGE
        self._search()

    def on_table_moved(self) -> None:
        self.refresh_bindings()
        if len(self._found) == self._wanted and self.query_one(Table).is_at_end:
            self._wanted += PAGE
            self._search()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        chosen = self._chosen if self.is_mounted else None
        readable = chosen is not None and chosen[1].status != "unreadable"
        match action:
            case "filter":
                bar = self.query_one(FilterBar)
                return bool(self._found or bar.value) and not bar.has_focus_within
            case "mark":
                return readable
            case "export":
                return readable and not self.session.going
            case "again":
                able = chosen is not None and can_follow(chosen[1].command)
                return readable and able and bool(self.app.check_action("new", ()))
            case "compare":
                return len(self._marks) == 2 and not self.session.going
            case "delete":
                return chosen is not None and chosen[1].status != "running"
        return super().check_action(action, parameters)

    # ---------------------------------------------------------- the keys

    def action_mark(self) -> None:
        """Mark the run as A or B, or take its mark away; a third run takes the place of B."""
        if (chosen := self._chosen) is None:
            return
        path, run = chosen
        if self._marks.pop(run.id, None) is None:
            if len(self._marks) == 2:
                self._marks.popitem()
            self._marks[run.id] = path
        self.refresh_bindings()
        self.repaint()

    def action_compare(self) -> None:
        first, second = self._marks.values()
        self.app.push_screen(CompareScreen(first, second))

    def on_table_selected(self) -> None:
        self._read(self.shell.show_run)

    def action_again(self) -> None:
        def start(kept: Session) -> None:
            if (started := kept.report.started) is not None:
                self.shell.start_command(started.tool.command)

        self._read(start)

    def action_export(self) -> None:
        self._read(lambda kept: self.shell.export(kept.report))

    def _read(self, then: Callable[[Session], None]) -> None:
        if (chosen := self._chosen) is not None:
            self.shell.read_run(chosen[0], then)

    def action_delete(self) -> None:
        if (chosen := self._chosen) is None:
            return
        path, run = chosen
        if not self.shell.confirmed(f"del again deletes {run.id}"):
            return
        try:
            history.delete(path)
        except OSError as error:
            self.shell.complain(f"{run.id} is not deleted: {error.strerror}")
        self._marks.pop(run.id, None)
        self._refresh_index()
