"""Inference of a decision forest: every sample takes its own path through every tree.

All contenders walk all (sample, tree) pairs level by level, gathering each pair's node: the
"tree traversal" strategy of Nakandala et al., "A Tensor Compiler for Unified Machine Learning
Prediction Serving", OSDI 2020 (Hummingbird).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._network import relative_error
from ._torch import TorchTask, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEATURES = 20
EARLY_LEAVES = 0.15  # share of the inner nodes that are leaves already: paths differ in length
BATCHES = 8
CHECKED = 8  # samples
LIMIT = 1e-5
NODE_BYTES = 8 + 4 + 16 + 4


class ForestInference(Workload):
    """Regression by the sum of `trees` random trees of at most `depth` decisions, 20 features."""

    name = "forest"
    title = "Decision forest"
    teaches = "Data-dependent paths through small data leave a GPU waiting for its own launches."
    parameters = (
        Parameter("trees", 50, "trees in the forest", minimum=1, maximum=5_000),
        Parameter("depth", 8, "decisions on the longest path", minimum=1, maximum=16),
    )
    default_batch = 32
    variants = (
        Variant("cpu", "numpy", "fp32"),
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
    )

    def work(self, case: Case) -> Work:
        trees, depth, batch = int(case.params["trees"]), int(case.params["depth"]), case.batch or 1
        nodes = trees * (2 ** (depth + 1) - 1)
        visits = batch * trees * depth
        return Work(
            flops=None,  # it compares and gathers
            bytes_moved=float(min(visits, nodes) * NODE_BYTES + 4 * batch * FEATURES),
            items=batch,
            item="samples",
            memory_bytes=float(nodes * NODE_BYTES + batch * (trees * 40 + BATCHES * FEATURES * 4)),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        import numpy as np

        with setup.phase("build"):
            forest = grow(int(case.params["trees"]), int(case.params["depth"]), setup.seed)
            rng = np.random.default_rng(setup.seed + 1)
            shape = (BATCHES, case.batch or 1, FEATURES)
            batches = rng.standard_normal(shape, dtype=np.float32)
        if case.backend == "numpy":
            return NumpyForest(forest, batches)
        return TorchForest(case, setup, forest, batches)


@dataclass(frozen=True)
class Forest:
    """All trees' nodes in one numbering, heap order within a tree; a leaf is its own child."""

    depth: int
    roots: NDArray[np.int64]  # (trees)
    feature: NDArray[np.int64]  # (nodes)
    threshold: NDArray[np.float32]  # (nodes); a larger feature goes right
    children: NDArray[np.int64]  # (2 * nodes): left and right of each node in turn
    value: NDArray[np.float32]  # (nodes); what counts is where the path ends


def grow(trees: int, depth: int, seed: int) -> Forest:
    """Random trees: normal thresholds on random features, leaves before `depth` here and there."""
    import numpy as np

    rng = np.random.default_rng(seed)
    size = 2 ** (depth + 1) - 1
    inner = np.arange(size) < 2**depth - 1
    inner = inner & ((rng.random((trees, size)) >= EARLY_LEAVES) | (np.arange(size) == 0))
    own = np.arange(size)
    left, right = (np.where(inner, 2 * own + side, own) for side in (1, 2))
    roots = np.arange(trees) * size
    children = np.stack([left, right], axis=-1) + roots[:, None, None]
    return Forest(
        depth=depth,
        roots=roots,
        feature=rng.integers(0, FEATURES, trees * size),
        threshold=rng.standard_normal(trees * size, dtype=np.float32),
        children=children.ravel(),
        value=rng.standard_normal(trees * size, dtype=np.float32),
    )


def check(forest: Forest, batch: NDArray[np.float32], predictions: NDArray[np.float32]) -> Accuracy:
    """Compare the first samples with one walk per tree in plain Python and float64."""
    import numpy as np

    expected = []
    for sample in batch[:CHECKED].astype(np.float64).tolist():
        total = 0.0
        for root in forest.roots.tolist():
            node = root
            while forest.children[2 * node] != node:
                right = sample[forest.feature[node]] > float(forest.threshold[node])
                node = int(forest.children[2 * node + right])
            total += float(forest.value[node])
        expected.append(total)
    error = relative_error(predictions[:CHECKED], np.array(expected))
    reference = f"{len(expected)} samples walked in plain Python, float64"
    return Accuracy("relative_error", error, reference, LIMIT, error <= LIMIT)


class NumpyForest(Task):
    """By NumPy, on one thread: its gathers know no more."""

    def __init__(self, forest: Forest, batches: NDArray[np.float32]) -> None:
        self.forest, self.batches = forest, batches
        self.feeds = cycle(batches)

    def step(self) -> None:
        self.predict(next(self.feeds))

    def predict(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The forest's answers (batch) to `batch` (batch, features)."""
        import numpy as np

        forest, flat = self.forest, batch.ravel()
        rows = np.arange(0, flat.size, FEATURES)[:, None]
        nodes = np.repeat(forest.roots[None], len(batch), axis=0)
        for _ in range(forest.depth):
            right = flat.take(rows + forest.feature.take(nodes)) > forest.threshold.take(nodes)
            nodes = forest.children.take(2 * nodes + right)
        return np.asarray(forest.value.take(nodes).sum(axis=1))

    def check(self) -> Accuracy:
        return check(self.forest, self.batches[0], self.predict(self.batches[0]))


class TorchForest(TorchTask):
    """By torch, the same steps as tensor operations."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        import torch

        super().__init__(case)
        self.forest, self.host_batches = forest, batches
        arrays = (forest.roots, forest.feature, forest.threshold, forest.children, forest.value)
        rows = torch.arange(0, batches[0].size, FEATURES)[:, None]
        tensors = to_device(setup, case, *map(torch.from_numpy, (*arrays, batches)), rows)
        self.roots, self.feature, self.threshold, self.children, self.value = tensors[:5]
        self.batches, self.rows = tensors[5:]
        self.feeds = cycle(self.batches)
        self.predictions: Any = None

    def step(self) -> None:
        self.predictions = self._predict(next(self.feeds))

    def _predict(self, batch: Any) -> Any:
        import torch

        with torch.inference_mode():
            nodes = self.roots.expand(len(batch), -1)
            for _ in range(self.forest.depth):
                right = batch.take(self.rows + self.feature[nodes]) > self.threshold[nodes]
                nodes = self.children[2 * nodes + right]
            return self.value[nodes].sum(dim=1)

    def check(self) -> Accuracy:
        answers = self._predict(self.batches[0]).cpu().numpy()
        return check(self.forest, self.host_batches[0], answers)

    def transfer_out_s(self) -> float | None:
        return time_to_host(self.case, self._predict(self.batches[0]))


WORKLOAD = ForestInference()
