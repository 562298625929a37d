"""Sends each event of a run to its journal first, then to the report, then to the front end."""

from ..pool.control import NEVER, SECOND, Cancelled, Control
from ..records import events as ev
from ..records.reason import Warning
from ..report.journal import Journal, no_journal, path_of
from ..report.report import Report
from .context import Listener


class EventStream:
    """Journals, applies and forwards the events of one run."""

    def __init__(self, control: Control, report: Report, listener: Listener) -> None:
        self._control = control
        self._report = report
        self._listener = listener
        self._journal: Journal | None = None

    def emit(self, event: ev.AnyEvent) -> None:
        """Journal, apply and forward an event, unless it repeats a warning."""
        if isinstance(event, ev.WarningRaised) and event.warning in self._report.warnings:
            return
        with self._control.raising(NEVER):
            unkept = self._keep(event)
            self._report.apply(event)
        try:
            with self._control.raising(SECOND):
                self._listener(event)
        except BrokenPipeError:
            self._listener = lambda _: None
            self._control.cancel("the reader of the output is gone")
        except Cancelled:  # the reader does not read; the run ends at its next wait
            self._listener = lambda _: None
        if unkept is not None:
            self.warn(unkept)

    def warn(self, warning: Warning) -> None:
        self.emit(ev.WarningRaised(at_s=self._control.now(), warning=warning))

    def _keep(self, event: ev.AnyEvent) -> Warning | None:
        """Append to the journal, which RunStarted opens; without one the run goes on."""
        if isinstance(event, ev.RunStarted):
            try:
                self._journal = Journal(path_of(event.id))
            except OSError as error:
                return no_journal("is not kept", error.filename, error)
        if self._journal is None:
            return None
        try:
            self._journal.append(event)
        except OSError as error:
            journal, self._journal = self._journal, None
            if self._report.started is None:
                journal.discard()  # a journal without its first event cannot be read
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
