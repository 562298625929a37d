"""One model in a folder of its own, inspected by the lab."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models as made
import pytest

from workbench.contract import WorkloadError
from workloads.lab import samples
from workloads.lab.child import Lab


class Case:
    """One model in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inspect(self, net: Any, **more: Any) -> dict[str, Any]:
        options = {"shapes": {}, "inputs": None, "batch": None, "seed": 0, **more}
        return Lab().inspect(made.saved(self.folder, net), str(self.folder), **options)

    def refusal(self, net: Any, **more: Any) -> WorkloadError:
        with pytest.raises(WorkloadError) as caught:
            self.inspect(net, **more)
        assert "\n" not in str(caught.value)
        assert caught.value.hint
        return caught.value

    def file(self, **arrays: Any) -> str:
        np.savez(self.folder / "data.npz", **arrays)
        return str(self.folder / "data.npz")

    def kept(self, name: str) -> list[list[Any]]:
        return samples.read(self.folder / name)


def run_shapes(facts: dict[str, Any]) -> dict[str, list[int]]:
    return {port["name"]: port["run_shape"] for port in facts["inputs"]}
