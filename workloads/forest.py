"""Inference of a decision forest: every sample takes its own path through every tree.

NumPy and torch walk all (sample, tree) pairs level by level and gather each pair's node.  This is
the "tree traversal" strategy of Nakandala et al., "A Tensor Compiler for Unified Machine Learning
Prediction Serving", OSDI 2020 (Hummingbird).  ONNX Runtime follows one path after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._shared.cuda_graph import graphed
from ._shared.forest import FEATURES, Forest, check, ensemble, grow, nodes_on_paths
from ._shared.session import open_session
from ._shared.torch_task import TorchTask, time_to_host, to_device

BATCHES = 8
NODE_BYTES = 8 + 4 + 16 + 4
# Measured peak bytes: for each node while the forest grows (and is moved), and for each visit.
PEAK_BYTES = {"numpy": (56, 40), "onnxruntime": (56, 8), "torch": (76, 90), "sklearn": (130, 16)}
MODEL_PEAK_BYTES = 640  # per node that a path can reach, while its model is made and loaded


class ForestInference(Workload):
    """Regression on 20 features: the sum of `trees` random trees of at most `depth` decisions."""

    name = "forest"
    title = "Decision forest"
    teaches = "Data-dependent paths through small data leave a GPU waiting for its own launches."
    parameters = (
        Parameter("trees", 50, "trees in the forest", minimum=1, maximum=5_000),
        Parameter("depth", 8, "decisions on a longest path", minimum=1, maximum=16),
    )
    default_batch = 32
    quick: ClassVar = {"trees": 20}
    variants = (
        Variant("cpu", "numpy", "fp32", threads=1),
        Variant("cpu", "onnxruntime", "fp32"),
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "sklearn", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="graph"),
    )

    def work(self, case: Case) -> Work:
        trees, depth, batch = int(case.params["trees"]), int(case.params["depth"]), case.batch or 1
        nodes = trees * (2 ** (depth + 1) - 1)
        visits = batch * trees * depth
        of_node, of_visit = PEAK_BYTES[case.backend]
        model = nodes_on_paths(trees, depth) if case.backend == "onnxruntime" else 0
        held = nodes * of_node + model * MODEL_PEAK_BYTES
        return Work(
            flops=None,  # comparisons and gathers only
            bytes_moved=float(min(visits, nodes) * NODE_BYTES + 4 * batch * FEATURES),
            items=batch,
            item="samples",
            memory_bytes=float(held + batch * (trees * of_visit + 3 * BATCHES * FEATURES * 4)),
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
        others = {"onnxruntime": OnnxForest, "sklearn": ScikitLearnForest, "torch": TorchForest}
        return others[case.backend](case, setup, forest, batches)


class NumpyForest(Task):
    """By NumPy, whose gathers use one thread."""

    def __init__(self, forest: Forest, batches: Any) -> None:
        self.forest, self.batches = forest, batches
        self.feeds = cycle(batches)

    def step(self) -> None:
        self.predict(next(self.feeds))

    def predict(self, batch: Any) -> Any:
        """The forest's answers (batch) to `batch` (batch, features)."""
        import numpy as np

        forest, flat = self.forest, batch.ravel()
        rows = np.arange(0, flat.size, FEATURES)[:, None]
        nodes = np.repeat(forest.roots[None], len(batch), axis=0)
        for _ in range(forest.depth):
            right = flat.take(rows + forest.feature.take(nodes)) > forest.threshold.take(nodes)
            nodes = forest.children.take(2 * nodes + right)
        return forest.value.take(nodes).sum(axis=1)

    def check(self) -> Accuracy:
        return check(self.forest, self.batches[0], self.predict(self.batches[0]))


class OnnxForest(NumpyForest):
    """By ONNX Runtime's own operator."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        super().__init__(forest, batches)
        with setup.phase("build"):
            model = ensemble(forest, case.batch or 1)
        with setup.phase("compile"):
            self.session = open_session(model, case)
        self.requests = cycle([{"input": batch} for batch in batches])

    def step(self) -> None:
        self.session.run(None, next(self.requests))

    def predict(self, batch: Any) -> Any:
        return self.session.run(None, {"input": batch})[0][:, 0]


class ScikitLearnForest(NumpyForest):
    """By scikit-learn's random forest, which answers with the mean of its trees."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        super().__init__(forest, batches)
        with setup.phase("build"):
            self.model = random_forest(forest, case.threads)

    def step(self) -> None:
        self.model.predict(next(self.feeds))

    def predict(self, batch: Any) -> Any:
        return self.model.predict(batch) * len(self.forest.roots)


def random_forest(forest: Forest, threads: int | None) -> Any:
    """A RandomForestRegressor with these trees, made as unpickling makes them."""
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(len(forest.roots), max_depth=1, n_jobs=threads)
    model.fit(np.zeros((2, FEATURES)), (0, 1))
    size = len(forest.feature) // len(forest.roots)
    for estimator, root in zip(model.estimators_, forest.roots, strict=True):
        own = slice(root, root + size)
        sides = forest.children.reshape(-1, 2)[own] - root
        sides[sides[:, 0] == np.arange(size)] = -1  # leaves
        make, arguments, state = estimator.tree_.__reduce__()
        nodes = np.zeros(size, state["nodes"].dtype)
        nodes["left_child"], nodes["right_child"] = sides.T
        nodes["feature"], nodes["threshold"] = forest.feature[own], forest.threshold[own]
        values = forest.value[own].astype(float).reshape(-1, 1, 1)
        changed = {"max_depth": forest.depth, "node_count": size, "nodes": nodes, "values": values}
        estimator.tree_ = make(*arguments)
        estimator.tree_.__setstate__({**state, **changed})
    return model


class TorchForest(TorchTask):
    """By torch, in the same steps as NumPy."""

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
        self.predict: Callable[[Any], Any] = self._walk
        if "graph" in self.modes:
            with setup.phase("compile"):
                inside = self.batches[0].clone()
                self.predict = graphed(lambda: self._walk(inside), [inside])

    def step(self) -> None:
        self.predictions = self.predict(next(self.feeds))

    def _walk(self, batch: Any) -> Any:
        import torch

        with torch.inference_mode():
            nodes = self.roots.expand(len(batch), -1)
            for _ in range(self.forest.depth):
                right = batch.take(self.rows + self.feature[nodes]) > self.threshold[nodes]
                nodes = self.children[2 * nodes + right]
            return self.value[nodes].sum(dim=1)

    def check(self) -> Accuracy:
        answers = self.predict(self.batches[0]).cpu().numpy()
        return check(self.forest, self.host_batches[0], answers)

    def transfer_out_s(self) -> float | None:
        return time_to_host(self.case, self._walk(self.batches[0]))


WORKLOAD = ForestInference()
