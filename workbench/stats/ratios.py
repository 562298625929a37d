"""Ratios of candidates measured in the same rounds: which one is slower, which ones tie.

A race is best-arm identification by successive elimination (Even-Dar, Mannor and Mansour 2006):
after a round, a candidate is eliminated if the interval of its ratio to another one lies wholly
above 1.  The interval of each pair is widened to keep the error over all pairs and all looks
together below ALPHA: Bonferroni over the pairs, and ALPHA / (k (k + 1)) for look k, which sums to
ALPHA for a race of any length.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from .paired import AMBIGUOUS, SAME, TRIMMED_FROM, Ratio, log_ratios, paired_ratio, paired_value
from .samples import MIN_PAIRS, median
from .tails import Tail, tail_of, tail_ratio

ALPHA = 0.05  # probability of at least one wrong elimination in a race
LAST_LOOK = ALPHA / 2  # error of the last look at a race that ran out of time or rounds
# Standard deviation of a ratio's logarithm from run to run, on top of the scatter within a run:
# memory layout and the state of the host differ (Mytkowicz et al. 2009; Kalibera and Jones 2013).
# The coverage part of `make benchmark` checks whether it is enough.
RUN_TO_RUN = 0.004
Z95 = 1.96  # half-width of a 95 % interval in standard deviations
TOLERANCE = 0.05  # a smaller difference is a tie: it makes no difference to a user
UNDECIDED = 1.25  # an interval that contains 1 and reaches beyond this factor decides nothing

ByRound = Mapping[int, float]  # round number to the block's value


class Rounds(dict[int, float]):
    """Round number to the block's value, and how sure that is beyond the scatter of rounds."""

    # Run-to-run standard deviation of the logarithm of a part that was measured once for all
    # rounds, such as a start-up; more rounds do not narrow it.
    spread: float = 0.0
    shared: float = 0.0  # the part of it that candidates of one `origin` share, such as an import
    origin: object = None
    blocks: Mapping[int, Sequence[float]] | None = None  # samples, if 99th percentiles count
    _tail: tuple[object, Tail | None] = (None, None)

    @classmethod
    def of(cls, values: ByRound) -> "Rounds":
        return values if isinstance(values, Rounds) else cls(values)

    def times(self, factor: float) -> "Rounds":
        """A copy in another unit, with the same spread of ratios."""
        made = Rounds({number: value * factor for number, value in self.items()})
        made.spread, made.shared, made.origin = self.spread, self.shared, self.origin
        return made

    def tail(self, common: Sequence[int]) -> Tail | None:
        """The 99th percentile of these rounds; None if samples are missing or too few."""
        if self.blocks is not None and self._tail[0] != common:
            self._tail = common, tail_of([self.blocks[number] for number in common])
        return self._tail[1]


@dataclass(frozen=True)
class ProvenSlower:
    """`case` is slower than `by`; `ratio` is the time of `case` over that of `by`."""

    case: str
    by: str
    ratio: Ratio


def ratio_between(
    first: ByRound, second: ByRound, confidence: float = 0.95, *, of_start_ups: float = 0.95
) -> Ratio | None:
    """Time of the first over time of the second in their common rounds, with an interval that also
    holds for another run; None below three common rounds.

    `of_start_ups` is the confidence for the part that start-ups contribute.  They are measured
    once, so it is corrected for the number of pairs or sizes, but not for the number of looks.
    """
    one, other = Rounds.of(first), Rounds.of(second)
    common = sorted(one.keys() & other.keys())
    values = [one[r] for r in common], [other[r] for r in common]
    if (tails := _tails(one, other, common)) is not None:
        ratio: Ratio | None = tail_ratio(*tails, log_ratios(*values), confidence)
    else:
        ratio = paired_ratio(*values, confidence)
    if ratio is None:
        return None
    spread = _spread(one, other)
    widened = ratio.widened(RUN_TO_RUN, confidence).widened(spread, of_start_ups)
    return replace(widened, spread=spread)


def _tails(one: Rounds, other: Rounds, common: Sequence[int]) -> tuple[Tail, Tail] | None:
    """Both 99th percentiles of the common rounds; None unless both count and are known."""
    first, second = one.tail(common), other.tail(common)
    return (first, second) if first and second else None


def _spread(one: Rounds, other: Rounds) -> float:
    """The spread of their ratio; a shared measurement cancels out as far as both have it."""
    if one.origin is None or one.origin != other.origin:
        return math.hypot(one.spread, other.spread)
    own = one.spread - one.shared, other.spread - other.shared
    return math.hypot(*own, one.shared - other.shared)


def confidence_at(look: int, pairs: int) -> float:
    """Confidence of the interval of one of `pairs` pairs at a look, counted from 1."""
    return 1 - ALPHA / (max(pairs, 1) * look * (look + 1))


def decisive_ratio(first: ByRound, second: ByRound, *, is_last: bool = False) -> Ratio | None:
    """The ratio with an interval that holds over all looks at these two, not just the latest.

    `is_last`: no look ended the race, so this one has a share of the error of its own.
    """
    look = len(first.keys() & second.keys()) - MIN_PAIRS + 1
    confidence = 1 - LAST_LOOK if is_last else confidence_at(max(look, 1), 1)
    return ratio_between(first, second, confidence)


def proven_slower(rounds: Mapping[str, ByRound], *, look: int, pairs: int) -> list[ProvenSlower]:
    """The candidates that are slower than another one beyond doubt at this look, each with the
    rival against which it is slowest; `pairs` includes those of eliminated candidates."""
    confidence, of_start_ups = confidence_at(look, pairs), 1 - ALPHA / max(pairs, 1)
    slowest: dict[str, ProvenSlower] = {}
    for first, second in combinations(rounds, 2):
        pair = rounds[first], rounds[second]
        ratio = ratio_between(*pair, confidence, of_start_ups=of_start_ups)
        if ratio is None:
            continue
        if ratio.low > 1:
            slower = ProvenSlower(first, second, ratio)
        elif ratio.high < 1:
            slower = ProvenSlower(second, first, ratio.inverse())
        else:
            continue
        known = slowest.get(slower.case)
        if known is None or slower.ratio.value > known.ratio.value:
            slowest[slower.case] = slower
    return list(slowest.values())


def ranking(rounds: Mapping[str, ByRound], beaten: Mapping[str, str] = {}) -> list[str]:
    """Candidates from fastest to slowest, each pair compared in its common rounds.

    Medians mislead, since eliminated candidates took part in fewer, maybe noisier rounds, and so
    does a common rival whose own time jumped.  The next in the order is the candidate whose worst
    loss against any of the remaining ones is smallest (minimax, as in Condorcet voting).  Losses of
    fewer than MIN_PAIRS rounds count only for a candidate that has no others, or among equals.
    `beaten` maps a candidate to one that the race proved faster, and which therefore precedes it.
    """
    left = [case for case, measured in rounds.items() if measured]
    times: dict[tuple[str, str], float] = {}
    firm = set[tuple[str, str]]()
    for one, two in combinations(left, 2):
        times[one, two] = relative(rounds[one], rounds[two])
        times[two, one] = 1 / times[one, two]
        if len(rounds[one].keys() & rounds[two].keys()) >= MIN_PAIRS:
            firm |= {(one, two), (two, one)}

    def loss(one: str) -> tuple[float, float]:
        if beaten.get(one) in left:
            return math.inf, math.inf
        pairs = [(one, two) for two in left if two != one]
        counted = [pair for pair in pairs if pair in firm] or pairs
        return max(1.0, *map(times.__getitem__, counted)), max(map(times.__getitem__, pairs))

    order: list[str] = []
    while len(left) > 1:
        order.append(min(left, key=loss))
        left.remove(order[-1])
    return order + left


def stated(first: ByRound, second: ByRound) -> tuple[float, Ratio | None]:
    """`ratio_between` as sentences state it: a value from however few rounds, and its interval."""
    ratio = ratio_between(first, second)
    return ratio.value if ratio else relative(first, second), ratio


def relative(first: ByRound, second: ByRound) -> float:
    """Time of the first over time of the second, from any number of rounds."""
    common = sorted(first.keys() & second.keys())
    if not common:
        return median(list(first.values())) / median(list(second.values()))
    if (tails := _tails(Rounds.of(first), Rounds.of(second), common)) is not None:
        one, other = tails
        return paired_value([one.whole], [other.whole])
    values = [first[r] for r in common], [second[r] for r in common]
    # One burst moves a mean that is not trimmed, so the median of the ratios counts.
    if len(common) < TRIMMED_FROM:
        return median([a / b for a, b in zip(*values, strict=True)])
    return paired_value(*values)


def is_tie(ratio: Ratio, *, patient: bool = True) -> bool:
    """Whether the whole interval lies within the tolerance, or twice that if not `patient`."""
    return ratio.word(TOLERANCE if patient else 2 * TOLERANCE) == SAME


def is_close(ratio: Ratio | None) -> bool:
    """Whether the ratio is within the tolerance or may be 1, and its interval is narrow."""
    if ratio is None:
        return False
    within = 1 / (1 + TOLERANCE) <= ratio.value <= 1 + TOLERANCE
    holds_one = ratio.low <= 1 <= ratio.high
    bound = UNDECIDED * math.exp(Z95 * ratio.spread)  # the spread cannot be narrowed: allow for it
    return (within or holds_one) and ratio.low >= 1 / bound and ratio.high <= bound


def is_settled(ratio: Ratio | None) -> bool:
    """Whether more rounds could no longer change the decision between two candidates."""
    return ratio is not None and (ratio.word(TOLERANCE) != AMBIGUOUS or is_exhausted(ratio))


def is_exhausted(ratio: Ratio) -> bool:
    """Whether more rounds would hardly narrow the interval, since most of its width comes from
    parts that were measured once."""
    half, fixed = math.log(ratio.high / ratio.low) / 2, Z95 * ratio.spread
    return fixed > 0 and half**2 - fixed**2 <= fixed**2
