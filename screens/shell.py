"""The part of the application that starts no run: kept runs, copies, files, themes, pauses."""

import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App

from workbench.files.config import ConfigError, assign
from workbench.records.errors import JournalError
from workbench.report.report import Report
from workbench.report.run_files import read_journal
from workbench.text.sanitize import shown

from .keys import ADVISOR, PAGES
from .pages.base import ViewScreen
from .state.event_source import EventSource
from .state.session import Session
from .state.threads import in_thread
from .terminal import TerminalApp
from .theme import choose
from .widgets.filter import FilterBar


def _entries() -> type[Any]:
    from .pages.palette import Entries

    return Entries


class Shell(TerminalApp):
    """`raced` is the run that was started here, `session` the one on the screen."""

    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[Any]] = {_entries}
    session: Session
    raced: Session
    _source: EventSource | None = None  # sends the events of what runs here
    _resume_later = False  # the run was paused for a suspend

    def on_mount(self) -> None:
        self.app_suspend_signal.subscribe(self, self._suspended, immediate=True)
        self.app_resume_signal.subscribe(self, self._resumed, immediate=True)

    @property
    def view(self) -> ViewScreen:
        """The screen that shows the run; help, the palette or the form may cover it."""
        return next(each for each in reversed(self.screen_stack) if isinstance(each, ViewScreen))

    @property
    def tabs(self) -> dict[str, str]:
        """The key of each screen with a tab, by its name."""
        return {page.label: page.key for page in PAGES}

    def action_help(self) -> None:
        from .pages.help import HelpScreen, help_keys

        tabs = [(page.key, page.help) for page in PAGES]
        self.push_screen(HelpScreen([*help_keys(self.screen, self), *tabs], self.view.label))

    def send_control(self, control: str) -> None:
        """Send "pause", "resume" or "cancel" to the source."""
        if self._source is not None:
            self._source.send(control)

    @abstractmethod
    def repaint(self) -> None:
        """Have the visible screen draw the current state."""

    def action_pause(self) -> None:
        self.send_control("pause")

    def action_resume(self) -> None:
        self.send_control("resume")

    def action_copy(self) -> None:
        """Copy to the terminal's clipboard (OSC 52), and show the text in case that fails."""
        if (command := self.view.command()) is not None:
            self.copy_to_clipboard(command)
            text = "the code on this screen" if "\n" in command else command
            self.notify(text, title="Copied", markup=False)

    def action_export(self) -> None:
        self.export(self.session.report)

    def export(self, report: Report, form: str = "html") -> None:
        """Write a run to a new file in one of the formats of `file_text`."""
        from workbench.export.formats import SUFFIXES, file_text

        run = report.started.id[:80] if report.started else ""
        self.write_new(run, SUFFIXES.get(form, form), file_text(form, report))

    def write_new(self, name: str, suffix: str, text: str) -> None:
        """Write a text to a new file in this folder, and say where it is."""
        from workbench.files.write import replace

        stem = re.sub(r"[^\w-]", "_", f"workbench-{name}")
        numbers = itertools.chain([""], map("-{}".format, itertools.count(2)))
        names = (f"{stem}{number}.{suffix}" for number in numbers)
        path = next(Path(name) for name in names if not os.path.lexists(name))  # no error if locked
        try:
            replace(path, text.encode())
            self.notify(shown(str(path.absolute())), title="Exported", markup=False)
        except OSError as error:
            self.complain(f"{path} cannot be written: {error.strerror}")

    @work(exclusive=True, group="read")
    async def read_run(self, path: Path, then: Callable[[Session], None]) -> None:
        """Read a kept run in a thread and pass it to `then`, or say why it cannot be read."""
        try:
            kept = await in_thread(lambda: Session.of(read_journal(path)))
        except JournalError as error:
            self.complain(str(error))
        else:
            then(kept)

    def complain(self, text: str) -> None:
        self.notify(shown(text), severity="error", markup=False)

    def show_row(self, name: str) -> None:
        """Put the cursor of the table of scenarios on a row."""
        self.session.looked_at = name
        self.show_mode(ADVISOR)
        for bar in self.screen.query(FilterBar):  # a filter may hide the row
            bar.action_dismiss()
        self.repaint()

    def choose_theme(self, name: str) -> None:
        """Show a theme and remember it."""
        choose(self, name)
        try:
            assign("theme", name)
        except ConfigError as error:
            self.complain(str(error))

    def show_mode(self, mode: str) -> None:
        """Show a screen, and close the details on it and on the one that is left."""
        for at in (self.current_mode, mode):
            self.switch_mode(at)
            while len(self.screen_stack) > 1:
                self.pop_screen()

    def _suspended(self, _app: App[Any]) -> None:
        """Pause the engine before this process stops and no longer reads its events."""
        session = self.session
        if session.phase in ("starting", "running") and session.report.status != "paused":
            self.send_control("pause")
            self._resume_later = True

    def _resumed(self, _app: App[Any]) -> None:
        if self._resume_later:
            self.send_control("resume")
        self._resume_later = False
