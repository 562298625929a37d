"""The process that reads, runs, prepares and quantises untrusted models.

It answers like a worker (`workbench.worker.worker`): one operation per line, failures included.
"""

import sys
from pathlib import Path
from typing import Any

from workbench.worker import onnx_gpu
from workbench.worker.libraries import onnx, onnxruntime
from workbench.worker.recipe import Recipe
from workbench.worker.serve import serve

from .._shared.session import PROVIDERS
from . import inspection, mixed, prepare, quantise, save
from .errors import clear_errors, quiet

OTHERS = "the other variants are measured without it"


class Lab:
    """Handles requests; each public method is one operation."""

    def hello(self) -> dict[str, Any]:
        versions = {"python": sys.version.split()[0], "onnx": onnx.__version__}
        return {"versions": {**versions, "onnxruntime": onnxruntime.__version__}}

    def providers(self, model: str, folder: str) -> dict[str, str]:
        """The providers except the CPU's, by their words in a mode; some may still not load."""
        known = {**PROVIDERS, "cuda": onnx_gpu.CUDA}
        there = onnxruntime.get_available_providers()
        if getattr(onnxruntime, "cuda_version", ""):  # a plug-in is registered only later
            there.append(onnx_gpu.CUDA)
        return {word: name for word, name in known.items() if name in there}

    inspect = staticmethod(inspection.inspect)

    def prepare(self, model: str, folder: str) -> dict[str, Any]:
        with quiet(), clear_errors("it cannot be prepared", code="not_prepared"):
            return prepare.prepare(Path(model), Path(folder))

    def build(self, model: str, folder: str, recipe: dict[str, Any]) -> dict[str, Any]:
        wanted = Recipe.of(recipe)
        with quiet(), clear_errors(f"{wanted.label} cannot be made", "not_quantised", OTHERS):
            return quantise.build(Path(folder), wanted)

    def mixed(
        self, model: str, folder: str, recipe: dict[str, Any], **wanted: Any
    ) -> dict[str, Any]:
        static = Recipe.of(recipe)
        with quiet(), clear_errors(f"{static.label} cannot be mixed", "not_quantised", OTHERS):
            return mixed.mixed(Path(folder), static, **wanted)

    def save(
        self, model: str, folder: str, variant: str, destination: str, hidden: str
    ) -> dict[str, Any]:
        hint = "try again with another file name"
        with quiet(), clear_errors("it cannot be saved", code="not_saved", hint=hint):
            return save.save(*map(Path, (model, folder, variant, destination, hidden)))


def main(arguments: list[str]) -> None:
    """Answer requests from the socket whose descriptor is the first argument, until it closes."""
    serve(Lab(), int(arguments[0]))
