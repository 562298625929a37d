"""One row of a run: a scenario, or a workload of a plain `run`."""

from dataclasses import dataclass, field

from ..records import events as ev
from ..records.verdict import Verdict
from .candidate import Candidate

BARRED = ("error_limit", "limit", "not_counted")  # reasons against a pick, however fast it is


@dataclass
class Row:
    """One row and its candidates."""

    plan: ev.RacePlanned
    share_s: float | None = None  # seconds of the budget that it may use
    began_at_s: float | None = None  # seconds on the run's clock, once its race has begun
    rounds: int = 0  # number of completed rounds, known at the end
    ended_by: str | None = None  # see `RaceSummary.ended_by`; None before the end
    verdict: Verdict | None = None
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def started(self) -> bool:
        return self.began_at_s is not None

    @property
    def sweep(self) -> str | None:
        """The sweep with this point: a workload, or a scenario whose crossover is searched."""
        return (self.plan.of or self.plan.workload) if self.plan.point else None

    def is_reference_only(self, candidate: Candidate) -> bool:
        """Whether the candidate is reference-only, such as FP64, and never picked."""
        return candidate.case.precision in self.plan.reference_only

    def is_barred(self, candidate: Candidate) -> bool:
        """Whether the candidate may not be picked, however fast it is."""
        code = candidate.reason.code if candidate.reason else None
        return self.is_reference_only(candidate) or code in BARRED

    @property
    def round(self) -> int:
        """The number of the round that is under way or was the last; 0 before the first."""
        return max((c.blocks[-1].round + 1 for c in self.candidates if c.blocks), default=0)

    @property
    def finished(self) -> bool:
        return self.verdict is not None or (
            self.started and all(candidate.ended for candidate in self.candidates)
        )
