"""Where the lead changes over a size: which size to race next, and what the races say.

Pure functions of the points measured so far.  The interval is between the largest size at which
the one leads beyond doubt and the smallest at which the other does; both statements hold together
with 95 % (Bonferroni over the most points of a search), and bisection on a logarithmic scale
brings them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .. import units
from ..contender import Contender
from ..measure.statistics import Ratio, median, student_t_quantile
from . import race
from .facts import Crossover, CrossoverPoint
from .scenarios import Size

MOST_POINTS = 12
NEAR = 2.0  # ratios up to this say where the lead changes
CLOSE = 1.2  # sizes nearer than this are one as far as a reader is concerned
LEAST_FOR_A_LINE = 4
KINDS = ("cpu", "gpu")


@dataclass(frozen=True)
class Measured:
    """The contenders that could be picked at one size, from a race of their own."""

    value: float
    contenders: Sequence[Contender]

    def by_name(self, between: str) -> dict[str, Contender]:
        """The best of each kind of device by its name, or every contender by its label."""
        known = {c.case.id: c for c in self.contenders if c.blocks}
        order = race.ranking({case: contender.rounds() for case, contender in known.items()})
        ranked = [known[case] for case in order]
        if between == "contender":
            return {contender.case.label: contender for contender in ranked}
        return {c.case.device_kind: c for c in reversed(ranked)}


@dataclass(frozen=True)
class Change:
    """Two who lead at different sizes, and how they compare at each size that both were in."""

    between: str
    below: str
    above: str
    ratios: Mapping[float, Ratio]  # time of `below` over that of `above`, by size, ascending

    @property
    def bracket(self) -> tuple[float, float]:
        """From where `below` leads beyond doubt to where `above` does, the end of what was
        measured where either never does; wider where sizes contradict one another."""
        ends = min(self.ratios), max(self.ratios)
        above = [value for value, ratio in self.ratios.items() if ratio.low > 1]
        below = [value for value, ratio in self.ratios.items() if ratio.high < 1]
        first, last = min(above, default=ends[1]), max(below, default=ends[0])
        lower = max((value for value in below if value < first), default=ends[0])
        upper = min((value for value in above if value > last), default=ends[1])
        return lower, upper

    def crossing(self) -> tuple[float, tuple[float, float]]:
        """The size at which the lead changes, and its interval: the bracket, and what the scatter
        from size to size leaves open.

        Each size is raced by contenders prepared anew, whose speed differs a little from those
        before; so where several sizes lie near the crossing, a line is put through them
        (logarithms of ratio over size) and its zero takes part, as inverse regression has it
        (Draper and Smith 1998, 3.2, by the delta method).
        """
        lower, upper = self.bracket
        value = _zero({value: ratio.value for value, ratio in self.ratios.items()}) or upper
        near = {v: r.value for v, r in self.ratios.items() if 1 / NEAR <= r.value <= NEAR}
        line = _line(near)
        if line is not None:
            value, (low, high) = line
            lower, upper = min(lower, max(low, min(near))), max(upper, min(high, max(near)))
        return min(max(value, lower), upper), (lower, upper)


def find_change(points: Sequence[Measured]) -> Change | None:
    """The first change of the lead, going up; None where one leads all over."""
    points = sorted((p for p in points if p.contenders), key=lambda point: point.value)
    kinds = {c.case.device_kind for point in points for c in point.contenders}
    between = "device" if len(kinds) == len(KINDS) else "contender"
    named = {point.value: point.by_name(between) for point in points}
    named = {value: found for value, found in named.items() if found}
    if not named:
        return None
    first = leader(named[min(named)], between)
    for value in sorted(named)[1:]:
        other = leader(named[value], between)
        if other == first or first not in named[value]:
            continue
        ratios = _ratios(named, first, other)
        if value in ratios and ratios[value].low > 1:
            return Change(between, first, other, ratios)
    return None


def leader(found: Mapping[str, Contender], between: str) -> str:
    """Who of them is the fastest."""
    if between == "contender":
        return next(iter(found))
    rounds = {name: contender.rounds() for name, contender in found.items()}
    return race.ranking(rounds)[0]


def _ratios(
    named: Mapping[float, Mapping[str, Contender]], below: str, above: str
) -> dict[float, Ratio]:
    ratios = {}
    for value in sorted(named):
        if below in named[value] and above in named[value]:
            one, two = (named[value][name].rounds() for name in (below, above))
            ratio = race.ratio_between(one, two, 1 - race.ALPHA / MOST_POINTS)
            if ratio is not None:
                ratios[value] = ratio
    return ratios


def next_value(points: Sequence[Measured], size: Size, *, whole: bool) -> float | None:
    """The size to race now: both ends, then between two who lead at different sizes; None when
    it is known well enough.

    A point without contenders was tried, and nothing could be measured there.
    """
    tried = {point.value for point in points}
    for end in (size.low, size.high):
        if end not in tried:
            return end
    change = find_change(points)
    if change is None or len(tried) >= MOST_POINTS:
        return None
    lower, upper = change.bracket
    inside = [lower, *sorted(v for v in tried if lower < v < upper), upper]
    widest = max(pairwise(inside), key=lambda pair: pair[1] / pair[0])
    low, high = widest
    if high / low <= CLOSE:
        return None
    middle = math.sqrt(low * high)
    middle = float(round(middle)) if whole else float(f"{middle:.3g}")
    return middle if low < middle < high else None


def conclude(points: Sequence[Measured], parameter: str, *, whole: bool) -> Crossover | None:
    """What the points say; None where fewer than two sizes were measured."""
    points = sorted((p for p in points if p.contenders), key=lambda point: point.value)
    if len(points) < 2:
        return None
    searched = points[0].value, points[-1].value
    change = find_change(points)
    if change is None:
        return _without_change(points, parameter, searched)
    told = _told(points, change)
    crossing, (lower, upper) = change.crossing()
    carried = _zero({p.value: p.ratio_with_transfers for p in told if p.ratio_with_transfers})
    if whole:  # the first size at which the other one leads
        crossing, carried = math.ceil(crossing), carried and math.ceil(carried)
        lower, upper = math.floor(lower), math.ceil(upper)
    return Crossover(
        parameter=parameter,
        between=change.between,
        below=change.below,
        above=change.above,
        value=min(max(crossing, lower), upper),
        ci95=(lower, upper),
        value_with_transfers=carried,
        searched=searched,
        points=told,
    )


def _without_change(
    points: Sequence[Measured], parameter: str, searched: tuple[float, float]
) -> Crossover:
    kinds = {c.case.device_kind for point in points for c in point.contenders}
    between = "device" if len(kinds) == len(KINDS) else "contender"
    named = {point.value: point.by_name(between) for point in points}
    below = leader(named[points[0].value], between)
    told: list[CrossoverPoint] = []
    if between == "device":
        above = next(kind for kind in KINDS if kind != below)
        told = _told(points, Change(between, below, above, _ratios(named, below, above)))
    return Crossover(
        parameter=parameter,
        between=between,
        below=below,
        above=None,
        value=None,
        ci95=None,
        value_with_transfers=None,
        searched=searched,
        points=told,
    )


def _told(points: Sequence[Measured], change: Change) -> list[CrossoverPoint]:
    found = []
    for point in points:
        named = point.by_name(change.between)
        if point.value not in change.ratios:
            continue
        ratio = change.ratios[point.value]
        one, two = named[change.below], named[change.above]
        plain = race.ratio_between(one.rounds(), two.rounds())
        carried = _with_transfers(ratio.value, one, two)
        interval = plain.interval if plain is not None else None
        found.append(CrossoverPoint(point.value, ratio.value, interval, carried))
    return found


def _with_transfers(ratio: float, one: Contender, two: Contender) -> float | None:
    """The ratio had each step brought its operands and taken its result; None: not known, or no
    GPU takes part."""
    times = []
    for contender in (one, two):
        step_s = median(list(contender.rounds().values()))
        if contender.case.device_kind == "cpu" or contender.work.transfers == "step":
            times.append((step_s, step_s))
            continue
        setup = contender.setup
        if contender.work.transfers != "setup" or setup.transfer_s is None:
            return None
        times.append((step_s, step_s + setup.transfer_s + (setup.transfer_out_s or 0.0)))
    if {one.case.device_kind, two.case.device_kind} == {"cpu"}:
        return None
    (one_s, one_carried_s), (two_s, two_carried_s) = times
    return ratio * (one_carried_s / one_s) / (two_carried_s / two_s)


def _zero(ratios: Mapping[float, float]) -> float | None:
    """Where the ratio passes 1, by interpolation between the sizes on either side, both axes
    logarithmic; None where it does not."""
    for (low, before), (high, after) in pairwise(sorted(ratios.items())):
        if before <= 1 < after:
            start, end = math.log(before), math.log(after)
            share = -start / (end - start)
            return math.exp(math.log(low) + share * math.log(high / low))
    return None


def _line(ratios: Mapping[float, float]) -> tuple[float, tuple[float, float]] | None:
    """Where a line through the logarithms is zero, and its 95 % interval; None where the points
    are too few, or do not rise beyond doubt."""
    if len(ratios) < LEAST_FOR_A_LINE:
        return None
    xs, ys = [math.log(v) for v in ratios], [math.log(r) for r in ratios.values()]
    n, x_mean, y_mean = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    residuals = (y - y_mean - slope * (x - x_mean) for x, y in zip(xs, ys, strict=True))
    deviation = math.sqrt(sum(r**2 for r in residuals) / (n - 2))
    t = student_t_quantile(0.975, n - 2)
    if slope <= t * deviation / math.sqrt(spread):
        return None
    zero = x_mean - y_mean / slope
    half = t * deviation / slope * math.sqrt(1 / n + (zero - x_mean) ** 2 / spread)
    return math.exp(zero), (math.exp(zero - half), math.exp(zero + half))


def sentence(found: Crossover) -> str:
    """`The GPU leads from batch 12 (95 %: 9-16); below it the CPU.`"""
    if found.value is None or found.ci95 is None or found.above is None:
        low, high = map(number, found.searched)
        return f"{_who(found.below, first=True)} leads from {found.parameter} {low} to {high}."
    low, high = map(number, found.ci95)
    carried = found.value_with_transfers
    beside = "" if carried is None else f", with transfers in every step from {number(carried)}"
    if found.points and all(p.ratio == p.ratio_with_transfers for p in found.points):
        beside = ", transfers included"
    return (
        f"{_who(found.above, first=True)} leads from {found.parameter} "
        f"{number(found.value)} (95 %: {low}-{high}){beside}; below it {_who(found.below)}."
    )


def number(value: float) -> str:
    """A size in words: `12`, `1,024`, `0.75`."""
    return f"{value:,.0f}" if value >= 100 or value == round(value) else units.significant(value)


def _who(name: str, *, first: bool = False) -> str:
    the = "The" if first else "the"
    return f"{the} {name.upper()}" if name in KINDS else name.replace("/", " ")
