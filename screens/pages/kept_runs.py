"""The part of the application that opens and exports kept runs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from workbench.export.formats import file_text
from workbench.files.write import replace
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun
from workbench.text.sanitize import shown

from ..state.event_source import EventSource, ReplaySource
from ..state.session import Session
from ..terminal import TerminalApp

RUNS = "Runs"  # the mode of the list


class KeptRunsApp(TerminalApp):
    """`raced` is the run that was started here, `session` the one on the screen."""

    session: Session
    raced: Session

    def follow(self, source: EventSource, mode: str) -> None:
        """Show the session, which `source` fills, beginning with the screen of this mode."""
        raise NotImplementedError

    def show_run(self, opened: OpenedRun) -> None:
        """Show a kept run in the place of the one that was raced here, until escape."""
        self.session = Session(replay=True)
        self.follow(ReplaySource(opened.events), self.DEFAULT_MODE)

    def action_close_run(self) -> None:
        """Show the run that was raced here again, on the list of runs."""
        self.session = self.raced
        self.follow(ReplaySource([]), RUNS)

    def action_export(self) -> None:
        self.export(self.session.report)

    def export(self, report: Report) -> None:
        """Write the page of what is known of a run, never over another file."""
        stem = re.sub(
            r"[^\w-]", "_", f"workbench-{report.started.id[:80] if report.started else ''}"
        )
        names = (f"{stem}{'' if n == 1 else f'-{n}'}.html" for n in itertools.count(1))
        path = next(file for name in names if not (file := Path(name)).exists())
        try:
            replace(path, file_text("html", report).encode())
            self.notify(shown(str(path.absolute())), title="Exported", markup=False)
        except OSError as error:
            self.notify(f"{path} cannot be written: {error.strerror}", severity="error")
