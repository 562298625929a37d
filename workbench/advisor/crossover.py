"""The size at which the lead changes, from races at several sizes.

Pure functions of the points measured so far.  The lead changes between the largest size at which
one leads beyond doubt and the smallest at which the other does.  All sizes hold together with 95%
(Bonferroni over the most points of a search).  `crossover_search` narrows the two down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ..records.verdict import Crossover, CrossoverPoint
from ..report.candidate import Candidate
from ..stats import ratios
from ..stats.objectives import OF_A_STEP
from ..stats.samples import Ratio, median, student_t_quantile
from .comparison import ranked

MOST_POINTS = 12
NEAR = 2.0  # largest ratio that helps to locate the change
GAP = 3.0  # factor between sizes beyond which another one is raced; halved, it leaves 1.7 to 3
LEAST_FOR_A_LINE = 4  # points
KINDS = ("cpu", "gpu")


@dataclass(frozen=True)
class Measured:
    """The candidates that could be picked at one size, each size a race of its own."""

    value: float
    candidates: Sequence[Candidate]

    def by_name(self, between: str) -> dict[str, Candidate]:
        """The best of each kind of device by its name, or every candidate by its label, fastest
        first."""
        found: dict[str, Candidate] = {}
        for candidate in ranked(c for c in self.candidates if c.blocks):
            case = candidate.case
            name = case.label if between == "candidate" else case.device_kind
            found.setdefault(name, candidate)
        return found

    def behind(self) -> dict[str, float]:
        """Time of each candidate over that of the best on its kind of device, by label."""
        named, best = self.by_name("candidate"), self.by_name("device")
        return {
            label: ratios.relative(c.rounds(), best[c.case.device_kind].rounds())
            for label, c in named.items()
        }


@dataclass(frozen=True)
class Change:
    """The lead goes from `below` to `above` within `bracket`, whose ends are beyond doubt."""

    below: str
    above: str
    bracket: tuple[float, float]
    back: tuple[float, float] | None  # sizes between which `below` takes the lead again


@dataclass(frozen=True)
class Duel:
    """Two candidates, or the best of two kinds of device, at several sizes."""

    between: str  # "device" or "candidate"
    one: str
    two: str
    by_size: Mapping[float, Ratio]  # time of `one` over that of `two`, sizes ascending

    @property
    def leads(self) -> dict[float, str]:
        """The one that leads beyond doubt, by size; sizes without one are missing."""
        found = {v: self.one for v, ratio in self.by_size.items() if ratio.high < 1}
        found |= {v: self.two for v, ratio in self.by_size.items() if ratio.low > 1}
        return dict(sorted(found.items()))

    def change(self) -> Change | None:
        """The first change from small to large sizes.  Sizes that contradict one another widen the
        bracket, unless the lead changes back for good."""
        leads = self.leads
        pairs = (pair for pair in pairwise(leads) if leads[pair[0]] != leads[pair[1]])
        if (pair := next(pairs, None)) is None:
            return None
        below, above = leads[pair[0]], leads[pair[1]]
        last = max(value for value, name in leads.items() if name == above)
        known = [value for value in leads if value <= last]
        first_above = min(value for value in known if leads[value] == above)
        last_below = max(value for value in known if leads[value] == below)
        lower = max(v for v in known if leads[v] == below and v < first_above)
        upper = min(v for v in known if leads[v] == above and v > last_below)
        again = min((value for value in leads if value > last), default=None)
        return Change(below, above, (lower, upper), None if again is None else (last, again))

    def over(self, below: str) -> dict[float, float]:
        """Time of `below` over that of the other, by size."""
        sign = 1 if below == self.one else -1
        return {value: ratio.value**sign for value, ratio in self.by_size.items()}

    def crossing(self, change: Change) -> tuple[float, tuple[float, float]]:
        """The size at which the lead changes, and its interval.

        The interval covers the bracket and the scatter from size to size: candidates are prepared
        anew for each size, and their speed differs a little.  Where several sizes lie near the
        crossing, a line through them (logarithms of ratio over size) is solved for zero by inverse
        regression (Draper and Smith 1998, 3.2, delta method).
        """
        lower, upper = change.bracket
        end = math.inf if change.back is None else change.back[0]
        known = {v: r for v, r in self.over(change.below).items() if v <= end}
        inside = {v: r for v, r in known.items() if lower <= v <= upper}
        value = _zero(inside) or upper
        near = {v: r for v, r in known.items() if 1 / NEAR <= r <= NEAR}
        line = _line(near)
        if line is not None:
            value, (low, high) = line
            lower, upper = min(lower, max(low, min(near))), max(upper, min(high, max(near)))
        return min(max(value, lower), upper), (lower, upper)


def find_duel(points: Sequence[Measured]) -> Duel | None:
    """The two to compare over the sizes; None where one leads at every measured size or is the only
    one."""
    named = _named(points)
    if not named:
        return None
    if kinds_of(points) == set(KINDS):
        return Duel("device", *KINDS, _ratios(named, *KINDS))
    first = next(iter(named[min(named)]))
    for value in sorted(named)[1:]:
        other = next(iter(named[value]))
        if other == first or first not in named[value]:
            continue
        duel = Duel("candidate", first, other, _ratios(named, first, other))
        if duel.leads.get(value) == other:
            return duel
    return None


def find_change(points: Sequence[Measured]) -> Change | None:
    duel = find_duel(points)
    return None if duel is None else duel.change()


def kinds_of(points: Sequence[Measured]) -> set[str]:
    return {c.case.device_kind for point in points for c in point.candidates}


def leaders(points: Sequence[Measured]) -> set[str]:
    """Labels of the candidates that are fastest at some size, of all or of their kind of device."""
    found = set()
    for point in points:
        if point.candidates:
            found.add(next(iter(point.by_name("candidate"))))
            found |= {candidate.case.label for candidate in point.by_name("device").values()}
    return found


def _named(points: Sequence[Measured]) -> dict[float, dict[str, Candidate]]:
    """The measured ones by size, fastest first."""
    between = "device" if kinds_of(points) == set(KINDS) else "candidate"
    ordered = sorted((p for p in points if p.candidates), key=lambda point: point.value)
    return {p.value: found for p in ordered if (found := p.by_name(between))}


def _ratios(
    named: Mapping[float, Mapping[str, Candidate]], one: str, two: str
) -> dict[float, Ratio]:
    found = {}
    for value in sorted(named):
        if one in named[value] and two in named[value]:
            first, second = (named[value][name].rounds() for name in (one, two))
            ratio = ratios.ratio_between(first, second, 1 - ratios.ALPHA / MOST_POINTS)
            if ratio is not None:
                found[value] = ratio
    return found


def conclude(points: Sequence[Measured], parameter: str, *, whole: bool) -> Crossover | None:
    """The crossover that the points show; None where fewer than two sizes were measured."""
    if len(_named(points)) < 2:
        return None
    duel, change = find_duel(points), find_change(points)
    if duel is None or change is None:
        return _without_change(points, parameter)
    value, (lower, upper) = duel.crossing(change)
    pairs = _paired(points, duel.between, change.below, change.above)
    carried = _zero({p.value: p.ratio_with_transfers for p in pairs if p.ratio_with_transfers})
    if whole:  # the first whole size at which the other leads
        value, carried = math.ceil(value), carried and math.ceil(carried)
        lower, upper = math.floor(lower), math.ceil(upper)
    return Crossover(
        parameter=parameter,
        between=duel.between,
        below=change.below,
        above=change.above,
        value=min(max(value, lower), upper),
        ci95=(lower, upper),
        value_with_transfers=carried,
        searched=(pairs[0].value, pairs[-1].value),
        points=pairs,
        back=change.back,
        sizes=list(_named(points)),
        then=None if change.back else _successor(points, duel.between, change),
    )


def _successor(points: Sequence[Measured], kind: str, change: Change) -> tuple[float, str] | None:
    """The first size beyond a change at which `above` no longer leads or cannot be picked, and the
    one that leads there."""
    for value, found in _named(points).items():
        first = next(iter(found))
        if value <= change.bracket[1] or first == change.above:
            continue
        pair = Duel(kind, first, change.above, _ratios({value: found}, first, change.above))
        if change.above not in found or pair.leads.get(value) == first:
            return value, first
    return None


def _without_change(points: Sequence[Measured], parameter: str) -> Crossover:
    """The lead never changes: one leads at some sizes or all, where the points prove it."""
    named = _named(points)
    by_device = kinds_of(points) == set(KINDS)
    proven: dict[float, str] = {}
    for value, found in named.items():
        if len(found) > 1:
            first, second, *_ = found
            ratio = _ratios({value: found}, first, second).get(value)
            if ratio is not None and ratio.high < 1:
                proven[value] = first
    run = _longest_run(list(named), proven)
    below = proven[run[0]] if run else None
    pairs: list[CrossoverPoint] = []
    if by_device and below is not None:
        pairs = _paired(points, "device", below, next(kind for kind in KINDS if kind != below))
    return Crossover(
        parameter=parameter,
        between="device" if by_device else "candidate",
        below=below,
        above=None,
        value=None,
        ci95=None,
        value_with_transfers=None,
        searched=(min(named), max(named)),
        points=pairs,
        leads=(run[0], run[-1]) if run else None,
        sizes=list(named),
    )


def _longest_run(values: Sequence[float], proven: Mapping[float, str]) -> list[float]:
    """The longest run of sizes at which the same one is proven to lead."""
    best: list[float] = []
    for _, group in groupby(values, key=proven.get):
        run = list(group)
        if run[0] in proven and len(run) > len(best):
            best = run
    return best


def _paired(points: Sequence[Measured], kind: str, below: str, above: str) -> list[CrossoverPoint]:
    found = []
    for point in sorted(points, key=lambda point: point.value):
        named = point.by_name(kind) if point.candidates else {}
        if below not in named or above not in named:
            continue
        one, two = named[below], named[above]
        ratio = ratios.ratio_between(one.rounds(), two.rounds())
        if ratio is not None:
            carried = _with_transfers(ratio.value, one, two)
            found.append(CrossoverPoint(point.value, ratio.value, ratio.interval, carried))
    return found


def _with_transfers(ratio: float, one: Candidate, two: Candidate) -> float | None:
    """The ratio if every step included the copies to and from the device.  None if that is unknown,
    if the row does not compare steps, or without a GPU."""
    kinds = {one.case.device_kind, two.case.device_kind}
    if one.objective not in OF_A_STEP or kinds == {"cpu"}:
        return None
    longer = []
    for candidate in (one, two):
        setup, step_s = candidate.setup, median(list(candidate.rounds().values()))
        if candidate.case.device_kind == "cpu" or candidate.work.transfers == "step":
            longer.append(1.0)
        elif candidate.work.transfers != "setup" or setup.transfer_s is None:
            return None
        else:
            copies_s = setup.transfer_s + (setup.transfer_out_s or 0.0)
            longer.append((step_s + copies_s) / step_s)
    return ratio * longer[0] / longer[1]


def _zero(by_size: Mapping[float, float]) -> float | None:
    """The size at which the ratio passes 1, interpolated on logarithmic axes; None without one."""
    for (low, before), (high, after) in pairwise(sorted(by_size.items())):
        if before <= 1 < after:
            start, end = math.log(before), math.log(after)
            share = -start / (end - start)
            return math.exp(math.log(low) + share * math.log(high / low))
    return None


def _line(by_size: Mapping[float, float]) -> tuple[float, tuple[float, float]] | None:
    """The zero of a line through the logarithms and its 95% interval; None where the points are too
    few or do not rise beyond doubt."""
    if len(by_size) < LEAST_FOR_A_LINE:
        return None
    xs, ys = [math.log(v) for v in by_size], [math.log(r) for r in by_size.values()]
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
    ends = (min(max(x, min(xs) - 1), max(xs) + 1) for x in (zero, zero - half, zero + half))
    value, low, high = map(math.exp, ends)
    return value, (low, high)
