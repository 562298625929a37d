"""The search for the best way to train the user's module, one setting at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from ..advisor.limits import is_admissible
from ..advisor.own import training
from ..advisor.own.candidates import Proposal, Space
from ..advisor.own.training import TrainingSpace
from ..contract import Case
from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from ..stats import ratios
from .own_exports import Exports

SETTLED_ROUNDS = 2  # rounds of a leader before its neighbours are tried
LEAST_SHARE = 0.08  # time that must be left for another candidate, of the budget
WAITING = "waiting_fraction"


class TrainingSearch:
    """The candidate source of a training's row."""

    def __init__(self, space: TrainingSpace, scenario: Scenario, exports: Exports) -> None:
        self._space = space
        self._scenario = scenario
        self._exports = exports
        self._proposals: dict[str, Proposal] = {}  # by case id
        self._led: set[str] = set()  # leaders whose neighbours were tried

    def start(self) -> list[Case]:
        """Each precision and mode, without loader processes; compiled ones join later."""
        found, left_out = training.candidates(self._space)
        for name, why in left_out.items():
            self._exports.leave_out(name, why)
        return self._new([each for each in found if "compile" not in (each.mode or "")])

    def files(self, case: Case) -> Mapping[str, str]:
        return self._exports.files(case)

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The code as written: eager, without loader processes."""
        return next(iter(self._proposals), None)

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """Neighbours of the leader of each device, once it has led for some rounds."""
        if left_s < LEAST_SHARE * self._space.request.budget:
            return []
        valid = {c.case.id: c for c in candidates if c.blocks and is_admissible(c, self._scenario)}
        order = ratios.ranking({case: c.rounds() for case, c in valid.items()})
        leaders: dict[str, Candidate] = {}
        for case in order:
            leaders.setdefault(valid[case].case.device, valid[case])
        for case, leader in ((each.case.id, each) for each in leaders.values()):
            if case in self._led or len(leader.blocks) < SETTLED_ROUNDS:
                continue
            self._led.add(case)
            waiting = leader.blocks[-1].metrics.get(WAITING, 0.0)
            found = training.after(self._proposals[case], self._space, waiting)
            compiled = [each for each in found if "compile" in (each.mode or "")]
            if compiled and not self._exports.may_compile(left_s):
                found = [each for each in found if each not in compiled]
            if cases := self._new(found):
                return cases
        return []

    def _new(self, proposals: Sequence[Proposal]) -> list[Case]:
        found = []
        for proposal in proposals:
            case = proposal.case(self._scenario)
            if case.id not in self._proposals and self._space.admits(proposal):
                self._proposals[case.id] = proposal
                found.append(case)
        return found


def training_space(space: Space) -> TrainingSpace:
    """The space of `space.facts` as a training."""
    facts = space.facts
    return TrainingSpace(
        **{field.name: getattr(space, field.name) for field in fields(space)},
        loader=facts.data is not None,
        compilers=("cpu", "gpu"),
        impossible=facts.impossible,
        step_s=facts.step_s,
    )
