"""The Run screen: the race of one row, with its curves and the log."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType

from workbench.export.view.curves import curve_lines, curve_marks
from workbench.export.view.details import metrics_text
from workbench.export.view.events import LogLine, log_page, log_tail, race_log
from workbench.export.view.lead import course_lines, loss_lines
from workbench.export.view.spans import Text
from workbench.export.view.tables import raced_lines, run_columns
from workbench.export.view.words import case_text
from workbench.records.document import Sweep
from workbench.report.candidate import Row

from ..state.session import Session
from ..widgets.drawn import Drawn
from ..widgets.filter import FilterBar
from ..widgets.table import Table
from .base import FILTER, nothing_yet
from .detail import DetailScreen
from .row import RowScreen

WHEEL = 3  # lines of the log for each step of a mouse wheel
LINES_AROUND_LOSS = 15
LINES_FOR_LOSS = 22  # lines of a terminal that has room for the losses and the log
WIDTH_FOR_COURSE = 100  # columns of a terminal that draws the lead by round
LINES_FOR_COURSE = 27  # its lines, not counting those of the candidates
LINES_FOR_LOG_AND_CURVE = 30  # lines of a terminal that has room for both


class Log(Drawn):
    def on_mouse_scroll_down(self) -> None:
        self.query_ancestor(RunScreen).action_scroll(1, WHEEL)

    def on_mouse_scroll_up(self) -> None:
        self.query_ancestor(RunScreen).action_scroll(-1, WHEEL)


class RunScreen(RowScreen):
    AUTO_FOCUS = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [FILTER]

    _entries: Sequence[LogLine] = ()  # the lines of the log
    _log_of: object = None  # the session, and the row if the log shows only one
    _log_end: int | None = None  # number of entries up to the last one shown, if scrolled back

    def body(self) -> ComposeResult:
        yield Drawn(id="row-title")
        yield Table(id="candidates")
        yield FilterBar()
        yield Drawn(id="metrics")
        yield Drawn(id="curve")
        yield Drawn(id="loss")
        yield Drawn(id="course")
        yield Log(id="log")
        yield Drawn(id="now")

    def draw(self, session: Session) -> None:
        row, sweep = self.row, self._sweep
        self.draw_title()
        self._draw_table(row, session, sweep)
        self._draw_below(row if sweep is None else None, session)
        self._entries, of = list(session.log), ""
        over = not session.going and len(session.report.rows) > 1
        if row is not None and (over or session.looked_at == row.plan.scenario):
            self._entries, of = race_log(row, session.log), row.plan.scenario
        if self._log_of != (id(session), of):
            self._log_of, self._log_end = (id(session), of), None
        self._draw_log()
        self.draw_now(session)

    def _draw_log(self) -> None:
        log, end = self._entries, self._log_end
        self.query_one("#log", Drawn).fill(lambda width, height: log_tail(log, width, height, end))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "scroll":
            return parameters == (-1,) or self._log_end is not None
        return super().check_action(action, parameters)

    def action_scroll(self, pages: int, lines: int = 0) -> None:
        """Scroll the log, by pages of `lines` if given; at its end it follows the run again."""
        log, entries = self.query_one("#log", Drawn).size, self._entries
        room, end = max(1, log.height - 1), self._log_end or len(entries)
        first = len(log_page(entries, log.width, room))
        room = lines or room
        if pages > 0:
            end += len(log_page(entries[end:], log.width, room))
        else:
            end -= len(log_page(reversed(entries[:end]), log.width, room))
        end = max(end, first)
        self._log_end = end if end < len(entries) else None
        self._draw_log()
        self.refresh_bindings()

    def _draw_table(self, row: Row | None, session: Session, sweep: Sweep | None) -> None:
        table, bar = self.query_one(Table), self.query_one(FilterBar)
        table.set_class(sweep is not None, "-with-curve")
        if row is None:
            table.show((), (), nothing_yet(session))
            return
        marks = curve_marks(sweep) if sweep is not None else {}
        lines = raced_lines(row, session, marks, bar.accepts)
        columns = run_columns(row, session, marks=bool(marks))
        table.show(columns, lines, "nothing matches the filter")
        table.lead(next((line.key for line in lines if not line.is_heading), None))

    def _draw_metrics(self) -> None:
        """The workload's own metrics for the selected candidate."""
        candidate = self.chosen
        found = self.session.measured(candidate) if candidate is not None else None
        line = Text()
        if found is not None and found.metrics:
            line = Text.of(case_text(found.id, self.session), ": ", metrics_text(found))
        self.write("metrics", line.truncate, when=bool(line.spans))

    def _draw_curve(self) -> None:
        row, sweep = self.row, self._sweep
        curve, log = self.query_one("#curve", Drawn), self.query_one("#log", Drawn)
        curve.display = sweep is not None
        fits = sweep is None or self.size.height >= LINES_FOR_LOG_AND_CURVE
        log.display = fits and bool(self.session.log)  # a document has no events
        curve.set_class(log.display, "-above-log")
        if row is None or sweep is None:
            return
        chosen, at = self.chosen, row.plan.point
        label = chosen.case.label if chosen is not None else None
        found = row.verdict.crossover if row.verdict else None
        accepts = self.query_one(FilterBar).accepts
        curves = [each for each in sweep.curves if accepts(each.candidate)]
        left = msgspec.structs.replace(sweep, curves=curves)
        curve.fill(lambda width, height: curve_lines(left, at, label, width, height, found, sweep))

    @property
    def _sweep(self) -> Sweep | None:
        row = self.row
        return None if row is None else self.session.sweep(row)

    def draw_chosen(self) -> None:
        self._draw_metrics()
        self._draw_curve()

    def _draw_below(self, row: Row | None, session: Session) -> None:
        """The losses of a training, the lead by round and the samples of the best, where there is
        room below the table."""
        (width, height), found = self.size, row.candidates if row is not None else []
        left, trained = height - len(found), sum(bool(c.loss) for c in found)
        most = max(2, left - LINES_AROUND_LOSS)  # in a low terminal the log keeps a few lines
        losses = trained > 0 and height >= LINES_FOR_LOSS
        self.write("loss", lambda w: loss_lines(row, session, w, most) if row else [], when=losses)
        best = session.best(row) if row is not None else None
        roomy = width >= WIDTH_FOR_COURSE and left - trained >= LINES_FOR_COURSE
        course = roomy and best is not None and bool(best.blocks)
        self.write("course", lambda w: course_lines(row, session, w) if row else [], when=course)

    def on_table_selected(self, message: Table.Selected) -> None:
        row = self.row
        if row is not None:
            self.app.push_screen(DetailScreen(row.plan.scenario, message.key))
