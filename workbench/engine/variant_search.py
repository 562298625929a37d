"""The variants of an ONNX model as candidates, be it the user's own or exported from a module."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..advisor.limits import error_limit, exceeds_error_limit
from ..advisor.model.candidates import Proposal, SearchSpace, convolves, neighbours
from ..advisor.model.overview import variant_of
from ..advisor.reasons import listed
from ..contract import Case
from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from ..worker.recipe import ORIGINAL, Recipe
from .model_variants import NO_TIME, ModelVariants

NEAR = 1.25  # times the smallest error: variants as suitable to start a mix from
MOST_LISTED = 3  # variants that no time was left for, by name
# Times the error limit.  In `make own` 17 modules exceeded the limit with a scale per channel, and
# none of these kept it with a scale per tensor.
FAR = 2.0
TOO_COARSE = "with a scale per channel its error is far above the limit; --thorough measures it"
MIX_GAIN = 0.95  # times the leader's time: a variant over the limit must be faster to be mixed


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
    """Turns proposals into cases of any row: those that wait, a mix, and those near the leader."""

    waiting: list[Proposal]
    space: SearchSpace
    variants: ModelVariants
    case_of: Callable[[Proposal, Scenario], Case] = case_of
    _recipes: dict[str, Recipe] = field(default_factory=dict)  # by variant
    _is_mixed: bool = False

    def stop(self) -> None:
        """Record the variants that no time was left for."""
        self.variants.leave_out(proposal.recipe for proposal in self.waiting)
        self.waiting.clear()

    def gap(self, candidates: Sequence[Candidate] = ()) -> str:
        """After the race: the variants that no time was left to build."""
        self.stop()
        late = [name for name, why in self.variants.left_out.items() if why == NO_TIME]
        return listed(late, MOST_LISTED) if late else ""

    def next(self, measured: Iterable[Candidate], scenario: Scenario, until_s: float) -> list[Case]:
        """The next variant that waits, if it is built before `until_s`.

        One at a time: what was measured so far is an answer already, should time run out.
        """
        cases, too_coarse = list[Case](), self._too_coarse(measured, scenario)
        while self.waiting and not cases:
            recipe = self.waiting[0].recipe
            if self.variants.timed_out:
                self.stop()
            elif recipe in too_coarse:
                self.variants.left_out[recipe.label] = TOO_COARSE
                self.waiting.pop(0)
            else:
                cases = self.admit([self.waiting.pop(0)], scenario, until_s)
        return cases

    def _too_coarse(self, measured: Iterable[Candidate], scenario: Scenario) -> set[Recipe]:
        """Static forms with a scale per tensor whose counterparts with a scale per channel are far
        above the error limit; none with --thorough."""
        far_off = (
            self.proposal(each.case).recipe
            for each in ([] if self.space.thorough else measured)
            if (limit := error_limit(each, scenario)) is not None
            and each.accuracy is not None
            and each.accuracy.worst > FAR * limit
        )
        return {
            replace(recipe, per_channel=False)
            for recipe in far_off
            if recipe.method == "static" and recipe.per_channel
        }

    def admit(
        self, proposals: Iterable[Proposal], scenario: Scenario, until_s: float
    ) -> list[Case]:
        """The cases of proposals whose variant exists, or can be built before `until_s`."""
        cases = []
        for proposal in proposals:
            if self.variants.build(proposal.recipe, until_s):
                cases.append(case := self.case_of(proposal, scenario))
                self._recipes[variant_of(case)] = proposal.recipe
        return cases

    def proposal(self, case: Case) -> Proposal:
        """The proposal that `case` was made from, or would be."""
        recipe = self._recipes.get(variant_of(case), ORIGINAL)
        return Proposal(recipe, case.device, case.threads, case.mode, case.backend)

    def neighbours(self, leader: Case) -> Iterator[Proposal]:
        """Proposals that differ from the leader in one respect."""
        return neighbours(self.proposal(leader), self.space)

    def mix(
        self, measured: Iterable[Candidate], leader: Candidate, scenario: Scenario, seconds: float
    ) -> list[Case]:
        """Once, a mixed variant where a static one is faster but exceeds the error limit."""
        base = None if self._is_mixed else self._worth_mixing(measured, leader, scenario)
        if base is None:
            return []
        self._is_mixed = True
        given = replace(self.proposal(base.case), mode=None)
        recipe = self.variants.mix(given.recipe, seconds)
        found = [] if recipe is None else [replace(given, recipe=recipe)]
        return self.admit(found, scenario, 0.0)

    def _worth_mixing(
        self, measured: Iterable[Candidate], leader: Candidate, scenario: Scenario
    ) -> Candidate | None:
        """The fastest static variant that only its error keeps from leading, among the smallest
        errors."""
        errors = [
            (c.accuracy.worst, c)
            for c in measured
            if (c.case.quantization or "").startswith("static")
            and c.accuracy is not None
            and c.blocks
            and exceeds_error_limit(c, scenario)
            and c.min_s < MIX_GAIN * leader.min_s
        ]
        least = min((error for error, _ in errors), default=0.0)
        near = [c for error, c in errors if error <= NEAR * least]
        if not convolves(self.space):  # in a chain of products, operators between them cost more
            near = [c for c in near if "products" in (c.case.quantization or "")] or near
        return min(near, key=lambda c: c.min_s, default=None)
