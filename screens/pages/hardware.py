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
        titles = {name: row.title for name, row in report.rows.items()}
        warned = text.warnings(report.warnings, titles)
        self.write("warnings", lambda width: facts_lines(warned, width), when=bool(warned))
        live = bool(report.host) and (session.going or session.phase == "watching")
        machine, software = report.machine, report.software
        if machine is None or software is None:
            said = "Detecting hardware..." if session.going else UNKNOWN
            self.write("live", lambda _: [], when=False)
            self.write("processor", lambda _: Text.of((said, "dim")))
            self.write("accelerators", lambda _: [])
            return
        if live:
            machine = with_readings(machine, report)
        processor = text.processor_sections(machine, software, report.ceilings, live=live)
        accelerators = text.accelerator_sections(machine, software, report.ceilings, live=live)
        now = live_sections(machine, report)
        self.write("live", lambda width: sections(now, width), when=live)
        self.write("processor", lambda width: sections(processor, width))
        self.write("accelerators", lambda width: sections(accelerators, width))


def sections(found: list[Section], width: int) -> list[Text]:
    """Sections one below the other, separated by blank lines."""
    return [*section_lines(found, width, width), Text()]
