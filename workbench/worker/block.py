"""Running a prepared task in a worker: warm-up, then blocks of timed samples.

A sample is the time of `iterations` steps with all queued work finished, divided by `iterations`.
The host's monotonic clock measures it, and also the device's own clock if there is one.

- For throughput the device's clock counts: it excludes the launch of the first step and the wait
  for the last.
- For latency only the host's clock runs, until the result is there, as a caller sees it.  A sample
  is one step, or `Task.together`.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from ..contract import Accuracy, DeviceTimer, Task

TIMER_SHARE = 1e-3  # largest share of a sample that reading the timer may cost
MIN_SAMPLE_S = 2e-3  # shortest throughput sample; shorter ones only enlarge the journal
AGREEMENT = 0.05  # consecutive warm-up windows that differ by less are steady
SECOND_STEP_S = 0.25  # a warm-up whose first step is shorter always takes a second one
LEAD_IN_SAMPLES = 2  # the first after a resume runs 3-6 % slow, the second about 1 %
LEAD_IN_CAP_S = 0.1  # longer steps need no lead-in, since the slow start is a small part of them
LOOKS = 5  # last samples of a lead-in, each of which begins with an empty queue and shows it fill
# The driver's queue holds about 1000 launches, and a full one blocks the host.  It was not full if
# queueing took less time than 800 launches, or if the device ended right after the last of them.
SURELY_QUEUED_S = 800 * 2.5e-6
ALL_BUT_DONE_S = 1e-3
HIDDEN = 0.5  # share of the device's time up to which a short hold hides queueing
MAX_SAMPLES = 1000  # most samples of one block
PROBE_STEPS, PROBE_MOST_S = 10, 0.5
GAP_S = 0.05  # lead of boot time over monotonic time that means the machine slept


def timer_overhead_s() -> float:
    """Shortest time between two readings of the timer in seconds."""
    gaps = []
    for _ in range(200):
        began = time.perf_counter()
        gaps.append(time.perf_counter() - began)
    return max(min(gaps), 1e-9)


class _Nothing(Task):
    def step(self) -> None:
        pass

    def check(self) -> Accuracy:
        return Accuracy.uncompared("nothing is computed")


def call_overhead_s(calls: int = 20_000) -> float:
    """Seconds that the timing loop itself takes per step, measured with empty steps."""
    return min(time_sample(_Nothing(), calls).host_s for _ in range(3))


@dataclass(frozen=True)
class Sample:
    """Seconds per step."""

    host_s: float  # with a filled queue it includes the rest of the earlier work
    device_s: float | None = None  # None without a device timer
    issue_s: float | None = None  # time to queue a step; None if the sample does not show it


Take = Callable[[], Sample]  # takes the next sample


def time_sample(
    task: Task, iterations: int, timer: DeviceTimer | None = None, *, fill_s: float | None = None
) -> Sample:
    """Time `iterations` steps until all their work is finished; `restore` follows, untimed.

    `fill_s` keeps the device busy before its first mark, for that many seconds or, if 0, for an
    extra step.  An idle device would reach the mark at once, and the time in which the host queues
    the first step would count.
    """
    if timer is None:
        began = time.perf_counter()
        for _ in range(iterations):
            task.step()
        if not task.finishes:
            task.finish()
        ended = time.perf_counter()
        task.restore()
        return Sample(_rounded((ended - began) / iterations))
    if fill_s is not None and not (fill_s and timer.hold(fill_s)):
        task.step()
    timer.start()
    began = time.perf_counter()
    for _ in range(iterations):
        task.step()
    issued = time.perf_counter()
    timer.stop()
    task.finish()
    ended = time.perf_counter()
    by_device_s = timer.elapsed_s()
    task.restore()
    fitted = issued - began <= SURELY_QUEUED_S or ended - issued <= ALL_BUT_DONE_S
    shows_issue = fitted and fill_s is None and not task.waits
    return Sample(
        _rounded((ended - began) / iterations),
        _rounded(by_device_s / iterations),
        _rounded((issued - began) / iterations) if shows_issue else None,
    )


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.7g}")  # the precision of the clock; keeps journals small


@dataclass
class WarmedUp:
    n: int  # steps
    seconds: float  # time of the whole warm-up
    first_s: float  # time of the first step
    step_s: float  # median time of a step in the last window
    steady: bool
    iterations: int  # steps per sample, from here on
    restore_s: float = 0.0  # time to restore the task after a sample


@dataclass(frozen=True)
class Prepared:
    task: Task
    warmed: WarmedUp
    latency: bool


def warm_up(task: Task, *, latency: bool, seconds: float) -> WarmedUp:
    """Step until two consecutive windows agree, for at most `seconds`; choose `iterations`.

    A window is at least three steps and a tenth of `seconds`.  The first step does not count, since
    it pays for lazy allocation, kernel selection and compilation.
    """
    restore_s = _restored_s(task)  # a check has taken steps
    began = time.perf_counter()
    task.activate()
    first = time_sample(task, 1).host_s
    n, medians, current, steady = 1, list[float](), first, False
    spent_s = first
    while not steady and (spent_s + current < seconds or (n == 1 and first < SECOND_STEP_S)):
        window: list[float] = []
        window_began = time.perf_counter()
        while True:
            window.append(time_sample(task, 1).host_s)
            now = time.perf_counter()
            is_whole = len(window) >= 3 and now - window_began >= seconds / 10
            if is_whole or now - began + window[-1] > seconds:
                break
        n, spent_s = n + len(window), now - began
        medians.append(current := median(window))
        steady = len(medians) > 1 and abs(current - medians[-2]) <= AGREEMENT * medians[-2]
    iterations = 1
    if not latency and not task.restores:
        least = max(MIN_SAMPLE_S, timer_overhead_s() / TIMER_SHARE)
        iterations = max(1, round(least / max(current, 1e-9)))
        if iterations > 1 and task.device_timer() is not None:
            # A single step of a few microseconds mostly waits for the device to report its end.
            iterations = max(1, round(least / max(time_sample(task, iterations).host_s, 1e-9)))
    if task.together > 1:
        iterations = math.ceil(iterations / task.together) * task.together
        current = time_sample(task, iterations).host_s
    spent = time.perf_counter() - began
    return WarmedUp(n, spent, first, current, steady, iterations, restore_s)


def _restored_s(task: Task) -> float:
    began = time.perf_counter()
    task.restore()
    return time.perf_counter() - began


def best_step_s(task: Task, seconds: float) -> float:
    """Seconds of the fastest of some steps, after a first one that does not count.

    It takes at least ten steps, unless they take half a second.  Under other load, threads that
    wait for each other can make a step fifty times too long, but hardly ten steps in a row.
    """
    task.activate()
    first_s, began, steps_s = time_sample(task, 1).host_s, time.perf_counter(), list[float]()
    while True:
        best_s, spent_s = min(steps_s, default=first_s), time.perf_counter() - began
        if spent_s + best_s > (PROBE_MOST_S if len(steps_s) < PROBE_STEPS else seconds):
            return best_s
        steps_s.append(time_sample(task, 1).host_s)


def lead_in(take: Take, settle_s: float) -> list[Sample]:
    """Samples that do not count: at least two, then for up to `settle_s` until two in a row agree.

    While its worker was frozen, a GPU has lowered its clocks, and raising them takes time.  Samples
    at idle clocks may agree too, so a lead-in takes at least a fifth of `settle_s`.
    """
    samples: list[Sample] = []
    began = time.perf_counter()
    while True:
        samples.append(take())
        spent = time.perf_counter() - began
        if len(samples) < LEAD_IN_SAMPLES or spent < settle_s / 5:
            continue
        last, before = samples[-1].host_s, samples[-2].host_s
        if spent >= settle_s or abs(last - before) <= AGREEMENT * before:
            return samples


def run_block(
    prepared: Prepared, *, seconds: float, min_samples: int, settle_s: float
) -> dict[str, Any]:
    """Take lead-in samples, then timed ones until `seconds` and `min_samples` are reached.

    Returns the fields of `pool.answers.Block`, except for the loss and the figures of the task.
    """
    task, latency = prepared.task, prepared.latency
    iterations, step_s = prepared.warmed.iterations, prepared.warmed.step_s
    restore_s = _restored_s(task)  # a profile has taken steps
    task.activate()
    began_s = time.monotonic()
    timer = task.device_timer()
    by_device = timer is not None and not latency
    take, untimed = partial(time_sample, task, iterations), list[Sample]()
    # A longer restore serves as the lead-in.
    if restore_s <= LEAD_IN_CAP_S and step_s * iterations <= LEAD_IN_CAP_S:
        untimed = lead_in(partial(take, timer), settle_s)
    looks = untimed[-LOOKS:]
    fills = by_device and not (task.restores or task.finishes) and step_s < LEAD_IN_CAP_S
    fill_s = _fill_s(looks, iterations) if fills else None
    # A device's marks take time that a latency must not include, unless a step is long.
    within = None if latency and looks else timer
    slept_before, settled_s = _sleep_clock(), time.monotonic()
    samples = _samples(partial(take, within, fill_s=fill_s), iterations, seconds, min_samples)
    return {
        "samples_s": [_counted(sample, by_device) for sample in samples],
        "lead_in_s": [_counted(sample, by_device) for sample in untimed],
        "clocks": None if timer is None else _clocks(samples, looks or samples, by_device),
        "gap": _sleep_clock() - slept_before > GAP_S,
        "began_s": began_s,
        "settled_s": settled_s,
        "ended_s": time.monotonic(),
    }


def _samples(take: Take, iterations: int, seconds: float, least: int) -> list[Sample]:
    """At least that many samples; the last is the one whose end is nearest to `seconds`."""
    samples: list[Sample] = []
    began = time.perf_counter()
    while True:
        samples.append(take())
        spent = time.perf_counter() - began
        is_late = spent + samples[-1].host_s * iterations / 2 >= seconds
        if len(samples) >= MAX_SAMPLES or (is_late and len(samples) >= least):
            return samples


def _fill_s(looks: Sequence[Sample], iterations: int) -> float:
    """Seconds to keep the device busy before a sample; 0: for a whole step.

    If launches limit the rate, only a whole step shows the pace of a loop, since a hold hides them.
    """
    issue_s = _issue_s(looks)
    if issue_s is None or iterations > 1 or issue_s > SURELY_QUEUED_S:
        return 0.0
    device_s = median(look.device_s or 0.0 for look in looks)
    return issue_s if issue_s <= HIDDEN * device_s else 0.0


def _counted(sample: Sample, by_device: bool) -> float:
    return sample.device_s if by_device and sample.device_s is not None else sample.host_s


def _clocks(samples: Sequence[Sample], looks: Sequence[Sample], by_device: bool) -> dict[str, Any]:
    """Median times by each clock; `looks` began with an empty queue, and have a device timer."""
    of_host, of_device = (looks, samples) if by_device else (samples, looks)
    return {
        "counted": "device" if by_device else "host",
        "host_s": median(sample.host_s for sample in of_host),
        "device_s": median(sample.device_s or 0.0 for sample in of_device),
        "issue_s": _issue_s(looks),
    }


def _issue_s(looks: Sequence[Sample]) -> float | None:
    """Seconds to queue a step; None unless most looks show it."""
    shown = [look.issue_s for look in looks if look.issue_s is not None]
    return median(shown) if 2 * len(shown) > len(looks) else None


def _sleep_clock() -> float:
    """Seconds that this machine has been suspended; 0 if the platform does not report it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
