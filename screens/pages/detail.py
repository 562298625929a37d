"""The details of one row: every candidate, equal precisions and the log of its race."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from workbench.report.row import Row

from ..state.derived import row_title
from ..state.session import Session
from ..text.advice import crossover_lines, yardstick_lines
from ..text.details import (
    INDENT,
    answer_facts,
    candidate_facts,
    equal_precision_facts,
    profile_facts,
    race_log,
    why_facts,
)
from ..text.facts import Fact, facts_lines, heading, joined
from ..text.log import log_lines
from ..text.tables import detail_columns, detail_line
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import ViewScreen


class DetailScreen(ViewScreen):
    AUTO_FOCUS = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", key_display="esc"),
    ]

    def __init__(self, scenario: str, case_id: str | None = None) -> None:
        super().__init__()
        self._scenario = scenario
        self._case_id = case_id

    def body(self) -> ComposeResult:
        yield Drawn(id="detail-title")
        yield Table(id="all-candidates", opens=False)
        with Pane(id="detail-pane", can_focus=False):
            yield Drawn(id="detail")

    @property
    def row(self) -> Row | None:
        return self.session.report.rows.get(self._scenario)

    def draw(self, session: Session) -> None:
        row = self.row
        if row is None:
            # A new run has no rows yet, or other ones.
            if session.report.last_row is not None and self.is_current:
                self.app.pop_screen()
            return
        title = self.query_one("#detail-title", Drawn)
        title.show(lambda width, _: heading(row_title(row), width))
        table = self.query_one(Table)
        if self._case_id is not None:
            table.cursor, self._case_id = self._case_id, None
        lines = [detail_line(candidate, row, session) for candidate in row.candidates]
        table.show(detail_columns(row), lines, Content.styled("no candidates", "dim"))
        self._draw_detail()

    def _draw_detail(self) -> None:
        row, session = self.row, self.session
        if row is not None:
            detail = self.query_one("#detail", Drawn)
            detail.show(lambda width, _: joined(self._lines(row, session, width)))

    def _lines(self, row: Row, session: Session, width: int) -> list[Content]:
        figures = session.figures
        candidate = session.report.candidates.get(self.query_one(Table).cursor or "")
        parts: list[tuple[str, list[Fact]]] = [
            ("Candidate", candidate_facts(candidate, figures) if candidate else []),
            ("Answer", answer_facts(row, session)),
            ("Why", why_facts(candidate, session.report) if candidate else []),
            ("Profile", profile_facts(candidate, session.report.trace) if candidate else []),
            ("Equal precision", equal_precision_facts(row.verdict, figures) if row.verdict else []),
        ]
        lines: list[Content] = []
        for title, facts in parts:
            if facts:
                lines += [heading(title, width), *facts_lines(facts, width, INDENT), Content("")]
        if row.verdict is not None:
            lines += _under("Best by each baseline", yardstick_lines(row.verdict, width), width)
            curves = crossover_lines(row, session.report, width)
            lines += [*curves, Content("")] if curves else []
        return [*lines, heading("Race", width), *log_lines(race_log(row, session), width)]

    def on_table_moved(self) -> None:
        self._draw_detail()
        self.query_one("#detail-pane").scroll_home(animate=False)

    def command(self) -> str | None:
        row = self.row
        return row.plan.reproduce or None if row is not None else None


def _under(title: str, lines: list[Content], width: int) -> list[Content]:
    return [heading(title, width), *lines, Content("")] if lines else []
