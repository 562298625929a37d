"""The engine's requests to the lab's worker, each with a share of the budget as its deadline.

The worker is one like the others: limited, frozen between requests, replaced when it dies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .. import catalog
from ..planning.model_question import ModelQuestion
from ..planning.request import Request
from ..planning.usage import UsageError
from ..pool.answers import Made, Mixed, ModelSteps, SavedFile
from ..pool.control import Control
from ..pool.pool import Pool, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records.model import ModelFacts
from ..records.reason import Reason
from ..worker.recipe import Recipe

CHILD = WorkerKey("cpu", catalog.LAB)
START_S = 60.0  # for importing from a cold disk
INSPECT_SHARE, PREPARE_SHARE, BUILD_SHARE = 0.4, 0.25, 0.35  # deadlines as shares of the budget
LEAST_S = 0.5  # shortest deadline of a request
OVER_S = 2.0  # seconds that a search may overrun its time
# Reasons that are about the model or the options, rather than about the worker.
NOT_USABLE = ("bad_model", "bad_input", "unsupported", "non_finite")
NOT_HERE = ("missing_package", "no_memory")

T = TypeVar("T")


class Child:
    """One model in the lab's worker; every method may raise WorkerFailed."""

    def __init__(
        self, question: ModelQuestion, request: Request, *, pool: Pool, control: Control
    ) -> None:
        self._question = question
        self._request = request
        self._pool = pool
        self._control = control
        self.file = str(Path(question.file).absolute())
        self.folder = str(pool.scratch)
        self.metric, self.limit = question.metric, question.limit

    def _ask(self, share: float, kind: type[T], **request: Any) -> T:
        """Ask with a share of the budget as the deadline, or the rest of it if that is less."""
        budget, now = self._request.budget, self._control.now()
        return self._ask_within(max(LEAST_S, min(share * budget, budget - now)), kind, **request)

    def _ask_within(self, deadline_s: float, kind: type[T], **request: Any) -> T:
        self._pool.start(CHILD, START_S)
        whole = {"model": self.file, "folder": self.folder, **request}
        return self._pool.ask(CHILD, deadline_s, kind, **whole).result

    def inspect(self, given: str | None = None) -> ModelFacts:
        """The facts about the model; UsageError where it or an option cannot be used.

        A folder `given` holds its inputs and reference outputs.
        """
        question, request = self._question, self._request
        try:
            facts = self._ask(
                INSPECT_SHARE,
                ModelFacts,
                op="inspect",
                shapes=question.run_shapes(),
                inputs=None if question.inputs is None else str(Path(question.inputs).absolute()),
                batch=request.batch[0] if request.batch else None,
                seed=request.seed,
                given=given,
                metric=question.metric,
                limit=question.limit,
            )
        except WorkerFailed as failure:
            if failure.reason.code in (*NOT_USABLE, *NOT_HERE):
                raise UsageError(self._refusal(failure.reason)) from None
            raise
        return msgspec.structs.replace(facts, max_error=question.limit)

    def _refusal(self, reason: Reason) -> str:
        """One line that names the file once."""
        files = (self._question.file, self._question.inputs)
        is_named = any(Path(file).name in reason.message for file in files if file)
        prefix = "" if is_named else f"{self._question.file}: "
        hint = f" ({reason.hint})" if reason.hint else ""
        return f"{prefix}{reason.message}{hint}"

    def prepare(self, facts: ModelFacts) -> tuple[ModelFacts, dict[str, int]]:
        """The facts after preparation, and the number of nodes that can be quantised, by type."""
        prepared = self._ask(PREPARE_SHARE, ModelSteps, op="prepare")
        facts = msgspec.structs.replace(
            facts,
            steps=prepared.forms,
            multiply_adds=prepared.multiply_adds,
            weights_bytes=prepared.weights_bytes,
        )
        return facts, prepared.products

    def providers(self) -> dict[str, str]:
        """Execution providers other than the CPU's: the word of a mode to ONNX Runtime's name."""
        return self._ask(INSPECT_SHARE, dict[str, str], op="providers")

    def build(self, recipe: Recipe) -> Made:
        return self._ask(BUILD_SHARE, Made, op="build", recipe=recipe.as_fields())

    def mix(self, recipe: Recipe, seconds: float) -> tuple[Recipe, Made]:
        """`recipe` with the nodes to leave in FP32, found within `seconds`, and its file."""
        mixed = self._ask_within(
            seconds + OVER_S,
            Mixed,
            op="mixed",
            recipe=recipe.as_fields(),
            metric=self._question.metric,
            limit=self._question.limit,
            seconds=seconds,
        )
        return mixed.recipe, mixed

    def save(self, variant: str, target: Path) -> SavedFile:
        destination = str(target.absolute())
        kind, asked = SavedFile, {"variant": variant, "destination": destination}
        return self._ask(BUILD_SHARE, kind, op="save", **asked)
