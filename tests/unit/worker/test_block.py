"""Warm-up, lead-in and blocks, on a clock that the test controls."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

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

    def monotonic(self) -> float:
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


WAKE_S = 5e-6  # from the end of the work to the host's next instruction
MARK_S = 2e-6  # for the host to queue a mark


class Queued(Steps):
    """Steps of `launches` equal launches that a device carries out later.

    The host needs 4 us to queue one, and blocks while 1000 of them wait.
    """

    launch_s = 4e-6
    depth = 1000

    def __init__(self, clock: Clock, length: float, launches: int = 25) -> None:
        super().__init__(clock, length)
        self.launches, self.kernel_s = launches, length / launches
        self.ends: list[float] = []  # when each launch that may still wait will be done
        self.held: list[float] = []
        self.timers: list[Marks] = []

    @property
    def free_s(self) -> float:
        """When the device has nothing more to do."""
        return max(self.ends[-1] if self.ends else 0.0, self.clock.now)

    def step(self) -> None:
        self.steps += 1
        for _ in range(self.launches):
            self.queue(self.kernel_s)

    def queue(self, seconds: float) -> None:
        if len(self.ends) >= self.depth:
            self.clock.now = max(self.clock.now, self.ends[-self.depth])
        self.clock.now += self.launch_s
        self.ends = [*self.ends[1 - self.depth :], self.free_s + seconds]

    def finish(self) -> None:
        self.finished += 1
        self.clock.now = self.free_s + WAKE_S

    def device_timer(self) -> DeviceTimer:
        self.timers.append(Marks(self))
        return self.timers[-1]


class Marks(DeviceTimer):
    """Marks that the device reaches in its turn, and holds that keep it busy."""

    holds = True

    def __init__(self, task: Queued) -> None:
        self.task = task
        self.started = 0

    def start(self) -> None:
        self.started += 1
        self.task.clock.now += MARK_S
        self.begun = self.task.free_s

    def stop(self) -> None:
        self.task.clock.now += MARK_S
        self.ended = self.task.free_s

    def elapsed_s(self) -> float:
        assert self.task.free_s <= self.task.clock.now, "read before the work was finished"
        return self.ended - self.begun

    def hold(self, seconds: float) -> bool:
        if self.holds:
            self.task.held.append(seconds)
            self.task.queue(1.5 * seconds)
        return self.holds


def block_of(
    task: Task, step_s: float, *, iterations: int = 1, latency: bool = False, **changes: Any
) -> dict[str, Any]:
    warmed = block.WarmedUp(1, step_s, step_s, step_s, True, iterations)
    wanted = {"seconds": 0.2, "min_samples": 1, "settle_s": 0.0, **changes}
    return block.run_block(block.Prepared(task, warmed, latency), **wanted)


def test_a_device_is_timed_by_its_own_clock_for_throughput(clock: Clock) -> None:
    found = block_of(Queued(clock, 0.3e-3), 0.3e-3, iterations=7)
    assert found["samples_s"] == pytest.approx([0.3e-3] * len(found["samples_s"]), rel=1e-3)
    assert found["clocks"] == {
        "counted": "device",
        "host_s": pytest.approx(0.3e-3, rel=0.02),
        "device_s": pytest.approx(0.3e-3, rel=1e-3),
        "issue_s": pytest.approx(0.1e-3, rel=1e-3),
    }


class Answered(Queued):
    """Steps that wait for their result."""

    waits = finishes = True

    def step(self) -> None:
        super().step()
        self.clock.now = self.free_s + WAKE_S


@pytest.mark.parametrize("kind", [Queued, Answered])
def test_a_latency_ends_with_its_result_and_holds_no_mark_of_the_timer(clock, kind) -> None:
    task = kind(clock, 0.05e-3)
    found = block_of(task, 0.05e-3, latency=True)
    # Queueing goes on while the device works on what is queued: its last kernel is left then.
    alone_s = 25 * task.launch_s + 0.05e-3 / 25 + WAKE_S
    assert found["samples_s"] == pytest.approx([alone_s] * len(found["samples_s"]), rel=2e-3)
    [timer] = task.timers
    assert timer.started == len(found["lead_in_s"]), "marks belong into the lead-in alone"
    clocks = found["clocks"]
    assert (clocks["counted"], clocks["host_s"]) == ("host", pytest.approx(alone_s, rel=2e-3))
    assert clocks["device_s"] == pytest.approx(alone_s, rel=0.1)
    assert (clocks["issue_s"] is None) == task.waits
    if task.finishes:
        assert task.finished == timer.started


def test_the_same_latency_counts_on_a_cpu(clock: Clock) -> None:
    class Hosted(Steps):
        finishes = True

    task = Hosted(clock, 0.01)
    assert block_of(task, 0.01, latency=True)["samples_s"] == pytest.approx([0.01] * 20, rel=1e-4)
    assert task.finished == 0


def test_a_long_latency_may_hold_the_marks(clock: Clock) -> None:
    found = block_of(Answered(clock, 0.5), 0.5, latency=True, seconds=1.0)
    assert found["lead_in_s"] == []
    assert found["clocks"]["device_s"] == pytest.approx(found["clocks"]["host_s"], rel=1e-3)


@pytest.mark.parametrize(
    ("launches", "kernel_s", "shown"),
    [
        (300, 20e-6, True),  # the device needs five times as long as the host
        (2500, 20e-6, False),  # so it does here, but the queue is full and the host waits for it
        (300, 2e-6, True),  # launches limit these two
        (2500, 2e-6, True),
    ],
)
def test_queueing_is_timed_where_the_queue_cannot_have_been_full(
    clock: Clock, launches: int, kernel_s: float, shown: bool
) -> None:
    step_s = launches * max(kernel_s, Queued.launch_s)
    clocks = block_of(Queued(clock, launches * kernel_s, launches), step_s)["clocks"]
    assert clocks["device_s"] == pytest.approx(step_s, rel=0.01)
    if not shown:
        assert clocks["issue_s"] is None
    else:
        assert clocks["issue_s"] == pytest.approx(launches * Queued.launch_s, rel=0.01)


def test_a_short_hold_takes_the_place_of_a_whole_step(clock: Clock) -> None:
    task = Queued(clock, 0.03)
    found = block_of(task, 0.03, seconds=0.3)
    assert found["samples_s"] == pytest.approx([0.03] * 10, rel=1e-3)
    assert task.held == pytest.approx([1e-4] * 10, rel=1e-3), "the time to queue a step"
    assert task.steps == len(found["lead_in_s"]) + 10


@pytest.mark.parametrize(
    ("length", "launches", "holds", "why"),
    [
        (0.03, 25, False, "the timer cannot hold the device"),
        (0.4e-3, 300, True, "launches limit it"),
        (0.03, 1500, True, "the queue is too short to say how long queueing takes"),
    ],
)
def test_otherwise_a_whole_step_fills_the_queue(
    clock, monkeypatch, length, launches, holds, why
) -> None:
    monkeypatch.setattr(Marks, "holds", holds)
    task, step_s = Queued(clock, length, launches), max(length, 4e-6 * launches)
    found = block_of(task, step_s)
    assert task.held == [], why
    assert task.steps == len(found["lead_in_s"]) + 2 * len(found["samples_s"])
    assert found["samples_s"] == pytest.approx([step_s] * len(found["samples_s"]), rel=0.01)


def test_nothing_fills_the_queue_before_steps_that_wait(clock: Clock) -> None:
    task = Answered(clock, 0.03)
    found = block_of(task, 0.03)
    assert task.steps == len(found["lead_in_s"]) + len(found["samples_s"])
    assert task.held == []


def test_a_turn_lasts_from_its_first_lead_in_to_its_last_sample(clock: Clock) -> None:
    clock.now = 1000.0
    task = Queued(clock, 0.03)
    found = block_of(task, 0.03, settle_s=0.25)
    assert found["began_s"] == pytest.approx(1000.0)
    assert found["settled_s"] == pytest.approx(1000.06, abs=1e-3)
    assert found["ended_s"] == clock.now == pytest.approx(1000.27, abs=2e-3)


def test_tiny_steps_on_a_device_are_grouped_by_their_time_in_a_group(clock: Clock) -> None:
    warmed = block.warm_up(Queued(clock, 2e-6, 1), latency=False, seconds=0.1)
    assert warmed.step_s == pytest.approx(11e-6, rel=0.01)  # launch, work and waking up
    assert warmed.iterations == pytest.approx(block.MIN_SAMPLE_S / Queued.launch_s, rel=0.02)


def test_the_timing_loop_knows_its_own_cost() -> None:
    assert 1e-9 < block.call_overhead_s(calls=1000) < 1e-3, "below it even on a busy machine"


def test_warm_up_ends_when_windows_agree_without_the_first_step(clock: Clock) -> None:
    warmed = block.warm_up(Steps(clock, 0.5, 0.02, 0.015, 0.01), latency=False, seconds=2.0)
    assert warmed.first_s == pytest.approx(0.5, rel=1e-4)
    assert warmed.steady
    assert warmed.step_s == pytest.approx(0.01, rel=1e-3)
    assert warmed.seconds < 2.0


def test_a_first_window_like_the_first_step_proves_nothing(clock: Clock) -> None:
    warmed = block.warm_up(Steps(clock, *[0.01] * 11, 0.005), latency=True, seconds=1.0)
    assert warmed.step_s == pytest.approx(0.005, rel=1e-3)


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
    return block_of(Steps(clock, *lengths), lengths[-1], **changes)


def test_two_untimed_samples_lead_a_block_in(clock: Clock) -> None:
    found = run(clock, 0.03, 0.012, 0.01)
    assert found["lead_in_s"] == pytest.approx([0.03, 0.012], rel=1e-4)
    assert found["samples_s"] == pytest.approx([0.01] * 20, rel=1e-4)
    assert not found["gap"]


def test_a_long_step_is_its_own_lead_in(clock: Clock) -> None:
    found = run(clock, 1.5)
    assert found["lead_in_s"] == []
    assert found["samples_s"] == pytest.approx([1.5], rel=1e-4)


class Renewed(Steps):
    """Makes its inputs anew after each step."""

    restore_s = 1.0

    def restore(self) -> None:
        self.clock.now += self.restore_s


def test_inputs_that_take_long_to_make_are_a_lead_in(clock: Clock) -> None:
    task = Renewed(clock, 0.01)
    assert block.warm_up(task, latency=True, seconds=0.1).restore_s == pytest.approx(1.0)
    long = block_of(task, 0.01)
    assert (long["lead_in_s"], long["samples_s"]) == ([], pytest.approx([0.01]))
    task.restore_s = 0.01
    assert len(block_of(task, 0.01)["lead_in_s"]) == 2


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


def test_a_block_ends_with_the_sample_nearest_to_its_length(clock: Clock) -> None:
    counts = [len(run(clock, step_s, seconds=0.1)["samples_s"]) for step_s in (0.03, 0.036, 0.06)]
    assert counts == [3, 3, 2]


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
    found = block_of(task, 1e-6, seconds=1e4, min_samples=3)
    assert max(found["samples_s"]) == pytest.approx(1e-6, rel=0.1)
    assert not task.spoiled, "nothing of the last step is left either"


class SpoiledOnDevice(Spoiled, Queued):
    def __init__(self, clock: Clock) -> None:
        Queued.__init__(self, clock, 0.01)
        self.spoiled = False


def test_no_step_fills_the_queue_where_each_needs_fresh_inputs(clock: Clock) -> None:
    task = SpoiledOnDevice(clock)
    found = block_of(task, 0.01, seconds=0.0)
    assert found["samples_s"] == [pytest.approx(0.01, rel=1e-3)]


@pytest.mark.parametrize("latency", [False, True])
def test_only_whole_rounds_of_loaders_that_work_in_step_are_timed(latency, clock) -> None:
    task = Steps(clock, *[0.02, 0.02, 0.02, 0.34] * 100)
    task.together = 4
    warmed = block.warm_up(task, latency=latency, seconds=2.0)
    assert (warmed.iterations, warmed.step_s) == (4, pytest.approx(0.1, rel=1e-3))
    bounds = {"seconds": 2.0, "min_samples": 3}
    found = block_of(task, 0.1, iterations=4, latency=latency, **bounds)
    assert found["samples_s"] == pytest.approx([0.1] * len(found["samples_s"]), rel=1e-3)
