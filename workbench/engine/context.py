"""What the parts of one run share: its workers, its clock, and where their events go."""

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

SLACK_S = 1.0  # kept back for a last turn that runs over, ending workers, writing the document
GRACE_S = 0.4  # of that, what a turn may run over before it is killed

Listener = Callable[[ev.AnyEvent], None]


@dataclass(frozen=True)
class RunContext:
    """Of the run, or of a race aside whose events only a `report` of its own hears."""

    request: Request
    pool: Pool
    control: Control
    report: Report
    emit: Listener
    telemetry: MachineTelemetry
    overhead: OverheadMeter

    @property
    def speeds(self) -> Mapping[str, float]:
        """Of simulated devices, relative to this CPU."""
        return fake_devices(self.request)

    @property
    def end_s(self) -> float:
        """When everything shall be measured, on the run's clock."""
        return self.request.budget - SLACK_S
