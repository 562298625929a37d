"""One run as the screens see it: the report, the log and the clock, folded from events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.advisor.model.overview import row_of
from workbench.engine.exit_codes import CUT_SHORT, FAILED, OK
from workbench.export.view.derived import DerivedValues
from workbench.export.view.events import LogLine, narrate
from workbench.records.events import AnyEvent
from workbench.report.report import Report

from .document_log import document_log

LOG_LINES = 500  # more than any terminal shows; the journal keeps everything


@dataclass(frozen=True)
class Failure:
    """Why the stream of events broke off, for people."""

    message: str
    remedy: str
    log_tail: tuple[str, ...] = ()


@dataclass
class Session:
    """`phase` is one word for where the run stands:

    idle, starting, running, paused, stopping, finished, incomplete (the record breaks off) or
    died (the engine ended without a word).
    """

    replay: bool = False
    model_file: str | None = None  # the file of `advise --model`, known before the run reads it
    monotonic: Callable[[], float] = time.monotonic
    report: Report = field(default_factory=Report)
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    begun: bool = False
    ended: bool = False  # no more events will come
    cancelling: bool = False
    failure: Failure | None = None
    derived: DerivedValues = field(init=False)
    _heard_at: float = 0.0

    def __post_init__(self) -> None:
        self.derived = DerivedValues(self.report)
        self.log.extend(document_log(self.derived))

    def begin(self) -> None:
        self.begun = True
        self._heard_at = self.monotonic()

    def apply(self, event: AnyEvent) -> None:
        self.report.apply(event)
        self._heard_at = self.monotonic()
        line = narrate(event, self.derived)
        if line is not None and line.only != "text":
            self.log.append(line)

    @property
    def phase(self) -> str:
        if self.failure is not None:
            return "died"
        if self.report.finished is not None:
            return "finished"
        if self.ended:
            return "incomplete"
        if not self.begun:
            return "idle"
        if self.cancelling:
            return "stopping"
        if self.report.started is None or self.report.machine is None:
            return "starting"
        return self.report.status

    @property
    def has_model(self) -> bool:
        """The run is about a user's model."""
        report = self.report
        told = report.model is not None or row_of(report) is not None
        return told or self.model_file is not None

    @property
    def going(self) -> bool:
        """A run is under way: it can be stopped, and quitting would cut it short."""
        return self.phase in ("starting", "running", "paused", "stopping")

    @property
    def ticking(self) -> bool:
        """Time passes on the screen between events; a replay's clock is its events'."""
        return not self.replay and self.phase in ("starting", "running", "stopping")

    @property
    def elapsed_s(self) -> float:
        """The run's own clock, carried forward by ours since the last event."""
        report = self.report
        if report.finished is not None:
            return report.finished.duration_s
        if not self.ticking:
            return report.last_at_s
        return report.last_at_s + max(0.0, self.monotonic() - self._heard_at)

    @property
    def budget_s(self) -> float | None:
        return self.report.started.budget_s if self.report.started else None

    @property
    def exit_code(self) -> int:
        """The exit code of the program if it ends now."""
        if self.replay or not self.begun:
            return OK
        if self.report.finished is not None:
            return self.report.finished.exit_code
        return FAILED if self.failure is not None else CUT_SHORT
