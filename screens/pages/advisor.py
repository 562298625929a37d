"""The Advisor screen: a line per scenario, and the answer for the selected one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from workbench.export.view.answers import answer_lines
from workbench.export.view.spans import Text
from workbench.export.view.tables import advisor_columns, advisor_line, has_gpu
from workbench.report.row import Row

from ..state.session import Session
from ..text.styles import joined
from ..widgets.drawn import Drawn
from ..widgets.filter import FilterBar
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import FILTER, ViewScreen, nothing_yet
from .detail import DetailScreen

ROOMY_HEIGHT = 34


class AdvisorScreen(ViewScreen):
    KEY, LABEL, STYLE = "3", "Advisor", "advisor.tcss"
    HELP = "one line per scenario: the usual advice, the result here and the pick"
    AUTO_FOCUS = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        FILTER,
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def body(self) -> ComposeResult:
        yield Table(id="scenarios")
        yield FilterBar()
        with Pane(id="answer-pane", can_focus=False):
            yield Drawn(id="answer")

    @property
    def row(self) -> Row | None:
        return self.session.report.rows.get(self.query_one(Table).cursor or "")

    def draw(self, session: Session) -> None:
        bar = self.query_one(FilterBar)
        known = [session.report.rows[name] for name in session.walk()]
        rows = [row for row in known if row.plan.of is None]
        gpu = has_gpu(rows)
        lines = [
            advisor_line(row, session, gpu=gpu)
            for row in rows
            if bar.accepts(
                row.plan.title, row.plan.scenario, *(c.case.label for c in row.candidates)
            )
        ]
        empty = "nothing matches the filter" if rows else nothing_yet(session)
        columns = advisor_columns(rows, self.size.width)
        self.query_one(Table).show(columns, lines, Text.of((empty, "dim")))
        self._draw_answer()

    def _draw_answer(self) -> None:
        row, session = self.row, self.session
        roomy = self.size.height >= ROOMY_HEIGHT
        self.query_one("#answer", Drawn).show(
            lambda width, _: (
                joined(answer_lines(row, session, width, roomy=roomy)) if row else Content("")
            )
        )

    def on_table_moved(self) -> None:
        self._draw_answer()
        self.query_one("#answer-pane").scroll_home(animate=False)

    def on_table_selected(self, message: Table.Selected) -> None:
        verdict = self.session.report.rows[message.key].verdict
        self.app.push_screen(DetailScreen(message.key, verdict.pick if verdict else None))

    def action_clear_filter(self) -> None:
        self.query_one(FilterBar).action_dismiss()
