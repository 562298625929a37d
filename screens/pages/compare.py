"""The Compare screen: two kept runs side by side."""

from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from workbench import __version__
from workbench.advisor.compare import run_comparison
from workbench.export.view.comparison import sections
from workbench.export.view.section import Section, section_lines
from workbench.export.view.spans import Text
from workbench.planning.usage import UsageError
from workbench.records.document import Tool
from workbench.records.errors import JournalError
from workbench.report.run_files import read_journal
from workbench.text.sanitize import shown

from ..state.session import Session
from ..state.threads import in_thread
from ..widgets.drawn import Drawn
from ..widgets.pane import Pane
from .base import ViewScreen


class CompareScreen(ViewScreen):
    AUTO_FOCUS = "Pane"
    UNUSED = ("start", "next_step", "close_run")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", tooltip="back to the previous screen"),
        Binding("e", "export", "Export", tooltip="write these tables as Markdown"),
    ]

    def __init__(self, first: Path, second: Path) -> None:
        super().__init__()
        self._paths = first, second
        self._parts: list[Section] = []
        self._said = "reading both runs..."

    def body(self) -> ComposeResult:
        with Pane(id="compare-pane"):
            yield Drawn(id="compared")

    def on_mount(self) -> None:
        self._compare()

    @work
    async def _compare(self) -> None:
        try:
            self._parts = await in_thread(self._sections)
        except (JournalError, UsageError) as error:
            self._said = shown(str(error))
        self.repaint()
        self.refresh_bindings()

    def _sections(self) -> list[Section]:
        reports = [read_journal(path).report for path in self._paths]
        tool = Tool("workbench", __version__, self.command())
        return [*sections(run_comparison(tool, reports, None))]

    def command(self) -> str:
        return f"workbench compare {' '.join(path.stem for path in self._paths)}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "export":  # it would disturb a run
            return bool(self._parts) and not self.session.going
        return super().check_action(action, parameters)

    def action_export(self) -> None:
        from workbench.export.markdown import markdown

        name = "-".join(["compare", *(path.stem for path in self._paths)])
        self.shell.write_new(name, "md", f"{markdown(self._parts)}\n")

    def draw(self, session: Session) -> None:
        parts, said = self._parts, Text.of((self._said, "dim"))
        self.write("compared", lambda w: section_lines(parts, w, w) or said.wrap(w))
