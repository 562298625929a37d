"""Ratios of paired samples, with intervals by Student's t.

Decisions rest on the paired ratio: two candidates measured in the same rounds share the machine's
drift, so their ratio within a round is far steadier than either time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

from .samples import MIN_PAIRS, Interval, drift_factor

TRIM = 0.2  # share of pairs cut off at each end
# Trimming five or six pairs would leave three or four.  Without bursts their few degrees of freedom
# would make the interval up to 1.4 times as wide at 95 %, and 2.8 times over all looks.
TRIMMED_FROM = 7
NORMAL_DF = 1000  # degrees of freedom from which Student's t is expanded around the normal
SAME, FASTER, SLOWER, AMBIGUOUS = "same", "faster", "slower", "ambiguous"


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
    def interval(self) -> Interval:
        return self.low, self.high

    def inverse(self) -> "Ratio":
        return replace(self, value=1 / self.value, low=1 / self.high, high=1 / self.low)

    def widened(self, log_sd: float, confidence: float = 0.95) -> "Ratio":
        """The ratio, its interval widened by an independent error (deviation of its logarithm)."""
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


def value_and_interval(ratio: Ratio | None) -> tuple[float | None, Interval | None]:
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
    logs = log_ratios(first, second)
    n = len(logs)
    if n < MIN_PAIRS:
        return None
    kept = _trimmed(logs)
    center = math.fsum(kept) / len(kept)
    least, most = kept[0], kept[-1]
    winsorised = [least if x < least else most if x > most else x for x in logs]
    mean = math.fsum(winsorised) / n
    variance = math.fsum((x - mean) ** 2 for x in winsorised) / (n - 1)
    error = math.sqrt(variance) / ((len(kept) / n) * math.sqrt(n))
    error *= drift_factor(winsorised)
    return by_t(center, error, len(kept) - 1, confidence, n)


def log_ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [math.log(a) - math.log(b) for a, b in zip(first, second, strict=True)]


def _trimmed(logs: Sequence[float]) -> list[float]:
    n = len(logs)
    cut = math.floor(TRIM * n) if n >= TRIMMED_FROM else 0
    return sorted(logs)[cut : n - cut]


def paired_value(first: Sequence[float], second: Sequence[float]) -> float:
    """The value of `paired_ratio` in a fraction of its time, since a ranking takes every pair."""
    kept = _trimmed(log_ratios(first, second))
    return math.exp(math.fsum(kept) / len(kept))


def by_t(center: float, error: float, freedom: int, confidence: float, pairs: int) -> Ratio:
    """The ratio with this logarithm and the t interval of its standard error."""
    reach = student_t_quantile((1 + confidence) / 2, freedom) * error
    # Identical samples do not prove an exact ratio, since a clock tick always remains in doubt.
    reach = min(max(reach, 1e-9), 700.0)
    return Ratio(math.exp(center), math.exp(center - reach), math.exp(center + reach), pairs)


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
