"""The search for candidates of a user's model while its row is raced."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..advisor.comparison import ranked
from ..advisor.limits import eligible, exceeds_error_limit
from ..advisor.model.candidates import Proposal, SearchSpace, convolves, neighbours
from ..advisor.refinements import SETTLED_ROUNDS
from ..contract import Case
from ..planning.request import Request
from ..planning.scenario import Scenario
from ..pool.control import Control
from ..report.candidate import Candidate
from ..worker.recipe import ORIGINAL
from .model_variants import ModelVariants

BUILD_SHARE = 0.4  # longest time for a variant without which there is no race, of the budget
JOIN_SHARE = 0.2  # time that must be left for a new variant, of the budget
JOIN_LEAST_SHARE = 0.08  # time that must be left for another way to run a variant, of the budget
MIX_SHARE = 0.5  # time for a search of nodes to leave in FP32, of the time left
NEAR = 1.25  # times the smallest error: variants as suitable to start a mix from
MIX_GAIN = 0.95  # times the leader's time: a variant over the limit must be faster to be mixed
MOST_CANDIDATES = 16  # in a default run
RIVALS = 3  # number of next best candidates to try with the leader's threads


def case_of(proposal: Proposal, scenario: Scenario) -> Case:
    recipe = proposal.recipe
    return Case(
        workload=scenario.workload,
        device=proposal.device,
        backend=proposal.backend,
        precision=scenario.precisions[0] if recipe == ORIGINAL else recipe.precision,
        quantization=recipe.quantization,
        threads=proposal.threads,
        batch=scenario.batch,
        params=scenario.params,
        mode=proposal.mode,
    )


@dataclass(eq=False)
class CandidateSearch:
    """The candidate source of a model's row: first planned proposals, then a local search."""

    waiting: list[Proposal]
    space: SearchSpace
    scenario: Scenario
    variants: ModelVariants
    request: Request
    control: Control
    _proposals: dict[str, Proposal] = field(default_factory=dict)  # by case id
    extra: Collection[str] = ()
    _mixed: bool = False

    def start(self) -> list[Case]:
        """The cases to start with: the model as given, otherwise the first variant."""
        given = [proposal for proposal in self.waiting if proposal.recipe == ORIGINAL]
        self.waiting = [proposal for proposal in self.waiting if proposal.recipe != ORIGINAL]
        return self._admit(given, 0.0) or self._next(BUILD_SHARE * self.request.budget)

    def stop(self) -> None:
        """Record the variants that no time was left for."""
        self.variants.leave_out(proposal.recipe for proposal in self.waiting)
        self.waiting.clear()

    # --------------------------------------------------------- the race asks

    def files(self, case: Case) -> Mapping[str, str]:
        return self.variants.files(case)

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """A variant that waits, else a mixed variant, else neighbours of the leader."""
        budget_s = self.request.budget
        if left_s >= JOIN_SHARE * budget_s and (cases := self._next(left_s / 2)):
            return cases
        measured = [c for c in candidates if c.blocks and c.case.device == "cpu"]
        order = ranked(eligible(measured, self.scenario))
        if not order or left_s < JOIN_LEAST_SHARE * budget_s:
            return []
        leader = order[0]
        until_s = self.control.now() + left_s / 2
        if mixed := self._mix(measured, leader, MIX_SHARE * left_s):
            return self._admit([mixed], until_s)
        if self.request.thorough or len(leader.blocks) < SETTLED_ROUNDS:
            return []
        room = max(0, MOST_CANDIDATES - len(candidates))
        return self._admit(self._around(order)[:room], until_s)

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The fastest run of the model as given, on the CPU."""
        on_cpu = [c for c in candidates if c.case.device == "cpu"]
        given = [c for c in on_cpu if self._proposals[c.case.id].recipe == ORIGINAL]
        usable = [c for c in given if not exceeds_error_limit(c, self.scenario)]
        return next((c.case.id for c in ranked(usable or given)), None)

    # ----------------------------------------------------------- proposals

    def _next(self, seconds: float) -> list[Case]:
        """The next variant that waits, if it is built within `seconds`.

        One at a time: what was measured so far is an answer already, should time run out.
        """
        until_s = self.control.now() + seconds
        cases: list[Case] = []
        while self.waiting and not cases:
            if self.variants.timed_out:
                self.stop()
                break
            cases = self._admit([self.waiting.pop(0)], until_s)
        return cases

    def _admit(self, proposals: Sequence[Proposal], until_s: float) -> list[Case]:
        """The cases of proposals whose variant exists, or can be built before `until_s`."""
        admitted = []
        for proposal in proposals:
            if self.variants.build(proposal.recipe, until_s):
                case = case_of(proposal, self.scenario)
                self._proposals[case.id] = proposal
                admitted.append(case)
        return admitted

    def _around(self, order: Sequence[Candidate]) -> list[Proposal]:
        """New proposals near the leader, and the next best with the leader's threads."""
        known = set(self._proposals.values())
        leader = self._proposals[order[0].case.id]
        new = [proposal for proposal in neighbours(leader, self.space) if proposal not in known]
        # A candidate that lost with other threads may win with the leader's.
        for candidate in order[1 : 1 + RIVALS]:
            proposal = self._proposals[candidate.case.id]
            rival = replace(proposal, threads=leader.threads, mode=None)
            if rival not in known and rival not in new:
                new.append(rival)
        return new

    def _mix(
        self, measured: Sequence[Candidate], leader: Candidate, seconds: float
    ) -> Proposal | None:
        """Once, a mixed variant where a static one is faster but exceeds the error limit."""
        base = None if self._mixed else worth_mixing(measured, leader, self.scenario, self.space)
        if base is None:
            return None
        self._mixed = True
        recipe = self.variants.mix(self._proposals[base.case.id].recipe, seconds)
        return None if recipe is None else Proposal(recipe, threads=base.case.threads)


def worth_mixing(
    measured: Iterable[Candidate], leader: Candidate, scenario: Scenario, space: SearchSpace
) -> Candidate | None:
    """The fastest static variant that only its error keeps from leading, among the smallest
    errors."""
    best_s = min(leader.samples_s)
    errors = [
        (c.accuracy.worst, c)
        for c in measured
        if (c.case.quantization or "").startswith("static")
        and c.accuracy is not None
        and exceeds_error_limit(c, scenario)
        and min(c.samples_s) < MIX_GAIN * best_s
    ]
    least = min((error for error, _ in errors), default=0.0)
    near = [c for error, c in errors if error <= NEAR * least]
    if not convolves(space):  # in a chain of products, operators between them cost more
        near = [c for c in near if "products" in (c.case.quantization or "")] or near
    return min(near, key=lambda c: min(c.samples_s), default=None)
