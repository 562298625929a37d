"""The tensors that static INT8 leaves in FP32: 255 steps would spoil them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from lab_models import ROWS, STATIC, TOKENS, Graph, build, error_of, folder_of, prepared

from workbench.worker.recipe import CALIBRATIONS
from workloads._shared import quantisation
from workloads._shared.session import cpu_session
from workloads.lab import agreement, prepare, quantise, samples
from workloads.lab.child import Lab


@pytest.mark.parametrize("scope", ["all", "products"])
@pytest.mark.parametrize("masked", [-np.inf, np.finfo(np.float32).min, -1e9])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_the_tensors_with_a_mask_alone_stay_in_fp32(scope, masked, calibration, tmp_path) -> None:
    graph = Graph()
    mask = graph.constant(np.triu(np.full((6, 6), masked, np.float32), 1))
    scores = graph.add("Add", graph.add("MatMul", "x", graph.weight(16, 6)), mask)
    x = graph.add("MatMul", graph.add("Softmax", scores), graph.weight(6, 3))
    prepared(graph.model(TOKENS, x), tmp_path, TOKENS)
    made = build(tmp_path, replace(STATIC, scope=scope, calibration=calibration))
    assert made["coverage"] == 1.0
    assert error_of(made["file"], tmp_path) < 0.15


@pytest.mark.parametrize("masked", [-1e4, np.finfo(np.float32).min])
def test_a_mask_that_hides_nothing_in_calibration_still_hides(masked: float, tmp_path) -> None:
    graph = Graph()
    matrix = graph.weight(16, 16)
    weight = onnx.numpy_helper.to_array(graph.weights[0]).copy()
    weight[:8] = 0  # so that entries far below all others only mask
    graph.weights[0].raw_data = weight.tobytes()
    hidden = graph.add("Less", "x", graph.constant(np.float32(-10)))
    mask = graph.add("Cast", hidden, to=onnx.TensorProto.FLOAT)
    mask = graph.add("Mul", mask, graph.constant(np.float32(masked)))
    mask = graph.add("Expand", mask, graph.constant(np.array(TOKENS)))
    scores = graph.add("Add", graph.add("MatMul", graph.add("Neg", "x"), matrix), mask)
    x = graph.add("MatMul", graph.add("Softmax", scores), graph.weight(16, 3))
    model = folder_of(graph.model(TOKENS, x), tmp_path, TOKENS)
    Lab().prepare(str(model), str(tmp_path))
    made = build(tmp_path, STATIC)
    assert made["coverage"] == 1.0
    masking = samples.read(tmp_path / samples.INPUTS)[0][0]
    masking[..., 4:8] = -11
    answers = [cpu_session(file).run(None, {"x": masking})[0] for file in (model, made["file"])]
    assert np.abs(answers[1] - answers[0]).max() < 0.1


def test_a_part_of_small_numbers_survives_beside_one_of_large_numbers(tmp_path: Path) -> None:
    graph = Graph()
    boxes = graph.add(
        "Mul", graph.add("MatMul", "x", graph.weight(16, 4)), graph.constant(np.float32(640))
    )
    scores = graph.add("Sigmoid", graph.add("MatMul", "x", graph.weight(16, 8)))
    x = graph.add("Transpose", graph.add("Concat", boxes, scores, axis=-1), perm=[0, 2, 1])
    model = folder_of(graph.model(TOKENS, x), tmp_path, TOKENS)
    Lab().prepare(str(model), str(tmp_path))
    made = build(tmp_path, STATIC)
    assert made["coverage"] == 1.0
    ((found,),), ((right,),) = (
        agreement.answers(cpu_session(file), samples.read(tmp_path / samples.INPUTS)[:1])
        for file in (made["file"], model)
    )
    assert np.abs(found - right)[:, 4:].max() < 0.1


def test_a_tensor_that_is_always_empty_stays_in_fp32(tmp_path: Path) -> None:
    graph = Graph()
    zero = graph.constant(np.array([0], np.int64))
    x = graph.add("MatMul", "x", graph.weight(16, 4))
    x = graph.add("Concat", x, graph.add("Relu", graph.add("Slice", x, zero, zero, zero)), axis=0)
    prepared(graph.model(ROWS, x), tmp_path, ROWS)
    assert build(tmp_path, STATIC)["coverage"] == 1.0


@pytest.mark.parametrize(("last", "kept"), [("MatMul", 0), ("Softmax", 2)])
def test_an_uneven_join_before_a_product_stays_in_int8(last: str, kept: int, tmp_path) -> None:
    graph = Graph()
    large = graph.add("Mul", graph.add("MatMul", "x", graph.weight(16, 4)), graph.weight(1))
    graph.weights[-1].raw_data = np.float32(640).tobytes()
    small = graph.add("Sigmoid", graph.add("MatMul", "x", graph.weight(16, 12)))
    x = graph.add("Relu", graph.add("Concat", large, small, axis=-1))
    operands = [graph.weight(16, 3)] if last == "MatMul" else []
    prepared(graph.model(TOKENS, graph.add(last, x, *operands)), tmp_path, TOKENS)
    model = onnx.load(str(tmp_path / prepare.PREPARED))
    types = quantise.static_types(STATIC)
    found = quantisation._too_coarse(model, quantise.ranges(tmp_path, "minmax"), types)
    assert len(list(found)) == kept
