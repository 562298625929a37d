"""Requests of a row to its workers before its first turn and after its last one."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import case, context, machine
from fakes import CPU_A, CPU_B, CPU_C, IdleWorkload
from preparing import RUN_S, Row, StartingPool, asked_s

from workbench.contract import DEFAULT_CACHE_BYTES, Accuracy, Case, Setup, Task, WorkloadError
from workbench.engine.context import SLACK_S
from workbench.engine.preparation import COMMAND_HINT, FEWER, Preparation
from workbench.engine.schedule import RowTime
from workbench.engine.workers import NO_TURN, worker_key
from workbench.planning.questions import OwnQuestion
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records.document import SetupTimes
from workbench.records.machine import Cache
from workbench.records.reason import Reason
from workbench.worker import worker
from workbench.worker.failures import UNCAPTURED
from workbench.worker.worker import Worker
from workloads._shared import training


def test_one_request_releases_all_that_a_worker_holds() -> None:
    row = Row(CPU_A, CPU_B, case("cpu-never"))
    assert row.prepare(CPU_A, CPU_B) == [True, True]
    row.preparation.release()
    row.preparation.release()  # nothing is left to give back
    (request,) = (asked for _, asked in row.pool.asked if asked["op"] == "release")
    assert request["cases"] == [CPU_A.id, CPU_B.id]


def test_a_candidate_that_leaves_gives_back_its_memory_of_a_gpu_at_once() -> None:
    alone = replace(case("cuda:0-a"), mode="compile")
    row = Row(alone, CPU_A)
    for left in (alone, CPU_A):
        row.preparation.finish(left, "ok", Reason("beaten", "slower"))
    assert row.pool.ended == [worker_key(alone)]


def test_memory_that_other_candidates_hold_is_not_said_to_be_too_small() -> None:
    row = Row(CPU_A, CPU_B, CPU_C)
    full = WorkerFailed(Reason("no_memory", "full", "free memory"))
    row.preparation.fail(CPU_A, full)
    assert row.prepare(CPU_B) == [True]
    row.preparation.fail(CPU_C, full)
    reasons = [row.report.candidates[each.id].reason for each in (CPU_A, CPU_C)]
    assert [each.hint for each in reasons if each is not None] == ["free memory", FEWER]


def test_lack_of_shared_memory_keeps_its_own_remedy_beside_other_candidates(monkeypatch) -> None:
    monkeypatch.setattr(training.os.path, "isdir", lambda _: True)
    monkeypatch.setattr(training.os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1))
    with pytest.raises(WorkloadError) as caught:
        training.require_shared_memory(2, 2, 8.0)
    row, error = Row(CPU_A, CPU_B), caught.value
    assert row.prepare(CPU_A) == [True]
    refused = Reason(error.code, str(error), error.hint)
    row.preparation.fail(CPU_B, WorkerFailed(refused))
    assert row.report.candidates[CPU_B.id].reason == refused


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

    row.pool.ask = interrupted
    assert row.prepare(CPU_A) == [True]
    assert row.pool.operations() == ["prepare", "prepare"]
    assert row.pool.ended == [worker_key(CPU_A)]


def test_a_start_that_no_result_includes_does_not_count_as_measured() -> None:
    row = Row(CPU_A, objective="time_to_result")
    row.pool.starting_s = 3.0
    answers, ask = [True, False], row.pool.ask

    def interrupted(*arguments: Any, **request: Any) -> Answer[Any]:
        row.pool.deadlines.clear()  # the worker is started again
        return replace(ask(*arguments, **request), interrupted=answers.pop(0))

    row.pool.ask = interrupted
    assert row.prepare(CPU_A) == [True]
    spent = row.context.overhead.result(1)
    assert (spent.starting_s, spent.measured_s) == (3.0, 3.0)


def test_a_fresh_worker_is_not_asked_to_release_the_cases_of_a_dead_one() -> None:
    row = Row(CPU_A, CPU_B)
    row.prepare(CPU_A)
    row.pool.held(worker_key(CPU_A)).clear()
    row.prepare(CPU_B)
    row.preparation.release()
    assert row.pool.asked[-1][1]["cases"] == [CPU_B.id]


def test_a_cold_step_has_to_overflow_every_instance_of_the_largest_cache() -> None:
    def caches(*found: tuple[int, str, int, int]) -> int:
        cpu = msgspec.structs.replace(machine().cpu, caches=[Cache(*each) for each in found])
        return cpu.cache_bytes

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
    assert row.report.candidates[CPU_B.id].reason == NO_TURN


def test_a_preparation_may_take_as_long_as_the_one_before_it(monkeypatch) -> None:
    monkeypatch.setattr(SlowPool, "takes_s", 12.0)
    row = Row(CPU_A, CPU_B, end_s=26.0)
    row.pool.__class__ = SlowPool
    assert row.prepare(CPU_A, CPU_B) == [True, True]
    assert row.pool.asked_s[1] > 12.0


def test_what_can_never_run_is_not_said_to_lack_time() -> None:
    row = Row(elsewhere := case("cuda:7-a"), end_s=0.0)
    assert row.prepare(elsewhere) == [False]
    reason = row.report.candidates[elsewhere.id].reason
    assert reason.code == "no_device"


def test_a_worker_may_start_until_the_run_ends_but_gets_no_request_after_the_rows() -> None:
    row = Row(CPU_A, end_s=8.0)
    row.pool.starting_s = 30.0
    assert row.prepare(CPU_A) == [False]
    assert row.pool.deadlines[worker_key(CPU_A)] > 50.0
    assert row.report.candidates[CPU_A.id].reason == NO_TURN
    assert row.pool.asked == []  # an answer within no time would cost the worker its life


class SilentPool(StartingPool):
    """A pool whose workers do not answer within any deadline."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += self.asked_s[-1]
        raise WorkerFailed(Reason("timeout", f"no answer within {self.asked_s[-1]:.0f} s"))


def test_the_reason_of_another_form_says_so_once() -> None:
    first, other, third = (replace(CPU_A, precision="fp16", mode=m) for m in (None, "nhwc", "a"))
    row, late = Row(other, first, third), Reason("timeout", "no answer within 20 s")
    row.report.candidates[first.id].reason = late
    for form in (other, third):  # the second is refused as the first was
        refused = row.report.candidates[form.id].reason = row.preparation.refusals.of(form, RUN_S)
        assert refused.message == "no answer within 20 s (in another form)"


@pytest.mark.parametrize(
    ("mode", "precision", "until_s", "state", "code"),
    [
        (None, "fp32", 5.0, "skipped", "budget"),
        (None, "fp32", 59.0, "failed", "timeout"),
        ("compile", "fp32", 59.0, "skipped", "budget"),  # compiling takes as long as it takes
        (None, "fp16", 59.0, "skipped", "no_time"),  # so does emulating
    ],
)
def test_a_case_that_meets_the_end_of_its_share_is_skipped_and_one_that_hangs_fails(
    mode, precision, until_s, state, code, monkeypatch
) -> None:
    monkeypatch.setattr("workbench.catalog.load", lambda _: IdleWorkload())
    missing = {"fp16": "AVX512-FP16"}.get
    monkeypatch.setattr("workbench.engine.refusals.lacking", lambda name, _: missing(name))
    asked = replace(CPU_A, mode=mode, precision=precision)
    row = Row(asked)
    pool = SilentPool(row.clock, {asked: 1.0}, {})
    shared = context(pool, row.clock, row.report, budget_s=RUN_S)
    preparation = Preparation(RowTime(row.plan, shared, until_s, 59.0))
    assert preparation.prepare(asked) is None
    ended = row.report.candidates[asked.id]
    assert (ended.state, ended.reason and ended.reason.code) == (state, code)
    if ended.reason is not None and state == "skipped":
        text = f"it was not ready within its {pool.asked_s[-1]:.0f} s of the budget"
        assert ended.reason.message.startswith(text) and ended.reason.hint == NO_TURN.hint


@pytest.mark.parametrize(
    ("until", "says", "hint"),
    [
        ("ready$", "it printed no line that matches 'ready$' within ", "correct the pattern, or "),
        (None, "it was not ready within its ", COMMAND_HINT),
    ],
)
def test_a_command_that_never_prints_its_line_says_which(until, says, hint) -> None:
    own = replace(CPU_A, backend="command")
    row = Row(own)
    pool = SilentPool(row.clock, {own: 1.0}, {})
    shared = context(pool, row.clock, row.report, budget_s=RUN_S)
    question = OwnQuestion("command", "serve", until=until)
    shared = replace(shared, request=replace(shared.request, question=question))
    assert Preparation(RowTime(row.plan, shared, 30.0, 59.0)).prepare(own) is None
    reason = row.report.candidates[own.id].reason
    assert reason.code == NO_TURN.code
    assert reason.message.startswith(says) and (reason.hint or "").startswith(hint)


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
    assert Preparation(RowTime(row.plan, shared, until_s, until_s)).prepare(fp16) is None
    ended = row.report.candidates[fp16.id]
    assert (ended.state, ended.reason and ended.reason.code) == (state, code)


def test_a_small_probe_does_not_run_in_the_worker_whose_memory_counts(monkeypatch) -> None:
    small = Case("work", "cpu", "torch", "fp16", params={"of": "small"})
    monkeypatch.setattr(IdleWorkload, "small_probe", lambda _, __: small)
    fp16 = case("cpu-a", "fp16")
    row = Row(fp16, objective="memory")
    assert row.prepare(fp16) == [True]
    assert [(asked["op"], key.alone) for key, asked in row.pool.asked] == [
        ("probe_small", ""),
        ("prepare", fp16.id),
    ]


def test_a_worker_releases_every_case_even_if_one_of_them_fails_to_close() -> None:
    own = Worker("numpy", "cpu")
    fields = {"workload": "matmul", "device": "cpu", "backend": "numpy", "precision": "fp32"}
    for n in (8, 16):
        own.prepare({**fields, "threads": 1, "params": {"n": n}}, False, 0.01, False)
    closed: list[str] = []

    def close(name: str) -> None:
        closed.append(name)
        raise OSError("no such file")

    for name, prepared in own.prepared.items():
        prepared.task.close = partial(close, name)
    names = list(own.prepared)
    with pytest.raises(OSError, match="no such file"):
        own.release(names)
    assert sorted(closed) == sorted(names)
    assert not own.prepared


@pytest.mark.parametrize("from_start", [False, True])
def test_the_latest_step_is_checked_where_the_check_takes_none(from_start, monkeypatch) -> None:
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
    Worker("numpy", "cpu").prepare(fields, False, 0.01, from_start)
    assert taken[-2:] == ["step", "check"]
    assert taken.count("check") == 1


def test_one_time_loading_counts_for_every_case_of_a_row_about_start_up(monkeypatch) -> None:
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
    one, other = (own.prepare({**fields, "threads": n}, False, 1.0, True) for n in (1, 2))
    assert one["setup"] == {"build_s": 0.5, "loading_s": 1.0}
    assert one["warmup"]["first_s"] == 0.9
    assert other["setup"] == {"build_s": 0.6, "loading_s": 1.0}
    assert other["warmup"]["first_s"] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("mode", ["default", "exclusive_process"])
def test_a_second_process_on_an_exclusive_gpu_is_refused(mode: str) -> None:
    gpu = case("cuda:0-a")
    compiled = replace(gpu, mode="compile")
    row = Row(gpu, compiled, CPU_A)
    here = machine("cuda:0")
    cards = [msgspec.structs.replace(here.gpus[0], compute_mode=mode)]
    row.detected(msgspec.structs.replace(here, gpus=cards))
    shared = mode == "default"
    assert row.prepare(gpu, compiled, CPU_A) == [True, shared, True]
    reason = row.report.candidates[compiled.id].reason
    if not shared:
        assert reason.code == "exclusive_gpu"
        assert "one process at a time" in reason.message and "-c DEFAULT" in reason.hint


def test_a_call_that_no_cuda_graph_can_record_costs_a_worker_once(monkeypatch) -> None:
    monkeypatch.setattr("workbench.catalog.load", lambda _: IdleWorkload())
    plain, half = case("cuda:0-a"), case("cuda:0-a", "fp16")
    graph, other = (replace(each, mode="graph") for each in (plain, half))
    row = Row(plain, graph, half, other)
    row.detected(machine("cuda:0"))
    row.preparation.fail(
        graph, WorkerFailed(Reason("unsupported", "it waits for the GPU", UNCAPTURED))
    )
    assert row.prepare(half, other) == [True, False]
    assert row.report.candidates[other.id].reason == row.report.candidates[graph.id].reason
    assert row.pool.operations() == ["prepare"]


def test_the_ranks_of_a_launcher_have_all_the_time_of_the_run(monkeypatch) -> None:
    """They end with their worker, and no other could be called again."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    row = Row(CPU_A, end_s=32.0)
    assert row.prepare(CPU_A) == [True]
    assert asked_s(row, CPU_A) == 32.0


def test_a_search_for_convolution_plans_has_a_worker_to_itself() -> None:
    """In one process torch uses the first plan that it finds, whichever candidate found it."""
    plain = Case("infer_cnn", "cuda:0", "torch", "fp16", params={"image": 32})
    search = replace(plain, mode="cudnn-benchmark")
    assert worker_key(plain).alone == ""
    assert worker_key(search).alone == search.id


COMPILED = replace(CPU_A, workload="train_mlp", mode="compile")


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


def test_what_is_not_compiled_is_never_refused_for_the_time_of_compiling() -> None:
    row = Row(CPU_A)
    row.pool.import_s[WorkerKey("cpu", "torch", 2)] = 5.0  # longer than what is left
    assert row.preparation.refusals.of(CPU_A, 4.0) is None


def test_what_compiles_for_a_gpu_has_a_worker_of_its_own() -> None:
    gpu = case("cuda:0-a")
    compiled = replace(gpu, mode="compile")
    assert worker_key(compiled).alone == compiled.id
    assert worker_key(gpu).alone == "" == worker_key(COMPILED).alone
