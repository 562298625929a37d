"""One run as the screens see it: report, log and clock, built up from events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.engine.exit_codes import CUT_SHORT, OK, USAGE
from workbench.export.view.answers import rest_text
from workbench.export.view.derived import RunView
from workbench.export.view.events import LogLine, narrate
from workbench.records.events import AnyEvent
from workbench.report.candidate import Row
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun

from .event_source import EventSourceError

LOG_LINES = 10_000  # enough for a long run; the journal keeps everything


def can_follow(command: str) -> bool:
    """Whether the screens can follow what a recorded command starts: ceilings send no events."""
    return command.split()[1:2] != ["ceilings"]


@dataclass
class Session(RunView):
    """One run.  `phase` says how far it is:

    starting, running, paused, stopping, finished, incomplete (the journal breaks off), died (the
    engine ended without a last event), refused (the request cannot be run) or watching (readings
    without a run).
    """

    replay: bool = False
    subject: str | None = None  # name of the user's model or code that the run was asked about
    monotonic: Callable[[], float] = time.monotonic
    report: Report = field(default_factory=Report)
    preview: list[Row] = field(default_factory=list)  # shown until the engine has planned the rows
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    ended: bool = False  # no more events will come
    cancelling: bool = False
    looked_at: str | None = None  # the row that the user chose on any screen; None: the live one
    failure: EventSourceError | None = None  # why the stream of events broke off
    _heard_at: float = 0.0

    def __post_init__(self) -> None:
        super().__init__(self.report)
        self._heard_at = self.monotonic()

    @classmethod
    def of(cls, opened: OpenedRun) -> Session:
        """A kept run, whole: a journal's events fill its log, a document has none."""
        session = cls(replay=True, report=Report() if opened.events else opened.report)
        for event in opened.events:
            session.apply(event)
        session.ended, session.report.status = True, opened.report.status
        return session

    def apply(self, event: AnyEvent) -> None:
        self.report.apply(event)
        if event.at_s == self.report.last_at_s:  # else it came without a time
            self._heard_at = self.monotonic()
        line = narrate(event, self)
        if line is not None:
            self.log.append(line)

    @property
    def phase(self) -> str:
        if self.failure is not None:
            return "refused" if self.failure.code == USAGE else "died"
        if self.report.finished is not None:
            return "finished"
        if self.ended:
            return "incomplete"
        if self.cancelling:
            return "stopping"
        if self.report.machine is not None and self.report.started is None:
            return "watching"
        if self.report.started is None or self.report.machine is None:
            return "starting"
        return "paused" if self.report.status == "paused" else "running"

    @property
    def has_model(self) -> bool:
        """The run is about the user's own model or code."""
        report = self.report
        return any((report.subject, report.subject_row, self.subject))

    @property
    def going(self) -> bool:
        """A run is in progress: it can be stopped, and quitting would cut it short."""
        return self.phase in ("starting", "running", "paused", "stopping")

    @property
    def ticking(self) -> bool:
        """Time passes between events; the clock of a replay follows its events."""
        return not self.replay and self.phase in ("starting", "running", "stopping")

    @property
    def elapsed_s(self) -> float:
        """Seconds on the run's clock: the last event plus the time since it arrived."""
        report = self.report
        if report.finished is not None:
            return report.finished.duration_s
        if not self.ticking:
            return report.last_at_s
        return report.last_at_s + max(0.0, self.monotonic() - self._heard_at)

    @property
    def home(self) -> Row | None:
        """The row that screens show by themselves: the one raced now; after the end the first, or
        the last one of a plain run."""
        rows = self.report.rows
        first = next(iter(rows.values()), None)
        is_last = self.going or (first is not None and not first.plan.owes_verdict)
        return rows.get(self.report.last_row or "", first) if is_last else first

    def step(self, row: str, places: int) -> str:
        """The row `places` after `row`.  All screens show it from now on, or follow the race again
        if it is the live row."""
        names = self.walk()
        wanted = names[min(max(0, names.index(row) + places), len(names) - 1)]
        is_live = self.going and wanted == self.report.current_row
        self.looked_at = None if is_live else wanted
        return wanted

    @property
    def share(self) -> float | None:
        """The share of the budget that a run in progress has used; None if none is."""
        most_s = self.report.most_s
        return min(1.0, self.elapsed_s / most_s) if self.going and most_s else None

    @property
    def exit_code(self) -> int:
        """The exit code if the program ended now."""
        if self.replay:
            return OK
        if self.failure is not None:
            return self.failure.code
        return CUT_SHORT if self.report.finished is None else self.report.finished.exit_code

    @property
    def rest(self) -> str:
        """The command that measures the rest of a run that was cut short, in words; else empty."""
        stamp = self.phase, self.report.status
        return self._once(("rest",), stamp, lambda: rest_text(self.report))

    @property
    def has_begun(self) -> bool:
        """The run began, and was not refused once hardware and model were known."""
        return self.report.started is not None and self.exit_code != USAGE
