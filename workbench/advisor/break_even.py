"""Break-even points: after how many shorter steps a longer set-up has paid for itself.

After n steps a candidate has taken F + n s seconds, where F is its fixed cost and s a steady step.
Two candidates are level at n = (F_a - F_b) / (s_b - s_a), the break-even point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..records.verdict import Payoff
from ..report.candidate import Candidate
from ..stats import ratios
from ..stats.samples import median

LEAST_S = 0.01  # seconds of fixed cost that make no difference to a user
NOISE = 0.1  # relative scatter of a single observation: closer fixed costs count as equal


def payoffs(
    ranked: Sequence[Candidate], gpu: Candidate | None, cpu: Candidate | None
) -> list[Payoff]:
    """The break-even points that a user would ask for, at most four.

    The pick over the candidate that starts first; the best `gpu` over the best `cpu`; the best
    compiled candidate over the same one uncompiled; the best INT8 over the best FP32 on the same
    device and backend.  `ranked` holds the candidates from best to worst.
    """
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

    Parts that are equal to the last digit, such as the import of a shared process, are left out.
    """
    parts = zip(one.fixed_parts_s, other.fixed_parts_s, strict=True)
    own = [pair for pair in parts if pair[0] != pair[1]]
    first, second = (math.fsum(column) for column in zip(*own, strict=True)) if own else (0, 0)
    return abs(first - second) <= max(LEAST_S, NOISE * max(first, second))


def payoff(one: Candidate, other: Candidate) -> Payoff | None:
    """When `one` has caught up with `other`, or the reverse if `other` takes longer to set up but
    has the shorter step.  None where their fixed costs are alike or one was not measured.

    The step of the first is its median.  The step of the second is that times the ratio from their
    common rounds, since medians over different rounds mislead.  The interval contains the error of
    that ratio but not of the fixed costs, which are single observations.
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
    """Steps after which the first has caught up; 0: it leads from the start; None: never."""
    later, gain = fixed_s - over_fixed_s, over_step_s - step_s
    if gain < 0 or (gain == 0 and later > 0):
        return None
    if later <= 0:
        return 0.0
    steps = later / gain
    return steps if math.isfinite(steps) else None
