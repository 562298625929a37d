"""The candidates of a user's model or code from best to worst, with gains and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..catalog.files import UNLISTED
from ..records.verdict import Verdict
from ..report.candidate import Candidate, Row
from ..report.names import candidate_name
from ..stats import ratios
from ..stats.objectives import UNTIMED
from ..stats.paired import Ratio
from ..text import units
from .comparison import BELOW, Values, better, worse

NEGLIGIBLE = 5e-5  # an error that would show as 0.00%
VARY = "vary too much for a figure"


@dataclass(frozen=True)
class RankedCandidate:
    """One candidate with its place in the ranking, as a row of a table."""

    candidate: Candidate
    variant: str  # "int8-static-u8s8", as in the name of its file
    given: bool  # the model as given, or the code as written
    gain: float | None  # value of what is given over its own; above 1 it is better
    picked: bool
    above: str  # the limit that its error exceeds, so that it cannot be picked; "" if none
    how: str = ""  # "t2", "nospin t2", "cuda:0"
    size_bytes: int | None = None  # size of the file

    @classmethod
    def of(
        cls, candidate: Candidate, row: Row, base: Candidate | None, above: str, **shown: Any
    ) -> RankedCandidate:
        """A candidate of `row`, compared with `base`.

        No gain is shown if its interval reaches below half or above twice of it, or if the medians
        contradict it.
        """
        gain: float | None = None
        gained = gain_over(base, candidate)
        if gained is not None and gained.least is None:
            low, high = gained.ratio.interval if gained.ratio else (gained.factor, gained.factor)
            gain = gained.factor if low * 2 >= gained.factor >= high / 2 else None
        return cls(candidate, gain=gain, picked=row.picks(candidate), above=above, **shown)


class Gain(NamedTuple):
    """The factor by which one candidate is better than another."""

    factor: float
    ratio: Ratio | None  # its interval; None where there were too few rounds
    # Set where the medians in a table contradict `factor`, because other load slowed one of the two
    # in some rounds: a lower bound of the gain.
    least: float | None = None


def gain_over(
    given: Candidate | None, candidate: Candidate, values: Values = Candidate.rounds
) -> Gain | None:
    """The value of `given` over the candidate's; None where one of them was not measured."""
    if given is None or not values(given) or not values(candidate):
        return None
    factor, ratio = ratios.stated(values(given), values(candidate))
    if candidate.objective in UNTIMED:
        return Gain(factor, ratio)
    by_rounds, _ = ratios.stated(given.step_rounds(), candidate.step_rounds())
    off = given.median_s / candidate.median_s / by_rounds
    most = 2.0 if ratio else 1.5  # one or two rounds have no interval that warns
    low = ratio.low if ratio else factor
    return Gain(factor, ratio, None if 1 / most <= off <= most else low * min(off, 1.0))


def is_vague(one: Candidate | None, other: Candidate | None) -> bool:
    """Whether the ratio of two candidates of a model or code is left out everywhere, since their
    medians contradict it."""
    if one is None or other is None or one.case.workload not in UNLISTED:
        return False
    gained = gain_over(one, other)
    return gained is not None and gained.least is not None


def gain_text(gained: Gain, objective: str, other: str) -> str:
    """`1.92x (95% CI 1.90-1.94) faster than fp32 t2`."""
    factor, ratio, least = gained
    word = (better if factor >= 1 else worse)(objective)
    if ratio is None and least is not None:
        return f"not comparable with {other}: one or two noisy rounds only"
    if ratio is None:
        return f"{units.lead(factor)} {word} than {other}, after one or two rounds only"
    if least is not None and ratio.low > 1:
        if least <= 1:
            return f"best so far, but its times and those of {other} {VARY}"
        vary = "but their times vary too much for an exact figure"
        return f"at least {units.lead(least)} {word} than {other}, {vary}"
    if ratio.high < 1:
        ratio = ratio.inverse()
    measured = units.times(ratio.value, ratio.interval)
    if ratio.low > 1:
        return f"{measured} {word} than {other}"
    apart = units.apart(ratio.value, ratio.interval)
    return f"best so far, but it and {other} cannot be distinguished: {apart}"


def has_equal(verdict: Verdict) -> bool:
    """Whether the runner-up is as good as the pick, up to a lead that does not matter."""
    low, high = verdict.pick_ratio_ci95 or (1.0, 1.0)
    return verdict.tie and (low <= 1 or high <= 1 + ratios.TOLERANCE)


def tie_text(verdict: Verdict, runner_up: str) -> str:
    """The lead of the pick over the `runner_up` in a tie: none, a small one, or a small lag."""
    low, high = verdict.pick_ratio_ci95 or (1.0, 1.0)
    if high < 1:
        return f"{runner_up} leads it by {BELOW}."
    if low <= 1:
        return f"No clear lead over {runner_up}."
    if high <= 1 + ratios.TOLERANCE:
        return f"It leads {runner_up} by {BELOW}."
    return f"It leads {runner_up}: {units.times(verdict.pick_ratio or 1.0, (low, high))}."


def ties(verdict: Verdict, name: Callable[[str], str] = candidate_name) -> Iterator[str]:
    """Sentences after a recommendation: CPU against GPU, and a runner-up that is as good."""
    if verdict.device_ratio is not None:
        yield verdict.reasons[0]
    if verdict.tie and verdict.runner_up is not None:
        yield tie_text(verdict, name(verdict.runner_up))


def no_pick(row: Row) -> str:
    """Why nothing is recommended."""
    if row.verdict is None:
        return "No recommendation: the run ended too early."
    return " ".join(["No recommendation.", *row.verdict.reasons[:1]])


def error_text(value: float) -> str:
    """`1.98%`, and `<0.01%` where it would round to zero."""
    return "<0.01%" if 0 < value < NEGLIGIBLE else f"{value:.2%}"
