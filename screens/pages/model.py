"""The Model screen: ways to run a user's model or own code, which one to take, and why."""

import stat
from contextlib import suppress
from glob import glob
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.containers import Container

from workbench.advisor.ranking import RankedCandidate
from workbench.advisor.subject import ranked_candidates, snippet
from workbench.export.view.model import advice_lines, code_lines, head_lines, rest_lines
from workbench.export.view.ranked import candidate_lines, columns, tradeoff_lines
from workbench.export.view.spans import Text, heading
from workbench.export.view.table import Column, Line
from workbench.planning.questions import ModelQuestion
from workbench.report.candidate import Row
from workbench.text import units
from workbench.text.sanitize import shown

from ..state.session import Session
from ..state.threads import in_thread
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import ROOMY_HEIGHT, ViewScreen
from .detail import DetailScreen

QUESTION = "Which variant of your model should you ship?"
HERE = "Open a file below to race its variants. "
ANY = "n starts a run of any ONNX file or of your own code."
NO_FILE = "no .onnx files in this folder or two levels below"
SEARCHING = "looking for .onnx files..."
GOING = "A model opens here when no other run is in progress."
CLOSED = "A document cannot start a run; start workbench without one to race a model."
PLACES = ("*.onnx", "*/*.onnx", "*/*/*.onnx")
MOST_FILES = 40
FILES = (Column("file", "File", minimum=24), Column("size", "Size", rank=1, align="right"))
SIDE_BY_SIDE = 150


class ModelScreen(ViewScreen):
    AUTO_FOCUS = "Table"
    HORIZONTAL_BREAKPOINTS = [(SIDE_BY_SIDE, "-side-by-side")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._found: list[RankedCandidate] = []
        self._files: list[Line] | None = None  # to choose from, None until they are found
        self._stale = True  # whether to look for files again

    def body(self) -> ComposeResult:
        yield Drawn(id="model-head")
        yield Table(id="forms")
        with Pane(id="model-pane", can_focus=False), Container(classes="columns"):
            yield Drawn(id="model-answer")
            yield Drawn(id="model-more")

    @property
    def row(self) -> Row | None:
        return self.session.report.subject_row

    def on_screen_suspend(self) -> None:
        self._stale = True

    @work(exclusive=True)
    async def _look(self) -> None:
        """Search in a thread, since a file system may stall."""
        self._files = await in_thread(_file_lines)
        self.repaint()

    def _draw_files(self, table: Table) -> None:
        """Draw the files to choose from, while the run shown is about no model or code."""
        can = bool(self.app.check_action("new", ()))
        if can and self._stale and self.is_current:  # a search would disturb a race
            self._stale = False
            self._look()
        files = self._files or []
        said = GOING if self.session.going else CLOSED
        if can:
            more = f" The first {MOST_FILES} of {len(files):,} files:"
            said = (HERE if files else "") + ANY + (more if len(files) > MOST_FILES else "")
        hint = Text.of((said, "dim"))
        self.write("model-head", lambda width: [heading(QUESTION, width), *hint.wrap(width)])
        empty = SEARCHING if self._files is None else NO_FILE
        table.show(FILES, files[:MOST_FILES] if can else (), empty if can else "")
        table.is_led = True

    def draw(self, session: Session) -> None:
        row, table = self.row, self.query_one(Table)
        self._found = ranked_candidates(session.report) if session.has_model else []
        table.opens = "details" if session.has_model else "run"
        self.query_one("#model-pane").display = session.has_model
        table.display = not session.has_model or (row is not None and bool(self._found))
        if not session.has_model:
            self._draw_files(table)
            return
        roomy, title = self.size.height >= ROOMY_HEIGHT, session.subject or ""
        self.write("model-head", lambda width: head_lines(session, width, roomy=roomy, title=title))
        if row is not None:
            table.show(columns(row), candidate_lines(self._found, session))
            table.lead(row.verdict.pick if row.verdict else None)
        if table.display and self.focused is None:
            self.set_focus(table)  # it lost the focus when it was hidden

    def draw_chosen(self) -> None:
        found, chosen, session = self._found, self.chosen, self.session
        wide = self.size.width >= SIDE_BY_SIDE

        def left(width: int) -> list[Text]:
            rest = rest_lines(chosen, session, width) if wide else []
            return [*advice_lines(found, chosen, session, width), Text(), *rest]

        def right(width: int) -> list[Text]:
            rest = [] if wide else rest_lines(chosen, session, width)
            chart = tradeoff_lines(found, chosen, width) if wide else []
            return [*code_lines(chosen, session, width), *chart, *rest]

        self.write("model-answer", left)
        self.write("model-more", right)

    def on_table_selected(self, message: Table.Selected) -> None:
        row = self.row
        if not self.session.has_model:
            self.shell.action_new(self.shell.request_for(question=ModelQuestion(message.key)))
        elif row is not None:
            self.app.push_screen(DetailScreen(row.plan.scenario, message.key))

    def command(self) -> str | None:
        """The code if there is any, otherwise the command that reproduces the run."""
        return snippet(self.session.report) or super().command()


def _file_lines() -> list[Line]:
    """A line for each regular file that matches PLACES."""
    lines = []
    for path in sorted({path for place in PLACES for path in glob(place)}):  # noqa: PTH207
        with suppress(OSError):
            found = Path(path).stat()
            cells = {"file": Text.of(shown(path)), "size": Text.of(units.size(found.st_size))}
            lines += [Line(path, cells)] if stat.S_ISREG(found.st_mode) else []
    return lines
