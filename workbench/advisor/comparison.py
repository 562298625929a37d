"""One candidate against another: how much better it is, how sure that is, and how to say so."""

from collections.abc import Callable
from dataclasses import dataclass

from ..records.code import CodeReport
from ..report.candidate import Candidate, Row
from ..report.names import candidate_name
from ..stats import ratios
from ..stats.paired import Ratio
from ..text import units
from ..worker.code import TORCH

TIMED = {  # for each objective measured in seconds, the words that follow a ratio
    "throughput": "",
    "latency": "",
    "latency_p99": " at the 99th percentile",
    "time_to_result": " from start-up to result",
}
BELOW = f"less than {ratios.TOLERANCE:.0%}"  # a lead too small to decide
COMPARED = {  # the quantity that a row compares, by objective
    "throughput": "time",
    "latency": "latency",
    "latency_p99": "99th percentile",
    "time_to_result": "time to result",
    "cost": "cost",
    "energy": "energy",
    "memory": "peak memory",
}
Values = Callable[[Candidate], ratios.ByRound]  # returns the values to compare


def better(objective: str) -> str:
    """`faster`, `faster at the 99th percentile`, `lower in cost`."""
    return f"faster{TIMED[objective]}" if objective in TIMED else f"lower in {COMPARED[objective]}"


def worse(objective: str) -> str:
    """`slower`, `slower at the 99th percentile`, `higher in cost`."""
    return f"slower{TIMED[objective]}" if objective in TIMED else f"higher in {COMPARED[objective]}"


def quantity(objective: str) -> str:
    """`time`, `time at the 99th percentile`, `cost`."""
    return f"time{TIMED[objective]}" if objective in TIMED else COMPARED[objective]


def as_written(row: Row, code: CodeReport) -> Candidate | None:
    """The user's code as it runs today, which is planned first; None if an option left it out."""
    first = row.candidates[0]
    case, facts = first.case, code.facts
    is_eager = (case.backend, case.precision, case.mode) == (TORCH, facts.precision, None)
    has_its_threads = None in (facts.threads, case.threads) or facts.threads == case.threads
    return first if has_its_threads and (facts.kind != TORCH or is_eager) else None


def ratio_of(
    one: Candidate | None, other: Candidate | None, values: Values = Candidate.rounds
) -> Ratio | None:
    """The value of `other` over that of `one` in their common rounds; None without both."""
    return ratios.ratio_between(values(other), values(one)) if one and other else None


@dataclass(frozen=True)
class Comparison:
    """Two candidates of one row under its objective.

    `ratio` is the value of `other` over that of `one` in their common rounds: above 1 `one` is
    better.  None means too few common rounds for an interval.
    """

    one: Candidate
    other: Candidate
    ratio: Ratio | None

    @classmethod
    def of(
        cls, one: Candidate, other: Candidate, values: Values = Candidate.rounds
    ) -> "Comparison":
        return cls(one, other, ratio_of(one, other, values))

    @property
    def is_proven(self) -> bool:
        """Whether `one` is better beyond doubt."""
        return self.ratio is not None and self.ratio.low > 1

    @property
    def is_close(self) -> bool:
        return ratios.is_close(self.ratio)

    @property
    def estimate(self) -> float | None:
        """The ratio from however few rounds; None where one of the two has no value."""
        mine, others = self.one.rounds(), self.other.rounds()
        return ratios.relative(others, mine) if mine and others else None

    @property
    def parts(self) -> tuple[str, str]:
        """The ratio and its interval as text: `("1.49x", "1.21-1.84")`."""
        ratio = self.ratio
        return ("", "") if ratio is None else units.ratio_parts(ratio.value, ratio.interval)

    def sentence(self, name: Callable[[str], str] = candidate_name) -> str:
        """The lead of `one` in words, or that there is none; `name` is that of a case id."""
        if self.ratio is not None and self.ratio.high < 1:
            return Comparison(self.other, self.one, self.ratio.inverse()).sentence(name)
        one, other = name(self.one.case.id), name(self.other.case.id)
        if self.ratio is None:
            return f"{one} leads {other}, but too few rounds were measured for an interval."
        if self.is_proven and ratios.is_tie(self.ratio):
            factor, ci = self.parts
            return f"{one} leads {other} by {BELOW}: {factor} (95% CI {ci})."
        if not self.is_proven:
            how = "are too close to call" if self.is_close else "cannot be distinguished"
            return f"{one} and {other} {how}: {units.apart(self.ratio.value, self.ratio.interval)}."
        factor, ci = units.lead_parts(self.ratio.value, self.ratio.interval)
        return f"{one} is {factor} {better(self.one.objective)} than {other} ({ci})."
