"""The details of one row: every candidate and the log of its race."""

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from workbench.advisor.race_summary import counts_text
from workbench.export.view.answers import answer_facts, command_lines, crossover_lines
from workbench.export.view.details import INDENT, candidate_facts, profile_facts, why_facts
from workbench.export.view.events import log_lines, race_log
from workbench.export.view.spans import Fact, Text, fact, facts_lines, heading
from workbench.export.view.tables import raced_lines, run_columns
from workbench.report.candidate import Row

from ..state.session import Session
from ..widgets.drawn import Drawn
from ..widgets.keybar import SPARE
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import STEPS, ViewScreen, nothing_yet


class DetailScreen(ViewScreen):
    AUTO_FOCUS = "Table"
    UNUSED = ("close_run",)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", tooltip="back to the previous screen"),
        *(replace(each, group=SPARE) for each in STEPS),  # scrolling is more important
    ]

    def __init__(self, scenario: str, case_id: str | None) -> None:
        super().__init__()
        self._scenario = scenario
        self._case_id = case_id

    def body(self) -> ComposeResult:
        yield Drawn(id="detail-title")
        yield Table(id="all-candidates", opens="")
        with Pane(id="detail-pane", can_focus=False):
            yield Drawn(id="detail")

    @property
    def row(self) -> Row | None:
        return self.session.report.rows.get(self._scenario)

    def draw(self, session: Session) -> None:
        row = self.row
        if row is None:
            # A new run has no rows yet, or other ones; one that was cut short may have none.
            over = session.report.last_row is not None or not session.going
            if over and self.is_active:
                self.app.pop_screen()
            else:
                self.query_one(Table).show((), (), nothing_yet(session))
                self.write("detail", lambda _: [])
            return
        self.write("detail-title", lambda width: heading(row.title, width))
        table = self.query_one(Table)
        if self._case_id is not None:
            table.cursor, self._case_id = self._case_id, None
        lines = raced_lines(row, session)
        table.show(run_columns(row, session, checks=True), lines, "no candidates")

    def draw_chosen(self) -> None:
        row, session = self.row, self.session
        if row is not None:
            self.write("detail", lambda width: self._lines(row, session, width))

    def _lines(self, row: Row, session: Session, width: int) -> list[Text]:
        candidate = self.chosen
        parts: list[tuple[str, list[Fact]]] = [
            ("Candidate", candidate_facts(candidate, session) if candidate else []),
            ("Answer", answer_facts(row, session)),
            ("Why", why_facts(candidate, session.report) if candidate else []),
            ("Profile", profile_facts(candidate, session.report.trace) if candidate else []),
        ]
        lines: list[Text] = []
        for title, facts in parts:
            if facts:
                lines += [heading(title, width), *facts_lines(facts, width, INDENT), Text()]
        if row.verdict is not None:
            curves = crossover_lines(row, session.report, width)
            lines += [*curves, Text()] if curves else []
        race = _race_lines(row, session, width)
        lines += [heading("Race", width), *race] if race else []
        return lines + command_lines(row.plan.reproduce)

    def on_table_moved(self) -> None:
        self.call_after_refresh(self.query_one(Pane).scroll_home, animate=False)

    def action_step(self, step: int) -> None:
        """Show the details of the row before or after."""
        if self.row is None:  # a new run has not announced it
            return
        self._scenario = self.session.step(self._scenario, step)
        verdict = self.session.report.rows[self._scenario].verdict
        self._case_id = verdict.pick if verdict else None
        self.repaint()


def _race_lines(row: Row, session: Session, width: int) -> list[Text]:
    """The events of the race; for a document, which keeps none, its summary."""
    log = race_log(row, session.log)
    race = row.verdict.race if row.verdict is not None else None
    if log or race is None:
        return log_lines(log, width)
    return facts_lines([fact("", counts_text(race))], width)
