"""Who is still in the race: pure functions of the rounds measured so far.

Best-arm identification by successive elimination (Even-Dar, Mannor and Mansour 2006): after a
round, a candidate that is slower than another with its interval wholly above one drops out.
The interval of each pair is widened so that the error over all pairs and all looks together
stays under ALPHA: Bonferroni over the pairs, and ALPHA / (k (k + 1)) for look k, which sums to
ALPHA however long the race goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from .samples import AMBIGUOUS, MIN_PAIRS, SAME, Ratio, median, paired_ratio

ALPHA = 0.05
# How far a ratio differs from run to run though each run repeats within itself: memory lies
# elsewhere, the host is in another state (Mytkowicz et al. 2009; Kalibera and Jones 2013).  The
# standard deviation of its logarithm; `make benchmark` (coverage) shows whether it is enough.
RUN_TO_RUN = 0.004
Z95 = 1.96  # half-width of a 95 % interval in standard deviations
TOLERANCE = 0.05  # closer than this is a tie: not worth a user's second thought
FEW = 5  # rounds, below which one burst could move a mean
UNDECIDED = 1.25  # an interval that holds 1 and reaches further than this settles nothing


ByRound = Mapping[int, float]  # round number to the block's value


class Rounds(dict[int, float]):
    """Round number to the block's value.

    `spread`: standard deviation of the logarithm that another run would show for what these rounds
    share because it was seen once, such as a start-up; more rounds do not narrow it.  Rounds of the
    same `origin` share it with one another.
    """

    spread: float = 0.0
    origin: object = None


@dataclass(frozen=True)
class ProvenSlower:
    """`case` is slower than `by`; `ratio` is the time of `case` over that of `by`."""

    case: str
    by: str
    ratio: Ratio


def ratio_between(first: ByRound, second: ByRound, confidence: float = 0.95) -> Ratio | None:
    """Time of the first over time of the second, from the rounds both took part in; the interval
    is meant to hold for another run as well."""
    common = sorted(first.keys() & second.keys())
    ratio = paired_ratio([first[r] for r in common], [second[r] for r in common], confidence)
    if ratio is None:
        return None
    spread = _spread(first, second)
    # A start-up is looked at once, however often the rounds are: at 95 % throughout.
    return replace(ratio.widened(RUN_TO_RUN, confidence).widened(spread), spread=spread)


def _spread(first: ByRound, second: ByRound) -> float:
    """Of their ratio: what both share cancels out but for the difference of its shares in them."""
    one, other = (r if isinstance(r, Rounds) else Rounds() for r in (first, second))
    if one.origin is not None and one.origin == other.origin:
        return abs(one.spread - other.spread)
    return math.hypot(one.spread, other.spread)


def confidence_at(look: int, pairs: int) -> float:
    """Confidence of one pair's interval at the `look`-th look (from 1) among `pairs` pairs."""
    return 1 - ALPHA / (max(pairs, 1) * look * (look + 1))


def decisive_ratio(first: ByRound, second: ByRound) -> Ratio | None:
    """The ratio with an interval that holds over all looks at these two, not just this one."""
    look = len(first.keys() & second.keys()) - MIN_PAIRS + 1
    return ratio_between(first, second, confidence_at(max(look, 1), 1))


def pair_count(candidates: int) -> int:
    return candidates * (candidates - 1) // 2


def proven_slower(rounds: Mapping[str, ByRound], *, look: int, pairs: int) -> list[ProvenSlower]:
    """The candidates that are slower than another one beyond doubt at this look, each with the
    rival that it is slowest against.

    `pairs` counts those among all candidates of the race, eliminated ones included.
    """
    confidence = confidence_at(look, pairs)
    slowest: dict[str, ProvenSlower] = {}
    for first, second in combinations(rounds, 2):
        ratio = ratio_between(rounds[first], rounds[second], confidence)
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


def ranking(rounds: Mapping[str, ByRound]) -> list[str]:
    """Candidates from fastest to slowest, each pair compared in the rounds both took part in.

    Candidates that dropped out took part in fewer rounds, maybe at a noisier time, so medians
    mislead, and so does a common rival whose own time jumped.  Next comes whoever loses least to
    any of those left (minimax, as in Condorcet voting).
    """
    left = [case for case, measured in rounds.items() if measured]
    times: dict[tuple[str, str], float] = {}
    for one, two in combinations(left, 2):
        times[one, two] = relative(rounds[one], rounds[two])
        times[two, one] = 1 / times[one, two]
    order: list[str] = []
    while left:
        losses = {
            one: max((times[one, two] for two in left if two != one), default=0.0) for one in left
        }
        order.append(min(left, key=losses.__getitem__))
        left.remove(order[-1])
    return order


def relative(first: ByRound, second: ByRound) -> float:
    """Time of the first over time of the second, however few rounds there are."""
    ratio = ratio_between(first, second)
    if ratio is not None and ratio.pairs >= FEW:  # below, the mean of a ratio is not trimmed
        return ratio.value
    common = sorted(first.keys() & second.keys())
    if not common:
        return median(list(first.values())) / median(list(second.values()))
    return median([first[r] / second[r] for r in common])


def is_tie(ratio: Ratio, *, patient: bool = True) -> bool:
    """Within the tolerance, or twice that without patience, whatever the truth inside the
    interval."""
    return ratio.word(TOLERANCE if patient else 2 * TOLERANCE) == SAME


def is_close(ratio: Ratio | None) -> bool:
    """Within the tolerance, or not told apart by a fairly narrow interval; not, if not known."""
    if ratio is None:
        return False
    within = 1 / (1 + TOLERANCE) <= ratio.value <= 1 + TOLERANCE
    holds_one = ratio.low <= 1 <= ratio.high
    bound = UNDECIDED * math.exp(Z95 * ratio.spread)  # what cannot be known better is no reason
    narrow = ratio.low >= 1 / bound and ratio.high <= bound
    return narrow and (within or holds_one)


def settled(ratio: Ratio | None) -> bool:
    """Whether more rounds could no longer change the decision between two candidates."""
    return ratio is not None and (ratio.word(TOLERANCE) != AMBIGUOUS or is_exhausted(ratio))


def is_exhausted(ratio: Ratio) -> bool:
    """Whether more rounds would hardly narrow the interval: what was seen once spreads it more than
    the rounds do."""
    half, fixed = math.log(ratio.high / ratio.low) / 2, Z95 * ratio.spread
    return fixed > 0 and half**2 - fixed**2 <= fixed**2
