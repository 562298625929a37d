"""The search for the best way to train the user's module, one setting at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ..advisor.own import training
from ..advisor.own.candidates import Space
from ..contract import Case
from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from .own_exports import Exports
from .own_search import SETTLED_ROUNDS, OwnSearch, proposal_of

WAITING = "waiting_fraction"


class TrainingSearch(OwnSearch):
    """The candidate source of a training's row."""

    def __init__(self, space: Space, scenario: Scenario, exports: Exports) -> None:
        super().__init__(space, scenario, exports)
        self._led: set[str] = set()  # leaders whose neighbours were tried
        self._stages = [self._vary_settings]

    def start(self) -> list[Case]:
        for mode, why in self._space.facts.impossible.items():
            self._exports.leave_out(mode, why)
        return self._new(training.start(self._space))

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The code as written: eager, without loader processes."""
        return candidates[0].case.id if candidates else None

    def _vary_settings(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """Neighbours of the leader of each device, once it has led for some rounds."""
        leaders: dict[str, Candidate] = {}
        for candidate in self._ranked(candidates):
            leaders.setdefault(candidate.case.device, candidate)
        for leader in leaders.values():
            if leader.case.id in self._led or len(leader.blocks) < SETTLED_ROUNDS:
                continue
            self._led.add(leader.case.id)
            waiting = leader.blocks[-1].metrics.get(WAITING, 0.0)
            cases = self._new(training.after(proposal_of(leader.case), self._space, waiting))
            if any(case.is_compiled for case in cases) and not self._exports.may_compile(left_s):
                cases = [case for case in cases if not case.is_compiled]
            if cases:
                return cases
        return []
