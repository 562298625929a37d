"""Parts of every candidate that runs an ONNX model: its session, its steps and its profile."""

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.contract import Case, Profile, Setup, Task

from . import profiling
from .session import open_session


class OnnxTask(Task):
    """One step runs a model on the next of its inputs."""

    shared = False  # whether the CPU may run nodes that the case's provider lacks
    feeds: Iterator[Mapping[str, Any]]

    def open(self, setup: Setup, case: Case, model: bytes | str) -> None:
        """Open a session of the model, by its bytes or its file."""
        self.case, self.model = case, model
        with setup.phase("compile"):
            self.session = open_session(model, case, shared=self.shared)

    def step(self) -> None:
        self.session.run(None, next(self.feeds))

    def answer(self, batch: Any) -> Any:
        """The first output for `batch`, of a model with one input."""
        return self.session.run(None, {"input": batch})[0].copy()  # the next run may overwrite it

    def profile(self, steps: int) -> Profile:
        has_profiler = self.case.backend == "onnxruntime"
        return profiling.by_onnxruntime(self, steps) if has_profiler else super().profile(steps)
