"""Inference of a decision forest: every sample takes its own path through every tree.

NumPy and torch walk all (sample, tree) pairs level by level and gather each pair's node.  This is
the "tree traversal" strategy of Nakandala et al., "A Tensor Compiler for Unified Machine Learning
Prediction Serving", OSDI 2020 (Hummingbird).  ONNX Runtime follows one path after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import np, torch

from ._shared.network import relative_error, spread
from ._shared.onnx_model import GraphBuilder, require_fit
from ._shared.onnx_task import OnnxTask
from ._shared.torch_task import TorchTask, graphed, to_device

FEATURES = 20
EARLY_LEAVES = 0.15  # share of inner nodes that are leaves, so that paths differ in length
CHECKED = 8  # samples
LIMIT = 1e-5
ML_OPSET = 3  # version of ai.onnx.ml; 5 replaced TreeEnsembleRegressor by TreeEnsemble
MODEL_NODE_BYTES = 60  # largest size of a node in a file
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
    quick = {"trees": 20}
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
        with setup.phase("build"):
            forest = grow(int(case.params["trees"]), int(case.params["depth"]), setup.seed)
            rng = np.random.default_rng(setup.seed + 1)
            shape = (BATCHES, case.batch or 1, FEATURES)
            batches = rng.standard_normal(shape, dtype=np.float32)
        kinds = {"numpy": NumpyForest, "onnxruntime": OnnxForest, "sklearn": ScikitLearnForest}
        return kinds.get(case.backend, TorchForest)(case, setup, forest, batches)


class NumpyForest(Task):
    """The forest in NumPy, whose gathers use one thread."""

    feeds: Iterator[Any]

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        self.forest, self.batches = forest, batches
        self.feeds = cycle(batches)

    def step(self) -> None:
        self.predict(next(self.feeds))

    def predict(self, batch: Any) -> Any:
        """The forest's answers (batch) to `batch` (batch, features)."""
        forest, flat = self.forest, batch.ravel()
        rows = np.arange(0, flat.size, FEATURES)[:, None]
        nodes = np.repeat(forest.roots[None], len(batch), axis=0)
        for _ in range(forest.depth):
            right = flat.take(rows + forest.feature.take(nodes)) > forest.threshold.take(nodes)
            nodes = forest.children.take(2 * nodes + right)
        return forest.value.take(nodes).sum(axis=1)

    def check(self) -> Accuracy:
        return check(self.forest, self.batches[0], self.predict(self.batches[0]))


class OnnxForest(OnnxTask, NumpyForest):
    """The forest as ONNX Runtime's own operator."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        super().__init__(case, setup, forest, batches)
        with setup.phase("build"):
            model = ensemble(forest, case.batch or 1)
        self.open(setup, case, model)
        self.feeds = cycle([{"input": batch} for batch in batches])

    def predict(self, batch: Any) -> Any:
        return self.answer(batch)[:, 0]


class ScikitLearnForest(NumpyForest):
    """The forest as scikit-learn's, which answers with the mean of its trees."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        super().__init__(case, setup, forest, batches)
        with setup.phase("build"):
            self.model = random_forest(forest, case.threads)

    def step(self) -> None:
        self.model.predict(next(self.feeds))

    def predict(self, batch: Any) -> Any:
        return self.model.predict(batch) * len(self.forest.roots)


def random_forest(forest: Forest, threads: int | None) -> Any:
    """A RandomForestRegressor with these trees, made as unpickling makes them."""
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
    """The forest in torch, in the same steps as NumPy."""

    def __init__(self, case: Case, setup: Setup, forest: Forest, batches: Any) -> None:
        super().__init__(case)
        self.forest, self.host_batches = forest, batches
        arrays = (forest.roots, forest.feature, forest.threshold, forest.children, forest.value)
        rows = torch.arange(0, batches[0].size, FEATURES)[:, None]
        tensors = to_device(setup, case, *map(torch.from_numpy, (*arrays, batches)), rows)
        self.roots, self.feature, self.threshold, self.children, self.value = tensors[:5]
        self.batches, self.rows = tensors[5:]
        self.feeds = cycle(self.batches)
        self.replay: Callable[[Any], Any] | None = None
        if "graph" in self.modes:
            with setup.phase("compile"):
                inside = self.batches[0].clone()
                self.replay = graphed(lambda: self._walk(inside), [inside])

    def step(self) -> None:
        (self.replay or self._walk)(next(self.feeds))

    def _walk(self, batch: Any) -> Any:
        with torch.inference_mode():
            nodes = self.roots.expand(len(batch), -1)
            for _ in range(self.forest.depth):
                right = batch.take(self.rows + self.feature[nodes]) > self.threshold[nodes]
                nodes = self.children[2 * nodes + right]
            return self.value[nodes].sum(dim=1)

    def check(self) -> Accuracy:
        answers = (self.replay or self._walk)(self.batches[0]).cpu().numpy()
        return check(self.forest, self.host_batches[0], answers)

    def result(self) -> Any:
        return self._walk(self.batches[0])


@dataclass(frozen=True)
class Forest:
    """All trees' nodes in one numbering, heap order within a tree; a leaf is its own child."""

    depth: int
    roots: Any  # int64 (trees)
    feature: Any  # int64 (nodes)
    threshold: Any  # float32 (nodes); a larger feature goes right
    children: Any  # int64 (2 * nodes): left and right of each node in turn
    value: Any  # float32 (nodes); only that at the end of a path counts


def grow(trees: int, depth: int, seed: int) -> Forest:
    """Random trees: normal thresholds on random features, and some leaves before `depth`."""
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


def check(forest: Forest, batch: Any, predictions: Any) -> Accuracy:
    """Compare a few samples with one walk per tree in plain Python and float64."""
    expected, rows = [], spread(len(batch), CHECKED)
    for sample in batch[rows].astype(np.float64).tolist():
        total = 0.0
        for root in forest.roots.tolist():
            node = root
            while forest.children[2 * node] != node:
                right = sample[forest.feature[node]] > float(forest.threshold[node])
                node = int(forest.children[2 * node + right])
            total += float(forest.value[node])
        expected.append(total)
    error = relative_error(predictions[rows], np.array(expected))
    reference = f"{len(expected)} samples walked in plain Python, float64"
    return Accuracy.within(error, LIMIT, reference)


def nodes_on_paths(trees: int, depth: int) -> float:
    """The number of nodes that paths can reach, on average over all forests."""
    inner = 1 - EARLY_LEAVES
    below = sum(2.0**level * inner ** (level - 1) for level in range(1, depth + 1))
    return trees * (1 + below)


def ensemble(forest: Forest, batch: int) -> bytes:
    """The forest as a serialised model, TreeEnsembleRegressor of ai.onnx.ml: `input` (batch,
    features) to `output` (batch, 1).  Nodes that no path reaches are left out."""
    leaf = forest.children[::2] == np.arange(len(forest.feature))
    reached = np.zeros(len(leaf), bool)
    level = forest.roots
    while level.size:
        reached[level] = True
        inner = level[~leaf[level]]
        level = np.concatenate([forest.children[2 * inner], forest.children[2 * inner + 1]])
    kept = np.flatnonzero(reached)
    require_fit(kept.size * MODEL_NODE_BYTES)
    tree = np.searchsorted(forest.roots, kept, side="right") - 1
    ends = leaf[kept]
    # Numbers without gaps, since ONNX Runtime refuses one above the number of nodes.
    first = np.searchsorted(kept, forest.roots)[tree]
    number = np.arange(kept.size) - first
    children = (forest.children[2 * kept + side] for side in (0, 1))
    left, right = (np.searchsorted(kept, below) - first for below in children)
    graph = GraphBuilder()
    graph.add(
        "TreeEnsembleRegressor",
        "input",
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        nodes_treeids=tree.tolist(),
        nodes_nodeids=number.tolist(),
        nodes_featureids=forest.feature[kept].tolist(),
        nodes_values=forest.threshold[kept].tolist(),
        nodes_modes=np.where(ends, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_truenodeids=np.where(ends, 0, left).tolist(),
        nodes_falsenodeids=np.where(ends, 0, right).tolist(),
        target_treeids=tree[ends].tolist(),
        target_nodeids=number[ends].tolist(),
        target_ids=[0] * int(ends.sum()),
        target_weights=forest.value[kept[ends]].tolist(),
    )
    return graph.model((batch, FEATURES), (batch, 1), domains={"ai.onnx.ml": ML_OPSET})


WORKLOAD = ForestInference()
