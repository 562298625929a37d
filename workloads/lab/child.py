"""The process in which a model that nobody has vouched for is read, run, prepared and quantised.

It answers like a worker (`workbench.worker.worker`): one operation a line, every failure an answer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from workbench.worker.recipe import Recipe
from workbench.worker.worker import serve

from .._shared.session import PROVIDERS
from . import inspection
from .errors import clear_errors


class Lab:
    """Handles requests; each public method is one operation of the protocol."""

    def hello(self) -> dict[str, Any]:
        """Import what reads and quantises models."""
        import onnx
        import onnxruntime

        versions = {"python": sys.version.split()[0], "onnx": onnx.__version__}
        return {"versions": {**versions, "onnxruntime": onnxruntime.__version__}}

    def providers(self, model: str, folder: str) -> dict[str, str]:
        """The execution providers beside the CPU's that this onnxruntime was built with, by the
        words of a case's mode; whether they work shows in the race."""
        import onnxruntime

        known = {**PROVIDERS, "cuda": "CUDAExecutionProvider"}
        there = onnxruntime.get_available_providers()
        return {word: name for word, name in known.items() if name in there}

    def inspect(
        self,
        model: str,
        folder: str,
        shapes: dict[str, list[int]],
        inputs: str | None,
        batch: int | None,
        seed: int,
    ) -> dict[str, Any]:
        """Read the model, find inputs that it runs on, keep what it answers; ModelFacts."""
        return inspection.inspect(model, folder, shapes, inputs, batch, seed)

    def prepare(self, model: str, folder: str) -> dict[str, Any]:
        """Write `prepared.onnx`; the steps with their sizes, and what there is to quantise."""
        from . import prepare

        with clear_errors("it cannot be prepared", code="not_prepared"):
            return prepare.prepare(Path(model), Path(folder))

    def build(self, model: str, folder: str, recipe: dict[str, Any]) -> dict[str, Any]:
        """Make one form of the prepared model: its file, size, operators and share in INT8."""
        from . import quantise

        with clear_errors("this form cannot be made", code="not_built"):
            return quantise.build(Path(folder), Recipe.of(recipe))

    def mixed(
        self,
        model: str,
        folder: str,
        recipe: dict[str, Any],
        metric: str,
        limit: float,
        seconds: float,
        costs: dict[str, float] | None,
    ) -> dict[str, Any]:
        """Find the nodes of a static form to leave in FP32, so that its error keeps `limit`.

        `metric` is one of `agreement.METRICS`, `costs` FP32 seconds by node.  What `build` tells,
        with the recipe, its `error` and how many models were `tried`.
        """
        from . import mixed

        with clear_errors("its sensitive nodes cannot be told", code="not_built"):
            return mixed.mixed(Path(folder), Recipe.of(recipe), metric, limit, seconds, costs)

    def save(self, model: str, folder: str, form: str, destination: str) -> dict[str, Any]:
        """Write the file `form` of the folder (or the model itself) to `destination`."""
        from . import save

        with clear_errors("it cannot be saved", code="not_saved"):
            return save.save(Path(model), Path(folder), Path(form), Path(destination))

    def close(self) -> None:
        """Nothing is held between requests."""


def main(arguments: list[str]) -> None:
    """Serve requests from the socket whose descriptor is the first argument until it closes."""
    serve(Lab(), int(arguments[0]))
