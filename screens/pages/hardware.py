"""The Hardware screen: devices, usable cores and memory, and reasons for what is missing."""

from textual.app import ComposeResult
from textual.containers import Container

from workbench.export.view import machine as text
from workbench.export.view.section import Section, section_lines
from workbench.export.view.sensors import live_sections, with_readings
from workbench.export.view.spans import Text, facts_lines

from ..state.session import Session
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from .base import ViewScreen

UNKNOWN = "The run ended before the hardware was detected."


class HardwareScreen(ViewScreen):
    UNUSED = ("copy", "next_step")
    HORIZONTAL_BREAKPOINTS = [(110, "-side-by-side")]  # noqa: RUF012

    def body(self) -> ComposeResult:
        with Pane(id="machine"):
            yield Drawn(id="warnings")
            yield Drawn(id="live")
            with Container(classes="columns"):
                yield Drawn(id="processor")
                yield Drawn(id="accelerators")

    def draw(self, session: Session) -> None:
        report = session.report
        titles = {name: row.plan.title for name, row in report.rows.items()}
        warned = text.warnings(report.warnings, titles)
        warnings = self.query_one("#warnings", Drawn)
        warnings.display = bool(warned)
        warnings.show(lambda width: facts_lines(warned, width))
        left, right = self.query_one("#processor", Drawn), self.query_one("#accelerators", Drawn)
        now = self.query_one("#live", Drawn)
        now.display = bool(report.host) and (session.going or session.phase == "watching")
        machine, software = report.machine, report.software
        if machine is None or software is None:
            said = "Detecting hardware..." if session.going else UNKNOWN
            left.show(lambda _: Text.of((said, "dim")))
            right.show(lambda _: [])
            return
        if now.display:
            machine = with_readings(machine, report.host, report.gpus)
        processor = text.processor_sections(machine, software, report.ceilings)
        accelerators = text.accelerator_sections(
            machine, software, report.ceilings, live=now.display
        )
        live = live_sections(machine, report.host, report.gpus, report.gap)
        now.show(lambda width: sections(live, width))
        left.show(lambda width: sections(processor, width))
        right.show(lambda width: sections(accelerators, width))


def sections(found: list[Section], width: int) -> list[Text]:
    """Sections one below the other, separated by blank lines."""
    return [*section_lines(found, width, width), Text()]
