"""A user's ONNX model as a workload: variants that the model lab made, timed and compared.

It has no name on the command line: `advise --model` plans its cases, and the lab provides the
files of each (`Setup.files`).
"""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.contract import Accuracy, Case, Profile, Setup, Task, Variant, Work, Workload

from .._shared import profiling
from .._shared.session import open_session
from . import agreement, samples

if TYPE_CHECKING:
    from numpy.typing import NDArray


CHECKED_S, CHECKED_LEAST = 2.0, 2  # a very slow variant is checked on fewer inputs


class Model(Workload):
    """One run of the model on one batch, with inputs in turn from host memory."""

    name = "model"
    title = "A model of your own"
    teaches = "Which variant of a model to ship takes a stopwatch and a reference to answer."
    latency = True
    variants: ClassVar[tuple[Variant, ...]] = ()  # the lab chooses

    def work(self, case: Case) -> Work:
        """The lab knows its operations and memory, this side does not."""
        item = "samples" if case.batch else "runs"
        return Work(None, None, items=case.batch or 1, item=item, memory_bytes=0.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return ModelTask(case, setup)


class ModelTask(Task):
    def __init__(self, case: Case, setup: Setup) -> None:
        self.case, self.file = case, setup.files["model"]
        self.metric = setup.files.get("metric", "relative_error")
        with setup.phase("compile"):
            self.session = open_session(self.file, case, shared=True)
        names = [port.name for port in self.session.get_inputs()]
        self.outputs = agreement.compared(self.session)
        folder = Path(setup.files["folder"])
        given = samples.read(folder / samples.INPUTS) or [[]]
        self.inputs = [dict(zip(names, sample, strict=True)) for sample in given]
        self.references = samples.read(folder / samples.REFERENCE)
        self.feeds = cycle(self.inputs)

    def step(self) -> None:
        self.session.run(None, next(self.feeds))

    def check(self) -> Accuracy:
        answers: list[list[NDArray[Any]]] = []
        began = time.perf_counter()
        for each in self.inputs:
            answers.append(agreement.answer(self.session, self.outputs, each))
            if len(answers) >= CHECKED_LEAST and time.perf_counter() - began > CHECKED_S:
                break
        count = len(answers)
        outputs = agreement.compare(self.outputs, answers, self.references[:count])
        value = agreement.summary(outputs, self.metric)
        reference = f"the model as given, unoptimised, on {count} input{'s'[: count > 1]}"
        # Always passed: the advisor applies the user's own error limit.
        return Accuracy(self.metric, value, reference, 1.0, True, tuple(outputs))

    def profile(self, steps: int) -> Profile:
        return profiling.by_onnxruntime(self.file, self.case, self.feeds, steps, shared=True)


WORKLOAD = Model()
