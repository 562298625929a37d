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
from ..report.candidate import Block, Contender
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
    """A contender that goes, and why."""

    contender: Contender
    reason: Reason
    beaten: ratios.Beaten | None = None


def groups(contenders: Iterable[Contender], scenario: Scenario) -> list[list[Contender]]:
    """Contenders that may drop one another: same kind of device, for the pick or apart alike.

    CPU and GPU do not drop each other: the ratio of their best is the answer.
    """
    found: dict[tuple[str, bool], list[Contender]] = {}
    for contender in contenders:
        apart = contender.case.precision in scenario.apart
        found.setdefault((contender.case.device_kind, apart), []).append(contender)
    return list(found.values())


def inadmissible(contenders: Iterable[Contender], scenario: Scenario) -> Iterator[Leaving]:
    """Those that cannot be picked, by their error or a limit of the scenario: measured once, so
    that one sees what they would have gained, and no more."""
    for contender in contenders:
        if why := leaves_for_limits(contender, scenario):
            yield Leaving(
                contender, Reason("limit", why, "raise the limit, or take a smaller size")
            )
            continue
        if why := uncounted(contender):
            yield Leaving(contender, Reason("not_counted", why, "choose another objective"))
            continue
        if exceeds_error_limit(contender, scenario):
            text = f"its error is above the limit of {units.share(scenario.max_error or 0.0)}"
            yield Leaving(contender, Reason("error_limit", text))


def beaten(
    contenders: Iterable[Contender], scenario: Scenario, *, rounds: int, entrants: int
) -> Iterator[Leaving]:
    """Those slower than another beyond doubt, after `rounds` rounds of `entrants` at the start."""
    look = rounds - stats.MIN_PAIRS + 1
    if look < 1:
        return
    for group in groups(contenders, scenario):
        by_id = {contender.case.id: contender for contender in group}
        measured = {case: contender.rounds() for case, contender in by_id.items()}
        for found in ratios.beaten(measured, look=look, pairs=ratios.pair_count(entrants)):
            text = f"{found.ratio.value:.3g}x slower than {name_of(found.by)}"
            yield Leaving(by_id[found.case], Reason("beaten", text), found)


def slower_precisions(contenders: Sequence[Contender], cpu: Cpu | None) -> Iterator[Leaving]:
    """After one block: reduced precisions far behind FP32 done the same way."""
    measured = [c for c in contenders if c.samples_s]  # a turn may have been discarded each time
    like = {c.case.but_precision(): c for c in measured if c.case.precision == "fp32"}
    for contender in measured:
        beside = like.get(contender.case.but_precision())
        if contender.case.precision not in REDUCED or beside is None:
            continue
        if not is_plausible(contender) and (
            cpu is None or lacking(contender.case.precision, cpu) is None
        ):
            continue  # the fault may be other load's
        factor = min(contender.samples_s) / min(beside.samples_s)
        reason = slower_precision(contender.case, factor, "in its first block", cpu)
        if reason is not None:
            yield Leaving(contender, reason)


def is_plausible(contender: Contender) -> bool:
    """Whether its first block may be believed at once: several steps, and not all of them far
    slower than at the end of its warm-up, as where another program held a core that its threads
    wait for."""
    samples, warm_s = contender.blocks[0].samples_s, contender.warmup.step_s
    if len(samples) < CERTAIN_SAMPLES:
        return False
    return warm_s is None or min(samples) <= FAR * warm_s


def hopeless(
    contenders: Sequence[Contender],
    scenario: Scenario,
    *,
    turn_s: Mapping[str, float],
    left_s: float,
) -> Iterator[Leaving]:
    """After one round, where two more do not fit into `left_s`: the far slower ones.

    `turn_s` is the predicted length of a turn by case id.
    """
    planned_s = 2 * sum(turn_s[contender.case.id] for contender in contenders)
    for group in groups(contenders, scenario):
        # A tail of one block says little; whatever else the row counts is compared as it is.
        found = {
            c.case.id: c.samples_s if c.objective in OF_A_STEP else list(c.rounds().values())
            for c in group
        }
        values = {case: stats.median(each) for case, each in found.items() if each}
        for contender in sorted(group, key=lambda c: values.get(c.case.id, 0.0), reverse=True):
            if planned_s <= left_s or contender.case.id not in values:
                break
            factor = values[contender.case.id] / min(values.values())
            if factor >= HOPELESS:
                planned_s -= 2 * turn_s[contender.case.id]
                best = name_of(min(values, key=values.__getitem__))
                text = f"{factor:.0f}x slower than {best} in its first round, and time is short"
                yield Leaving(contender, Reason("far_slower", text, "give it a larger --budget"))


def far_slower(contenders: Sequence[Contender], scenario: Scenario) -> Iterator[Leaving]:
    """After their first block: those whose fastest sample is far behind what the best of their
    group did in the same round.  Whose block is not plausible has a second one."""
    for group in groups(contenders, scenario):
        for contender in group:
            blocks = len(contender.blocks)
            if not blocks or blocks > 2 or contender.objective not in OF_A_STEP:
                continue
            number = contender.blocks[-1].round
            beside = {
                other.case.id: value
                for other in group
                if (value := other.rounds().get(number)) is not None
            }
            best = min(beside, key=beside.__getitem__)
            factor = min(contender.samples_s) / beside[best]
            certain = is_plausible(contender) == (blocks == 1)
            if factor >= FAR and certain and len(contender.samples_s) >= CERTAIN_SAMPLES:
                which = "first block" if blocks == 1 else "best of two blocks"
                text = f"{factor:.1f}x slower than {name_of(best)} in its {which}"
                yield Leaving(contender, Reason("far_slower", text))


def front(contenders: Iterable[Contender], scenario: Scenario) -> list[str]:
    """Case ids of the two that would be pick and runner-up by what is known."""
    able = [c for c in contenders if c.blocks and is_admissible(c, scenario)]
    return ratios.ranking({c.case.id: c.rounds() for c in able})[:2]


def is_proven(contenders: Sequence[Contender], claims: int) -> bool:
    """Whether the best, and the best of the other kind of device or else the next, are told apart
    as surely as one of `claims` that shall hold together, or no longer get any better told."""
    known = {c.case.id: c for c in contenders if c.blocks}
    order = ratios.ranking({case: contender.rounds() for case, contender in known.items()})
    kinds = {case: known[case].case.device_kind for case in order}
    others = [case for case in order[1:] if kinds[case] != kinds[order[0]]] or order[1:]
    if not others:
        return True
    first, second = (known[case].rounds() for case in (order[0], others[0]))
    ratio = ratios.ratio_between(second, first, 1 - ratios.ALPHA / claims)
    if ratio is None:
        return False
    return ratio.low > 1 or ratio.pairs >= PATIENCE or ratios.is_exhausted(ratio)


def is_decided(contenders: Sequence[Contender], scenario: Scenario) -> bool:
    """Whether each group has its best, up to ties, and the best CPU and GPU are told apart."""
    leaders = []
    for group in groups(contenders, scenario):
        measured = {contender.case.id: contender.rounds() for contender in group}
        if not (order := ratios.ranking(measured)):
            return False  # of none is known what counts
        first, *others = order
        for other in others:
            if not _is_no_better(measured[other], measured[first]):
                return False
        if group[0].case.precision not in scenario.apart:
            leaders.append(measured[first])
    if len(leaders) == 2:
        ratio = ratios.decisive_ratio(leaders[0], leaders[1])
        if ratio is not None and ratio.pairs >= PATIENCE and ratios.is_close(ratio):
            return True
        return ratios.settled(ratio)
    return bool(contenders)


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


def is_steady(contender: Contender, wanted: float = STEADY_WIDTH) -> bool:
    """Whether its median is known to within `wanted` (relative half-width of its interval), or no
    longer gets any better known."""
    if len(contender.blocks) >= PATIENCE and contender.objective in OF_A_STEP:
        return True
    width = _width(contender.blocks)
    if len(contender.samples_s) < ENOUGH_SAMPLES or width is None:
        return False
    if width <= wanted:
        return True
    earlier = _width(contender.blocks[: len(contender.blocks) // 2])
    enough_rounds = len(contender.blocks) >= ROUNDS_FOR_PLATEAU
    return enough_rounds and earlier is not None and width > PLATEAU * earlier


def repeats(contender: Contender) -> bool:
    """Whether both halves of the time measured agree on what the machine can do at its best."""
    half = len(contender.blocks) // 2
    if not half:
        return False
    halves = (contender.blocks[:half], contender.blocks[half:])
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
