"""The race as it runs: a line per contender, the loss curves, and what happened last."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from workbench.report import Row

from .base import ViewScreen
from .detail import DetailScreen
from .session import Session
from .tables import run_columns, run_line
from .widgets.filter import FilterBar
from .widgets.log import log_tail
from .widgets.loss import loss_lines
from .widgets.table import Table
from .widgets.text import Drawn, heading, joined

LINES_BESIDE_LOSS = 15


class RunScreen(ViewScreen):
    """Follows the live row until another is looked at; escape follows again."""

    AUTO_FOCUS = "Table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket,left", "step(-1)", "Row", key_display="[ ]"),
        Binding("right_square_bracket,right", "step(1)", "Next row", show=False),
        Binding("escape", "follow", "Follow", key_display="esc"),
        Binding("slash", "filter", "Filter", key_display="/"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: str | None = None  # None: whatever is live

    def body(self) -> ComposeResult:
        yield Drawn(id="row-title")
        yield Table(id="contenders")
        yield FilterBar()
        yield Drawn(id="loss")
        yield Drawn(id="log")

    @property
    def row(self) -> Row | None:
        rows = self.session.report.rows
        name = self._looked_at if self._looked_at in rows else self.session.figures.live_scenario()
        return rows.get(name or "")

    def draw(self, session: Session) -> None:
        row = self.row
        self.query_one("#row-title", Drawn).show(lambda width, _: self._title(row, width))
        table, bar = self.query_one(Table), self.query_one(FilterBar)
        if row is None:
            table.show((), (), Content.styled(_nothing(session), "dim"))
        else:
            lines = [
                run_line(contender, row, session)
                for contender in row.contenders
                if bar.accepts(contender.case.label)
            ]
            table.show(run_columns(row), lines, Content.styled("nothing matches the filter", "dim"))
        self._draw_loss(row, session)
        log = list(session.log)
        self.query_one("#log", Drawn).show(lambda width, height: log_tail(log, width, height))

    def _draw_loss(self, row: Row | None, session: Session) -> None:
        loss = self.query_one("#loss", Drawn)
        loss.display = row is not None and any(c.loss for c in row.contenders)
        if row is not None and loss.display:
            # On a low terminal the log must keep a few lines.
            most = max(2, self.size.height - len(row.contenders) - LINES_BESIDE_LOSS)
            loss.show(
                lambda width, _: joined(
                    [heading("Loss", width), *loss_lines(row, session.figures, width, most)]
                )
            )

    def _title(self, row: Row | None, width: int) -> Content:
        if row is None:
            return Content("")
        report = self.session.report
        place = f"{list(report.rows).index(row.plan.scenario) + 1} of {len(report.rows)}"
        live = row.plan.scenario == report.current_row
        where = "live" if live else "esc: back to the live row" if report.current_row else ""
        title = Content.assemble((row.plan.title, "bold"), (f"   {place}", "dim"))
        gap = max(2, width - title.cell_length - len(where))
        question = Content.styled(row.plan.question, "dim").truncate(width, ellipsis=True)
        first = Content.assemble(title, " " * gap, (where, "$primary" if live else "dim"))
        return Content.assemble(first.truncate(width, ellipsis=True), "\n", question)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "follow":
            return self._looked_at is not None or bool(self.query_one(FilterBar).value)
        return super().check_action(action, parameters)

    def action_step(self, step: int) -> None:
        names = list(self.session.report.rows)
        row = self.row
        if row is not None:
            index = names.index(row.plan.scenario) + step
            wanted = names[min(max(0, index), len(names) - 1)]
            self._looked_at = None if wanted == self.session.report.current_row else wanted
            self.refresh_bindings()
            self.repaint()

    def action_follow(self) -> None:
        self._looked_at = None
        self.query_one(FilterBar).clear_and_hide()
        self.query_one(Table).focus()
        self.refresh_bindings()
        self.repaint()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def on_input_changed(self) -> None:
        self.repaint()

    def on_filter_bar_closed(self) -> None:
        self.query_one(Table).focus()
        self.repaint()

    def on_table_selected(self, message: Table.Selected) -> None:
        row = self.row
        if row is not None:
            self.app.push_screen(DetailScreen(row.plan.scenario, message.key))

    def command(self) -> str | None:
        row = self.row
        return row.plan.reproduce or None if row is not None else None


def _nothing(session: Session) -> str:
    if session.phase == "idle":
        return "No run yet.  Press s to start one."
    return "Planning the races..." if session.going else "Nothing was raced."
