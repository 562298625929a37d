"""Who leaves a race and when it is over: pure functions of what was measured so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..contract import REDUCED
from ..machine.host.isa import lacking
from ..planning.admission import slower_precision
from ..planning.scenario import Scenario
from ..records.machine import Cpu
from ..records.reason import Reason
from ..report.candidate import Block, Candidate
from ..report.names import name_of
from ..stats import ratios
from ..stats import samples as stats
from ..stats.objectives import OF_A_STEP
from ..text import units
from .limits import exceeds_error_limit, is_admissible, leaves_for_limits, uncounted

STEADY_WIDTH = 0.02  # relative half-width of the median's interval at which sampling may end
ENOUGH_SAMPLES = 10
ROUNDS_FOR_PLATEAU = 10
PLATEAU = 0.9  # twice the rounds would narrow an interval to 0.71 of its width if noise were all
REPEATS = 0.01  # between the 10th percentiles of the two halves
CERTAIN_SAMPLES = 3
ENOUGH_ROUNDS = 5  # from here on the paired ratio is trimmed, so that one burst decides nothing
PATIENCE = 20  # rounds, after which a tie and a median need not be known any better
FAR = 2.0  # a first block whose best is this many times slower than the leader's needs no second
HOPELESS = 3.0  # this many times slower than the best after a round is not raced on a tight budget


@dataclass(frozen=True)
class Leaving:
    """A candidate that goes, and why."""

    candidate: Candidate
    reason: Reason
    beaten: ratios.Beaten | None = None


def groups(candidates: Iterable[Candidate], scenario: Scenario) -> list[list[Candidate]]:
    """Candidates that may drop one another: same kind of device, for the pick or apart alike.

    CPU and GPU do not drop each other: the ratio of their best is the answer.
    """
    found: dict[tuple[str, bool], list[Candidate]] = {}
    for candidate in candidates:
        apart = candidate.case.precision in scenario.reference_only
        found.setdefault((candidate.case.device_kind, apart), []).append(candidate)
    return list(found.values())


def inadmissible(candidates: Iterable[Candidate], scenario: Scenario) -> Iterator[Leaving]:
    """Those that cannot be picked, by their error or a limit of the scenario: measured once, so
    that one sees what they would have gained, and no more."""
    for candidate in candidates:
        if why := leaves_for_limits(candidate, scenario):
            yield Leaving(
                candidate, Reason("limit", why, "raise the limit, or take a smaller size")
            )
            continue
        if why := uncounted(candidate):
            yield Leaving(candidate, Reason("not_counted", why, "choose another objective"))
            continue
        if exceeds_error_limit(candidate, scenario):
            text = f"its error is above the limit of {units.share(scenario.max_error or 0.0)}"
            yield Leaving(candidate, Reason("error_limit", text))


def beaten(
    candidates: Iterable[Candidate], scenario: Scenario, *, rounds: int, entrants: int
) -> Iterator[Leaving]:
    """Those slower than another beyond doubt, after `rounds` rounds of `entrants` at the start."""
    look = rounds - stats.MIN_PAIRS + 1
    if look < 1:
        return
    for group in groups(candidates, scenario):
        by_id = {candidate.case.id: candidate for candidate in group}
        measured = {case: candidate.rounds() for case, candidate in by_id.items()}
        for found in ratios.beaten(measured, look=look, pairs=ratios.pair_count(entrants)):
            text = f"{found.ratio.value:.3g}x slower than {name_of(found.by)}"
            yield Leaving(by_id[found.case], Reason("beaten", text), found)


def slower_precisions(candidates: Sequence[Candidate], cpu: Cpu | None) -> Iterator[Leaving]:
    """After one block: reduced precisions far behind FP32 done the same way."""
    measured = [c for c in candidates if c.samples_s]  # a turn may have been discarded each time
    like = {c.case.but_precision(): c for c in measured if c.case.precision == "fp32"}
    for candidate in measured:
        beside = like.get(candidate.case.but_precision())
        if candidate.case.precision not in REDUCED or beside is None:
            continue
        if not is_plausible(candidate) and (
            cpu is None or lacking(candidate.case.precision, cpu) is None
        ):
            continue  # the fault may be other load's
        factor = min(candidate.samples_s) / min(beside.samples_s)
        reason = slower_precision(candidate.case, factor, "in its first block", cpu)
        if reason is not None:
            yield Leaving(candidate, reason)


def is_plausible(candidate: Candidate) -> bool:
    """Whether its first block may be believed at once: several steps, and not all of them far
    slower than at the end of its warm-up, as where another program held a core that its threads
    wait for."""
    samples, warm_s = candidate.blocks[0].samples_s, candidate.warmup.step_s
    if len(samples) < CERTAIN_SAMPLES:
        return False
    return warm_s is None or min(samples) <= FAR * warm_s


def hopeless(
    candidates: Sequence[Candidate],
    scenario: Scenario,
    *,
    turn_s: Mapping[str, float],
    left_s: float,
) -> Iterator[Leaving]:
    """After one round, where two more do not fit into `left_s`: the far slower ones.

    `turn_s` is the predicted length of a turn by case id.
    """
    planned_s = 2 * sum(turn_s[candidate.case.id] for candidate in candidates)
    for group in groups(candidates, scenario):
        # A tail of one block says little; whatever else the row counts is compared as it is.
        found = {
            c.case.id: c.samples_s if c.objective in OF_A_STEP else list(c.rounds().values())
            for c in group
        }
        values = {case: stats.median(each) for case, each in found.items() if each}
        for candidate in sorted(group, key=lambda c: values.get(c.case.id, 0.0), reverse=True):
            if planned_s <= left_s or candidate.case.id not in values:
                break
            factor = values[candidate.case.id] / min(values.values())
            if factor >= HOPELESS:
                planned_s -= 2 * turn_s[candidate.case.id]
                best = name_of(min(values, key=values.__getitem__))
                text = f"{factor:.0f}x slower than {best} in its first round, and time is short"
                yield Leaving(candidate, Reason("far_slower", text, "give it a larger --budget"))


def far_slower(candidates: Sequence[Candidate], scenario: Scenario) -> Iterator[Leaving]:
    """After their first block: those whose fastest sample is far behind what the best of their
    group did in the same round.  Whose block is not plausible has a second one."""
    for group in groups(candidates, scenario):
        for candidate in group:
            blocks = len(candidate.blocks)
            if not blocks or blocks > 2 or candidate.objective not in OF_A_STEP:
                continue
            number = candidate.blocks[-1].round
            beside = {
                other.case.id: value
                for other in group
                if (value := other.rounds().get(number)) is not None
            }
            best = min(beside, key=beside.__getitem__)
            factor = min(candidate.samples_s) / beside[best]
            certain = is_plausible(candidate) == (blocks == 1)
            if factor >= FAR and certain and len(candidate.samples_s) >= CERTAIN_SAMPLES:
                which = "first block" if blocks == 1 else "best of two blocks"
                text = f"{factor:.1f}x slower than {name_of(best)} in its {which}"
                yield Leaving(candidate, Reason("far_slower", text))


def front(candidates: Iterable[Candidate], scenario: Scenario) -> list[str]:
    """Case ids of the two that would be pick and runner-up by what is known."""
    able = [c for c in candidates if c.blocks and is_admissible(c, scenario)]
    return ratios.ranking({c.case.id: c.rounds() for c in able})[:2]


def is_proven(candidates: Sequence[Candidate], claims: int) -> bool:
    """Whether the best, and the best of the other kind of device or else the next, are told apart
    as surely as one of `claims` that shall hold together, or no longer get any better told."""
    known = {c.case.id: c for c in candidates if c.blocks}
    order = ratios.ranking({case: candidate.rounds() for case, candidate in known.items()})
    kinds = {case: known[case].case.device_kind for case in order}
    others = [case for case in order[1:] if kinds[case] != kinds[order[0]]] or order[1:]
    if not others:
        return True
    first, second = (known[case].rounds() for case in (order[0], others[0]))
    ratio = ratios.ratio_between(second, first, 1 - ratios.ALPHA / claims)
    if ratio is None:
        return False
    return ratio.low > 1 or ratio.pairs >= PATIENCE or ratios.is_exhausted(ratio)


def is_decided(candidates: Sequence[Candidate], scenario: Scenario) -> bool:
    """Whether each group has its best, up to ties, and the best CPU and GPU are told apart."""
    leaders = []
    for group in groups(candidates, scenario):
        measured = {candidate.case.id: candidate.rounds() for candidate in group}
        if not (order := ratios.ranking(measured)):
            return False  # of none is known what counts
        first, *others = order
        for other in others:
            if not _is_no_better(measured[other], measured[first]):
                return False
        if group[0].case.precision not in scenario.reference_only:
            leaders.append(measured[first])
    if len(leaders) == 2:
        ratio = ratios.decisive_ratio(leaders[0], leaders[1])
        if ratio is not None and ratio.pairs >= PATIENCE and ratios.is_close(ratio):
            return True
        return ratios.settled(ratio)
    return bool(candidates)


def _is_no_better(other: ratios.Rounds, leader: ratios.Rounds) -> bool:
    """Whether the leader may be picked before `other`: they tie, or `other` is beyond doubt not
    ahead by more than the tolerance, however far it is behind."""
    ratio = ratios.ratio_between(other, leader)
    if ratio is None:
        return False
    if ratios.is_tie(ratio, patient=ratio.pairs < PATIENCE) or ratios.is_exhausted(ratio):
        return True
    decisive = ratios.decisive_ratio(other, leader)
    if ratio.pairs < ENOUGH_ROUNDS or decisive is None:
        return False
    told = ratio.low > 1 or ratios.is_close(ratio)  # so that the verdict need not say it is not
    return told and decisive.low >= 1 / (1 + ratios.TOLERANCE)


def is_steady(candidate: Candidate, wanted: float = STEADY_WIDTH) -> bool:
    """Whether its median is known to within `wanted` (relative half-width of its interval), or no
    longer gets any better known."""
    if len(candidate.blocks) >= PATIENCE and candidate.objective in OF_A_STEP:
        return True
    width = _width(candidate.blocks)
    if len(candidate.samples_s) < ENOUGH_SAMPLES or width is None:
        return False
    if width <= wanted:
        return True
    earlier = _width(candidate.blocks[: len(candidate.blocks) // 2])
    enough_rounds = len(candidate.blocks) >= ROUNDS_FOR_PLATEAU
    return enough_rounds and earlier is not None and width > PLATEAU * earlier


def repeats(candidate: Candidate) -> bool:
    """Whether both halves of the time measured agree on what the machine can do at its best."""
    half = len(candidate.blocks) // 2
    if not half:
        return False
    halves = (candidate.blocks[:half], candidate.blocks[half:])
    first, second = (
        stats.quantile([sample for block in blocks for sample in block.samples_s], 0.10)
        for blocks in halves
    )
    return abs(first / second - 1) <= REPEATS


def _width(blocks: Sequence[Block]) -> float | None:
    samples = [block.samples_s for block in blocks]
    if not samples:
        return None
    center = stats.median([sample for block in samples for sample in block])
    return stats.relative_half_width(center, stats.blocked_interval(samples))
