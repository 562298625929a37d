"""Warm-up, lead-in and blocks, on a clock that the test controls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from workbench.contract import Accuracy, DeviceTimer, Task
from workbench.worker import block


class Clock:
    """A clock that only steps advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-8  # a read costs a little, as it does
        return self.now

    def clock_gettime(self, _which: int) -> float:
        return self.now

    CLOCK_BOOTTIME = CLOCK_MONOTONIC = 0


class Steps(Task):
    """Steps of the given lengths in seconds; the last length repeats forever."""

    def __init__(self, clock: Clock, *lengths: float) -> None:
        self.clock = clock
        self.lengths: Iterator[float] = chain(lengths, repeat(lengths[-1]))
        self.steps = 0
        self.finished = 0

    def step(self) -> None:
        self.steps += 1
        self.clock.now += next(self.lengths)

    def finish(self) -> None:
        self.finished += 1

    def check(self) -> Accuracy:
        raise AssertionError("not asked for here")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking = Clock()
    monkeypatch.setattr(block, "time", ticking)
    return ticking


def test_a_sample_is_the_mean_step_with_all_work_finished(clock: Clock) -> None:
    task = Steps(clock, 0.01)
    sample = block.time_sample(task, 5)
    assert sample.host_s == pytest.approx(0.01, rel=1e-4)
    assert (sample.device_s, sample.issue_s) == (None, None)
    assert (task.steps, task.finished) == (5, 1)


class Queued(Steps):
    """Steps that a device carries out later: the host only queues them, at 1 ms each."""

    def __init__(self, clock: Clock, length: float) -> None:
        super().__init__(clock, length)
        self.pending = 0
        self.marks: list[int] = []

    def step(self) -> None:
        self.steps += 1
        self.pending += 1
        self.clock.now += 0.001

    def finish(self) -> None:
        self.finished += 1
        self.clock.now += 0.5 + self.pending * next(self.lengths)  # half a second to wake up
        self.pending = 0

    def device_timer(self) -> DeviceTimer:
        return Marks(self)


class Marks(DeviceTimer):
    def __init__(self, task: Queued) -> None:
        self.task = task

    def start(self) -> None:
        self.begun = self.task.steps

    def stop(self) -> None:
        self.ended = self.task.steps

    def elapsed_s(self) -> float:
        assert self.task.pending == 0, "read before the work was finished"
        return (self.ended - self.begun) * next(self.task.lengths)


@pytest.mark.parametrize(("latency", "counted"), [(False, 0.01), (True, 0.061)])
def test_a_device_is_timed_by_its_own_clock_for_throughput_by_the_hosts_for_latency(
    clock: Clock, latency: bool, counted: float
) -> None:
    task = Queued(clock, 0.01)
    found = block.run_block(
        task, iterations=10, step_s=0.01, seconds=2.0, min_samples=1, latency=latency
    )
    assert found["samples_s"] == pytest.approx([counted] * len(found["samples_s"]), rel=1e-3)
    assert found["clocks"] == {
        "counted": "host" if latency else "device",
        # For throughput one step more fills the queue before the device's first mark.
        "host_s": pytest.approx(0.061 if latency else 0.621 / 11, rel=1e-3),
        "device_s": pytest.approx(0.01, rel=1e-3),
        "issue_s": pytest.approx(0.001, rel=1e-3),
    }


def test_steps_that_wait_have_no_queueing_time(clock: Clock) -> None:
    class Waiting(Queued):
        waits = True

        def step(self) -> None:
            super().step()
            self.finish()

    found = block.run_block(
        Waiting(clock, 0.01), iterations=2, step_s=0.6, seconds=2.0, min_samples=1, latency=False
    )
    assert found["clocks"]["issue_s"] is None
    assert found["clocks"]["host_s"] > 0.5


def test_the_timing_loop_knows_its_own_cost() -> None:
    assert 1e-9 < block.call_overhead_s(calls=1000) < 1e-5


def test_warm_up_ends_when_windows_agree_without_the_first_step(clock: Clock) -> None:
    warmed = block.warm_up(Steps(clock, 0.5, 0.02, 0.015, 0.01), latency=False, seconds=2.0)
    assert warmed.first_s == pytest.approx(0.5, rel=1e-4)
    assert warmed.steady
    assert warmed.step_s == pytest.approx(0.01, rel=1e-3)
    assert warmed.seconds < 2.0


def test_warm_up_of_unsteady_steps_ends_in_time(clock: Clock) -> None:
    growing = [0.001 * 1.3**i for i in range(40)]
    warmed = block.warm_up(Steps(clock, *growing), latency=False, seconds=1.0)
    assert not warmed.steady
    assert warmed.seconds < 2.0


def test_a_step_longer_than_the_warm_up_is_the_only_one(clock: Clock) -> None:
    warmed = block.warm_up(Steps(clock, 3.0), latency=False, seconds=1.0)
    assert (warmed.n, warmed.iterations) == (1, 1)


def test_short_steps_are_grouped_unless_tails_count(clock: Clock) -> None:
    grouped = block.warm_up(Steps(clock, 1e-5), latency=False, seconds=0.1)
    single = block.warm_up(Steps(clock, 1e-5), latency=True, seconds=0.1)
    assert grouped.iterations == pytest.approx(block.MIN_SAMPLE_S / 1e-5, rel=0.02)
    assert single.iterations == 1


def run(clock: Clock, *lengths: float, **changes: float) -> dict:
    wanted = {"iterations": 1, "step_s": lengths[-1], "seconds": 0.2, "min_samples": 1, **changes}
    return block.run_block(Steps(clock, *lengths), **wanted)


def test_two_untimed_samples_lead_a_block_in(clock: Clock) -> None:
    found = run(clock, 0.03, 0.012, 0.01)
    assert found["lead_in_s"] == pytest.approx([0.03, 0.012], rel=1e-4)
    assert found["samples_s"] == pytest.approx([0.01] * 20, rel=1e-4)
    assert not found["gap"]


def test_a_long_step_is_its_own_lead_in(clock: Clock) -> None:
    found = run(clock, 1.5)
    assert found["lead_in_s"] == []
    assert found["samples_s"] == pytest.approx([1.5], rel=1e-4)


def test_on_a_gpu_the_lead_in_lasts_until_the_clock_settles(clock: Clock) -> None:
    rising = [0.02, 0.018, 0.016, 0.014, 0.012, 0.0119, 0.01]
    assert len(run(clock, *rising, settle_s=0.25)["lead_in_s"]) == 6
    assert len(run(clock, *rising)["lead_in_s"]) == 2


def test_a_clock_that_never_settles_does_not_delay_the_block(clock: Clock) -> None:
    found = run(clock, *[0.01, 0.02] * 100, settle_s=0.25)
    assert 2 < len(found["lead_in_s"]) <= 20
    assert found["samples_s"]


def test_tails_get_their_samples_and_a_block_has_an_end(clock: Clock) -> None:
    assert len(run(clock, 0.01, min_samples=100)["samples_s"]) == 100
    assert len(run(clock, 1e-6, seconds=10.0)["samples_s"]) == block.MAX_SAMPLES


def test_a_small_probe_counts_the_fastest_step_and_not_the_first(clock: Clock) -> None:
    assert block.best_step_s(Steps(clock, 0.001, 0.004, 0.002, 0.003), 0.02) == pytest.approx(
        0.002, rel=1e-3
    )
    slow = Steps(clock, 5.0)
    assert block.best_step_s(slow, 0.02) == pytest.approx(5.0)
    assert slow.steps == 1


class Spoiled(Steps):
    """Steps that need what they spoil put back, which takes an hour."""

    restores = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 1e-6)
        self.spoiled = True  # by the check

    def step(self) -> None:
        assert not self.spoiled
        self.spoiled = True
        super().step()

    def restore(self) -> None:
        self.spoiled = False
        self.clock.now += 3600.0


def test_what_steps_change_is_put_back_before_each_of_them_and_never_timed(clock: Clock) -> None:
    task = Spoiled(clock)
    warmed = block.warm_up(task, latency=False, seconds=2e4)
    assert warmed.iterations == 1
    assert warmed.step_s == pytest.approx(1e-6, rel=0.1)
    task.spoiled = True  # by a profile
    found = block.run_block(task, iterations=1, step_s=1e-6, seconds=1e4, min_samples=3)
    assert max(found["samples_s"]) == pytest.approx(1e-6, rel=0.1)
    assert not task.spoiled, "nothing of the last step is left either"


class SpoiledOnDevice(Spoiled, Queued):
    def __init__(self, clock: Clock) -> None:
        Queued.__init__(self, clock, 0.01)
        self.spoiled = False


def test_no_step_fills_the_queue_where_each_needs_fresh_inputs(clock: Clock) -> None:
    task = SpoiledOnDevice(clock)
    found = block.run_block(task, iterations=1, step_s=0.01, seconds=0.0, min_samples=1)
    assert found["samples_s"] == [pytest.approx(0.01, rel=1e-3)]
