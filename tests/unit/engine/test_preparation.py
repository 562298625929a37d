"""Requests of a row to its workers before its first turn and after its last one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import case, context, events, machine, scenario
from fakes import CPU_A, CPU_B, FakePool, IdleWorkload, ManualClock

from workbench.contract import DEFAULT_CACHE_BYTES, Accuracy, Case, Setup, Task
from workbench.engine.context import SLACK_S, Share, cache_bytes
from workbench.engine.preparation import BUDGET, Preparation, worker_key
from workbench.engine.starts import start_workers
from workbench.planning.plan import RowPlan, planned
from workbench.planning.request import Request
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.document import SetupTimes
from workbench.records.machine import Cache, Package, Software
from workbench.records.reason import Reason
from workbench.report.report import Report
from workbench.worker import worker
from workbench.worker.worker import Worker

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
        self.preparation = Preparation(self.plan, self.context, Share(end_s, end_s))

    def prepare(self, *cases: Case) -> list[bool]:
        return [self.preparation.prepare(each) is not None for each in cases]


def test_one_request_releases_all_that_a_worker_holds() -> None:
    row = Row(CPU_A, CPU_B, case("cpu-never"))
    assert row.prepare(CPU_A, CPU_B) == [True, True]
    row.preparation.release()
    row.preparation.release()  # nothing is left to give back
    (request,) = (asked for _, asked in row.pool.asked if asked["op"] == "release")
    assert request["cases"] == [CPU_A.id, CPU_B.id]


def test_after_the_end_of_the_run_no_worker_is_asked_to_release() -> None:
    row = Row(CPU_A)
    row.prepare(CPU_A)
    row.clock.at_s = RUN_S
    row.preparation.release()
    assert row.pool.operations() == ["prepare"]


def test_a_preparation_with_a_pause_in_it_is_made_again_in_a_fresh_worker() -> None:
    row = Row(CPU_A)
    answers, ask = [True, False], row.pool.ask

    def interrupted(*arguments: Any, **request: Any) -> Answer[Any]:
        return replace(ask(*arguments, **request), interrupted=answers.pop(0))

    row.pool.ask = interrupted  # type: ignore[method-assign]
    assert row.prepare(CPU_A) == [True]
    assert row.pool.operations() == ["prepare", "prepare"]
    assert row.pool.ended == [worker_key(CPU_A)]


def test_a_fresh_worker_is_not_asked_to_release_the_cases_of_a_dead_one() -> None:
    row = Row(CPU_A, CPU_B)
    row.prepare(CPU_A)
    row.pool.generation[worker_key(CPU_A)] = 1
    row.prepare(CPU_B)
    row.preparation.release()
    assert row.pool.asked[-1][1]["cases"] == [CPU_B.id]


def test_a_cold_step_has_to_overflow_every_instance_of_the_largest_cache() -> None:
    def caches(*found: tuple[int, str, int, int]) -> int:
        cpu = msgspec.structs.replace(machine().cpu, caches=[Cache(*each) for each in found])
        return cache_bytes(cpu)

    assert caches((1, "instruction", 1 << 30, 1), (3, "unified", 32 << 20, 8)) == 256 << 20
    assert caches() == DEFAULT_CACHE_BYTES


class SlowPool(StartingPool):
    """A pool whose preparations take `takes_s` seconds."""

    takes_s = 5.0

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += self.takes_s
        return super().prepare(request)


def test_a_preparation_that_cannot_end_in_time_does_not_cost_the_others_their_worker() -> None:
    row = Row(CPU_A, CPU_B, end_s=8.0)
    row.pool.__class__ = SlowPool
    assert row.prepare(CPU_A, CPU_B) == [True, False]
    assert row.pool.operations() == ["prepare"]
    assert row.report.candidates[CPU_B.id].reason == BUDGET


def test_a_preparation_may_take_as_long_as_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlowPool, "takes_s", 12.0)
    row = Row(CPU_A, CPU_B, end_s=26.0)
    row.pool.__class__ = SlowPool
    assert row.prepare(CPU_A, CPU_B) == [True, True]
    assert row.pool.asked_s[1] > 12.0


def test_a_worker_may_start_until_the_run_ends_but_gets_no_request_after_the_rows() -> None:
    row = Row(CPU_A, end_s=8.0)
    row.pool.starting_s = 30.0
    assert row.prepare(CPU_A) == [False]
    assert row.pool.deadlines[worker_key(CPU_A)] > 50.0
    assert row.report.candidates[CPU_A.id].reason == BUDGET
    assert row.pool.asked == []  # an answer within no time would cost the worker its life


class SilentPool(StartingPool):
    """A pool whose workers do not answer within any deadline."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += self.asked_s[-1]
        raise WorkerFailed(Reason("timeout", f"no answer within {self.asked_s[-1]:.0f} s"))


@pytest.mark.parametrize(
    ("mode", "until_s", "state", "code"),
    [
        (None, 5.0, "skipped", "budget"),
        (None, 59.0, "failed", "timeout"),
        ("compile", 59.0, "skipped", "budget"),  # compiling takes as long as it takes
    ],
)
def test_a_case_that_meets_the_end_of_its_share_is_skipped_and_one_that_hangs_fails(
    mode: str | None, until_s: float, state: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.catalog.load", lambda _: IdleWorkload())
    asked = replace(CPU_A, mode=mode)
    row = Row(asked)
    pool = SilentPool(row.clock, {asked: 1.0}, {})
    shared = context(pool, row.clock, row.report, budget_s=RUN_S)
    preparation = Preparation(row.plan, shared, Share(until_s, 59.0))
    assert preparation.prepare(asked) is None
    ended = row.report.candidates[asked.id]
    assert (ended.state, ended.reason and ended.reason.code) == (state, code)
    if ended.reason is not None and state == "skipped":
        text = f"it was not ready within its {pool.asked_s[-1]:.0f} s of the budget"
        assert (ended.reason.message, ended.reason.hint) == (text, BUDGET.hint)


@pytest.mark.parametrize(
    ("until_s", "state", "code"), [(5.0, "skipped", "budget"), (59.0, "failed", "timeout")]
)
def test_a_probe_that_meets_the_end_of_the_run_is_skipped_and_one_that_hangs_fails(
    until_s: float, state: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stalled(StartingPool):
        def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
            self.clock.at_s += self.asked_s[-1]
            raise WorkerFailed(Reason("timeout", "no answer"))

    small = Case("work", "cpu", "torch", "fp16", params={"of": "small"})
    monkeypatch.setattr(IdleWorkload, "small_probe", lambda _, __: small)
    monkeypatch.setattr("workbench.catalog.load", lambda _: IdleWorkload())
    fp16 = case("cpu-a", "fp16")
    row = Row(fp16)
    pool = Stalled(row.clock, {fp16: 1.0}, {})
    shared = context(pool, row.clock, row.report, budget_s=until_s + SLACK_S)
    assert Preparation(row.plan, shared, Share(until_s, until_s)).prepare(fp16) is None
    ended = row.report.candidates[fp16.id]
    assert (ended.state, ended.reason and ended.reason.code) == (state, code)


def test_a_search_for_convolution_plans_has_a_worker_to_itself() -> None:
    """In one process torch uses the first plan that it finds, whichever candidate found it."""
    plain = Case("infer_cnn", "cuda:0", "torch", "fp16", params={"image": 32})
    search = replace(plain, mode="cudnn-benchmark")
    assert worker_key(plain).alone == ""
    assert worker_key(search).alone == search.id


def test_a_small_probe_does_not_run_in_the_worker_whose_memory_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Case("work", "cpu", "torch", "fp16", params={"of": "small"})
    monkeypatch.setattr(IdleWorkload, "small_probe", lambda _, __: small)
    fp16 = case("cpu-a", "fp16")
    row = Row(fp16, objective="memory")
    assert row.prepare(fp16) == [True]
    assert [(asked["op"], key.alone) for key, asked in row.pool.asked] == [
        ("probe_small", ""),
        ("prepare", fp16.id),
    ]


@pytest.mark.parametrize(
    ("starting_s", "table", "started"),
    [
        (5.0, [CPU_A], True),
        (30.0, [CPU_A], True),  # the table needs it anyway
        (5.0, [], True),
        (30.0, [], False),  # workers that only ceilings need get no more than their share
        (70.0, [CPU_A], False),
    ],
)
def test_ceilings_wait_for_workers_that_the_table_needs_too(
    starting_s: float, table: list[Case], started: bool
) -> None:
    row = Row(CPU_A)
    row.pool.starting_s = starting_s
    rows = [replace(row.plan, cases=table)]
    assert start_workers([row.plan], rows, row.context, 0.12) is started


def test_a_worker_that_is_late_keeps_no_other_from_starting() -> None:
    row = Row(replace(CPU_A, backend="numpy"), CPU_A)
    row.pool.starting_s = 30.0
    table = [replace(row.plan, cases=[CPU_A])]  # which does not need NumPy
    assert not start_workers([row.plan], table, row.context, 0.12)
    assert list(row.pool.import_s) == [worker_key(CPU_A)]


def test_a_gpu_that_admits_one_process_gets_one_worker_before_the_races() -> None:
    gpu = case("cuda:0-a")
    row = Row(gpu, other := replace(gpu, backend="onnxruntime"))
    here = machine("cuda:0")
    exclusive = [msgspec.structs.replace(here.gpus[0], compute_mode="exclusive_process")]
    software = Software("3.11", "python", {}, {})
    for gpus, started in ((exclusive, [gpu]), (here.gpus, [gpu, other])):
        found = msgspec.structs.replace(here, gpus=gpus)
        row.report.apply(ev.HardwareDetected(at_s=0, machine=found, software=software))
        row.pool.deadlines.clear()
        assert start_workers([row.plan], [row.plan], row.context, 1.0)
        assert list(row.pool.deadlines) == [worker_key(each) for each in started]


@pytest.mark.parametrize(
    ("cores", "counted", "together"),
    [
        (1, False, [["cpu"], ["cpu"], ["cuda:0"]]),
        (2, False, [["cpu", "cpu"], ["cuda:0"]]),
        (2, True, [["cpu"], ["cuda:0"], ["cpu"]]),  # a row takes their start-up times for its own
        (4, True, [["cpu", "cuda:0"], ["cpu"]]),
    ],
)
def test_workers_start_at_once_where_there_are_cores_for_them(
    cores: int, counted: bool, together: list[list[str]]
) -> None:
    row = Row(CPU_A, replace(CPU_A, backend="numpy"), case("cuda:0-a"))
    if counted:
        row.plan.scenario = row.plan.scenario.sharing_workers()
    here = machine("cuda:0")
    here = msgspec.structs.replace(
        here, cpu=msgspec.structs.replace(here.cpu, effective_cores=cores)
    )
    software = Software("3.11", "python", {}, {})
    row.report.apply(ev.HardwareDetected(at_s=0, machine=here, software=software))
    assert start_workers([row.plan], [row.plan], row.context, 1.0)
    assert row.pool.together == together


def test_ceilings_start_no_worker_for_a_refused_case() -> None:
    gpu = case("cuda:0-a")
    row = Row(gpu)
    torch = {"torch": Package("2.9", "CPU build")}
    software = Software("3.11", "python", torch, {})
    row.report.apply(ev.HardwareDetected(at_s=0, machine=machine("cuda:0"), software=software))
    assert start_workers([row.plan], [], row.context, 0.12)
    assert row.pool.deadlines == {}


def test_a_worker_releases_every_case_even_if_one_of_them_fails_to_close() -> None:
    own = Worker("numpy", "cpu")
    fields = {"workload": "matmul", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    for n in (8, 16):
        own.prepare(
            {**fields, "threads": 1, "params": {"n": n}}, 0, False, 0.01, 1 << 20, {}, False
        )
    closed: list[str] = []

    def close(name: str) -> None:
        closed.append(name)
        raise OSError("no such file")

    for name, prepared in own.prepared.items():
        prepared.task.close = partial(close, name)  # type: ignore[method-assign]
    names = list(own.prepared)
    with pytest.raises(OSError, match="no such file"):
        own.release(names)
    assert sorted(closed) == sorted(names)
    assert not own.prepared


@pytest.mark.parametrize("from_start", [False, True])
def test_the_latest_step_is_checked_where_the_check_takes_none(
    from_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    class Latest(Task):
        checks_latest = True

        def step(self) -> None:
            taken.append("step")

        def check(self) -> Accuracy:
            taken.append("check")
            return Accuracy("relative_error", 0.0, "none", 1.0, passed=True)

    workload = SimpleNamespace(prepare=lambda case, setup: Latest())
    monkeypatch.setattr(worker, "import_workload", lambda name: workload)
    monkeypatch.setattr(worker, "_first_step_s", lambda task: 9.0)  # leaves no time to warm up
    fields = {"workload": "x", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    Worker("numpy", "cpu").prepare(fields, 0, False, 0.01, 1 << 20, {}, from_start)
    assert taken[-2:] == ["step", "check"]
    assert taken.count("check") == 1


def test_one_time_loading_counts_for_every_case_of_a_row_about_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = iter([1.5, 0.5, 0.6, 0.6])  # each case is built twice; the first build loads a library
    first = iter([0.9, 0.2])

    class Loading(Task):
        def __init__(self, setup: Setup) -> None:
            setup.seconds["build"] = next(built)

        def step(self) -> None:
            pass

        def check(self) -> Accuracy:
            return Accuracy("relative_error", 0.0, "none", 1.0, passed=True)

    workload = SimpleNamespace(prepare=lambda case, setup: Loading(setup))
    monkeypatch.setattr(worker, "import_workload", lambda name: workload)
    monkeypatch.setattr(worker, "_first_step_s", lambda task: next(first))
    own = Worker("numpy", "cpu")
    fields = {"workload": "loading", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    one, other = (
        own.prepare({**fields, "threads": n}, 0, False, 1.0, 1 << 20, {}, True) for n in (1, 2)
    )
    assert one["setup"] == {"build_s": 0.5, "loading_s": 1.0}
    assert one["warmup"]["first_s"] == 0.9
    assert other["setup"] == {"build_s": 0.6, "loading_s": 1.0}
    assert other["warmup"]["first_s"] == pytest.approx(0.9, abs=0.01)


# ---------------------------------------------------------------- compiling

COMPILED = replace(CPU_A, workload="train_mlp", mode="compile")


def asked_s(row: Row, of: Case) -> float:
    """The deadline of a case's preparation."""
    deadlines = [s for (_, request), s in zip(row.pool.asked, row.pool.asked_s, strict=True)
                 if request["op"] == "prepare" and request["case"] == of]  # fmt: skip
    (deadline_s,) = deadlines
    return deadline_s


@pytest.mark.parametrize(
    ("mode", "expected_s"),
    [(None, 16.0), ("compile", 30.0)],  # half of what is left; the time of a compilation
)
def test_a_compilation_has_its_time(mode: str | None, expected_s: float) -> None:
    of = replace(COMPILED, mode=mode)
    row = Row(of, end_s=32.0)
    assert row.prepare(of) == [True]
    assert asked_s(row, of) == expected_s


def test_a_compilation_has_the_time_that_one_of_its_workload_took() -> None:
    other = replace(COMPILED, params={"of": "other"})
    row = Row(COMPILED, other, end_s=50.0)
    row.report.candidates[other.id].setup = SetupTimes(compile_s=41.0)
    assert row.prepare(COMPILED) == [True]
    assert asked_s(row, COMPILED) == 41.0


@pytest.mark.parametrize(("left_s", "started"), [(29.0, False), (34.0, False), (36.0, True)])
def test_a_compilation_is_refused_where_its_time_is_not_left(left_s: float, started: bool) -> None:
    row = Row(COMPILED, end_s=left_s)
    row.pool.import_s[WorkerKey("cpu", "torch", 2)] = 5.0  # its worker has to start first
    assert row.prepare(COMPILED) == [started]
    reason = row.report.candidates[COMPILED.id].reason
    assert (reason is None) == started
    if reason is not None:
        assert (reason.code, "compiling takes" in reason.message) == ("no_time", True)


def test_what_compiles_for_a_gpu_has_a_worker_of_its_own() -> None:
    gpu = case("cuda:0-a")
    compiled = replace(gpu, mode="compile")
    assert worker_key(compiled).alone == compiled.id
    assert worker_key(gpu).alone == "" == worker_key(COMPILED).alone


# ------------------------------------------------- a GPU for one process at a time


@pytest.mark.parametrize("mode", ["default", "exclusive_process"])
def test_a_second_process_on_an_exclusive_gpu_is_refused(mode: str) -> None:
    gpu = case("cuda:0-a")
    compiled = replace(gpu, mode="compile")
    row = Row(gpu, compiled, CPU_A)
    here = machine("cuda:0")
    cards = [msgspec.structs.replace(here.gpus[0], compute_mode=mode)]
    software = Software("3.11", "python", {}, {})
    row.report.apply(
        ev.HardwareDetected(
            at_s=0, machine=msgspec.structs.replace(here, gpus=cards), software=software
        )
    )
    shared = mode == "default"
    assert row.prepare(gpu, compiled, CPU_A) == [True, shared, True]
    reason = row.report.candidates[compiled.id].reason
    if not shared:
        assert reason is not None and reason.code == "exclusive_gpu"
        assert "one process at a time" in reason.message and "-c DEFAULT" in reason.hint


def test_the_ranks_of_a_launcher_have_all_the_time_of_the_run(monkeypatch) -> None:
    """They end with their worker, and no other could be called again."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    row = Row(CPU_A, end_s=32.0)
    assert row.prepare(CPU_A) == [True]
    assert asked_s(row, CPU_A) == 32.0
