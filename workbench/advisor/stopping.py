"""When a race is over: pure functions of the measurements so far."""

from collections.abc import Sequence

from ..contract import kind_of
from ..planning.scenario import Scenario
from ..records.events import BlockMeasured
from ..report.candidate import Candidate, ranked
from ..report.measurements import WIDE
from ..stats import ratios, samples as stats
from ..stats.objectives import OF_A_STEP
from .crossover import MOST_POINTS
from .elimination import Standings, groups
from .limits import is_admissible

ROUNDS_TO_MEASURE = 15  # in a plain run: about 3 s per candidate, since clocks drift over seconds
ROUNDS_OF_ONE_ON_A_GPU = 30  # its energy counter covers it alone, and needs five whole seconds
STEADY_WIDTH = 0.02  # relative half-width of the median's interval at which sampling may end
ENOUGH_SAMPLES = 10
ROUNDS_FOR_PLATEAU = 10
PLATEAU = 0.9  # twice the rounds narrow an interval to 0.71 of its width if all scatter is noise
REPEATS = 0.01  # relative difference between the 10th percentiles of the two halves
ENOUGH_ROUNDS = 5  # fewer leave too few degrees of freedom for an interval over all looks
PATIENCE = 20  # rounds after which a tie or a median is known well enough


def is_over(standings: Standings) -> bool:
    """Whether nothing is left to decide and the medians are known well enough."""
    candidates, rounds = standings.candidates, standings.rounds
    if not standings.plan.decides:  # the medians themselves are the result
        is_alone = len(candidates) == 1 and not kind_of(candidates[0].case.device).on_host
        least = ROUNDS_OF_ONE_ON_A_GPU if is_alone else ROUNDS_TO_MEASURE
        is_known = rounds >= least and all(map(is_steady, candidates))
        return is_known and all(map(repeats, candidates))
    if rounds < stats.MIN_PAIRS or not is_decided(candidates, standings.scenario):
        return False
    if standings.plan.of is not None:
        able = [c for c in standings.measured if is_admissible(c, standings.scenario)]
        if not is_proven(able, MOST_POINTS):
            return False
    order = ranked(candidates)
    # The report states the best two and the best of each device; the others just need to lose.
    best = {candidate.case.device_kind: candidate for candidate in reversed(order)}
    stated = [*order[:2], *best.values()] if len(order) == len(candidates) else candidates
    return all(is_steady(candidate, WIDE) for candidate in stated)


def is_proven(candidates: Sequence[Candidate], claims: int) -> bool:
    """Whether the best is proven better than the best of the other kind of device, else than the
    next, while `claims` claims share the error; also true where more rounds would not prove it."""
    order = ranked(candidates)
    if len(order) < 2:
        return True
    first, *rest = order
    second = next((c for c in rest if c.case.device_kind != first.case.device_kind), rest[0])
    ratio = ratios.ratio_between(second.rounds(), first.rounds(), 1 - ratios.ALPHA / claims)
    if ratio is None:
        return False
    return ratio.low > 1 or ratio.pairs >= PATIENCE or ratios.is_exhausted(ratio)


def is_decided(candidates: Sequence[Candidate], scenario: Scenario) -> bool:
    """Whether each group has its best, up to ties, and the best CPU and GPU are distinguished."""
    leaders = []
    for group in groups(candidates, scenario):
        if not (order := [candidate.rounds() for candidate in ranked(group)]):
            return False  # no candidate has a value of the objective yet
        first, *others = order
        if not all(_is_no_better(other, first) for other in others):
            return False
        if group[0].case.precision not in scenario.reference_only:
            leaders.append(first)
    if len(leaders) == 2:
        ratio = ratios.decisive_ratio(leaders[0], leaders[1])
        if ratio is not None and ratio.pairs >= PATIENCE and ratios.is_close(ratio):
            return True
        return ratios.is_settled(ratio)
    return bool(candidates)


def _is_no_better(other: ratios.Rounds, leader: ratios.Rounds) -> bool:
    """Whether the leader may be picked over `other`: they tie, or `other` is certainly not faster
    by more than the tolerance."""
    ratio = ratios.ratio_between(other, leader)
    if ratio is None:
        return False
    if ratios.is_tie(ratio, patient=ratio.pairs < PATIENCE) or ratios.is_exhausted(ratio):
        return True
    decisive = ratios.decisive_ratio(other, leader)
    if ratio.pairs < ENOUGH_ROUNDS or decisive is None:
        return False
    can_be_named = ratio.low > 1 or ratios.is_close(ratio)  # a lead or a tie
    return can_be_named and decisive.low >= 1 / (1 + ratios.TOLERANCE)


def is_steady(candidate: Candidate, wanted: float = STEADY_WIDTH) -> bool:
    """Whether its value is known to within `wanted` (relative half-width of the interval of the
    median step), or more rounds no longer narrow the interval."""
    blocks = candidate.blocks
    if len(blocks) >= PATIENCE and candidate.objective in OF_A_STEP:
        return True
    width, share = _width(blocks), candidate.step_share
    if width is None or (len(candidate.samples_s) < ENOUGH_SAMPLES and share == 1):
        return False
    width *= share
    if width <= wanted or len(blocks) < ROUNDS_FOR_PLATEAU:
        return width <= wanted
    earlier = _width(blocks[: len(blocks) // 2])
    return earlier is not None and width > PLATEAU * share * earlier


def repeats(candidate: Candidate) -> bool:
    """Whether both halves of the rounds agree on the candidate's best time."""
    half = len(candidate.blocks) // 2
    if not half:
        return False
    first, second = (
        stats.quantile(stats.joined([block.samples_s for block in blocks]), 0.10)
        for blocks in (candidate.blocks[:half], candidate.blocks[half:])
    )
    return abs(first / second - 1) <= REPEATS


def _width(blocks: Sequence[BlockMeasured]) -> float | None:
    """Relative half-width of the interval of the median of these blocks' samples."""
    samples = [block.samples_s for block in blocks]
    if not samples:
        return None
    center = stats.median(stats.joined(samples))
    return stats.relative_half_width(center, stats.blocked_interval(samples))
