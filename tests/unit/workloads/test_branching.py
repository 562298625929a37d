"""The forest in ONNX, and the loop that cannot be batched."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from tasks import prepared

from workbench import catalog
from workbench.contract import Case, WorkloadError
from workloads import forest, sequential
from workloads._shared import onnx_model
from workloads.forest import grow

FOREST, SEQUENTIAL = catalog.load("forest"), catalog.load("sequential")
BACKENDS = ["numpy", "onnxruntime", "torch"]


def forest_case(backend: str, batch: int, trees: int = 10, depth: int = 5) -> Case:
    params = {"trees": trees, "depth": depth}
    return Case("forest", "cpu", backend, "fp32", threads=1, batch=batch, params=params)


def loop_case(backend: str, mode: str | None = None, iterations: int = 100) -> Case:
    params = {"iterations": iterations}
    return Case("sequential", "cpu", backend, "fp64", threads=1, mode=mode, params=params)


@pytest.mark.parametrize("batch", [1, 7, 65_536])
@pytest.mark.parametrize("backend", BACKENDS)
def test_forests_answer_any_batch(backend: str, batch: int) -> None:
    task = prepared(forest_case(backend, batch, trees=3, depth=3))
    assert task.check().passed
    task.step()


@pytest.mark.parametrize("depth", [1, 2, 9])
def test_onnx_runtime_gives_the_answers_of_numpy(depth: int) -> None:
    ours: Any = prepared(forest_case("numpy", 200, depth=depth))
    theirs: Any = prepared(forest_case("onnxruntime", 200, depth=depth))
    assert np.array_equal(ours.batches, theirs.batches)
    answers = theirs.predict(ours.batches[0])
    assert answers.shape == (200,)
    assert np.allclose(answers, ours.predict(ours.batches[0]), atol=1e-5)
    assert answers.std() > 0.1


def test_a_feature_at_its_threshold_goes_left_everywhere() -> None:
    ours: Any = prepared(forest_case("numpy", 1, trees=1, depth=1))
    theirs: Any = prepared(forest_case("onnxruntime", 1, trees=1, depth=1))
    grown = ours.forest
    batch = np.full((1, forest.FEATURES), grown.threshold[0], np.float32)
    left = grown.value[grown.children[0]]
    assert ours.predict(batch)[0] == theirs.predict(batch)[0] == left


@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_answer_is_found_wherever_it_is(place: int) -> None:
    task: Any = prepared(forest_case("onnxruntime", 100))
    predict = task.predict
    task.predict = lambda batch: predict(batch) * np.where(np.arange(100) == place % 100, 1.001, 1)
    assert not task.check().passed


def test_the_model_has_only_nodes_that_paths_reach() -> None:
    grown = grow(trees=40, depth=8, seed=0)
    model = onnx.load_model_from_string(forest.ensemble(grown, 4))
    onnx.checker.check_model(model)
    attributes = {a.name: a for a in model.graph.node[0].attribute}
    held = len(attributes["nodes_treeids"].ints)
    assert 0 < held < len(grown.feature)
    assert held == pytest.approx(forest.nodes_on_paths(40, 8), rel=0.1)
    assert len(model.SerializeToString()) < held * forest.MODEL_NODE_BYTES


@pytest.mark.parametrize(("trees", "depth"), [(1, 1), (1, 10), (3, 9)])
def test_a_few_deep_trees_are_a_model_too(trees: int, depth: int) -> None:
    assert prepared(forest_case("onnxruntime", 8, trees, depth)).check().passed


def test_a_model_beyond_protobuf_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_model, "LARGEST_MODEL", 1000)
    with pytest.raises(WorkloadError, match="ONNX model") as caught:
        prepared(forest_case("onnxruntime", 1))
    assert "smaller size" in (caught.value.hint or "")


def test_memory_of_a_forest_grows_with_trees_depth_and_batch() -> None:
    for backend in BACKENDS:
        case = forest_case(backend, 16, trees=100, depth=8)
        small = FOREST.work(case).memory_bytes
        deep = replace(case, params={"trees": 100, "depth": 16})
        assert FOREST.work(replace(case, batch=1 << 20)).memory_bytes > 2 * small
        assert FOREST.work(deep).memory_bytes > 100 * small
        assert small > 32 * 100 * 511, "it holds its nodes at least"


@pytest.mark.parametrize("iterations", [1, 29, 30, 31, 300])
def test_every_candidate_takes_the_same_branches(iterations: int) -> None:
    variants = {(v.backend, v.mode) for v in SEQUENTIAL.variants}
    roots = []
    for backend, mode in sorted(variants, key=str):
        task: Any = prepared(loop_case(backend, mode, iterations), seed=3)
        assert task.check().value == 0
        roots.append(float(task.root))
    assert len(set(roots)) == 1


def test_whole_numbers_find_the_root() -> None:
    for seed in range(5):
        first = float(prepared(loop_case("numpy"), seed).numbers[0])
        root = sequential.exact(first, sequential.HALVINGS)
        assert root**3 + root == pytest.approx(first, abs=1e-8)
        second = sequential.exact(first, 2 * sequential.HALVINGS)
        assert second**3 + second == pytest.approx(first + root, abs=1e-7)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_single_wrong_turn_is_found(monkeypatch, backend: str) -> None:
    task = prepared(loop_case(backend))
    right = sequential.bisect

    def wrong(iterations: int, *numbers: Any) -> Any:
        return right(iterations - 1, *numbers)

    monkeypatch.setattr(sequential, "bisect", wrong)
    monkeypatch.setattr(task, "search", wrong, raising=False)
    assert not task.check().passed


def test_the_seed_decides_the_start() -> None:
    one, same, other = (prepared(loop_case("numpy"), seed) for seed in (1, 1, 2))
    for task in (one, same, other):
        task.step()
    assert one.root == same.root != other.root
