"""One row of a run: its scenario, its candidates, and the source of further ones."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..contract import Case, ParameterValue, Workload, kind_of
from ..records.reason import Reason
from ..records.verdict import WhatIf
from ..report.candidate import Candidate
from .scenario import Scenario


class CandidateSource(ABC):
    """Proposes further candidates during a race, by default none, and has the files of each."""

    extra: Collection[str] = ()  # ids of cases whose absence leaves no gap in the evidence
    follows: bool = False  # whether its row races after all others

    @abstractmethod
    def files(self, case: Case) -> Mapping[str, str]:
        """The files that `case` gets as `Setup.files`."""

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """Cases that join after this round, when the row has `left_s` seconds left."""
        return []

    def lacks_s(self, candidates: Sequence[Candidate], left_s: float) -> float:
        """Seconds beyond `left_s`, after another round, that a possible winner lacks; 0 if none."""
        return 0.0

    def join_late(self, left_s: float) -> list[Case]:
        """The case that lacked time, now that the row has `left_s` seconds."""
        return []

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The id of the case that gains are stated over, so that it keeps racing although slower.

        By default the first: the code as written, unless an option leaves it out.
        """
        return candidates[0].case.id if candidates else None

    def gap(self, candidates: Sequence[Candidate]) -> str:
        """The candidates that might have won but lacked time: "its INT8 forms"; "" if none did."""
        return ""


@dataclass
class RowPlan:
    scenario: Scenario
    workload: Workload
    cases: list[Case] = field(default_factory=list)
    # Cases that join once they may beat the leader of their device.
    refining: list[Case] = field(default_factory=list)
    tuning: Mapping[str, Sequence[ParameterValue]] = field(default_factory=dict)  # if requested
    # The row's own values of the parameters for which several were requested.
    point: Mapping[str, ParameterValue] = field(default_factory=dict)
    source: CandidateSource | None = None  # proposes candidates that join during the race
    of: str | None = None  # the scenario whose crossover this row is a point of
    protected: frozenset[str] = frozenset()  # ids of cases that a slow block does not eliminate
    what_if: list[WhatIf] = field(default_factory=list)  # recorded results of other devices
    prices: Mapping[str, float] = field(default_factory=dict)  # per hour, as given by the user
    refused: Reason | None = None  # why none of its cases can be prepared
    shares_workers: bool = False  # with all rows, although start-up counts

    @property
    def decides(self) -> bool:
        """Whether it races for a pick; otherwise it races until all medians are well known."""
        return self.scenario.owes_verdict or self.of is not None

    @property
    def is_on_host(self) -> bool:
        """Whether none of its candidates needs a GPU; simulated ones need none."""
        return all(kind_of(case.device).on_host for case in self.cases)


def point_name(name: str, point: Mapping[str, ParameterValue]) -> str:
    """The id of a row at one of several points: `matmul[n=64]`."""
    listed = ",".join(f"{parameter}={value}" for parameter, value in point.items())
    return f"{name}[{listed}]" if point else name
