"""The size at which the lead changes, from races at several sizes.

Pure functions of the points measured so far.  The lead changes between the largest size at which
one leads beyond doubt and the smallest at which the other does.  The intervals of all sizes hold
at 95% together (Bonferroni over the most points of a search).  `engine.crossovers` adds sizes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from statistics import fmean, linear_regression

from msgspec.structs import replace

from ..records.verdict import Crossover, CrossoverPoint
from ..report.candidate import Candidate, ranked
from ..stats import ratios
from ..stats.objectives import OF_A_STEP
from ..stats.paired import Ratio, student_t_quantile
from ..stats.samples import Interval, median
from ..text import units

MOST_POINTS = 12
NEAR = 2.0  # largest ratio that helps to locate the change
GAP = 3.0  # factor between neighbouring sizes beyond which a size between them is raced
LEAST_FOR_A_LINE = 4  # points
KINDS = ("cpu", "gpu")

# Size, ascending, to the measured candidates by name, fastest first.
Named = Mapping[float, Mapping[str, Candidate]]


@dataclass(frozen=True)
class Measured:
    """The candidates that could be picked at one size, each size a race of its own."""

    value: float
    candidates: Sequence[Candidate]

    def by_name(self, between: str) -> dict[str, Candidate]:
        """The best of each kind of device, or every candidate by its label, fastest first."""
        found: dict[str, Candidate] = {}
        for candidate in ranked(self.candidates):
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
    bracket: Interval
    back: Interval | None  # sizes between which `below` takes the lead again
    by_size: Mapping[float, float]  # time of `below` over that of `above`, sizes ascending

    @classmethod
    def of(cls, one: str, two: str, named: Named) -> "Change | None":
        """The first change of the lead between these two from small to large sizes.  Sizes that
        contradict one another widen the bracket, unless the lead changes back for good."""
        found = {value: _ratio(here, one, two) for value, here in named.items()}
        known = {value: ratio for value, ratio in found.items() if ratio is not None}
        proven = {v: ratio for v, ratio in known.items() if ratio.high < 1 or ratio.low > 1}
        leads = {v: one if ratio.high < 1 else two for v, ratio in proven.items()}
        changes = (pair for pair in pairwise(leads) if leads[pair[0]] != leads[pair[1]])
        if (pair := next(changes, None)) is None:
            return None
        lower, (below, above) = pair[0], (leads[size] for size in pair)
        last = max(size for size in leads if leads[size] == above)
        last_below = max(size for size in leads if leads[size] == below and size < last)
        upper = min(size for size in leads if size > last_below)
        again = min((size for size in leads if size > last), default=None)
        sign = 1 if below == one else -1
        by_size = {v: ratio.value**sign for v, ratio in known.items()}
        return cls(below, above, (lower, upper), None if again is None else (last, again), by_size)

    def crossing(self) -> tuple[float, Interval]:
        """The size at which the lead changes, and its interval.

        The interval covers the bracket and the scatter from size to size, since candidates are
        prepared anew for each.  Where several sizes lie near the crossing, inverse regression finds
        the zero of log ratio over log size (Draper and Smith 1998, 3.2, delta method).
        """
        lower, upper = self.bracket
        end = math.inf if self.back is None else self.back[0]
        known = {v: ratio for v, ratio in self.by_size.items() if v <= end}
        inside = {v: r for v, r in known.items() if lower <= v <= upper}
        value = _zero(inside) or upper
        near = {v: r for v, r in known.items() if 1 / NEAR <= r <= NEAR}
        line = _line(near)
        if line is not None:
            value, (low, high) = line
            lower, upper = min(lower, max(low, min(near))), max(upper, min(high, max(near)))
        return min(max(value, lower), upper), (lower, upper)


def find_change(points: Sequence[Measured]) -> Change | None:
    """The first change of the lead between two candidates or kinds of device; None without one."""
    between, named = _named(points)
    fastest = dict.fromkeys(next(iter(found)) for found in named.values())
    changes = (
        change
        for one, two in combinations(KINDS if between == "device" else fastest, 2)
        if (change := Change.of(one, two, named)) is not None
        and not _is_behind(named[change.bracket[0]], change.below)
        and not _is_behind(named[change.bracket[1]], change.above)
    )
    return min(changes, key=lambda change: change.bracket, default=None)


def leaders(points: Sequence[Measured]) -> set[str]:
    """Labels of the candidates that are fastest at some size on their kind of device."""
    return {c.case.label for point in points for c in point.by_name("device").values()}


def _named(points: Sequence[Measured]) -> tuple[str, Named]:
    """Whether devices or candidates are compared, and the measured ones by name at each size."""
    kinds = {c.case.device_kind for point in points for c in point.candidates}
    between = "device" if kinds == set(KINDS) else "candidate"
    ordered = sorted(points, key=lambda point: point.value)
    return between, {p.value: found for p in ordered if (found := p.by_name(between))}


def _ratio(found: Mapping[str, Candidate], one: str, two: str) -> Ratio | None:
    """Time of `one` over that of `two` at a size, with an interval for all sizes together."""
    if one not in found or two not in found:
        return None
    first, second = found[one].rounds(), found[two].rounds()
    confidence = 1 - ratios.ALPHA / MOST_POINTS
    return ratios.ratio_between(first, second, confidence, of_start_ups=confidence)


def _is_behind(found: Mapping[str, Candidate], name: str) -> bool:
    """Whether the fastest at a size leads `name` beyond doubt."""
    ratio = _ratio(found, next(iter(found)), name)
    return ratio is not None and ratio.high < 1


def conclude(points: Sequence[Measured], parameter: str, *, whole: bool) -> Crossover | None:
    """The crossover that the points show; None where fewer than two sizes were measured."""
    between, named = _named(points)
    if len(named) < 2:
        return None
    searched, unknown = (min(named), max(named)), (None, None, None, None, None)
    unclear = Crossover(parameter, between, *unknown, searched, points=[], sizes=list(named))
    if len(names := {name for here in named.values() for name in here}) == 1:
        return replace(unclear, below=names.pop())
    if (change := find_change(points)) is None:
        return _unchanged(unclear, named)
    value, (lower, upper) = change.crossing()
    smaller = [size for size in named if size < change.bracket[0]]
    larger = [size for size in named if size > change.bracket[1]]
    pairs = _paired(named, change.below, change.above)
    carried = _zero({p.value: p.ratio_with_transfers for p in pairs if p.ratio_with_transfers})
    if whole:  # the first whole size at which the other leads
        value, carried = math.ceil(value), carried and math.ceil(carried)
        lower, upper = math.floor(lower), math.ceil(upper)
    return replace(
        unclear,
        below=change.below,
        above=change.above,
        value=value,
        ci95=(lower, upper),
        value_with_transfers=carried,
        searched=(pairs[0].value, pairs[-1].value),
        points=pairs,
        back=change.back,
        before=_another(named, reversed(smaller), change.below),
        then=None if change.back else _another(named, larger, change.above),
    )


def _unchanged(unclear: Crossover, named: Named) -> Crossover:
    """The crossover where one leads all along, as far as that is proven."""
    if not (run := _longest_lead(named)):
        return unclear
    below = next(iter(named[run[0]]))
    pairs = _paired(named, below, *(set(KINDS) - {below})) if unclear.between == "device" else []
    return replace(
        unclear,
        below=below,
        points=pairs,
        leads=(run[0], run[-1]),
        before=_another(named, reversed([v for v in named if v < run[0]]), below),
        then=_another(named, [v for v in named if v > run[-1]], below),
    )


def _another(named: Named, sizes: Iterable[float], name: str) -> tuple[float, str] | None:
    """The first of the sizes at which another one than `name` leads, and its name."""
    for size in sizes:
        if name not in named[size] or _is_behind(named[size], name):
            return size, next(iter(named[size]))
    return None


def _longest_lead(named: Named) -> list[float]:
    """The longest run of sizes at which the same one leads beyond doubt."""
    proven = {
        value: first
        for value, (first, *others) in named.items()
        if others and _is_behind(named[value], others[0])
    }
    runs = [list(run) for leader, run in groupby(named, key=proven.get) if leader is not None]
    return max(runs, key=len, default=[])


def _paired(named: Named, below: str, above: str) -> list[CrossoverPoint]:
    points = []
    for value, found in named.items():
        if below in found and above in found:
            one, two = found[below], found[above]
            ratio = ratios.ratio_between(one.rounds(), two.rounds())
            if ratio is not None:
                carried = _with_transfers(ratio.value, one, two)
                points.append(CrossoverPoint(value, ratio.value, ratio.interval, carried))
    return points


def _with_transfers(ratio: float, one: Candidate, two: Candidate) -> float | None:
    """The ratio if every step copied to and from the device; None where that is unknown."""
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


def _line(by_size: Mapping[float, float]) -> tuple[float, Interval] | None:
    """The zero of a line through the logarithms and its 95% interval; None if it may not rise."""
    if len(by_size) < LEAST_FOR_A_LINE:
        return None
    xs, ys = [math.log(v) for v in by_size], [math.log(r) for r in by_size.values()]
    n, x_mean, (slope, intercept) = len(xs), fmean(xs), linear_regression(xs, ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    residuals = (y - intercept - slope * x for x, y in zip(xs, ys, strict=True))
    deviation = math.sqrt(sum(r**2 for r in residuals) / (n - 2))
    t = student_t_quantile(0.975, n - 2)
    if slope <= t * deviation / math.sqrt(spread):
        return None
    zero = -intercept / slope
    half = t * deviation / slope * math.sqrt(1 / n + (zero - x_mean) ** 2 / spread)
    ends = (min(max(x, min(xs) - 1), max(xs) + 1) for x in (zero, zero - half, zero + half))
    value, low, high = map(math.exp, ends)
    return value, (low, high)


def sentence(crossover: Crossover) -> str:
    """`The GPU leads from batch 12 (95% CI 9-16), the CPU below it.`, and what limits that."""
    if crossover.value is None or crossover.ci95 is None or crossover.below is None:
        sentences = _without_value(crossover)
    else:
        sentences = _with_value(crossover, crossover.value, crossover.ci95)
    found = list(sentences)
    # Another change may hide in a wide gap.
    wide = [f"{number(a)} and {number(b)}" for a, b in pairwise(crossover.sizes) if b / a > GAP]
    if wide:
        found.append(f"No size was compared between {', or between '.join(wide)}.")
    return " ".join(map(units.as_sentence, found))


def _with_value(crossover: Crossover, value: float, ci95: Interval) -> Iterator[str]:
    size, (low, high) = crossover.parameter, map(number, ci95)
    below, above = _subject(crossover.below), _subject(crossover.above)
    yield f"{above} leads from {size} {number(value)} (95% CI {low}-{high}), {below} below it."
    if crossover.points and all(p.ratio == p.ratio_with_transfers for p in crossover.points):
        yield "Transfers are included."
    elif crossover.value_with_transfers is not None:
        carried = number(crossover.value_with_transfers)
        yield f"With transfers in every step it leads from {carried}."
    elif crossover.points and all(
        (p.ratio_with_transfers or math.inf) <= 1 for p in crossover.points
    ):
        yield "With transfers in every step it leads at no compared size."
    if crossover.back is not None:
        last, again = map(number, crossover.back)
        yield f"Between {size} {last} and {again} {below} takes the lead again."
    yield from _others(crossover)


def _others(crossover: Crossover) -> Iterator[str]:
    for place, leader in filter(None, (crossover.before, crossover.then)):
        yield f"At {crossover.parameter} {number(place)} {_subject(leader)} leads."


def _without_value(crossover: Crossover) -> Iterator[str]:
    size, (low, high) = crossover.parameter, map(number, crossover.searched)
    who = _subject(crossover.below)
    if crossover.below is None:
        yield f"From {size} {low} to {high} there is no clear lead."
        return
    if crossover.leads is None:
        yield f"Only {who} could be picked from {size} {low} to {high}."
        return
    first, last = map(number, crossover.leads)
    if first == last:
        yield f"{who} leads at {size} {first}."
    else:
        yield f"{who} leads at every compared size from {size} {first} to {last}."
    yield from _others(crossover)
    if crossover.leads != crossover.searched:
        where = f"Elsewhere between {size} {low} and {high}"
        yield f"{where} its lead is not proven for all sizes at once."


def number(value: float) -> str:
    """A size: `12`, `1,024`, `0.75`."""
    return f"{value:,.0f}" if value >= 100 or value == round(value) else units.significant(value)


def _subject(name: str | None) -> str:
    """`the GPU`, or a candidate's name."""
    return f"the {name.upper()}" if name in KINDS else (name or "none").replace("/", " ")
