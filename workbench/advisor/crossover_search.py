"""The search for a crossover: the next size to race, and the candidates that race there.

Pure functions of the points measured so far: bisection on a logarithmic scale where the lead
changes, then in the gaps where another change may hide.
"""

import math
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from ..planning.scenario import Size
from ..report.candidate import Candidate
from .crossover import GAP, MOST_POINTS, Measured, find_change, leaders

CLOSE = 1.2  # factor between sizes that makes no difference to a reader


def next_value(points: Sequence[Measured], size: Size, *, whole: bool) -> float | None:
    """The next size to race, None when enough is known: both ends, then where the lead changes,
    then the widest gap.  A point without candidates was tried but could not be measured."""
    tried = sorted({point.value for point in points})
    for end in (size.low, size.high):
        if end not in tried:
            return end
    known = [point.value for point in points if point.candidates]
    if len(tried) >= MOST_POINTS or all(len(point.candidates) < 2 for point in points):
        return None
    found = find_change(points)
    closer = found and _halved(tried, found[0].bracket, CLOSE, whole=whole)
    return closer or _halved(tried, (min(known), max(known)), GAP, whole=whole)


def _halved(
    tried: Sequence[float], within: tuple[float, float], least: float, *, whole: bool
) -> float | None:
    """The middle of the widest gap `within`; None if no gap is wider than `least`."""
    inside = [value for value in tried if within[0] <= value <= within[1]]
    low, high = max(pairwise(inside), key=lambda pair: pair[1] / pair[0], default=(1.0, 1.0))
    middle = between(low, high, whole=whole)
    return middle if high / low > least and low < middle < high else None


def between(low: float, high: float, *, whole: bool) -> float:
    """The size halfway, on a logarithmic scale."""
    middle = math.sqrt(low * high)
    return float(round(middle)) if whole else float(f"{middle:.3g}")


def entrants(
    points: Sequence[Measured], field: Sequence[Candidate], value: float
) -> list[Candidate]:
    """The candidates of `field` that race at the size `value`, the most promising first.

    Left out are those that are behind on both sides of it by more than the factor between these
    sizes.  For straight lines on logarithmic scales that loses no leader whose slope differs by at
    most 2.  The best of each kind of device at the nearest size come first, then those that lead at
    any size, so that any first few are worth a race.
    """
    ahead = {point.value: point.behind() for point in points}
    nearest = min(points, key=lambda p: (not p.candidates, abs(math.log(p.value / value))))
    near, leading = leaders([nearest]), leaders(points)

    def rank(label: str) -> int:
        return (label not in near) + (label not in leading)

    def may_lead(label: str) -> bool:
        low = max((v for v in ahead if v < value and label in ahead[v]), default=None)
        high = min((v for v in ahead if v > value and label in ahead[v]), default=None)
        if low is None or high is None:
            return True
        return min(ahead[low][label], ahead[high][label]) <= high / low

    kinds = dict.fromkeys(candidate.case.device_kind for candidate in field)
    racing = [candidate for candidate in field if may_lead(candidate.case.label)]
    racing.sort(key=lambda candidate: rank(candidate.case.label))
    of_kind = [[c for c in racing if c.case.device_kind == kind] for kind in kinds]
    return [c for tier in zip_longest(*of_kind) for c in tier if c is not None]
