"""Stand-ins for the parts of a run that have no processes, no clock and no machine behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from builders import case, context, events, scenario

from workbench.contract import Case, Task, Work, Workload
from workbench.engine.race import Race
from workbench.planning.plan import RowPlan, planned
from workbench.planning.request import Request
from workbench.pool.control import Cancelled
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.candidate import Candidate
from workbench.report.report import Report

A, B, C = case("cpu-a"), case("cpu-b"), case("cpu-c")


class Clock:
    front_end = None

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s


class Nothing(Workload):
    name = "work"
    title = "Work"
    teaches = "Nothing."

    def work(self, case: Case) -> Work:
        return Work(None, None, 1.0, "steps", 0.0)

    def prepare(self, case: Case, setup: Any) -> Task:
        raise NotImplementedError


class Workers:
    """A pool without processes: each case takes `steps_s`, errs by `errors`."""

    def __init__(
        self, clock: Clock, steps_s: Mapping[Case, float], errors: Mapping[Case, float]
    ) -> None:
        self.clock = clock
        self.steps_s = {case.id: step_s for case, step_s in steps_s.items()}
        self.errors = {case.id: error for case, error in errors.items()}
        self.generation: dict[WorkerKey, int] = {}
        self.import_s: dict[WorkerKey, float] = {}
        self.asked: list[tuple[WorkerKey, dict[str, Any]]] = []

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        self.import_s[key] = 0.1

    def is_alive(self, key: WorkerKey) -> bool:
        return False

    def process_ids(self) -> list[int]:
        return []

    def ask(self, key: WorkerKey, deadline_s: float, **request: Any) -> Answer:
        self.asked.append((key, request))
        return Answer(getattr(self, request["op"])(request), False)

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["case"].id
        if name not in self.steps_s:
            raise WorkerFailed(Reason("bad_model", "no such kernel", None))
        error = self.errors.get(name, 1e-6)
        step_s = self.steps_s[name]
        return {
            "setup": {},
            "transfer_out_s": None,
            "accuracy": {
                "metric": "relative_error",
                "value": error,
                "reference": "float64",
                "limit": 1.0,
                "passed": True,
            },
            "warmup": {
                "n": 3, "seconds": 0.1, "first_s": 0.1, "steady": True,
                "step_s": step_s, "iterations": 1,
            },
            "memory_peak_bytes": 1 << 20,
            "call_overhead_s": 0.0,
        }  # fmt: skip

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += request["seconds"]
        return {
            "samples_s": [self.steps_s[request["case"]] * (1 + n / 500) for n in range(5)],
            "lead_in_s": [],
            "loss": None,
            "clocks": None,
            "figures": {},
            "gap": False,
            "after_s": 0.0,
        }


class Latecomers:
    """A candidate source whose `cases` join after round `at`."""

    def __init__(self, at: int, *cases: Case) -> None:
        self.at, self.cases = at, list(cases)
        self.seen: list[tuple[int, float]] = []
        self.kept: str | None = None

    def files(self, case: Case) -> Mapping[str, str]:
        return {"model": f"{case.params['of']}.onnx"}

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        self.seen.append((len(candidates), left_s))
        if len(self.seen) != self.at:
            return []
        return self.cases

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        return self.kept


def race(
    steps_s: Mapping[Case, float],
    *,
    starters: Sequence[Case] | None = None,
    source: Latecomers | None = None,
    errors: Mapping[Case, float] | None = None,
    budget_s: float = 60.0,
    end_s: float | None = None,
    workers: type[Workers] = Workers,
    **of_row: Any,
) -> tuple[Report, list[ev.AnyEvent], Workers]:
    clock = Clock()
    row = scenario(textbook="", **of_row)
    cases = list(steps_s if starters is None else starters)
    plan = RowPlan(row, Nothing(), cases, source=source)
    gpus = sorted({c.device for c in steps_s} - {"cpu"})
    report = Report.of(events({}, gpus=gpus)[:2])
    told: list[ev.AnyEvent] = []

    def emit(event: ev.AnyEvent) -> None:
        told.append(event)
        report.apply(event)

    emit(planned(plan, Request(), 0.0))
    pool = workers(clock, steps_s, errors or {})
    shared = context(pool, clock, report, emit)
    course = Race(plan, shared, until_s=budget_s, end_s=budget_s if end_s is None else end_s)
    with suppress(Cancelled):
        course.run()
    return report, told, pool


def only(told: list[ev.AnyEvent], kind: type) -> list:
    return [event for event in told if isinstance(event, kind)]


def rounds(report: Report, case: Case) -> list[int]:
    return [block.round for block in report.candidates[case.id].blocks]
