"""Estimates of the time of a step between two recorded sizes, with their error.

An estimate uses the two neighbouring recorded sizes only.  Two models are tried, over operations
and over bytes: a constant overhead plus work at a constant rate, which is the roofline on one side
of its ridge (Williams, Waterman and Patterson 2009), and a power law, for rates that still rise.
The model with the smallest error on held-out recorded sizes is used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..contract import Work
from ..records.reason import Reason
from ..stats.samples import Interval

LEAST_POINTS = 4  # two to interpolate between, and two to hold out
MOST_ERROR = 0.25  # relative, on held-out recorded sizes


@dataclass(frozen=True)
class Point:
    """The recorded time at one size."""

    work: Work
    value_s: float  # seconds per step
    interval_s: Interval | None  # 95 % interval of `value_s`


@dataclass(frozen=True)
class Estimate:
    value_s: float  # seconds per step
    interval_s: Interval | None  # 95 % interval of `value_s`, widened by `error`
    error: float  # largest |estimate / recorded - 1| on held-out points


@dataclass(frozen=True)
class Model:
    """Time as a linear function of an amount of work between two points, or of their logarithms."""

    amount: str  # a field of `Work`
    in_logs: bool

    def place(self, at: Work, below: Work, above: Work) -> float | None:
        """The place of `at` between the two, 0 to 1; None if it is not strictly between them."""
        x, low, high = (getattr(each, self.amount) for each in (at, below, above))
        if None in (x, low, high) or not 0 < low < x < high:
            return None
        if self.in_logs:
            return math.log(x / low) / math.log(high / low)
        return float((x - low) / (high - low))

    def seconds(self, place: float, first_s: float, last_s: float) -> float:
        """The time at this place between two times."""
        time_s = (1 - place) * first_s + place * last_s
        if self.in_logs:
            time_s = math.pow(first_s, 1 - place) * math.pow(last_s, place)
        return min(max(time_s, min(first_s, last_s)), max(first_s, last_s))  # despite rounding


MODELS = tuple(Model(amount, logs) for logs in (False, True) for amount in ("flops", "bytes_moved"))


def estimate(points: Mapping[float, Point], size: float, work: Work) -> Estimate | Reason:
    """The time of a step of `size` and `work` from points of the same candidate at other sizes."""
    ordered = [points[each] for each in sorted(points)]
    if len(ordered) < LEAST_POINTS:
        are = "is" if len(ordered) == 1 else "are"
        text = f"an estimate needs {LEAST_POINTS} recorded sizes; there {are} {len(ordered)}"
        return Reason("too_few_sizes", text)
    if not min(points) < size < max(points):
        return Reason("outside", "it is outside the recorded sizes")
    first = points[max(each for each in points if each < size)]
    last = points[min(each for each in points if each > size)]
    places = {model: model.place(work, first.work, last.work) for model in MODELS}
    usable = {
        model: (error, place)
        for model, place in places.items()
        if place is not None and (error := held_out_error(ordered, model)) is not None
    }
    if not usable:
        return Reason("no_work", "the work of a step does not grow with the size")
    model = min(usable, key=lambda model: usable[model][0])
    error, place = usable[model]
    if error > MOST_ERROR:
        text = f"estimates of its recorded sizes are up to {error:.0%} off"
        return Reason("too_far_off", f"{text}, more than {MOST_ERROR:.0%}")
    interval = None
    if first.interval_s is not None and last.interval_s is not None:
        bounds = zip(first.interval_s, last.interval_s, strict=True)
        low, high = (model.seconds(place, *pair) for pair in bounds)
        interval = low / (1 + error), high / (1 - error)
    return Estimate(model.seconds(place, first.value_s, last.value_s), interval, error)


def held_out_error(points: Sequence[Point], model: Model) -> float | None:
    """The largest error at inner points, estimated from their neighbours; None if one cannot be."""
    worst = 0.0
    for first, held_out, last in zip(points, points[1:], points[2:], strict=False):
        place = model.place(held_out.work, first.work, last.work)
        if place is None:
            return None
        estimated_s = model.seconds(place, first.value_s, last.value_s)
        worst = max(worst, abs(estimated_s / held_out.value_s - 1))
    return worst
