"""The largest batch: doubled, bisected, and every way the search can end."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders import context, machine

from workbench.contract import Case
from workbench.engine import largest_batch
from workbench.engine.context import SLACK_S
from workbench.engine.largest_batch import CLOSE, check_alone
from workbench.engine.workers import NO_TURN
from workbench.export.view.words import largest_texts
from workbench.planning.usage import UsageError
from workbench.pool.control import Cancelled
from workbench.pool.pool import CPU_LIMIT_HINT, KILLED_HINT, Answer, WorkerFailed
from workbench.records import events as ev
from workbench.records.document import LargestBatch
from workbench.records.machine import GpuProcess
from workbench.records.reason import Reason
from workbench.report.report import Report

CASE = Case("infer_mlp", "cpu", "torch", "fp32", threads=1, batch=8, params={"width": 8})
ON_GPU = replace(CASE, device="cuda:0", threads=None)


class Memory:
    """A pool whose workers fit batches up to `limit`, each attempt taking `seconds`."""

    def __init__(self, limit: int, *, reason: Reason | None = None, seconds: float = 0.1) -> None:
        self.limit, self.seconds, self.clock = limit, seconds, 0.0
        self.reason = reason or Reason("no_memory", "out of memory")
        self.alive: set[object] = set()
        self.started = 0

    def start(self, key: object, deadline_s: float) -> None:
        if key not in self.alive:
            self.started += 1
        self.alive.add(key)

    def end(self, key: object) -> None:
        self.alive.discard(key)

    def ask(
        self, key: object, deadline_s: float, kind: Any, *, case: Case, **_: Any
    ) -> Answer[Any]:
        self.clock += self.seconds
        if (case.batch or 0) > self.limit:
            raise WorkerFailed(self.reason)
        return Answer(kind(step_s=0.1, memory_peak_bytes=2**20), interrupted=False)

    def now(self) -> float:
        return self.clock


def search(pool: Memory, *, until_s: float = 1e9, case: Case = CASE) -> LargestBatch:
    seen: list[ev.AnyEvent] = []
    run = context(pool, pool, Report(machine=machine()), seen.append, until_s + SLACK_S)
    largest_batch.search(case, "job", until_s, run)
    assert not pool.alive
    (found,) = [event.found for event in seen if isinstance(event, ev.LargestBatchFound)]
    tried = [event.attempt for event in seen if isinstance(event, ev.BatchTried)]
    assert tried == found.attempts
    (finished,) = [event for event in seen if isinstance(event, ev.CaseFinished)]
    assert (finished.status == "ok") == (found.batch is not None)
    return found


def test_each_attempt_on_a_cpu_has_a_fresh_worker_and_a_gpu_keeps_its_own() -> None:
    cpu, gpu = Memory(100), Memory(100)
    found = search(cpu)
    assert cpu.started == len(found.attempts) > 5
    for mode in (None, "compile"):  # compiled cases have a worker to themselves, whatever batch
        assert search(gpu, case=replace(ON_GPU, mode=mode)).batch == found.batch
        assert gpu.started == 1
        gpu.started = 0


def test_what_a_gpu_could_take_ends_where_main_memory_holds_no_more_of_its_inputs() -> None:
    found = search(Memory(10**9), case=ON_GPU)
    assert (found.ended_by, found.attempts[-1].reason is not None) == ("memory", True)
    needed = 8 * 4 * 784 * found.batch  # eight inputs
    free = machine().memory.available_bytes
    assert needed <= free <= CLOSE * needed


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 100, 1000, 12_345])
def test_the_limit_is_found_to_the_promised_closeness(limit: int) -> None:
    found = search(Memory(limit))
    assert found.batch <= limit <= max(found.batch + 1, CLOSE * found.batch)
    assert found.ended_by == "memory"


def test_where_not_even_one_fits_it_says_so() -> None:
    found = search(Memory(0))
    assert (found.batch, found.ended_by) == (None, "memory")
    assert found.attempts[-1].batch == 1


def test_the_search_ends_at_the_largest_batch_there_is() -> None:
    found = search(Memory(10**9))
    assert (found.batch, found.ended_by) == (1_000_000, "range")


def test_a_worker_that_the_kernel_killed_counts_as_out_of_memory() -> None:
    killed = Reason("worker_died", "the worker process died (killed by SIGKILL)", KILLED_HINT)
    assert search(Memory(100, reason=killed)).ended_by == "memory"
    limited = Reason(killed.code, killed.message, CPU_LIMIT_HINT)  # by `ulimit -t`
    assert search(Memory(100, reason=limited)).ended_by == "worker_died"


def test_any_other_failure_ends_the_search_with_its_name() -> None:
    broken = search(Memory(100, reason=Reason("failed", "something broke")))
    assert (broken.batch, broken.ended_by) == (64, "failed")
    crashed = Reason("worker_died", "the worker process died (killed by SIGSEGV)")
    assert search(Memory(100, reason=crashed)).ended_by == "worker_died"


@pytest.mark.parametrize("code", ["bad_input", "shared_memory"])
def test_a_data_set_or_shared_memory_that_holds_no_more_bounds_it_as_memory_does(code: str) -> None:
    found = search(Memory(100, reason=Reason(code, "more than the 100 pictures")))
    assert found.ended_by == code
    assert found.batch <= 100 <= CLOSE * found.batch


def test_what_cannot_be_done_here_is_skipped_and_no_failure() -> None:
    seen: list[ev.AnyEvent] = []
    pool = Memory(0, reason=Reason("no_compiler", "no g++"))
    run = context(pool, pool, Report(machine=machine()), seen.append)
    largest_batch.search(CASE, "job", 9.0, run)
    assert seen[-1].status == "skipped"


def test_lack_of_time_is_no_failure_and_no_attempt_takes_the_time_of_others() -> None:
    seen: list[ev.AnyEvent] = []

    class Slow(Memory):
        def ask(self, key: object, deadline_s: float, kind: Any, **_: Any) -> Answer[Any]:
            self.clock += deadline_s
            raise WorkerFailed(Reason("timeout", "no answer"))

    pool = Slow(0)
    run = context(pool, pool, Report(machine=machine()), seen.append, 1e3)
    largest_batch.search(CASE, "job", 20.0, run)
    assert (seen[-1].status, seen[-1].reason) == ("skipped", NO_TURN)
    assert pool.clock == 20.0
    largest_batch.search(CASE, "job", pool.clock, run)
    assert (seen[-1].status, seen[-1].reason) == ("skipped", NO_TURN)
    assert pool.clock == 20.0, "without time there is no attempt"


def test_a_search_that_is_cut_short_keeps_what_fitted() -> None:
    seen: list[ev.AnyEvent] = []

    class Cut(Memory):
        def ask(
            self, key: object, deadline_s: float, kind: Any, *, case: Case, **rest: Any
        ) -> Answer[Any]:
            if case.batch == 64:
                raise Cancelled("by the user")
            return super().ask(key, deadline_s, kind, case=case, **rest)

    pool = Cut(10**9)
    run = context(pool, pool, Report(machine=machine()), seen.append)
    with pytest.raises(Cancelled):
        largest_batch.search(CASE, "job", 9.0, run)
    (found,) = [event.found for event in seen if isinstance(event, ev.LargestBatchFound)]
    assert (found.batch, found.ended_by) == (32, "cancelled")


def test_the_budget_ends_it_with_what_was_seen() -> None:
    found = search(Memory(10**9, seconds=1.0), until_s=5.0)
    assert found.ended_by == "budget"
    assert found.batch == 8 * 2 ** (len(found.attempts) - 1)
    assert len(found.attempts) == 3, "a fourth might take 2.5 times as long"
    spent = Memory(10, seconds=1.0)
    spent.clock = 6.0
    assert search(spent, until_s=5.0).batch is None


@pytest.mark.parametrize(("import_s", "starts"), [(0.0, 0), (3.0, 1)])
def test_nothing_is_tried_in_less_time_than_a_build_needs(import_s: float, starts: int) -> None:
    class SlowToStart(Memory):
        def start(self, key: object, deadline_s: float) -> None:
            super().start(key, deadline_s)
            self.clock += import_s

    pool = SlowToStart(10**9)
    found = search(pool, until_s=3.5 if import_s else 0.1)
    assert (found.attempts, pool.started) == ([], starts)
    assert largest_texts(found) == ["not tried: lack of time"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("timeout", "not found: lack of time"),
        ("no_memory", "batch none, ended by lack of memory"),
        ("shared_memory", "batch none, ended by lack of shared memory, see docker run --shm-size"),
        ("failed", "not found: failed"),
    ],
)
def test_only_memory_says_that_no_batch_fits(code: str, text: str) -> None:
    found = search(Memory(0, reason=Reason(code, "no")))
    assert largest_texts(found)[0] == text


def test_no_search_beside_other_peoples_processes_unless_forced() -> None:
    here = machine("cuda:0", "cuda:1")
    others = msgspec.structs.replace(here.gpus[0], processes=[GpuProcess(1, None)])
    nobody = msgspec.structs.replace(here.gpus[1], processes=[])
    busy = msgspec.structs.replace(here, gpus=[others, nobody])
    on = [Case("job", f"cuda:{i}", "torch", "fp32", batch=1) for i in range(2)]
    with pytest.raises(UsageError, match=r"another process uses cuda:0.*--force"):
        check_alone(busy, on, forced=False)
    check_alone(busy, on, forced=True)
    check_alone(busy, on[1:], forced=False)
    check_alone(busy, [CASE], forced=False)
    with pytest.raises(UsageError, match="cannot see which processes use cuda:1"):
        check_alone(here, on[1:], forced=False)
