"""Whether the model lab keeps its promises on inputs that it has never seen.

`python -m benchmarks.unseen MODEL [--inputs N] [--repeats N] [--agreement]`

In each repetition the lab gets N inputs at random, and the others stay apart.  Its child builds the
variants, its workload checks them, and the first that keeps the limit is taken, in a fixed order
from the coarsest to the finest, the mixed one included: no time is measured.  The limit is drawn
near the errors of the variants, where it is hardest to keep.  The promise is broken where the error
on the inputs that stayed apart exceeds the limit.  `estimate` is what would be taken by the error
on half of the inputs, without a bound and without inputs that check.
"""

import argparse
import os
import resource
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus_models import trained_classifier
from workbench.contract import Accuracy, Case, Setup, WorkloadError
from workbench.worker.recipe import Recipe
from workloads._shared import network, optdigits as digits
from workloads._shared.onnx_model import graph
from workloads._shared.session import cpu_session
from workloads.lab import agreement
from workloads.lab.child import Lab
from workloads.lab.workload import WORKLOAD

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before onnxruntime is imported

STATIC = Recipe("int8", "static")
RECIPES = [
    STATIC,
    Recipe("int8", "static", per_channel=True),
    Recipe("int8", "static", scope="products"),
    Recipe("int8", "static", scope="products", per_channel=True),
    Recipe("int8", "dynamic", scope="products"),
]
MIX_S = 0.5
LIMITS = (0.7, 1.5)  # the limit, as a multiple of the median error of the variants


def perceptron() -> tuple[bytes, Any]:
    """A classifier of the real digits, trained for a second."""
    net = trained_classifier()
    dense = [
        network.Dense(each.weight.detach().numpy(), each.bias.detach().numpy(), each is not net[-1])
        for each in net[::2]  # ReLU is between them
    ]
    return graph(dense, (1, 64)), digits.load()[0].reshape(-1, 64)


def convolutions() -> tuple[bytes, Any]:
    """The trained conv net of infer_cnn on coloured pictures of the real digits."""
    pictures = digits.coloured(digits.load()[0], 16, np.random.default_rng(0))
    return graph(network.trained_convnet(), (1, 3, 16, 16)), pictures


def skewed() -> tuple[bytes, Any]:
    """A network with random weights, and inputs of which some are ten times as large as others."""
    random = np.random.default_rng(0)
    scale = random.lognormal(0, 0.8, (2000, 1)).astype(np.float32)
    inputs = random.standard_normal((2000, 64), dtype=np.float32) * scale
    return graph(network.mlp((64, 128, 64, 10), 0), (1, 64)), inputs


MODELS = {each.__name__: each for each in (perceptron, convolutions, skewed)}


class Trial:
    """One repetition: the variants of a model by the inputs that the lab was given."""

    def __init__(self, model: Path, given: Any, folder: Path, metric: str, limit: float) -> None:
        self.model, self.folder, self.metric, self.limit = str(model), folder, metric, limit
        self.lab = Lab()
        np.savez(folder / "data.npz", input=given)
        data = str(folder / "data.npz")
        place = (self.model, str(folder))
        self.facts = self.lab.inspect(*place, {}, data, None, 0, None, metric, limit)
        self.lab.prepare(*place)

    def built(self, recipe: Recipe) -> str:
        fields = asdict(recipe)
        return str(self.lab.build(self.model, str(self.folder), fields)["file"])

    def mixed(self) -> str | None:
        base = asdict(Recipe("int8", "static", scope="products", per_channel=True))
        wanted = {"metric": self.metric, "limit": self.limit, "seconds": MIX_S}
        try:
            return str(self.lab.mixed(self.model, str(self.folder), base, **wanted)["file"])
        except WorkloadError:
            return None

    def check(self, file: str, *, bounded: bool) -> Accuracy:
        files = {"model": file, "folder": str(self.folder), "metric": self.metric}
        files |= {"limit": repr(self.limit)} if bounded else {}
        case = Case("model", "cpu", "onnxruntime", "int8", threads=1, batch=self.facts["batch"])
        return WORKLOAD.prepare(case, Setup(files=files)).check()

    def taken(self, files: Sequence[str], *, bounded: bool) -> tuple[str, Accuracy] | None:
        for file in files:
            found = self.check(file, bounded=bounded)
            if found.worst <= self.limit:
                return file, found
        return None


def error_on(file: str, model: Path, inputs: Any, metric: str) -> float:
    """The error of a variant on `inputs`."""
    one, other = cpu_session(file), cpu_session(model)
    samples = [[each[None]] for each in inputs]
    pairs = agreement.answers(one, samples), agreement.answers(other, samples)
    return agreement.summary(agreement.compare(agreement.compared(one), *pairs), metric)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--agreement", action="store_true")
    asked = parser.parse_args()
    content, pool = MODELS[asked.model]()
    metric = "disagreement" if asked.agreement else "relative_error"
    counts: Counter[str] = Counter()
    usual = None
    for number in range(asked.repeats):
        random = np.random.default_rng([1, number])
        order = random.permutation(len(pool))
        given, apart = pool[order[: asked.inputs]], pool[order[asked.inputs :]]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = folder / "model.onnx"
            model.write_bytes(content)
            if usual is None:  # the errors around which limits are drawn
                first = Trial(model, given, folder, metric, 0.5)
                errors = [error_on(first.built(r), model, apart, metric) for r in RECIPES]
                usual = float(np.median(errors))
            limit = usual * float(random.uniform(*LIMITS))
            began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            for kind in ("bound", "estimate"):
                trial = Trial(model, given, folder, metric, limit if kind == "bound" else 0.0)
                trial.limit = limit
                if kind == "estimate":
                    trial.facts = trial.lab.inspect(
                        trial.model, name, {}, str(folder / "data.npz"), None, 0
                    )
                    trial.lab.prepare(trial.model, name)
                files = [trial.built(recipe) for recipe in RECIPES]
                mixed = trial.mixed()
                files[1:1] = [mixed] if mixed else []
                picked = trial.taken(files, bounded=kind == "bound")
                if picked is None:
                    counts[f"{kind}: none"] += 1
                    continue
                error = error_on(picked[0], model, apart, metric)
                counts[f"{kind}: taken"] += 1
                counts[f"{kind}: over the limit"] += error > limit
                counts[f"{kind}: promised"] += picked[1].error_bound is not None
                counts[f"{kind}: over its bound"] += error > (picked[1].error_bound or 9.0)
                counts[f"{kind}: mixed"] += picked[0] == mixed
            counts["seconds"] += resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    print(f"{asked.model}, {asked.inputs} inputs, {metric}, {asked.repeats} repetitions")
    print(f"median error {usual:.4g}")
    for what, count in sorted(counts.items()):
        print(f"  {what}: {count:g}")


if __name__ == "__main__":
    main()
