"""Ratios of two runs, which share no round.

Between runs the machine's drift does not cancel out, and the scatter of samples does not show it.
The scatter of rounds over all cases of a run shows how much the machine changes, and another run
may meet any of its states.  So each side of a ratio has the error of its median over rounds plus
the whole spread of a single round, which more rounds do not reduce.
"""

import math
from collections.abc import Iterable, Sequence

from .paired import Ratio, student_t_quantile
from .ratios import Z95
from .samples import Interval, median

# Standard deviation of the logarithm of a median from process to process, the least allowance for
# another run: the medians of ten fresh processes lay within 1.045 of each other
# (docs/measurement.md), and ten normal values span 3.08 standard deviations on average.
BETWEEN_RUNS = 0.015
CONFIDENCE = 0.99  # for the interval that decides, since users ignore alarms that are often false
CLEARLY_MORE = 4.0  # times the pooled variance, above which a case differs from the others
SAME_WITHIN = 0.10  # BETWEEN_RUNS of two runs already takes half of it
RoundSpread = tuple[float, int]  # variance of the logarithm, and its degrees of freedom
CaseInRun = tuple[Sequence[float], RoundSpread]  # values of a case, and the spread in its run


def round_spread(cases: Iterable[Sequence[float]]) -> RoundSpread | None:
    """The spread pooled over all cases, bursts included; None if no case has two rounds."""
    squares, freedom = 0.0, 0
    for values in cases:
        logs = [math.log(value) for value in values]
        mean = math.fsum(logs) / len(logs)
        squares += math.fsum((x - mean) ** 2 for x in logs)
        freedom += len(logs) - 1
    return (squares / freedom, freedom) if freedom else None


def unpaired_ratio(first: CaseInRun, second: CaseInRun, confidence: float = 0.95) -> Ratio:
    """Median of the first over median of the second, with an interval.

    Of the spread of the case itself and that of its run, the larger counts.
    The degrees of freedom are those of Welch and Satterthwaite, in which the side that varies more
    has more weight.
    """
    variance = squares = 0.0
    for values, spread in (first, second):
        own = round_spread([values]) or spread
        of_round = max(spread[0], own[0], BETWEEN_RUNS**2)
        part = of_round * (1 + math.pi / (2 * len(values)))  # one round, and the median
        is_own = own[0] > max(CLEARLY_MORE * spread[0], BETWEEN_RUNS**2)
        variance += part
        squares += part**2 / (own if is_own else spread)[1]
    freedom = math.floor(variance**2 / squares + 1e-6)  # a whole number in spite of rounding
    quantile = student_t_quantile((1 + confidence) / 2, freedom)
    factor = math.exp(min(quantile * math.sqrt(variance), 300.0))
    value = median(first[0]) / median(second[0])
    return Ratio(value, value / factor, value * factor, min(len(first[0]), len(second[0])))


def between_equals(groups: Iterable[Sequence[float]]) -> float:
    """Standard deviation of the logarithm from one run to another on equal machines.

    Each group has one value per machine; if there are few, it is widened as by Student's t.
    """
    found = round_spread(group for group in groups if group)
    if found is None:
        return BETWEEN_RUNS
    variance, freedom = found
    return max(BETWEEN_RUNS, math.sqrt(variance) * student_t_quantile(0.975, freedom) / Z95)


def far_ends(one: tuple[float, Interval], other: tuple[float, Interval], log_sd: float) -> Ratio:
    """The ratio of two machines, from the far ends of both intervals, widened by `log_sd`."""
    (value, (low, high)), (base, (least, most)) = one, other
    return Ratio(value / base, low / most, high / least, 0).widened(log_sd)
