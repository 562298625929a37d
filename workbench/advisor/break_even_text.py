"""The break-even points of a verdict in sentences."""

from __future__ import annotations

import math

from ..records.verdict import Elimination, Payoff, Verdict
from ..report.names import candidate_name
from ..text import units
from .race_summary import eliminated_by_first_block


def sentences(verdict: Verdict) -> list[str]:
    """One text for each break-even point of a verdict."""
    noun = "run" if verdict.objective == "time_to_result" else "step"
    texts = []
    for payoff in verdict.payoffs:
        left = (eliminated_by_first_block(verdict.race, case) for case in (payoff.id, payoff.over))
        texts.append(sentence(payoff, noun, next(filter(None, left), None)))
    return texts


def sentence(payoff: Payoff, noun: str = "step", left: Elimination | None = None) -> str:
    """One break-even point.

    `noun` is what a step is called; `left` says how one of the two was eliminated after its first
    block.  Firm only where the whole interval of the steps' ratio lies on one side of 1.
    """
    one, other = map(candidate_name, (payoff.id, payoff.over))
    later_s, interval = payoff.fixed_s - payoff.over_fixed_s, payoff.step_ratio_ci95
    difference = units.duration(abs(later_s))
    more = "longer" if later_s >= 0 else "less"
    start = f"{one} needs {difference} {more} to start than {other}."
    is_certain = interval is not None and not interval[0] <= 1 <= interval[1]
    if not payoff.steps and not is_certain:
        return f"{start} {_uncertain(payoff, noun, left)}"
    if payoff.steps == 0:
        return f"{one} leads {other} from the first {noun}: it needs {difference} less to start."
    if payoff.steps is None:
        slower, _ = units.ratio_parts(payoff.step_s / payoff.over_step_s, None)
        return f"{start} That never breaks even: a {noun} takes {slower} as long."
    steps = _count(payoff.steps)
    count = f"{steps} {noun}{'' if steps == '1' else 's'}"
    level = units.duration(payoff.fixed_s + payoff.steps * payoff.step_s)
    if payoff.steps_ci95 is not None:
        low, high = map(_count, payoff.steps_ci95)
        return f"{start} That breaks even after about {count} ({level}; 95% CI {low}-{high})."
    doubt = _uncertain(payoff, noun, left)
    if is_certain:
        doubt = "The two are too close for an interval."
    return f"{start} That may break even after about {count} ({level}). {doubt}"


def _uncertain(payoff: Payoff, noun: str, left: Elimination | None) -> str:
    """Why it is not known which of the two has the shorter step."""
    if payoff.step_ratio_ci95 is not None:
        ratio = payoff.over_step_s / payoff.step_s
        value, ci = units.ratio_parts(ratio, payoff.step_ratio_ci95)
        return f"Their {noun}s cannot be distinguished: {value} (95% CI {ci})."
    if left is not None:
        return f"{candidate_name(left.id)} was eliminated after its first turn ({left.message})."
    return f"Too few rounds to compare their {noun}s."


def _count(steps: float) -> str:
    """A number of steps, rounded up to a whole one and above a thousand to three digits."""
    whole = math.ceil(steps * (1 - 1e-9))  # 600.0000001 is 600 and a rounding error
    digits = len(str(whole)) - 3
    return f"{round(whole, -digits) if digits > 0 else whole:,}"
