"""Break-even points: after how many shorter steps a longer set-up has paid for itself.

After n steps a candidate has taken F + n s seconds, where F is its fixed cost and s a steady step.
Two candidates are level at n = (F_a - F_b) / (s_b - s_a), the break-even point.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice, permutations

from ..contract import COMPILED, Case
from ..records.verdict import Elimination, Payoff, Verdict
from ..report.candidate import Candidate
from ..report.names import candidate_name
from ..stats import ratios
from ..text import units
from .race_summary import eliminated_by_first_block

LEAST_S = 0.01  # seconds of fixed cost that make no difference to a user
NOISE = 0.1  # relative scatter of a single observation: closer fixed costs count as equal


def payoffs(
    ranked: Sequence[Candidate], gpu: Candidate | None, cpu: Candidate | None
) -> list[Payoff]:
    """At most four break-even points; `ranked` goes from best to worst.

    - the pick over the candidate that starts first
    - the best `gpu` over the best `cpu`
    - the best compiled candidate over the same one uncompiled
    - the best INT8 over the best FP32 on the same device and backend
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
    pairs = list(permutations(ranked, 2))
    compiled = (p for p in pairs if p[0].case.is_compiled and p[1].case == plain(p[0].case))
    quantised = (
        (one, other)
        for one, other in pairs
        if (one.case.precision, other.case.precision) == ("int8", "fp32")
        and (one.case.device, one.case.backend) == (other.case.device, other.case.backend)
    )
    yield from islice(compiled, 1)
    yield from islice(quantised, 1)


def plain(case: Case) -> Case:
    """The case without its compiling modes."""
    return case.without(*COMPILED, "tensorrt")


def _alike(one: Candidate, other: Candidate) -> bool:
    """Whether two fixed costs differ by no more than noise, apart from parts that they share."""
    parts = zip(one.fixed_parts_s, other.fixed_parts_s, strict=True)
    own = [pair for pair in parts if pair[0] != pair[1]]
    first, second = (math.fsum(column) for column in zip(*own, strict=True)) if own else (0, 0)
    return abs(first - second) <= max(LEAST_S, NOISE * max(first, second))


def payoff(one: Candidate, other: Candidate) -> Payoff | None:
    """When `one` catches up with `other`, or the reverse if `other` takes longer to set up but has
    the shorter step.  None where their fixed costs are alike.

    The step time of one is its median; the other's is that times their paired ratio, since medians
    over different rounds mislead.  The interval covers the error of the ratio, but not that of the
    fixed costs, which are measured once.
    """
    if _alike(one, other):
        return None
    factor, ratio = ratios.stated(other.step_rounds(), one.step_rounds())
    if one.fixed_s < other.fixed_s and factor < 1:
        one, other, factor = other, one, 1 / factor
        ratio = ratio and ratio.inverse()
    fixed, over_fixed, step = one.fixed_s, other.fixed_s, one.median_s
    over_step = step * factor
    steps, ci95 = break_even(fixed, step, over_fixed, over_step), None
    if steps and ratio is not None and ratio.low > 1:
        ends = [break_even(fixed, step, over_fixed, step * r) for r in ratio.interval]
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
    """Steps after which the first has caught up; 0 if it leads from the start, None if never."""
    later, gain = fixed_s - over_fixed_s, over_step_s - step_s
    if later <= 0 <= gain:
        return 0.0
    steps = later / gain if gain > 0 else math.inf
    return steps if math.isfinite(steps) else None


def sentences(verdict: Verdict) -> list[str]:
    """One sentence for each break-even point of a verdict."""
    noun = "run" if verdict.objective == "time_to_result" else "step"
    texts = []
    for found in verdict.payoffs:
        left = [eliminated_by_first_block(verdict.race, case) for case in (found.id, found.over)]
        texts.append(sentence(found, noun, next(filter(None, left), None)))
    return texts


def sentence(found: Payoff, noun: str = "step", left: Elimination | None = None) -> str:
    """One break-even point, hedged unless the whole interval of the ratio lies on one side of 1.

    `noun` stands for a step; `left` is the elimination of one of the two after its first block.
    """
    one, other = map(candidate_name, (found.id, found.over))
    later_s, interval = found.fixed_s - found.over_fixed_s, found.step_ratio_ci95
    apart = units.duration(abs(later_s))
    more = "longer" if later_s >= 0 else "less"
    start = f"{one} needs {apart} {more} to start than {other}."
    is_certain = interval is not None and not interval[0] <= 1 <= interval[1]
    is_vague = interval is not None and units.says_nothing(interval)
    if is_vague or not (found.steps or is_certain):
        return f"{start} {_uncertain(found, noun, left)}"
    if found.steps == 0:
        return f"{one} led {other} from the first {noun}: here it needed {apart} less to start."
    if found.steps is None:
        slower, _ = units.ratio_parts(found.step_s / found.over_step_s, None)
        return f"{start} That never breaks even: a {noun} takes {slower} as long."
    count = units.counted(whole(found.steps), noun)
    level = f"{units.duration(found.fixed_s + found.steps * found.step_s)} with start-up"
    if found.steps_ci95 is not None:
        low, high = (f"{whole(each):,}" for each in found.steps_ci95)
        return f"{start} That breaks even after about {count} (95% CI {low}-{high}; {level})."
    doubt = _uncertain(found, noun, left)
    if is_certain:
        doubt = "The two are too close for an interval."
    return f"{start} That may break even after about {count} ({level}). {doubt}"


def _uncertain(found: Payoff, noun: str, left: Elimination | None) -> str:
    """Why it is not known which of the two has the shorter step."""
    if found.step_ratio_ci95 is not None:
        ratio = units.apart(found.over_step_s / found.step_s, found.step_ratio_ci95)
        return f"Their {noun}s cannot be distinguished: {ratio}."
    if left is not None:
        return f"{candidate_name(left.id)} was eliminated early ({left.message})."
    return f"Too few rounds to compare their {noun}s."


def whole(steps: float) -> int:
    """A number of steps, rounded up to a whole one and above a thousand to three digits."""
    count = math.ceil(steps * (1 - 1e-9))  # 600.0000001 is 600 and a rounding error
    return round(count, min(0, 3 - len(str(count))))
