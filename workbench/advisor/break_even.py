"""Time to result: when what takes longer to set up has caught up by its shorter steps.

After n steps a candidate has taken F + n s seconds: its fixed cost and its steady step.  Two of
them are level at n = (F_a - F_b) / (s_b - s_a), the break-even point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..records.verdict import Elimination, Payoff, Verdict
from ..report.candidate import Candidate
from ..report.names import name_of
from ..stats import ratios
from ..stats.samples import median
from ..text import units
from .race_summary import eliminated_by_first_block

LEAST_S = 0.01  # a difference in fixed cost that nobody waits for
NOISE = 0.1  # of a single observation; nearer than that, two fixed costs are the same


def payoffs(
    eligible: Sequence[Candidate],
    order: Sequence[str],
    gpu: Candidate | None,
    cpu: Candidate | None,
) -> list[Payoff]:
    """The break-even points that a user would ask for, at most four.

    The pick over whoever starts soonest; the best `gpu` over the best `cpu`; the best compiled
    candidate over the same one plain; the best INT8 over the best FP32 beside it.  `order` holds
    ids from best to worst.
    """
    by_id = {c.case.id: c for c in eligible}
    ranked = [by_id[case] for case in order]
    found: dict[frozenset[str], Payoff] = {}
    for one, other in _pairs(ranked, gpu, cpu):
        both = frozenset((one.case.id, other.case.id))
        if both not in found and (known := payoff(one, other)) is not None:
            found[both] = known
    return list(found.values())


def _pairs(
    ranked: Sequence[Candidate], gpu: Candidate | None, cpu: Candidate | None
) -> Iterator[tuple[Candidate, Candidate]]:
    if ranked:
        yield ranked[0], min(ranked, key=lambda candidate: candidate.fixed_s)
    if gpu is not None and cpu is not None:
        yield gpu, cpu
    yield from _first(
        (one, other)
        for one in ranked
        if one.case.is_compiled
        for other in ranked
        if other.case == replace(one.case, mode=_plain(one.case.mode))
    )
    yield from _first(
        (one, other)
        for one in ranked
        if one.case.precision == "int8"
        for other in ranked
        if other.case.precision == "fp32"
        and (other.case.device, other.case.backend) == (one.case.device, one.case.backend)
    )


def _first(
    pairs: Iterable[tuple[Candidate, Candidate]],
) -> Iterator[tuple[Candidate, Candidate]]:
    yield from (pair for pair, _ in zip(pairs, range(1), strict=False))


def _plain(mode: str | None) -> str | None:
    return "+".join(word for word in (mode or "").split("+") if word != "compile") or None


def _alike(one: Candidate, other: Candidate) -> bool:
    """Whether two fixed costs differ by no more than single observations do.

    What the two share to the last digit, as the import of a common process, says nothing of it.
    """
    parts = zip(one.fixed_parts_s, other.fixed_parts_s, strict=True)
    apart = [pair for pair in parts if pair[0] != pair[1]]
    first, second = (math.fsum(column) for column in zip(*apart, strict=True)) if apart else (0, 0)
    return abs(first - second) <= max(LEAST_S, NOISE * max(first, second))


def payoff(one: Candidate, other: Candidate) -> Payoff | None:
    """When `one` has caught up with `other`, or the reverse if `other` takes longer to set up and
    steps faster; None where their fixed costs are alike or nothing is known of them.

    One step is the median, the other that times the ratio from common rounds: medians over
    different rounds mislead.  The interval takes in that of the paired ratio of the two steps, not
    the fixed costs, which are single observations.
    """
    if one is other or not (one.blocks and other.blocks) or _alike(one, other):
        return None
    if one.fixed_s < other.fixed_s and ratios.relative(other.step_rounds(), one.step_rounds()) < 1:
        one, other = other, one
    fixed, over_fixed = one.fixed_s, other.fixed_s
    rounds, over_rounds = one.step_rounds(), other.step_rounds()
    step = median(one.samples_s)
    over_step = step * ratios.relative(over_rounds, rounds)
    ratio = ratios.ratio_between(over_rounds, rounds)
    steps = break_even(fixed, step, over_fixed, over_step)
    ci95 = None
    if steps and ratio is not None and ratio.low > 1:
        ends = (break_even(fixed, step, over_fixed, step * r) for r in (ratio.high, ratio.low))
        known = [steps, *(end for end in ends if end is not None)]
        ci95 = (min(known), max(known)) if len(known) == 3 else None
    return Payoff(
        id=one.case.id,
        over=other.case.id,
        fixed_s=fixed,
        over_fixed_s=over_fixed,
        step_s=step,
        over_step_s=over_step,
        steps=steps,
        steps_ci95=ci95,
        items=None if steps is None else steps * one.work.items,
        step_ratio_ci95=ratio.interval if ratio else None,
    )


def break_even(
    fixed_s: float, step_s: float, over_fixed_s: float, over_step_s: float
) -> float | None:
    """After how many steps the first has caught up; 0: it leads from the first; None: never."""
    later, gain = fixed_s - over_fixed_s, over_step_s - step_s
    if gain < 0 or (gain == 0 and later > 0):
        return None
    if later <= 0:
        return 0.0
    steps = later / gain
    return steps if math.isfinite(steps) else None


# ------------------------------------------------------------------- words


def sentences(verdict: Verdict) -> list[str]:
    """The payoffs of a verdict in words."""
    noun = "run" if verdict.objective == "time_to_result" else "step"
    told = []
    for found in verdict.payoffs:
        left = (eliminated_by_first_block(verdict.race, case) for case in (found.id, found.over))
        told.append(sentence(found, noun, next(filter(None, left), None)))
    return told


def sentence(payoff: Payoff, noun: str = "step", left: Elimination | None = None) -> str:
    """One payoff in words; `noun` is what a step is called, `left` how one of the two was sent
    away after its first block.

    Firm where the whole interval of the steps' ratio lies on the side that it says.
    """
    one, other = map(name_of, (payoff.id, payoff.over))
    later = payoff.fixed_s - payoff.over_fixed_s
    starts = f"{one} starts {_soon(-later)} than {other}"
    ratio, interval = payoff.over_step_s / payoff.step_s, payoff.step_ratio_ci95
    value, spread = units.ratio_parts(ratio, interval)
    unsure = f"their {noun}s are not told apart: "
    unsure += f"{value} (95 %: {spread})" if spread else "too few rounds for an interval"
    if interval is None and left is not None:
        unsure = f"{name_of(left.id)} was sent away: {left.message}"
    apart = interval is not None and not interval[0] <= 1 <= interval[1]
    if not payoff.steps and not apart:
        return f"{starts}, and {unsure}."
    if payoff.steps == 0:
        return f"{one} is ahead of {other} from the first {noun}: it starts {_soon(-later)}."
    if payoff.steps is None:
        slower, _ = units.ratio_parts(1 / ratio, None)
        return f"{starts} and gains nothing by it: a {noun} takes {slower} as long."
    number = _count(payoff.steps)
    count = f"{number} {noun}{'' if number == '1' else 's'}"
    level = units.duration(payoff.fixed_s + payoff.steps * payoff.step_s)
    if payoff.steps_ci95 is None:
        unsure = "the two are too close for an interval" if apart else unsure
        return f"{starts} and may have caught up after {count} ({level}); {unsure}."
    low, high = map(_count, payoff.steps_ci95)
    return f"{starts} and has caught up after {count} ({level}), 95 %: {low}-{high}."


def _soon(sooner_s: float) -> str:
    return f"{units.duration(abs(sooner_s))} {'sooner' if sooner_s > 0 else 'later'}"


def _count(steps: float) -> str:
    """A number of steps, up to the next whole one; three digits are enough above a thousand."""
    whole = math.ceil(steps * (1 - 1e-9))  # 600.0000001 is 600 and a rounding error
    digits = len(str(whole)) - 3
    return f"{round(whole, -digits) if digits > 0 else whole:,}"
