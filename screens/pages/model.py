"""The Model screen: ways to run a user's model or own code, which one to take, and why."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content

from workbench.advisor.model.overview import RankedCandidate
from workbench.advisor.subject import ranked_candidates, row_of, snippet
from workbench.export.view.model import answer_lines, code_lines, head_lines, rest_lines
from workbench.export.view.ranked import candidate_lines, columns
from workbench.export.view.spans import Text
from workbench.report.candidate import Candidate
from workbench.report.row import Row

from ..state.session import Session
from ..text.styles import joined
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import ViewScreen
from .detail import DetailScreen

ROOMY_HEIGHT = 34
SIDE_BY_SIDE = 150


class ModelScreen(ViewScreen):
    KEY, LABEL, STYLE = "4", "Model", "model.tcss"
    HELP = "your model or code: ways to run it, which one to take, the lines to paste"
    NEEDS_MODEL = True
    AUTO_FOCUS = "Table"

    def __init__(self) -> None:
        super().__init__()
        self._found: list[RankedCandidate] = []
        self._led: str | None = None  # cursor position set here, None until set

    def body(self) -> ComposeResult:
        yield Drawn(id="model-head")
        yield Table(id="forms")
        with Pane(id="model-pane", can_focus=False), Container(id="model-columns"):
            yield Drawn(id="model-answer", classes="column")
            yield Drawn(id="model-more", classes="column")

    @property
    def chosen(self) -> Candidate | None:
        return self.session.report.candidates.get(self.query_one(Table).cursor or "")

    @property
    def row(self) -> Row | None:
        return row_of(self.session.report)

    def draw(self, session: Session) -> None:
        row = self.row
        self._found = ranked_candidates(session.report)
        roomy = self.size.height >= ROOMY_HEIGHT
        self.query_one("#model-head", Drawn).show(
            lambda width, _: joined(
                head_lines(session, width, roomy=roomy, title=session.subject or "")
            )
        )
        table = self.query_one(Table)
        table.display = row is not None and bool(self._found)
        if row is not None:
            self._lead(table, row.verdict.pick if row.verdict else None)
            table.show(columns(row), candidate_lines(self._found, session), Text())
        self._draw_pane()

    def _lead(self, table: Table, pick: str | None) -> None:
        """Put the cursor at the top, then on the pick, unless the user has moved it."""
        if pick is not None and table.cursor == self._led != pick:
            self._led = table.cursor = pick
        elif table.cursor is None and self._found:
            self._led = table.cursor = self._found[0].candidate.case.id

    def _draw_pane(self) -> None:
        found, chosen, session = self._found, self.chosen, self.session
        wide = self.size.width >= SIDE_BY_SIDE
        self.query_one("#model-columns").set_class(wide, "-side-by-side")
        answer, more = self.query_one("#model-answer", Drawn), self.query_one("#model-more", Drawn)

        def left(width: int, _height: int) -> Content:
            rest = rest_lines(chosen, session, width) if wide else []
            return joined([*answer_lines(found, chosen, session, width), Text(), *rest])

        def right(width: int, _height: int) -> Content:
            rest = [] if wide else rest_lines(chosen, session, width)
            return joined([*code_lines(chosen, session, width), *rest])

        answer.show(left)
        more.show(right)

    def on_table_moved(self) -> None:
        self._draw_pane()

    def on_table_selected(self, message: Table.Selected) -> None:
        row = self.row
        if row is not None:
            self.app.push_screen(DetailScreen(row.plan.scenario, message.key))

    def command(self) -> str | None:
        """The code if there is any, otherwise the command that reproduces the run."""
        return snippet(self.session.report) or super().command()
