"""The Advisor screen: a line per scenario, and the answer for the selected one."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from workbench.export.view.answers import answer_lines, ending_lines, race_lines
from workbench.export.view.lead import course_lines
from workbench.export.view.spans import Text
from workbench.export.view.tables import ROOMY, advisor_columns, advisor_line
from workbench.report.candidate import Row

from ..state.session import Session
from ..widgets.drawn import Drawn
from ..widgets.filter import FilterBar
from ..widgets.pane import Pane
from ..widgets.table import Table
from .base import FILTER, ROOMY_HEIGHT, ViewScreen, nothing_yet
from .detail import DetailScreen

SIDE_BY_SIDE = 180


class AdvisorScreen(ViewScreen):
    AUTO_FOCUS = "Table"
    HORIZONTAL_BREAKPOINTS = [(SIDE_BY_SIDE, "-side-by-side")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        FILTER,
        Binding("escape", "follow", "Back", tooltip="back to the row raced now"),
    ]

    def body(self) -> ComposeResult:
        yield Table(id="scenarios")
        yield FilterBar()
        yield Drawn(id="ending")
        with Pane(id="answer-pane", can_focus=False):
            yield Drawn(id="answer")
        with Pane(id="race-pane", can_focus=False):
            yield Drawn(id="race")
        yield Drawn(id="now")

    @property
    def row(self) -> Row | None:
        at = {table.cursor for table in self.query(Table)}  # no table before it is mounted
        return next((row for row in self._rows if row.plan.scenario in at), None)

    @property
    def _rows(self) -> list[Row]:
        session = self.session
        known = (session.report.rows[name] for name in session.walk())
        rows = [row for row in known if not row.plan.is_crossover_point]
        return rows or (session.preview if session.going else [])

    def draw(self, session: Session) -> None:
        bar = self.query_one(FilterBar)
        rows, words, lines = self._rows, self.size.width >= ROOMY, []
        for row in rows:
            line = advisor_line(row, session, in_words=words, short=not words)
            hidden = row.title, *(candidate.case.label for candidate in row.candidates)
            lines += [line] if bar.accepts(line.key, *line.words, *hidden) else []
        empty = "nothing matches the filter" if rows else nothing_yet(session)
        table = self.query_one(Table)
        table.show(advisor_columns(rows, self.size.width), lines, empty)
        home = session.home
        table.lead(home.plan.scenario if home else None)
        if session.looked_at is not None:
            seen = session.report.rows.get(session.looked_at)
            # A size of a crossover has no line: its scenario stands for it.
            table.choose((seen and seen.plan.of) or session.looked_at)
        over = session.phase == "finished" and not session.has_model
        starts = bool(self.app.check_action("new", ()))
        self.write("ending", lambda width: ending_lines(session, width, starts=starts), when=over)
        self.draw_now(session)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Follow the race again if another screen has gone back to the live row."""
        if self.is_mounted and self.session.looked_at is None:
            self.query_one(Table).is_led = True

    def draw_chosen(self) -> None:
        """Draw the answer, and in a wide terminal the race to the left of it."""
        row, session, wide = self.row, self.session, self.size.width >= SIDE_BY_SIDE
        self.write("answer", lambda width: self._answer(row, session, width) if row else [])
        self.query_one("#race-pane").display = wide
        self.write("race", lambda width: _race(row, session, width) if row else [], when=wide)

    def _answer(self, row: Row, session: Session, width: int) -> list[Text]:
        """The answer, and below it the candidates if it is missing or where there is room."""
        columns, lines = self.size
        below = columns < SIDE_BY_SIDE and (row.verdict is None or lines >= ROOMY_HEIGHT)
        race = race_lines(row, session, width) if below else []
        return [*answer_lines(row, session, width), *([Text(), *race] if race else [])]

    def on_table_moved(self) -> None:
        table = self.query_one(Table)
        if not table.is_led:
            self.session.looked_at = table.cursor
        for pane in self.query(Pane):
            self.call_after_refresh(pane.scroll_home, animate=False)

    def on_table_selected(self, message: Table.Selected) -> None:
        if message.key not in self.session.report.rows:
            return  # the engine has not announced it yet
        verdict = self.session.report.rows[message.key].verdict
        self.app.push_screen(DetailScreen(message.key, verdict.pick if verdict else None))

    @property
    def is_away(self) -> bool:
        return self.session.going and not self.query_one(Table).is_led

    def follow(self) -> None:
        self.query_one(Table).is_led = True
        super().follow()


def _race(row: Row, session: Session, width: int) -> list[Text]:
    """The candidates of a row, and how they raced."""
    return [*race_lines(row, session, width), Text(), *course_lines(row, session, width)]
