"""Between two recorded sizes: what a step would take there, and how far off that may be.

Pure, and only ever between two neighbouring recorded points.  Two shapes are tried: a constant
overhead with work at a constant rate, which is the roofline on one side of its ridge (Williams,
Waterman and Patterson 2009), over operations or over bytes; and a power law, for rates that still
rise.  The one that foretells the recorded points themselves best is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..contract import Work
from ..records.reason import Reason

LEAST_POINTS = 4  # two to interpolate between, and two that can be held out
MOST_ERROR = 0.25

Interval = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """What was recorded at one size: seconds, and their 95 % interval."""

    size: float
    work: Work
    value_s: float
    interval_s: Interval | None


@dataclass(frozen=True)
class Estimate:
    """`error`: the largest relative one, |estimate / recorded - 1|, on held-out points; the
    interval is wider by it."""

    value_s: float
    interval_s: Interval | None
    error: float | None  # None: it was recorded


@dataclass(frozen=True)
class Shape:
    """How time runs between two points: straight over an amount of work, plainly or in logs."""

    amount: Callable[[Work], float | None]
    in_logs: bool

    def between(self, at: Work, below: Work, above: Work, times_s: Interval) -> float | None:
        """Seconds at `at`; None where its work does not lie strictly between the two."""
        x, low, high = self.amount(at), self.amount(below), self.amount(above)
        if x is None or low is None or high is None or not 0 < low < x < high:
            return None
        first, last = times_s
        if self.in_logs:
            share = math.log(x / low) / math.log(high / low)
            found = math.exp((1 - share) * math.log(first) + share * math.log(last))
        else:
            share = (x - low) / (high - low)
            found = (1 - share) * first + share * last
        return min(max(found, min(times_s)), max(times_s))  # rounding must not leave the two


def _flops(work: Work) -> float | None:
    return work.flops


def _bytes(work: Work) -> float | None:
    return work.bytes_moved


SHAPES = (Shape(_flops, False), Shape(_bytes, False), Shape(_flops, True), Shape(_bytes, True))


def estimate(points: Sequence[Point], size: float, work: Work) -> Estimate | Reason:
    """The time of a step of `size` and `work`, from points of one candidate at other sizes."""
    ordered = sorted(points, key=lambda point: point.size)
    if len(ordered) < LEAST_POINTS:
        are = "is" if len(ordered) == 1 else "are"
        text = f"an estimate needs {LEAST_POINTS} recorded sizes, and there {are} {len(ordered)}"
        return Reason("too_few_sizes", text)
    below = [point for point in ordered if point.size < size]
    above = [point for point in ordered if point.size > size]
    if not below or not above:
        return Reason("outside", "it lies outside the recorded sizes")
    errors = {shape: held_out_error(ordered, shape) for shape in SHAPES}
    usable = {shape: error for shape, error in errors.items() if error is not None}
    if not usable:
        return Reason("no_work", "the work of a step does not grow with the size")
    shape = min(usable, key=usable.__getitem__)
    error = usable[shape]
    if error > MOST_ERROR:
        text = f"an estimate of one recorded size from the others is {error:.0%} off"
        return Reason("too_far_off", f"{text}, and {MOST_ERROR:.0%} is the most")
    first, last = below[-1], above[0]
    value = shape.between(work, first.work, last.work, (first.value_s, last.value_s))
    if value is None:
        return Reason("no_work", "its work does not lie between that of its recorded neighbours")
    return Estimate(value, _interval(shape, work, first, last, error), error)


def held_out_error(points: Sequence[Point], shape: Shape) -> float | None:
    """The largest relative error where each inner point is estimated from its neighbours; None
    where the shape cannot be drawn through one of them."""
    worst = 0.0
    for first, held_out, last in zip(points, points[1:], points[2:], strict=False):
        times_s = first.value_s, last.value_s
        found = shape.between(held_out.work, first.work, last.work, times_s)
        if found is None:
            return None
        worst = max(worst, abs(found / held_out.value_s - 1))
    return worst


def _interval(shape: Shape, work: Work, first: Point, last: Point, error: float) -> Interval | None:
    """Through the bounds of both neighbours, then wider by what the estimate may be off."""
    if first.interval_s is None or last.interval_s is None:
        return None
    bounds = zip(first.interval_s, last.interval_s, strict=True)
    low, high = (shape.between(work, first.work, last.work, pair) for pair in bounds)
    if low is None or high is None:
        return None
    return low / (1 + error), high / (1 - error)
