"""The state that the parts of one run share: workers, clock, report and event sink."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from ..planning.request import Request, fake_devices
from ..pool.control import Control
from ..pool.pool import Listener as Listener, Pool
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.machine import Machine, Software
from ..records.reason import Reason
from ..report.report import Report
from .overhead import OverheadMeter
from .telemetry import MachineTelemetry

SLACK_S = 1.0  # reserved for a late last turn, ending workers and writing the document
START_S = 120.0  # to import a CUDA build from a cold network disk takes most of a minute
GRACE_S = 0.4  # part of the slack by which a turn may overrun before its worker is killed
MOST_GROWTH_S = 20.0  # added to a `--quick` run for a GPU's worker that starts slowly


P = ParamSpec("P")


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
    def machine(self) -> Machine:
        assert self.report.machine is not None  # a run detects it first
        return self.report.machine

    @property
    def software(self) -> Software:
        assert self.report.software is not None  # it is detected with the machine
        return self.report.software

    @property
    def end_s(self) -> float:
        """The end of all measuring, in seconds on the run's clock.

        Without --budget it moves: with --quick by the start of a GPU's worker, otherwise by the
        extensions of rows that were open.
        """
        grows = self.request.quick and self.request.budget_s is None
        grown_s = min(self.pool.longest_gpu_start_s, MOST_GROWTH_S) if grows else 0.0
        return self.request.budget + grown_s + self.report.extended_s - SLACK_S

    @property
    def left_s(self) -> float:
        """Seconds until `end_s`; below 0 after it."""
        return self.end_s - self.now()

    def now(self) -> float:
        """Seconds on the run's clock, which stands still during a pause."""
        return self.control.now()

    def record(
        self, kind: Callable[Concatenate[float, P], ev.AnyEvent], *_: P.args, **fields: P.kwargs
    ) -> None:
        """Emit an event of this kind with the time of now."""
        self.emit(kind(self.now(), *_, **fields))

    def speed(self, device: str) -> float:
        """The speed of a simulated device relative to this CPU; 1 for a real one."""
        return fake_devices(self.request).get(device, 1.0)

    def deadline(self, at_most_s: float = math.inf, reserve_s: float = 0.0) -> float:
        """Seconds that a request to a worker may take, up to `reserve_s` before the end of the run.

        It may outlast its row, since a killed worker would have to import again.
        """
        return max(0.0, min(at_most_s, self.end_s + GRACE_S - reserve_s - self.now()))

    def start(self, key: WorkerKey, at_least_s: float = 0.0, reserve_s: float = 0.0) -> None:
        """Make sure that a worker runs; WorkerFailed if it cannot start within the run."""
        self.pool.start(key, max(at_least_s, self.deadline(START_S, reserve_s)))

    def finish(self, case: str, scenario: str, status: str, reason: Reason | None) -> None:
        """Report the end of a case that had no turns, by its id and that of its row."""
        self.record(ev.CaseFinished, case=case, scenario=scenario, status=status, reason=reason)
