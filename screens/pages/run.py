"""The Run screen: the race of one row, with its curves and the log."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from workbench.export.view.curves import curve_lines, curve_marks
from workbench.export.view.derived import row_title
from workbench.export.view.details import metrics_text
from workbench.export.view.facts import heading
from workbench.export.view.spans import Text
from workbench.export.view.tables import raced_lines, run_columns
from workbench.export.view.words import case_text
from workbench.records.document import Sweep
from workbench.report.candidate import Candidate
from workbench.report.row import Row

from ..state.session import Session
from ..text.log import log_tail, race_log
from ..text.loss import loss_lines
from ..text.styles import content, has_braille, joined
from ..widgets.drawn import Drawn
from ..widgets.filter import FilterBar
from ..widgets.table import Table
from .base import FILTER, ViewScreen, nothing_yet
from .detail import DetailScreen

LINES_BESIDE_LOSS = 15
LOG_BESIDE_CURVE = 30  # lines of a terminal that has room for both


class RunScreen(ViewScreen):
    """Follows the live row until the user looks at another one; escape follows again."""

    KEY, LABEL, STYLE = "2", "Run", "run.tcss"
    HELP = "the race of one row, live: a line per candidate, curves and the log"
    AUTO_FOCUS = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left_square_bracket,left",
            "step(-1)",
            "Row",
            key_display="[ ]",
            tooltip="on the Run screen: previous and next row or size; esc returns to the live one",
        ),
        Binding("right_square_bracket,right", "step(1)", "Next row", show=False),
        Binding("escape", "follow", "Follow", key_display="esc"),
        FILTER,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: str | None = None  # None: the live row

    def body(self) -> ComposeResult:
        yield Drawn(id="row-title")
        yield Table(id="candidates")
        yield FilterBar()
        yield Drawn(id="metrics")
        yield Drawn(id="curve")
        yield Drawn(id="loss")
        yield Drawn(id="log")

    @property
    def row(self) -> Row | None:
        """The row that the user looks at, or the one raced now or last, or the first."""
        report, looked_at = self.session.report, self._looked_at
        name = looked_at if looked_at in report.rows else report.last_row
        return report.rows.get(name or next(iter(report.rows), ""))

    def draw(self, session: Session) -> None:
        row = self.row
        self.query_one("#row-title", Drawn).show(lambda width, _: self._title(row, width))
        sweep = self._sweep(row)
        self._draw_table(row, session, sweep)
        self._draw_metrics()
        self._draw_curve(row, sweep)
        self._draw_loss(row if sweep is None else None, session)
        at_another = row is not None and self._looked_at == row.plan.scenario
        log = race_log(row, session) if row is not None and at_another else list(session.log)
        self.query_one("#log", Drawn).show(
            lambda width, height: joined(log_tail(log, width, height))
        )

    def _draw_table(self, row: Row | None, session: Session, sweep: Sweep | None) -> None:
        table, bar = self.query_one(Table), self.query_one(FilterBar)
        table.set_class(sweep is not None, "-beside-curve")
        if row is None:
            table.show((), (), Text.of((nothing_yet(session), "dim")))
            return
        marks = curve_marks(sweep) if sweep is not None else {}
        lines = raced_lines(row, session, marks, bar.accepts)
        columns = run_columns(row, session, marks=bool(marks))
        table.show(columns, lines, Text.of(("nothing matches the filter", "dim")))

    def _draw_metrics(self) -> None:
        """The workload's own metrics for the selected candidate."""
        drawn = self.query_one("#metrics", Drawn)
        candidate = self._chosen
        found = self.session.numbers(candidate).measurement if candidate is not None else None
        drawn.display = found is not None and bool(found.metrics)
        if found is not None and drawn.display:
            line = Text.of(case_text(found.id, self.session), ": ", metrics_text(found))
            drawn.show(lambda width, _: content(line.truncate(width)))

    def _draw_curve(self, row: Row | None, sweep: Sweep | None) -> None:
        curve, log = self.query_one("#curve", Drawn), self.query_one("#log", Drawn)
        curve.display = sweep is not None
        log.display = sweep is None or self.size.height >= LOG_BESIDE_CURVE
        curve.set_class(log.display, "-above-log")
        if row is None or sweep is None:
            return
        chosen, at = self._chosen, row.plan.point
        label = chosen.case.label if chosen is not None else None
        fine, found = has_braille(), row.verdict.crossover if row.verdict else None
        curve.show(
            lambda width, height: joined(
                curve_lines(sweep, at, label, width, height, fine=fine, found=found)
            )
        )

    def _sweep(self, row: Row | None) -> Sweep | None:
        """The sweep of this row, without candidates that the filter hides."""
        sweep = None if row is None else self.session.sweep(row)
        if sweep is None:
            return None
        accepts = self.query_one(FilterBar).accepts
        curves = [curve for curve in sweep.curves if accepts(curve.candidate)]
        return msgspec.structs.replace(sweep, curves=curves)

    @property
    def _chosen(self) -> Candidate | None:
        return self.session.report.candidates.get(self.query_one(Table).cursor or "")

    def on_table_moved(self) -> None:
        self._draw_metrics()
        self._draw_curve(self.row, self._sweep(self.row))

    def _draw_loss(self, row: Row | None, session: Session) -> None:
        loss = self.query_one("#loss", Drawn)
        loss.display = row is not None and any(c.loss for c in row.candidates)
        if row is not None and loss.display:
            # In a low terminal the log keeps a few lines.
            most = max(2, self.size.height - len(row.candidates) - LINES_BESIDE_LOSS)
            loss.show(
                lambda width, _: joined(
                    [heading("Loss", width), *loss_lines(row, session, width, most)]
                )
            )

    def _title(self, row: Row | None, width: int) -> Content:
        if row is None:
            return Content("")
        report = self.session.report
        walk = self.session.walk()
        place = f"{walk.index(row.plan.scenario) + 1} of {len(walk)}"
        live = row.plan.scenario == report.current_row
        where = "live" if live else "esc: back to the live row" if report.current_row else ""
        title = Content.assemble((row_title(row), "bold"), (f"   {place}", "dim"))
        gap = max(2, width - title.cell_length - len(where))
        question = Content.styled(row.plan.question, "dim").truncate(width, ellipsis=True)
        first = Content.assemble(title, " " * gap, (where, "$primary" if live else "dim"))
        return Content.assemble(first.truncate(width, ellipsis=True), "\n", question)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "follow":
            return self._looked_at is not None or bool(self.query_one(FilterBar).value)
        return super().check_action(action, parameters)

    def action_step(self, step: int) -> None:
        names = self.session.walk()
        row = self.row
        if row is not None:
            index = names.index(row.plan.scenario) + step
            wanted = names[min(max(0, index), len(names) - 1)]
            self._looked_at = None if wanted == self.session.report.current_row else wanted
            self.refresh_bindings()
            self.repaint()

    def action_follow(self) -> None:
        self._looked_at = None
        self.query_one(FilterBar).action_dismiss()
        self.refresh_bindings()
        self.repaint()

    def on_table_selected(self, message: Table.Selected) -> None:
        row = self.row
        if row is not None:
            self.app.push_screen(DetailScreen(row.plan.scenario, message.key))
