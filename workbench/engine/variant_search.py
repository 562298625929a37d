"""The variants of an ONNX model, the user's own or exported from a module, as candidates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..advisor.limits import eligible, error_limit, exceeds_error_limit
from ..advisor.model.candidates import ModelSpace, Proposal, convolves, neighbours, rivals
from ..advisor.model.overview import original
from ..advisor.refinements import SETTLED_ROUNDS
from ..contract import Case
from ..planning.plan import CandidateSource
from ..planning.scenario import Scenario
from ..report.candidate import Candidate, ranked
from ..text.units import listed
from ..worker.recipe import ORIGINAL, Recipe
from .model_variants import LATE, ModelVariants

NEAR = 1.25  # times the smallest error, up to which a variant may start a mix
MOST_LISTED = 3  # variants listed by name that lacked time
# Times the error limit.  In `make own` 17 modules exceeded the limit with a scale per channel, and
# all of these exceeded it with a scale per tensor.
FAR = 2.0
TOO_COARSE = "with a scale per channel its error is far above the limit; --thorough measures it"
MIX_GAIN = 0.95  # times the leader's time, below which a variant over the limit is mixed
BUILD_SHARE = 0.4  # most of the budget to build a variant that the race cannot start without
# Shares of the budget that must be left for a new variant, and to run a built one another way.
JOIN_SHARE = 0.2
JOIN_LEAST_SHARE = 0.08
MIX_SHARE = 0.5  # share of the time left in which nodes to leave in FP32 are searched
MOST_CANDIDATES = 16  # in a default run
RIVALS = 3  # next best candidates to try with the leader's threads


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
class VariantSearch:
    """Turns proposals into cases: those that wait, a mix, and neighbours of the leader."""

    waiting: list[Proposal]
    space: ModelSpace
    variants: ModelVariants
    scenario: Scenario
    case_of: Callable[[Proposal, Scenario], Case] = case_of
    _recipes: dict[str, Recipe] = field(default_factory=dict)  # by variant
    _is_mixed: bool = False

    def stop(self) -> None:
        """Record that no time is left for the variants that wait."""
        self.variants.leave_out(proposal.recipe for proposal in self.waiting)
        self.waiting.clear()

    def gap(self, candidates: Sequence[Candidate] = ()) -> str:
        """After the race: the variants that lacked time to be built, in words."""
        self.stop()
        late = [name for name, why in self.variants.left_out.items() if why == LATE]
        return listed(late, MOST_LISTED) if late else ""

    def next(self, measured: Iterable[Candidate], until_s: float) -> list[Case]:
        """The next variant, if it can be built before `until_s`; only one, as time may run out."""
        cases, too_coarse = list[Case](), self._too_coarse(measured)
        while self.waiting and not cases:
            recipe = self.waiting[0].recipe
            if self.variants.timed_out:
                self.stop()
            elif recipe in too_coarse:
                self.variants.left_out[recipe.label] = TOO_COARSE
                self.waiting.pop(0)
            else:
                cases = self.admit([self.waiting.pop(0)], until_s)
        return cases

    def _too_coarse(self, measured: Iterable[Candidate]) -> set[Recipe]:
        """Static forms with a scale per tensor whose counterparts with a scale per channel are far
        above the error limit; none with --thorough."""
        found = set[Recipe]()
        for each in () if self.space.thorough else measured:
            recipe, limit = self.proposal(each.case).recipe, error_limit(each, self.scenario)
            is_far_off = limit is not None and each.accuracy and each.accuracy.worst > FAR * limit
            if is_far_off and recipe.method == "static" and recipe.per_channel:
                found.add(replace(recipe, per_channel=False))
        return found

    def admit(self, proposals: Iterable[Proposal], until_s: float) -> list[Case]:
        """The cases of proposals whose variant exists, or can be built before `until_s`."""
        cases = []
        for proposal in proposals:
            if self.variants.build(proposal.recipe, until_s):
                cases.append(case := self.case_of(proposal, self.scenario))
                self._recipes[case.variant] = proposal.recipe
        return cases

    def proposal(self, case: Case) -> Proposal:
        recipe = self._recipes.get(case.variant, ORIGINAL)
        return Proposal(recipe, case.device, case.threads, case.mode, case.backend)

    def neighbours(self, leader: Case) -> Iterator[Proposal]:
        return neighbours(self.proposal(leader), self.space)

    def mix(self, measured: Iterable[Candidate], leader: Candidate, seconds: float) -> list[Case]:
        """Once, a mixed variant where a static one is faster but exceeds the error limit."""
        base = None if self._is_mixed else self._worth_mixing(measured, leader)
        if base is None:
            return []
        self._is_mixed = True
        given = replace(self.proposal(base.case), mode=None)
        recipe = self.variants.mix(given.recipe, seconds)
        found = [] if recipe is None else [replace(given, recipe=recipe)]
        return self.admit(found, 0.0)

    def _worth_mixing(self, measured: Iterable[Candidate], leader: Candidate) -> Candidate | None:
        """The fastest of the static variants with the smallest errors, if its error alone keeps it
        from leading."""
        errors = [
            (c.accuracy.worst, c)
            for c in measured
            if (c.case.quantization or "").startswith("static")
            and c.accuracy is not None
            and c.blocks
            and exceeds_error_limit(c, self.scenario)
            and c.min_s < MIX_GAIN * leader.min_s
        ]
        least = min((error for error, _ in errors), default=0.0)
        near = [c for error, c in errors if error <= NEAR * least]
        if not convolves(self.space):  # between products, changing precision costs more
            near = [c for c in near if "products" in (c.case.quantization or "")] or near
        return min(near, key=lambda c: c.min_s, default=None)


@dataclass(eq=False)
class CandidateSearch(VariantSearch, CandidateSource):
    """The candidate source of a model's row: planned proposals, then a local search."""

    def start(self) -> list[Case]:
        """The cases to start with: the model as given, or else the first variant."""
        context = self.variants.context
        until_s = context.now() + BUILD_SHARE * context.request.budget
        given = [proposal for proposal in self.waiting if proposal.recipe == ORIGINAL]
        self.waiting = [proposal for proposal in self.waiting if proposal.recipe != ORIGINAL]
        return self.admit(given, until_s) or self.next((), until_s)

    def files(self, case: Case) -> Mapping[str, str]:
        return self.variants.files(case)

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """A variant that waits, else a mixed variant, else neighbours of the leader."""
        context = self.variants.context
        request, until_s = context.request, context.now() + left_s / 2
        if left_s >= JOIN_SHARE * request.budget and (cases := self.next(candidates, until_s)):
            return cases
        measured = [c for c in candidates if c.blocks and c.case.device == "cpu"]
        order = ranked(eligible(measured, self.scenario))
        if not order or left_s < JOIN_LEAST_SHARE * request.budget:
            return []
        if mixed := self.mix(measured, order[0], MIX_SHARE * left_s):
            return mixed
        if request.thorough or len(order[0].blocks) < SETTLED_ROUNDS:
            return []
        known = {self.proposal(candidate.case) for candidate in candidates}
        best = [candidate.case for candidate in order[: 1 + RIVALS]]
        around = [*self.neighbours(best[0]), *map(self.proposal, rivals(best))]
        new = [proposal for proposal in dict.fromkeys(around) if proposal not in known]
        room = max(0, MOST_CANDIDATES - len(candidates))
        return self.admit(new[:room], until_s)

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        given = original(candidates, self.space.facts, "cpu")
        return given.case.id if given is not None else None
