"""The variants of a user's model: built by the lab's worker, each at most once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from ..advisor.model.overview import variant_of
from ..contract import Case
from ..pool.answers import Made
from ..pool.control import Control
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.model import Built, ModelFacts
from ..worker.recipe import ORIGINAL, Recipe
from ..worker.session_options import BFLOAT
from .model_child import Child

NO_TIME = "the budget left no time to build it; raise --budget"


class VariantBuilder:
    """Knows the file of each variant, and why others are missing."""

    def __init__(
        self,
        child: Child,
        facts: ModelFacts,
        left_out: dict[str, str],
        *,
        control: Control,
        emit: Callable[[ev.AnyEvent], None],
    ) -> None:
        self._child = child
        self._precision = facts.precision
        self._control = control
        self._emit = emit
        self._files = {facts.precision: child.file}  # by label
        self._failed: set[Recipe] = set()
        self.left_out = left_out  # recipe or option that is not tried, and why
        self.timed_out = False  # a build took too long, as others would

    def build(self, recipe: Recipe, until_s: float) -> bool:
        """Whether there is a file of `recipe`, built before `until_s` if necessary."""
        if self._label(recipe) in self._files:
            return True
        if recipe in self._failed:
            return False
        if self._control.now() >= until_s:
            self.left_out.setdefault(recipe.label, NO_TIME)
            return False
        self._emit(ev.ModelBuilding(at_s=self._control.now(), recipe=recipe.label))
        began = time.monotonic()
        try:
            self._keep(recipe, self._child.build(recipe), began)
        except WorkerFailed as failure:
            self._failed.add(recipe)
            self._fail(recipe.label, failure, began)
            self.timed_out |= failure.reason.code == "timeout"
            return False
        return True

    def mix(self, recipe: Recipe, seconds: float) -> Recipe | None:
        """`recipe` without the nodes that take it over the limit; None: no such mix was found."""
        self._emit(ev.ModelBuilding(at_s=self._control.now(), recipe=recipe.label, search=True))
        began = time.monotonic()
        try:
            mixed, made = self._child.mix(recipe, seconds)
        except WorkerFailed as failure:
            self._fail(f"{recipe.label}-mixed", failure, began)
            return None
        self._keep(mixed, made, began)
        return mixed

    def leave_out(self, recipes: Iterable[Recipe]) -> None:
        """Record that no time is left for these, unless they were built or failed."""
        for recipe in recipes:
            if self._label(recipe) not in self._files and recipe not in self._failed:
                self.left_out.setdefault(recipe.label, NO_TIME)

    def file(self, case: Case) -> str:
        return self._files[variant_of(case)]

    def files(self, case: Case) -> Mapping[str, str]:
        """The files and options that `workloads.lab.workload` needs to run `case`."""
        child, file = self._child, self.file(case)
        files = {"model": file, "folder": child.folder, "metric": child.metric}
        exact = file == child.file and not {BFLOAT, "tf32"} & set(case.mode_words)
        return files if exact else {**files, "limit": repr(child.limit)}

    def _label(self, recipe: Recipe) -> str:
        return self._precision if recipe == ORIGINAL else recipe.label

    def _keep(self, recipe: Recipe, made: Made, began: float) -> None:
        self._files[recipe.label] = made.file
        self.left_out.pop(recipe.label, None)  # there may have been no time for it at first
        built = Built(
            recipe=recipe.label,
            seconds=time.monotonic() - began,
            size_bytes=made.size_bytes,
            operators=made.operators,
            coverage=made.coverage,
            excluded=list(recipe.excluded),
        )
        self._emit(ev.ModelBuilt(at_s=self._control.now(), built=built))

    def _fail(self, label: str, failure: WorkerFailed, began: float) -> None:
        built = Built(label, time.monotonic() - began, reason=failure.reason)
        self._emit(ev.ModelBuilt(at_s=self._control.now(), built=built))
