"""The Roofline screen: the candidates of one row under the measured ceilings of their devices."""

from textual.app import ComposeResult
from textual.content import Content

from workbench.export.view.roofline import roofline_lines

from ..state.session import Session
from ..widgets.drawn import Drawn
from .base import nothing_yet
from .row import RowScreen


class RooflineScreen(RowScreen):
    UNUSED = (*RowScreen.UNUSED, "scroll(1)")

    def body(self) -> ComposeResult:
        yield Drawn(id="row-title")
        yield Drawn(id="roofs")

    def draw(self, session: Session) -> None:
        row = self.row
        self.draw_title()
        self.query_one("#roofs", Drawn).fill(
            lambda width, height: (
                roofline_lines(row, session, width, height)
                if row is not None
                else Content(nothing_yet(session))
            )
        )
