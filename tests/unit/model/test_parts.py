"""Outputs that join numbers of different size, each part of which has an error of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from lab_models import STATIC, TOKENS, Graph, build, prepared

from workbench.contract import Case, Setup
from workloads.lab import agreement, bounds, parts
from workloads.lab.agreement import Part
from workloads.lab.workload import WORKLOAD

BOXES, SCORES = Part(1, 12, [*range(4)]), Part(1, 12, [*range(4, 12)])


def scaled(graph: Graph, columns: int, factor: float, x: str = "x") -> str:
    made = graph.add("MatMul", x, graph.weight(16, columns))
    return graph.add("Mul", made, graph.constant(np.float32(factor)))


def probable(graph: Graph, columns: int, logit: float, x: str = "x") -> str:
    made = graph.add("MatMul", x, graph.weight(16, columns))
    return graph.add("Sigmoid", graph.add("Add", made, graph.constant(np.float32(logit))))


def detector() -> Any:
    """Boxes in pixels and scores, as (batch, 4 + 8, tokens)."""
    graph = Graph()
    joined = graph.add("Concat", scaled(graph, 4, 640), probable(graph, 8, -3), axis=-1)
    return graph.model(TOKENS, graph.add("Transpose", joined, perm=[0, 2, 1]))


def levels() -> Any:
    """Two levels of a detector, one without any object, joined along their anchors."""
    graph, found = Graph(), []
    for logit in (0, -9):
        parts = scaled(graph, 2, 640), scaled(graph, 2, 300), probable(graph, 3, logit)
        found.append(graph.add("Concat", *parts, axis=2))
    return graph.model(TOKENS, graph.add("Concat", *found, axis=1))


def keypoints() -> Any:
    """Two points, each with x, y and a confidence, in the order of a reshaped tensor."""
    graph = Graph()
    shapes = [graph.constant(np.array([2, 6, 2, size])) for size in (2, 1)]
    points = graph.add("Reshape", scaled(graph, 4, 640), shapes[0])
    sure = graph.add("Reshape", probable(graph, 2, 0), shapes[1])
    joined = graph.add("Concat", points, sure, axis=3)
    return graph.model(TOKENS, graph.add("Reshape", joined, graph.constant(np.array([2, 6, 6]))))


def assigned() -> Any:
    """Boxes written into the rows of another tensor, as by an assignment to a slice."""
    graph = Graph()
    places = graph.constant(np.array([[0], [1]]))
    scores = graph.add("Transpose", probable(graph, 5, 0), perm=[2, 0, 1])
    boxes = graph.add("Transpose", scaled(graph, 2, 640), perm=[2, 0, 1])
    return graph.model(TOKENS, graph.add("ScatterND", scores, places, boxes))


def alike() -> Any:
    graph = Graph()
    return graph.model(
        TOKENS, graph.add("Concat", scaled(graph, 4, 5), scaled(graph, 4, 1), axis=-1)
    )


def heads() -> Any:
    """Probabilities of several classes, one of which is rare."""
    graph = Graph()
    return graph.model(
        TOKENS, graph.add("Concat", probable(graph, 1, 0), probable(graph, 1, -9), axis=-1)
    )


def classes() -> Any:
    """Probabilities of a rare class and of its opposite, as scikit-learn gives them."""
    graph = Graph()
    yes = probable(graph, 1, -14)
    no = graph.add("Sub", graph.constant(np.array([1], np.float32)), yes)
    return graph.model(TOKENS, graph.add("Concat", no, yes, axis=-1))


def cache() -> Any:
    """Numbers of the caller's, followed by computed ones."""
    graph = Graph()
    return graph.model(TOKENS, graph.add("Concat", "x", scaled(graph, 16, 1e-3), axis=1))


def padded() -> Any:
    """Zeros, followed by computed numbers."""
    graph = Graph()
    zeros = graph.constant(np.zeros((2, 6, 16), np.float32))
    return graph.model(TOKENS, graph.add("Concat", zeros, scaled(graph, 16, 1), axis=1))


def outliers() -> Any:
    """Columns of different size that a norm makes, as in a transformer."""
    graph = Graph()
    size = np.ones(16, np.float32)
    size[3] = 300
    x = graph.add("Concat", scaled(graph, 8, 100), scaled(graph, 8, 1), axis=-1)
    return graph.model(TOKENS, graph.add("LayerNormalization", x, graph.constant(size), axis=-1))


def rare() -> Any:
    """A softmax with a class that hardly occurs."""
    graph = Graph()
    far = np.array([0, 0, 0, -20], np.float32)
    x = graph.add("Add", scaled(graph, 4, 1), graph.constant(far))
    return graph.model(TOKENS, graph.add("Softmax", x, axis=-1))


def labels() -> Any:
    """Numbers of classes, and the numbers of boxes in them."""
    graph = Graph()
    large, small = (graph.add("Cast", scaled(graph, 4, size), to=7) for size in (1e4, 10))
    model = graph.model(TOKENS, graph.add("Concat", large, small, axis=-1))
    model.graph.output[0].type.tensor_type.elem_type = 7
    return model


def zeros() -> Any:
    """Boxes, and scores of which all are zero."""
    graph = Graph()
    nothing = graph.add("Relu", graph.add("Neg", graph.add("Abs", scaled(graph, 4, 1))))
    return graph.model(TOKENS, graph.add("Concat", scaled(graph, 4, 640), nothing, axis=-1))


@pytest.mark.parametrize(
    ("made", "labels"),
    [
        (detector, ["[:, 0:4]", "[:, 4:12]"]),
        (levels, ["[:, :, 0:4]", "[:, :, 4:7]"]),
        (keypoints, ["[:, :, [0, 1, 3, ...]]", "[:, :, [2, 5]]"]),
        (assigned, ["[0:2]", "[2:5]"]),
        (cache, ["[:, 6:12]", "[:, 0:6]"]),
        *((each, []) for each in (alike, heads, classes, padded, labels, outliers, rare, zeros)),
    ],
)
def test_only_joined_quantities_of_different_size_are_parts(made, labels, tmp_path: Path) -> None:
    model = made()
    prepared(model, tmp_path, TOKENS)
    (found,) = parts.read(tmp_path, [model.graph.output[0].name])
    assert [part.label for part in found] == labels


def test_outputs_without_known_parts_count_as_a_whole(tmp_path: Path) -> None:
    assert parts.read(tmp_path, ["y", "z"]) == [[], []]
    model = detector()
    parts.keep(tmp_path, model)  # which cannot be run, as it has no inputs there
    assert parts.read(tmp_path, [model.graph.output[0].name]) == [[]]


def test_a_sample_in_which_nothing_is_found_hides_no_parts() -> None:
    found = np.array([[400.0, 300.0, 0.5]])
    parted = parts._parts(np.array([[1, 1, 2]]), [found, found[:0]])
    assert [part.label for part in parted] == ["[:, 0:2]", "[:, 2:3]"]


@pytest.mark.parametrize("batch", [1, 3])
def test_the_worst_part_gives_the_error_and_its_bound(batch: int) -> None:
    random = np.random.default_rng(0)
    right = [[random.random((batch, 12, 6)) + 1] for _ in range(40)]
    for (each,) in right:
        each[:, :4] *= 640
    wrong = [[each.copy()] for (each,) in right]
    for (each,) in wrong:
        each[:, 4:] *= 1.5
    (found,) = agreement.compare(["y"], wrong, right, [[BOXES, SCORES]])
    assert (found.part, found.relative_error) == ("[:, 4:12]", pytest.approx(0.5))
    assert found.worst_error == pytest.approx(0.5)
    assert bounds.upper(wrong, right, "relative_error", 0.05, [[BOXES, SCORES]]) >= 0.5
    assert bounds.upper(wrong, right, "relative_error", 0.05) < 0.02
    narrow = [[each[:, :8]] for (each,) in right]  # another size than that of the parts
    (found,) = agreement.compare(["y"], narrow, narrow, [[BOXES, SCORES]])
    assert (found.part, found.relative_error) == (None, 0.0)


def test_a_form_that_loses_the_scores_exceeds_the_limit(tmp_path: Path) -> None:
    model = detector()
    prepared(model, tmp_path, TOKENS)
    sigmoid = next(node for node in model.graph.node if node.op_type == "Sigmoid")
    sigmoid.op_type = "Relu"
    onnx.save(model, str(tmp_path / "lost.onnx"))

    def error(file: str) -> agreement.OutputAccuracy:
        case = Case("model", "cpu", "onnxruntime", "int8", threads=1, batch=2)
        setup = Setup(files={"model": file, "folder": str(tmp_path), "limit": "0.02"})
        return WORKLOAD.prepare(case, setup).check().outputs[0]

    lost = error(str(tmp_path / "lost.onnx"))
    assert (lost.part, lost.relative_error > 0.5) == ("[:, 4:12]", True)
    assert error(str(tmp_path / "model.onnx")).relative_error < 1e-6
    assert error(build(tmp_path, STATIC)["file"]).part is not None
