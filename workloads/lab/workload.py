"""A user's ONNX model as a workload: variants that the model lab made, timed and compared.

It has no name on the command line: `advise --model` plans its cases, and the lab provides the
files of each (`Setup.files`).
"""

import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import ClassVar

from workbench.contract import Accuracy, Case, Setup, Task, Variant, Work, Workload
from workbench.files import write
from workbench.text import units
from workbench.worker.libraries import Array, np

from .._shared.onnx_task import OnnxTask
from . import agreement, bounds, parts, samples
from .samples import Samples

CHECKED_S, CHECKED_LEAST = 2.0, 2  # a very slow variant is checked on fewer inputs


class Model(Workload):
    """One run of the model on one batch, with inputs in turn from host memory."""

    name = "model"
    title = "A model of your own"
    teaches = "Only measuring each variant against a reference shows which one to ship."
    latency = True
    variants: ClassVar[tuple[Variant, ...]] = ()  # the lab chooses

    def work(self, case: Case) -> Work:
        """Its operations and memory are known to the lab only."""
        item = "samples" if case.batch else "runs"
        return Work(None, None, items=case.batch or 1, item=item, memory_bytes=0.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return ModelTask(case, setup)


class ModelTask(OnnxTask):
    """One step is one run."""

    shared = True

    def __init__(self, case: Case, setup: Setup) -> None:
        # The model as given needs no limit, as the others are compared with it.
        self.limit = float(setup.files["limit"]) if "limit" in setup.files else None
        self.metric = setup.files.get("metric", "relative_error")
        self.file = setup.files["model"]
        self.open(setup, case, self.file)
        self.outputs = agreement.compared(self.session)
        self.folder = Path(setup.files["folder"])
        self.parts = parts.read(Path(setup.files.get("lab", self.folder)), self.outputs)
        self.inputs = agreement.feeds(self.session, samples.read(self.folder / samples.INPUTS))
        self.references = samples.read(self.folder / samples.REFERENCE)
        self.feeds = cycle(self.inputs)

    def check(self) -> Accuracy:
        """Its error, or that of an earlier case with the same file and first answer: threads change
        none, and to measure an error takes as long as several rounds."""
        kept = self.folder / f"{Path(self.file).stem}-{self.case.backend}{samples.CHECKED}"
        first = agreement.answer(self.session, self.outputs, self.inputs[0])
        asked = self.metric, self.limit
        if kept.exists():
            accuracy: Accuracy
            known, was_asked, accuracy = pickle.loads(kept.read_bytes())  # noqa: S301 - ours
            is_same = len(known) == len(first) and all(map(np.array_equal, known, first))
            if is_same and was_asked == asked:
                return accuracy
        accuracy = self._judged()
        write.replace(kept, pickle.dumps((first, asked, accuracy)))
        return accuracy

    def _judged(self) -> Accuracy:
        """The error on the inputs that choose, or on those held out if the bound of the first is
        within the limit.  The larger bound is promised (see `bounds`)."""
        folded = Path(self.file).with_suffix(samples.FOLDED)
        is_checked = self.limit is not None and (self.folder / samples.CHECK).exists()
        kept = is_checked and folded.exists()  # answers of ONNX Runtime, for other libraries too
        answers = samples.read(folded) if kept else self._answers(self.inputs)
        if self.limit is None or not is_checked:
            return self._compared(answers, self.references, None)
        chosen = self._compared(answers, self.references, bounds.CHOOSE)
        if chosen.worst > self.limit:
            return chosen
        held_out = samples.read(self.folder / samples.CHECK)
        answers = self._answers(agreement.feeds(self.session, held_out))
        references = samples.read(self.folder / samples.CHECK_REFERENCE)
        found = self._compared(answers, references, bounds.CHECK)
        first, bound = chosen.error_bound, found.error_bound
        both = None if first is None or bound is None else max(first, bound)
        return replace(found, error_bound=both)

    def _answers(self, inputs: Sequence[dict[str, Array]]) -> list[list[Array]]:
        answers: list[list[Array]] = []
        began = time.perf_counter()
        for each in inputs:
            answers.append(agreement.answer(self.session, self.outputs, each))
            if len(answers) >= CHECKED_LEAST and time.perf_counter() - began > CHECKED_S:
                break
        return answers

    def _compared(self, answers: Samples, references: Samples, chance: float | None) -> Accuracy:
        """The error of `answers`, and a bound that is too low with `chance`, if they are enough."""
        references = references[: len(answers)]
        outputs = agreement.compare(self.outputs, answers, references, self.parts)
        value = agreement.summary(outputs, self.metric)
        bound = bounds.promised(answers, references, self.metric, self.limit, chance, self.parts)
        held_out = chance == bounds.CHECK
        inputs = units.counted(len(answers), "held-out input" if held_out else "input")
        reference = f"the model as given, unoptimised, on {inputs}"
        # Always passed: the advisor applies the user's own error limit.
        return Accuracy(
            self.metric, value, reference, 1.0, True, outputs, bound, held_out, len(answers)
        )


WORKLOAD = Model()
