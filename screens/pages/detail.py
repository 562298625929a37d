"""The details of one row: its candidates, the one under the cursor, and the answer."""

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from workbench.export.view import answers
from workbench.export.view.curves import curve_marks
from workbench.export.view.details import INDENT, candidate_facts, profile_facts, why_facts
from workbench.export.view.spans import Fact, Text, facts_lines, heading
from workbench.export.view.tables import raced_lines, run_columns
from workbench.records.document import Sweep
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
        sweep = self._sweep
        marks = curve_marks(sweep) if sweep is not None else {}
        columns = run_columns(row, session, marks=bool(marks), checks=True)
        table.show(columns, raced_lines(row, session, marks), "no candidates")

    @property
    def _sweep(self) -> Sweep | None:
        """The sizes that the search for the row's crossover has raced; None without a search."""
        rows = self.session.report.rows.values()
        point = next((row for row in rows if row.sweep == self._scenario), None)
        return None if point is None else self.session.sweep(point)

    def draw_chosen(self) -> None:
        row, session = self.row, self.session
        if row is not None:
            self.write("detail", lambda width: self._lines(row, session, width))

    def _lines(self, row: Row, session: Session, width: int) -> list[Text]:
        candidate = self.chosen
        answered = answers.result_facts if row.verdict else answers.answer_facts
        parts: list[tuple[str, list[Fact]]] = [
            ("Candidate", candidate_facts(candidate, session) if candidate else []),
            ("Answer", answered(row, session)),
            ("Why", why_facts(candidate, session.report) if candidate else []),
            ("Profile", profile_facts(candidate, session.report.trace) if candidate else []),
        ]
        lines: list[Text] = []
        for title, facts in parts:
            if facts:
                lines += [heading(title, width), *facts_lines(facts, width, INDENT), Text()]
        if row.verdict is not None and (sweep := self._sweep) is not None:
            lines += [*answers.crossover_lines(row, sweep, width), Text()]
        return lines + answers.command_lines(row.plan.reproduce)[1:]

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
