"""Stand-ins for the clock, the workers and the workload of a race, and races run on them."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

import msgspec
from builders import case, context, events, report, scenario

from workbench.advisor.elimination import Standings
from workbench.contract import Case, Task, Work, Workload, kind_of
from workbench.engine.race import Race
from workbench.engine.schedule import RowTime
from workbench.planning.announcing import planned
from workbench.planning.plan import CandidateSource, RowPlan
from workbench.planning.request import Request
from workbench.planning.scenario import Scenario
from workbench.pool.control import Cancelled
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.machine import Cpu
from workbench.records.reason import Reason
from workbench.report.candidate import Candidate
from workbench.report.report import Report

CPU_A, CPU_B, CPU_C = case("cpu-a"), case("cpu-b"), case("cpu-c")

Event = TypeVar("Event", bound=ev.AnyEvent)


class ManualClock:
    """Stands for a run's `Control`: a clock that stands still unless somebody sets `at_s`."""

    front_end = None
    at_pause: object = None

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def check(self) -> None:
        """Nobody ends the run."""

    def raising(self, _at: float) -> AbstractContextManager[None]:
        return nullcontext()


class IdleWorkload(Workload):
    """A workload named "work" that needs no memory and is never run."""

    name = "work"
    title = "Work"
    teaches = "Nothing."

    def work(self, case: Case) -> Work:
        return Work(None, None, 1.0, "steps", 0.0)

    def prepare(self, case: Case, setup: Any) -> Task:
        raise AssertionError("none of its cases is run")


class FakePool:
    """A worker pool without processes.

    A step of each case takes `steps_s` seconds and its error is `errors`, by default 1e-6; a case
    without a step time fails to prepare.  Only blocks move the clock.  Each operation of a worker
    is a method of its name, and `asked` lists all requests.
    """

    def __init__(
        self, clock: ManualClock, steps_s: Mapping[Case, float], errors: Mapping[Case, float]
    ) -> None:
        self.clock = clock
        self.steps_s = {case.id: step_s for case, step_s in steps_s.items()}
        self.errors = {case.id: error for case, error in errors.items()}
        self._held: defaultdict[WorkerKey, set[str]] = defaultdict(set)
        self.import_s: dict[WorkerKey, float] = {}
        self.asked: list[tuple[WorkerKey, dict[str, Any]]] = []

    @property
    def longest_gpu_start_s(self) -> float:
        starts = [s for key, s in self.import_s.items() if not kind_of(key.device).on_host]
        return max(starts, default=0.0)

    def starting(self, keys: Sequence[WorkerKey]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        self.import_s[key] = 0.1

    def is_alive(self, key: WorkerKey) -> bool:
        return False

    def held(self, key: WorkerKey) -> set[str]:
        return self._held[key]

    def end(self, key: WorkerKey) -> None:
        pass

    def process_ids(self) -> list[int]:
        return []

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        self.asked.append((key, request))
        return Answer(msgspec.convert(getattr(self, request["op"])(request), kind), False)

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
            **dict.fromkeys(("began_s", "settled_s", "ended_s"), time.monotonic()),
        }


class LateSource(CandidateSource):
    """A candidate source whose `cases` join after round `at`.

    `seen` lists each call: how many candidates there were, and the seconds left.  `kept` is the id
    of the baseline, and `missing` what it had no time to propose.
    """

    def __init__(self, at: int, *cases: Case) -> None:
        self.at, self.cases = at, list(cases)
        self.extra: set[str] = set()
        self.seen: list[tuple[int, float]] = []
        self.kept: str | None = None
        self.missing = ""

    def files(self, case: Case) -> Mapping[str, str]:
        return {"model": f"{case.params['of']}.onnx"}

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        self.seen.append((len(candidates), left_s))
        if len(self.seen) != self.at:
            return []
        return self.cases

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        return self.kept

    def gap(self, candidates: Sequence[Candidate]) -> str:
        return self.missing


def run_race(
    steps_s: Mapping[Case, float],
    *,
    starters: Sequence[Case] | None = None,
    source: LateSource | None = None,
    refining: Sequence[Case] = (),
    errors: Mapping[Case, float] | None = None,
    budget_s: float = 60.0,
    end_s: float | None = None,
    rows: int = 1,
    pool_type: type[FakePool] = FakePool,
    **of_row: Any,
) -> tuple[Report, list[ev.AnyEvent], FakePool]:
    """A real race of the cases in `steps_s` (seconds per step) on a fake pool, with its events.

    `starters` are the cases that race from the beginning, by default all; `refining` may join;
    `rows` are still to race, this one included;
    `of_row` changes fields of the scenario.
    """
    clock = ManualClock()
    row = scenario(textbook="", **of_row)
    cases = list(steps_s if starters is None else starters)
    plan = RowPlan(row, IdleWorkload(), cases, source=source, refining=list(refining))
    gpus = sorted({c.device for c in steps_s} - {"cpu"})
    report = Report.of(events({}, gpus=gpus)[:2])
    emitted: list[ev.AnyEvent] = []

    def emit(event: ev.AnyEvent) -> None:
        emitted.append(event)
        report.apply(event)

    emit(planned(plan, Request(), 0.0))
    pool = pool_type(clock, steps_s, errors or {})
    shared = context(pool, clock, report, emit)
    race = Race(RowTime(plan, shared, budget_s, budget_s if end_s is None else end_s, rows))
    with suppress(Cancelled):
        race.run()
    return report, emitted, pool


def events_of(emitted: Iterable[ev.AnyEvent], kind: type[Event]) -> list[Event]:
    """The events of one type, in their order."""
    return [event for event in emitted if isinstance(event, kind)]


def rounds_of(report: Report, case: Case) -> list[int]:
    """The rounds in which `case` was measured."""
    return [block.round for block in report.candidates[case.id].blocks]


def field(blocks: Any, **options: Any) -> list[Candidate]:
    """The candidates of a report with these blocks."""
    return list(report(blocks, **options).candidates.values())


def standings(
    candidates: Iterable[Candidate],
    row: Scenario | None = None,
    *,
    rounds: int = 1,
    cpu: Cpu | None = None,
    turn_s: Mapping[str, float] | None = None,
    usable_s: float = math.inf,
) -> Standings:
    """A race of `candidates` after `rounds` rounds, in which all of them still take part; a turn
    takes a second each, unless `turn_s` (by case id) says otherwise."""
    racing = list(candidates)
    return Standings(
        plan=RowPlan(row or scenario(), IdleWorkload()),
        candidates=racing,
        measured=[candidate for candidate in racing if candidate.blocks],
        rounds=rounds,
        cpu=cpu,
        turn_s=turn_s or {candidate.case.id: 1.0 for candidate in racing},
        usable_s=usable_s,
    )
