"""The samples of one candidate: quantiles, intervals of the median, outliers and drift."""

import math
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations, pairwise

MIN_FOR_OUTLIERS = 6
MIN_SAMPLES_FOR_P99 = 100  # with fewer, it lies between the two largest
MIN_PAIRS = 3  # with fewer, intervals by Student's t are useless
MOST_AUTOCORRELATION = 0.9  # higher estimates from a few rounds are noise
MANY = 10_000  # number of samples from which NumPy sorts them
LONGEST_TREND = 300  # most values whose pairs are all compared
OUTLYING = 3.5  # modified z-score of an outlier (Iglewicz and Hoaglin 1993)
MIN_FOR_TREND = 6  # number of values below which no order is significant at TREND_ALPHA
TREND_ALPHA = 0.01
Interval = tuple[float, float]  # lower and upper bound


class Ascending(array):  # type: ignore[type-arg]
    """Many sorted values."""


def ascending(values: Sequence[float]) -> Sequence[float]:
    """The values sorted; results of this function are returned as they are."""
    if isinstance(values, Ascending):
        return values
    if len(values) < MANY:
        return sorted(values)
    import numpy  # slow to import, and only unusually long runs need it

    ordered = Ascending("d", values)
    numpy.frombuffer(ordered).sort()
    return ordered


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile by linear interpolation (Hyndman and Fan 1996, type 7)."""
    if not values:
        raise ValueError("no samples")
    ordered = ascending(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (ordered[above] - ordered[below]) * (position - below)
    return min(between, ordered[above])  # rounding may exceed it


def median(values: Sequence[float]) -> float:
    """`quantile(values, 0.5)` in half the time, since documents may have 100,000 blocks."""
    if not values:
        raise ValueError("no samples")
    ordered, half = ascending(values), len(values) // 2
    if len(values) % 2:
        return ordered[half]
    below, above = ordered[half - 1 : half + 1]
    return min(below + (above - below) * 0.5, above)


def median_interval(values: Sequence[float]) -> Interval | None:
    """A distribution-free 95 % interval of the median; None below six samples."""
    rank = _rank(len(values))
    if rank is None:
        return None
    ordered = ascending(values)
    return ordered[rank], ordered[-1 - rank]


@cache
def _rank(n: int) -> int | None:
    """The rank from either end, 0 the first, of the order statistics around the median.

    It is the largest i with P(Y <= i) <= 2.5 %, where Y is binomial with n trials of probability
    1/2 (David and Nagaraja 2003, 7.1).
    """
    below, found = 0.0, None
    for i in range(max(0, int(n / 2 - 20 * math.sqrt(n / 2))), n):  # smaller terms vanish
        log_term = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        below += math.exp(log_term + n * math.log(0.5))
        if below > 0.025:
            break
        found = i
    return found


def blocked_interval(
    blocks: Sequence[Sequence[float]], medians: Sequence[float] = ()
) -> Interval | None:
    """A 95 % interval of the median of all samples that allows for their grouping into blocks.

    Samples of one block share the state of the machine, so they prove less than independent ones.
    With enough blocks the interval therefore includes that of their `medians`, which may be given.
    """
    within = median_interval(joined(blocks))
    if within is None:
        return None
    between = median_interval(medians or [median(block) for block in blocks])
    if between is None:
        return within
    return min(within[0], between[0]), max(within[1], between[1])


def joined(blocks: Sequence[Sequence[float]]) -> Sequence[float]:
    """The samples of all blocks, in an array if the blocks are arrays."""
    if len(blocks) == 1:
        return blocks[0]
    if all(isinstance(block, list) for block in blocks):
        return list(chain.from_iterable(blocks))
    return array("d", chain.from_iterable(blocks))


def relative_half_width(center: float, interval: Interval | None) -> float | None:
    """Half the interval's width over its centre; None without an interval."""
    if interval is None or center <= 0:
        return None
    return (interval[1] - interval[0]) / 2 / center


def outliers(values: Sequence[float]) -> list[int]:
    """Positions of values whose modified z-score exceeds 3.5; they are reported, never removed.

    If more than half of the values are equal, the mean absolute deviation replaces the median one
    (Iglewicz and Hoaglin 1993, How to Detect and Handle Outliers).
    """
    if len(values) < MIN_FOR_OUTLIERS:
        return []
    center = median(values)
    if len(values) >= MANY:
        import numpy

        far = numpy.abs(numpy.asarray(values, dtype=float) - center)
        scale = 1.4826 * float(numpy.median(far)) or 1.2533 * float(numpy.mean(far))
        return numpy.flatnonzero(far > OUTLYING * scale).tolist()
    distances = [abs(value - center) for value in values]
    scale = 1.4826 * median(distances) or 1.2533 * math.fsum(distances) / len(distances)
    return [i for i, far in enumerate(distances) if far > OUTLYING * scale]


def autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation, between 0 and 0.9, without bias for uncorrelated values.

    The usual estimate has a bias of -(1 + 4 rho) / n (Kendall 1954), of which 1/n is corrected.
    Correcting all of it would widen paired intervals of six uncorrelated rounds by a factor of 1.6
    and of ten by 1.2, and raise the coverage for correlated rounds by only 3 to 4 points.
    """
    n = len(values)
    mean = math.fsum(values) / n
    from_mean = [value - mean for value in values]
    power = math.fsum(x * x for x in from_mean)
    if power <= n * (1e-12 * max(map(abs, values))) ** 2:
        return 0.0  # all equal, up to the rounding of their mean
    lagged = math.fsum(x * y for x, y in pairwise(from_mean))
    return min(max(lagged / power + 1 / n, 0.0), MOST_AUTOCORRELATION)


def drift_factor(values: Sequence[float]) -> float:
    """Factor by which autocorrelation increases the error of the mean (Bayley and Hammersley 1946,
    for a first-order process); 1 below five values."""
    alike = autocorrelation(values) if len(values) >= 5 else 0.0
    return math.sqrt((1 + alike) / (1 - alike))


def trend(values: Sequence[float]) -> float:
    """Relative change from the first third of the values to the last.

    0 unless Kendall's rank test against time rejects at 1 % (Mann 1945; normal approximation).
    """
    if len(values) > LONGEST_TREND:  # medians of groups of neighbours show the same trend
        size = math.ceil(len(values) / LONGEST_TREND)
        starts = range(0, len(values), size)
        values = [median(values[start : start + size]) for start in starts]
    n = len(values)
    if n < MIN_FOR_TREND:
        return 0.0
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    z = max(0, abs(score) - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    if math.erfc(z / math.sqrt(2)) > TREND_ALPHA:
        return 0.0
    third = n // 3
    return median(values[-third:]) / median(values[:third]) - 1
