"""The preparation of a row by workers that are made up."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from builders import context, events, scenario
from fakes import FakePool, IdleWorkload, ManualClock

from workbench.contract import Case
from workbench.engine.preparation import Preparation
from workbench.engine.schedule import RowTime
from workbench.planning.announcing import planned
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.machine import Machine, Package, Software
from workbench.records.reason import Reason
from workbench.report.report import Report

RUN_S = 60.0  # the run's budget; one second of it is kept back


class StartingPool(FakePool):
    """A pool whose workers take `starting_s` seconds to start, and time out at their deadline."""

    starting_s = 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.deadlines: dict[WorkerKey, float] = {}
        self.ended: list[WorkerKey] = []
        self.asked_s: list[float] = []  # the deadline of each request
        self.together: list[list[str]] = []  # the devices of workers that start at once

    def starting(self, keys: Sequence[WorkerKey]) -> AbstractContextManager[None]:
        self.together.append([key.device for key in keys])
        return super().starting(keys)

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        if key in self.deadlines:
            return
        self.deadlines[key] = deadline_s
        self.clock.at_s += min(self.starting_s, deadline_s)
        if self.starting_s > deadline_s:
            raise WorkerFailed(Reason("timeout", "no answer"))
        super().start(key, deadline_s)

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        self.asked_s.append(deadline_s)
        return super().ask(key, deadline_s, kind, **request)

    def end(self, key: WorkerKey) -> None:
        self.ended.append(key)

    def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"case_s": 1.0, "other_s": 1.0}

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def operations(self) -> list[str]:
        return [asked["op"] for _, asked in self.asked]


class Row:
    """The preparation of a row of `cases`, with `end_s` for all rows, in a run of a minute."""

    def __init__(self, *cases: Case, end_s: float = 59.0, **of_row: Any) -> None:
        self.clock = ManualClock()
        self.pool = StartingPool(self.clock, dict.fromkeys(cases, 1.0), {})
        self.plan = RowPlan(scenario(**of_row), IdleWorkload(), list(cases))
        self.report = Report.of(events({})[:2])
        self.report.apply(planned(self.plan, Request(), 0.0))
        self.context = context(self.pool, self.clock, self.report, budget_s=RUN_S)
        self.preparation = Preparation(RowTime(self.plan, self.context, end_s, end_s))

    def detected(self, machine: Machine, packages: dict[str, Package] | None = None) -> None:
        software = Software("3.11", "python", packages or {}, {})
        self.report.apply(ev.HardwareDetected(at_s=0, machine=machine, software=software))

    def prepare(self, *cases: Case) -> list[bool]:
        return [self.preparation.prepare(each) is not None for each in cases]


def asked_s(row: Row, of: Case) -> float:
    """The deadline of a case's preparation."""
    deadlines = [s for (_, request), s in zip(row.pool.asked, row.pool.asked_s, strict=True)
                 if request["op"] == "prepare" and request["case"] == of]  # fmt: skip
    (deadline_s,) = deadlines
    return deadline_s
