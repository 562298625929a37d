"""A random decision forest: its nodes as arrays, as an ONNX model, and what it must answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.contract import Accuracy, WorkloadError

from .network import relative_error
from .onnx_model import LARGEST_MODEL, GraphBuilder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEATURES = 20
EARLY_LEAVES = 0.15  # share of inner nodes that are leaves, so that paths differ in length
CHECKED = 8  # samples
LIMIT = 1e-5
ML_OPSET = 3  # version of ai.onnx.ml; 5 replaced TreeEnsembleRegressor by TreeEnsemble
MODEL_NODE_BYTES = 60  # largest size of a node in a file


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
    return Accuracy.within(error, LIMIT, reference)


def nodes_on_paths(trees: int, depth: int) -> float:
    """The number of nodes that paths can reach, on average over all forests."""
    inner = 1 - EARLY_LEAVES
    below = sum(2.0**level * inner ** (level - 1) for level in range(1, depth + 1))
    return trees * (1 + below)


def ensemble(forest: Forest, batch: int) -> bytes:
    """The forest as a serialised model, TreeEnsembleRegressor of ai.onnx.ml: `input` (batch,
    features) to `output` (batch, 1).  Nodes that no path reaches are left out."""
    import numpy as np

    leaf = forest.children[::2] == np.arange(len(forest.feature))
    reached = np.zeros(len(leaf), bool)
    level = forest.roots
    while level.size:
        reached[level] = True
        inner = level[~leaf[level]]
        level = np.concatenate([forest.children[2 * inner], forest.children[2 * inner + 1]])
    kept = np.flatnonzero(reached)
    if kept.size * MODEL_NODE_BYTES > LARGEST_MODEL:
        raise WorkloadError(
            f"a model of {kept.size:,} nodes does not fit into the 2 GiB of a protobuf message",
            hint="take fewer trees, or less depth",
        )
    tree = np.searchsorted(forest.roots, kept, side="right") - 1
    left, right = (forest.children[2 * kept + side] - forest.roots[tree] for side in (0, 1))
    ends = leaf[kept]
    number = kept - forest.roots[tree]
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
