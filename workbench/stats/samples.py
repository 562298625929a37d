"""Medians, intervals and paired ratios of raw samples.

Decisions rest on the paired ratio: two candidates measured in the same rounds share the machine's
drift, so their ratio within a round is far steadier than either time.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, combinations, pairwise
from statistics import NormalDist

MIN_FOR_OUTLIERS = 6
MIN_SAMPLES_FOR_P99 = 100
MIN_PAIRS = 3  # with fewer, intervals by Student's t are useless
TRIM = 0.2  # share of pairs cut off at each end
# Trimming five or six pairs would leave three or four.  Without bursts their few degrees of freedom
# would make the interval up to 1.4 times as wide at 95 %, and 2.8 times over all looks.
TRIMMED_FROM = 7
MOST_AUTOCORRELATION = 0.9  # higher estimates from a few rounds are noise
MANY = 10_000  # number of samples from which NumPy sorts them
LONGEST_TREND = 300  # most values whose pairs are all compared
NORMAL_DF = 1000  # degrees of freedom from which Student's t is expanded around the normal
OUTLYING = 3.5  # modified z-score of an outlier (Iglewicz and Hoaglin 1993)
MIN_FOR_TREND = 6  # number of values below which no order is significant at TREND_ALPHA
TREND_ALPHA = 0.01
SAME, FASTER, SLOWER, AMBIGUOUS = "same", "faster", "slower", "ambiguous"


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


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A distribution-free 95 % interval of the median, from two order statistics; None below six
    samples."""
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
) -> tuple[float, float] | None:
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


def relative_half_width(center: float, interval: tuple[float, float] | None) -> float | None:
    """Half the interval's width over its centre; None without an interval."""
    if interval is None or center <= 0:
        return None
    return (interval[1] - interval[0]) / 2 / center


def student_t_cdf(t: float, df: int) -> float:
    """P(T <= t) for whole `df` >= 1, by the finite sums of Abramowitz and Stegun 26.7.3-4."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine, odd = math.sin(theta), math.cos(theta), df % 2
    total, term = 0.0, cosine if odd else 1.0
    for k in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    if odd:
        return (1 + 2 / math.pi * (theta + sine * total)) / 2
    return (1 + sine * total) / 2


@cache
def student_t_quantile(p: float, df: int) -> float:
    """The `p` quantile (0.5 <= p < 1) of Student's t, by bisection of its distribution."""
    if not 0.5 <= p < 1:
        raise ValueError(f"p must lie in [0.5, 1), not {p}")
    if df >= NORMAL_DF:  # Abramowitz and Stegun 26.7.5
        x = NormalDist().inv_cdf(p)
        return x + (x**3 + x) / (4 * df) + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * df**2)
    low, high = 0.0, 1.0
    while student_t_cdf(high, df) < p:
        high *= 2
        if high > 1e12:  # floating-point numbers cannot resolve the distribution any more
            return high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_cdf(middle, df) < p else (low, middle)
        if high - low <= 1e-12 * high:
            break
    return high


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
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = max(0, abs(score) - 1) / deviation
    if math.erfc(z / math.sqrt(2)) > TREND_ALPHA:
        return 0.0
    third = n // 3
    return median(values[-third:]) / median(values[:third]) - 1


@dataclass(frozen=True)
class Ratio:
    """Time of the first over time of the second (`value`), with the bounds of its interval.

    `spread` is the part of the uncertainty that more pairs do not reduce, as a standard deviation
    of the logarithm.
    """

    value: float
    low: float
    high: float
    pairs: int
    spread: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high

    def inverse(self) -> "Ratio":
        return replace(self, value=1 / self.value, low=1 / self.high, high=1 / self.low)

    def widened(self, log_sd: float, confidence: float = 0.95) -> "Ratio":
        """The ratio with an independent error, of this standard deviation of its logarithm, added
        to the interval."""
        further = NormalDist().inv_cdf(0.5 + confidence / 2) * log_sd
        down = math.hypot(math.log(self.value / self.low), further)
        up = math.hypot(math.log(self.high / self.value), further)
        return replace(self, low=self.value * math.exp(-down), high=self.value * math.exp(up))

    def word(self, tolerance: float) -> str:
        """The first against the second: same, faster, slower or ambiguous.

        Same: the interval lies wholly within the `tolerance`.  Ambiguous: it contains 1 and reaches
        beyond the tolerance.  The words are those of NVIDIA's nvbench_compare.
        """
        if self.low >= 1 / (1 + tolerance) and self.high <= 1 + tolerance:
            return SAME
        if self.high < 1:
            return FASTER
        return SLOWER if self.low > 1 else AMBIGUOUS


def value_and_interval(ratio: Ratio | None) -> tuple[float | None, tuple[float, float] | None]:
    """Two members of a document; both None without a ratio."""
    return (None, None) if ratio is None else (ratio.value, ratio.interval)


def paired_ratio(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> Ratio | None:
    """Ratio of two candidates measured in the same rounds; None below three rounds.

    The 20 % trimmed mean of the log ratios with Student's t on their winsorised deviation
    (Tukey and McLaughlin 1963; Yuen 1974).  Trimming keeps a burst in one block from deciding; with
    fewer than seven rounds it is the ordinary t interval.  From five rounds, `drift_factor` widens
    the interval.
    """
    logs = [math.log(a) - math.log(b) for a, b in zip(first, second, strict=True)]
    n = len(logs)
    if n < MIN_PAIRS:
        return None
    cut = math.floor(TRIM * n) if n >= TRIMMED_FROM else 0
    kept = sorted(logs)[cut : n - cut]
    center = math.fsum(kept) / len(kept)
    least, most = kept[0], kept[-1]
    winsorised = [least if x < least else most if x > most else x for x in logs]
    mean = math.fsum(winsorised) / n
    variance = math.fsum((x - mean) ** 2 for x in winsorised) / (n - 1)
    error = math.sqrt(variance) / ((len(kept) / n) * math.sqrt(n))
    error *= drift_factor(winsorised)
    return by_t(center, error, len(kept) - 1, confidence, n)


def by_t(center: float, error: float, freedom: int, confidence: float, pairs: int) -> Ratio:
    """The ratio with this logarithm and the t interval of its standard error."""
    reach = student_t_quantile((1 + confidence) / 2, freedom) * error
    # Identical samples do not prove an exact ratio, since a clock tick always remains in doubt.
    reach = min(max(reach, 1e-9), 700.0)
    return Ratio(math.exp(center), math.exp(center - reach), math.exp(center + reach), pairs)
