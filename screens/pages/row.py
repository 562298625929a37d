"""The base of the screens about one row."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from workbench.report.candidate import Row

from ..widgets.styles import link
from .base import STEPS, ViewScreen


class RowScreen(ViewScreen):
    """Follows the live row until the user looks at another one; escape follows again."""

    UNUSED: tuple[str, ...] = ("next_step",)  # `next` is not shown here
    BINDINGS: ClassVar[list[BindingType]] = [
        *STEPS,
        Binding(
            "escape",
            "follow",
            "Back",
            tooltip="back to the row raced now, or to the one shown after the run",
        ),
    ]

    @property
    def row(self) -> Row | None:
        """The row that the user looks at, or the one that the screen shows by itself."""
        rows = self.session.report.rows
        return rows.get(self.session.looked_at or "", self.session.home)

    def draw_title(self) -> None:
        self.write("row-title", self._title)

    def _title(self, width: int) -> Content:
        """The title of the row with its place among the others, and its question below."""
        row, session = self.row, self.session
        if row is None:
            return Content("")
        report, walk = session.report, session.walk()
        rows = [report.rows[name] for name in walk]
        # The sizes of a crossover are counted apart from the rows.
        alike = [each.plan.scenario for each in rows if each.plan.of == row.plan.of]
        noun = "size " if row.plan.is_crossover_point else ""
        at = Content(f" {noun}{alike.index(row.plan.scenario) + 1} of {len(alike)} ")
        place = Content.assemble(link("[", "screen.step(-1)"), at, link("]", "screen.step(1)"))
        current = report.current_row if session.going else None
        live = row.plan.scenario == current
        where = "esc: back to the live row" if current else ""
        if live:
            where = f"live, round {row.round}" if row.round else "live"
        title = Content.styled(row.title, "bold")
        if len(walk) > 1:
            title = Content.assemble(title, "   ", place.stylize("dim"))
        gap = max(2, width - title.cell_length - len(where))
        first = Content.assemble(title, " " * gap, (where, "$primary" if live else "dim"))
        # It has two lines, which need some room to be broken at words.
        question = Content.styled(row.plan.question, "dim").truncate(2 * width - 20, ellipsis=True)
        lines = [first.truncate(width, ellipsis=True), *question.wrap(width)]
        return Content("\n").join(lines)

    @property
    def is_away(self) -> bool:
        away = self.session.going or self.row is not self.session.home
        return away and self.session.looked_at is not None

    def action_step(self, step: int) -> None:
        if self.row is not None:
            self.session.step(self.row.plan.scenario, step)
            self.refresh_bindings()
            self.repaint()
