"""One row of a run: a scenario, or a workload of a plain run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records import events as ev
from ..records.verdict import Verdict
from .candidate import Candidate


@dataclass
class Row:
    """One scenario, or one workload of a plain `run`."""

    plan: ev.RacePlanned
    share_s: float | None = None
    rounds: int = 0
    ended_by: str | None = None  # as in `RaceSummary`; None: not yet
    started: bool = False
    verdict: Verdict | None = None
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def sweep(self) -> str | None:
        """What the row is a point of: a workload, or the scenario whose crossover is looked for."""
        return (self.plan.of or self.plan.workload) if self.plan.point else None

    def is_apart(self, candidate: Candidate) -> bool:
        """Whether it races among its like only, FP64 say, and is never picked."""
        return candidate.case.precision in self.plan.apart

    @property
    def finished(self) -> bool:
        return self.verdict is not None or (
            self.started and all(candidate.ended for candidate in self.candidates)
        )
