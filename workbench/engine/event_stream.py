"""The events of a run: into its journal first, then into the report, then to whoever listens."""

from __future__ import annotations

from ..pool.control import Control
from ..records import events as ev
from ..records.reason import Warning
from ..report.journal import Journal, no_journal, runs_folder
from ..report.report import Report
from .context import Listener


class EventStream:
    """Of one run, as long as somebody can take them."""

    def __init__(self, control: Control, report: Report, listener: Listener) -> None:
        self._control = control
        self._report = report
        self._listener = listener
        self._journal: Journal | None = None

    def open_journal(self, run_id: str) -> Warning | None:
        """Begin to keep the events; why they will not be, where they cannot."""
        try:
            self._journal = Journal(runs_folder() / f"{run_id}.jsonl")
        except OSError as error:
            return no_journal("is not kept", error.filename, error)
        return None

    def emit(self, event: ev.AnyEvent) -> None:
        unkept = self._keep(event)
        self._report.apply(event)
        try:
            self._listener(event)
        except BrokenPipeError:
            self._listener = lambda _: None
            self._control.cancel("nobody reads the output any more")
        if unkept is not None:
            self.warn(unkept)

    def warn(self, warning: Warning) -> None:
        """Tell it, if it was not told yet."""
        if warning not in self._report.warnings:
            self.emit(ev.WarningRaised(at_s=self._control.now(), warning=warning))

    def _keep(self, event: ev.AnyEvent) -> Warning | None:
        """Into the journal, as long as it can be written: the run goes on without."""
        if self._journal is None:
            return None
        try:
            self._journal.append(event)
        except OSError as error:
            journal, self._journal = self._journal, None
            if self._report.started is None:
                journal.discard()  # it would be no journal
                return no_journal("is not kept", journal.path, error)
            journal.close()
            return no_journal("is kept only up to here", journal.path, error)
        return None

    def discard(self) -> None:
        """Forget a run that never began."""
        if self._journal is not None:
            self._journal.discard()
            self._journal = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
