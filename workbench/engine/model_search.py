"""The search for candidates of a user's model while its row is raced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..advisor.comparison import ranked
from ..advisor.limits import eligible, exceeds_error_limit
from ..advisor.model.candidates import rivals
from ..advisor.refinements import SETTLED_ROUNDS
from ..contract import Case
from ..planning.plan import CandidateSource
from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from ..worker.recipe import ORIGINAL
from .variant_search import VariantSearch

BUILD_SHARE = 0.4  # longest time for a variant without which there is no race, of the budget
JOIN_SHARE = 0.2  # time that must be left for a new variant, of the budget
JOIN_LEAST_SHARE = 0.08  # time that must be left for another way to run a variant, of the budget
MIX_SHARE = 0.5  # time for a search of nodes to leave in FP32, of the time left
MOST_CANDIDATES = 16  # in a default run
RIVALS = 3  # number of next best candidates to try with the leader's threads


@dataclass(eq=False)
class CandidateSearch(VariantSearch, CandidateSource):
    """The candidate source of a model's row: first planned proposals, then a local search."""

    scenario: Scenario = field(kw_only=True)

    def start(self) -> list[Case]:
        """The cases to start with: the model as given, otherwise the first variant."""
        context, scenario = self.variants.context, self.scenario
        until_s = context.now() + BUILD_SHARE * context.request.budget
        given = [proposal for proposal in self.waiting if proposal.recipe == ORIGINAL]
        self.waiting = [proposal for proposal in self.waiting if proposal.recipe != ORIGINAL]
        return self.admit(given, scenario, until_s) or self.next((), scenario, until_s)

    # --------------------------------------------------------- the race asks

    def files(self, case: Case) -> Mapping[str, str]:
        return self.variants.files(case)

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """A variant that waits, else a mixed variant, else neighbours of the leader."""
        context, scenario = self.variants.context, self.scenario
        request, until_s = context.request, context.now() + left_s / 2
        if left_s >= JOIN_SHARE * request.budget and (
            cases := self.next(candidates, scenario, until_s)
        ):
            return cases
        measured = [c for c in candidates if c.blocks and c.case.device == "cpu"]
        order = ranked(eligible(measured, scenario))
        if not order or left_s < JOIN_LEAST_SHARE * request.budget:
            return []
        if mixed := self.mix(measured, order[0], scenario, MIX_SHARE * left_s):
            return mixed
        if request.thorough or len(order[0].blocks) < SETTLED_ROUNDS:
            return []
        known = {self.proposal(candidate.case) for candidate in candidates}
        best = [candidate.case for candidate in order[: 1 + RIVALS]]
        around = [*self.neighbours(best[0]), *map(self.proposal, rivals(best))]
        new = [proposal for proposal in dict.fromkeys(around) if proposal not in known]
        room = max(0, MOST_CANDIDATES - len(candidates))
        return self.admit(new[:room], scenario, until_s)

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The fastest run of the model as given, on the CPU."""
        on_cpu = [c for c in candidates if c.case.device == "cpu"]
        given = [c for c in on_cpu if self.proposal(c.case).recipe == ORIGINAL]
        usable = [c for c in given if not exceeds_error_limit(c, self.scenario)]
        return next((c.case.id for c in ranked(usable or given)), None)
