"""The state that the parts of one run share: workers, clock, report and event sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..planning.request import Request, fake_devices
from ..pool.control import Control
from ..pool.pool import Pool
from ..records import events as ev
from ..report.report import Report
from .overhead import OverheadMeter
from .telemetry import MachineTelemetry

SLACK_S = 1.0  # reserved for a late last turn, ending workers and writing the document
GRACE_S = 0.4  # part of the slack by which a turn may overrun before its worker is killed

Listener = Callable[[ev.AnyEvent], None]


@dataclass(frozen=True)
class RunContext:
    """Shared by the parts of a run; a side race gets a copy with a report of its own."""

    request: Request
    pool: Pool
    control: Control
    report: Report
    emit: Listener
    telemetry: MachineTelemetry
    overhead: OverheadMeter

    @property
    def speeds(self) -> Mapping[str, float]:
        """Speed of each simulated device relative to this CPU."""
        return fake_devices(self.request)

    @property
    def end_s(self) -> float:
        """The end of all measuring, in seconds on the run's clock."""
        return self.request.budget - SLACK_S
