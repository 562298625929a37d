"""A user's model in the lab's worker: its facts, and its variants, each built at most once.

Each request has a share of the budget as its deadline.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .. import catalog
from ..contract import Case
from ..planning.questions import ModelQuestion
from ..planning.usage import UsageError
from ..pool.answers import Made, ModelSteps, SavedFile
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.model import Built, ModelFacts, Saved
from ..records.reason import Reason
from ..worker.recipe import ORIGINAL, Recipe
from ..worker.session_options import BFLOAT
from .context import START_S, RunContext

LAB = WorkerKey("cpu", catalog.LAB)
INSPECT_SHARE, PREPARE_SHARE, BUILD_SHARE = 0.4, 0.25, 0.35  # deadlines as shares of the budget
LEAST_S = 0.5  # shortest deadline of a request
OVER_S = 2.0  # seconds that a search may overrun its time
# Codes of reasons about the model, the options or this computer, not about the worker.
NOT_USABLE = (
    "bad_model", "bad_input", "unsupported", "non_finite", "missing_package", "no_memory",
)  # fmt: skip
LATE = "the budget left no time to build it; raise --budget"

T = TypeVar("T")


@dataclass(eq=False)
class ModelVariants:
    """Knows the file of each variant, and why others are missing."""

    question: ModelQuestion
    context: RunContext
    left_out: dict[str, str]  # recipe or option that is not tried, and why
    end_s: float = math.inf  # end of every request, on the run's clock
    timed_out: bool = False  # a build took too long, so others would too
    _precision: str = ""  # the model's own, once it is inspected
    _files: dict[str, str] = field(default_factory=dict)  # by label
    _failed: set[Recipe] = field(default_factory=set)

    def inspect(self, given: str | None = None) -> ModelFacts:
        """The facts about the model; UsageError if it or an option is unusable, or WorkerFailed.

        `given` is a folder with its inputs and reference outputs.
        """
        question, request = self.question, self.context.request
        deadline_s = self._share_s(INSPECT_SHARE)
        try:
            facts = self._ask(
                deadline_s,
                ModelFacts,
                op="inspect",
                shapes=question.run_shapes(),
                inputs=None if question.inputs is None else str(Path(question.inputs).absolute()),
                batch=request.batch[0] if request.batch else None,
                seed=request.seed,
                given=given,
                metric=question.metric,
                limit=question.limit,
                seconds=deadline_s,
            )
        except WorkerFailed as failure:
            if failure.reason.code not in NOT_USABLE:
                raise
            text, files = failure.reason.one_line, (question.target, question.inputs)
            is_named = any(Path(file).name in failure.reason.message for file in files if file)
            raise UsageError(text if is_named else f"{question.target}: {text}") from None
        self._precision = facts.precision
        self._files[facts.precision] = self._model
        return msgspec.structs.replace(facts, max_error=question.limit)

    def prepare(self, facts: ModelFacts) -> tuple[ModelFacts, dict[str, int]]:
        """The prepared facts, and how many nodes of each type can be quantised; or WorkerFailed."""
        prepared = self._ask(self._share_s(PREPARE_SHARE), ModelSteps, op="prepare")
        facts = msgspec.structs.replace(
            facts,
            steps=prepared.forms,
            multiply_adds=prepared.multiply_adds,
            weights_bytes=prepared.weights_bytes,
        )
        return facts, prepared.products

    def providers(self) -> dict[str, str]:
        """Execution providers other than the CPU's: the word of a mode to ONNX Runtime's name."""
        try:
            return self._ask(self._share_s(INSPECT_SHARE), dict[str, str], op="providers")
        except WorkerFailed as failure:
            self.left_out["other providers"] = failure.reason.message
            return {}

    def build(self, recipe: Recipe, until_s: float) -> bool:
        """Whether the file of `recipe` exists, after building it before `until_s` if necessary."""
        if self._label(recipe) in self._files:
            return True
        if recipe in self._failed:
            return False
        if self.context.now() >= until_s:
            self.left_out.setdefault(recipe.label, LATE)
            return False
        made = self._made(recipe, recipe.label, self._share_s(BUILD_SHARE), op="build")
        if isinstance(made, Reason):
            self._failed.add(recipe)
            self.timed_out |= made.code == "timeout"
        return isinstance(made, Made)

    def mix(self, recipe: Recipe, seconds: float) -> Recipe | None:
        """`recipe` without the nodes that take its error over the limit; None if none is found."""
        asked = {"metric": self.question.metric, "limit": self.question.limit}
        label, limit_s = f"{recipe.label}-mixed", seconds + OVER_S
        made = self._made(recipe, label, limit_s, op="mixed", seconds=seconds, **asked)
        return made.recipe if isinstance(made, Made) else None

    def _made(self, recipe: Recipe, label: str, deadline_s: float, **asked: Any) -> Made | Reason:
        """The worker's answer about the file of `recipe`, or the reason why there is none."""
        context, search = self.context, asked["op"] == "mixed"
        context.record(ev.ModelBuilding, recipe=recipe.label, search=search)
        began = time.monotonic()
        made: Made | Reason
        try:
            made = self._ask(deadline_s, Made, recipe=asdict(recipe), **asked)
        except WorkerFailed as failure:
            made = failure.reason
            built = Built(label, time.monotonic() - began, reason=made)
        else:
            self._files[label] = made.file
            self.left_out.pop(label, None)  # an earlier attempt may have lacked time
            built = Built(
                recipe=label,
                seconds=time.monotonic() - began,
                size_bytes=made.size_bytes,
                operators=made.operators,
                coverage=made.coverage,
                excluded=list(made.recipe.excluded) if made.recipe else [],
            )
        context.record(ev.ModelBuilt, built=built)
        return made

    def leave_out(self, recipes: Iterable[Recipe]) -> None:
        """Record that no time is left for these recipes, unless they were built or failed."""
        for recipe in recipes:
            if self._label(recipe) not in self._files and recipe not in self._failed:
                self.left_out.setdefault(recipe.label, LATE)

    def file(self, case: Case) -> str:
        return self._files[case.variant]

    def files(self, case: Case) -> Mapping[str, str]:
        """The files and options that `workloads.lab.workload` needs to run `case`."""
        file, folder = self.file(case), str(self.context.pool.scratch)
        files = {"model": file, "folder": folder, "metric": self.question.metric}
        exact = file == self._model and not {BFLOAT, "tf32"} & set(case.mode_words)
        return files if exact else {**files, "limit": repr(self.question.limit)}

    def save(self, case: Case, target: Path) -> Saved:
        """Write the case's variant to `target`; both a size and a reason: it was not checked."""
        before, pool = _modified(target), self.context.pool
        asked = {"destination": str(target.absolute()), "hidden": str(pool.folder_next_to(target))}
        limit_s, variant = self._share_s(BUILD_SHARE), self.file(case)
        try:
            saved = self._ask(limit_s, SavedFile, op="save", variant=variant, **asked)
        except WorkerFailed as failure:
            if _modified(target) in (None, before):
                return Saved(target.name, None, None, failure.reason)
            return Saved(str(target), target.stat().st_size, None, failure.reason)
        return Saved(str(target), saved.size_bytes, saved.difference)

    def _label(self, recipe: Recipe) -> str:
        return self._precision if recipe == ORIGINAL else recipe.label

    @property
    def _model(self) -> str:
        return str(Path(self.question.target).absolute())

    def _share_s(self, share: float) -> float:
        """A deadline: this share of the budget, or the time left if that is less."""
        context = self.context
        deadline_s = context.deadline(share * context.request.budget)
        return max(LEAST_S, min(deadline_s, self.end_s - context.now()))

    def _ask(self, deadline_s: float, kind: type[T], **asked: Any) -> T:
        pool = self.context.pool
        pool.start(LAB, min(START_S, self._share_s(1.0)))
        whole = {"model": self._model, "folder": str(pool.scratch), **asked}
        return pool.ask(LAB, deadline_s, kind, **whole).result


def _modified(file: Path) -> int | None:
    """When `file` was written, in nanoseconds; None if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else None
