"""The Hardware screen: devices, usable cores and memory, and reasons for what is missing."""

from __future__ import annotations

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content

from workbench.export.view import machine as text
from workbench.export.view.facts import facts_lines
from workbench.export.view.section import Section, section_lines
from workbench.export.view.spans import Text

from ..state.session import Session
from ..text.styles import joined
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from .base import ViewScreen

TWO_COLUMNS = 110


class HardwareScreen(ViewScreen):
    KEY, LABEL, STYLE = "1", "Hardware", "hardware.tcss"
    HELP = "what this machine has, its limits, and why something is missing"
    COPIES = False

    def body(self) -> ComposeResult:
        with Pane(id="machine"):
            yield Drawn(id="warnings")
            with Horizontal(id="machine-columns"):
                with Vertical(classes="column"):
                    yield Drawn(id="processor")
                with Vertical(classes="column"):
                    yield Drawn(id="accelerators")

    def on_resize(self, event: events.Resize) -> None:
        self.query_one("#machine-columns").set_class(
            event.size.width >= TWO_COLUMNS, "-side-by-side"
        )

    def draw(self, session: Session) -> None:
        report = session.report
        warnings = self.query_one("#warnings", Drawn)
        warnings.display = bool(report.warnings)
        titles = {name: row.plan.title for name, row in report.rows.items()}
        warnings.show(
            lambda width, _: joined(facts_lines(text.warnings(report.warnings, titles), width))
        )
        left, right = self.query_one("#processor", Drawn), self.query_one("#accelerators", Drawn)
        machine, software = report.machine, report.software
        if machine is None or software is None:
            left.show(lambda *_: Content.styled(_waiting(session), "dim"))
            right.show(lambda *_: Content(""))
            return
        known = report.ceilings
        host = report.host if session.going else None
        left.show(
            lambda width, _: sections(
                text.processor_sections(machine, software, known, host), width
            )
        )
        latest = report.gpus if session.going else {}
        gpus = [text.with_reading(gpu, latest) for gpu in machine.gpus]
        now = msgspec.structs.replace(machine, gpus=gpus)
        right.show(lambda width, _: sections(text.accelerator_sections(now, known), width))


def _waiting(session: Session) -> str:
    """Text while no machine is known."""
    if session.going:
        return "Detecting hardware..."
    return "The run ended before the hardware was detected."


def sections(found: list[Section], width: int) -> Content:
    """Sections one below the other, separated by blank lines."""
    return joined([*section_lines(found, width), Text()])
