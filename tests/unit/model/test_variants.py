"""The lab: the preparation of a user's model, and its variants."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime
import pytest
from checking import fails_with
from lab_models import (
    ROWS,
    STATIC,
    TOKENS,
    Graph,
    branching,
    build,
    convolutional,
    error_of,
    folder_of,
    perceptron,
    prepared,
    recurrent,
    transformer,
)
from onnx_models import port
from onnxruntime.quantization import base_quantizer, qdq_quantizer, quant_utils

from workbench.contract import WorkloadError
from workbench.worker.recipe import Recipe
from workloads._shared import quantisation
from workloads._shared.session import cpu_session
from workloads.lab import agreement, prepare, products, quantise, samples
from workloads.lab.child import Lab

IMAGES, STEPS = (2, 3, 16, 16), (5, 2, 8)


def test_weights_in_constant_nodes_become_initialisers(tmp_path: Path) -> None:
    facts = prepared(convolutional(as_nodes=True), tmp_path, IMAGES)
    steps = {step["step"]: step for step in facts["forms"]}
    assert steps["as given"]["nodes"] - steps["simplified"]["nodes"] == 6
    assert all(step["reason"] is None for step in facts["forms"])
    assert facts["products"] == {"Conv": 2, "Gemm": 1}


@pytest.mark.parametrize("ir", [3, 8])
def test_weights_that_are_inputs_as_well_are_fused(ir: int, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.add("Conv", "x", graph.weight(8, 3, 3, 3))
    norm = [graph.constant(np.linspace(1, 2, 8, dtype=np.float32)) for _ in range(4)]
    model = graph.model(IMAGES, graph.add("BatchNormalization", x, *norm))
    model.ir_version = ir
    for weight in model.graph.initializer:
        model.graph.input.append(port(weight.name, weight.data_type, list(weight.dims)))
    facts = prepared(model, tmp_path, IMAGES)
    assert [step["nodes"] for step in facts["forms"]] == [2, 1]
    found = onnx.load(str(tmp_path / prepare.PREPARED))
    assert [each.name for each in found.graph.input] == ["x"] and found.ir_version >= 4
    assert build(tmp_path, STATIC)["coverage"] == 1.0


def test_an_old_opset_is_raised_until_weights_can_scale_per_channel(tmp_path: Path) -> None:
    facts = prepared(convolutional(9), tmp_path, IMAGES)
    assert f"opset {prepare.OPSET}" in [step["step"] for step in facts["forms"]]
    assert build(tmp_path, Recipe("int8", "static", per_channel=True))["coverage"] == 1.0


def test_multiply_adds_and_weights_are_those_of_the_layers(tmp_path: Path) -> None:
    facts = prepared(convolutional(), tmp_path, IMAGES)
    layers = [(14 * 14, 8 * 27), (12 * 12, 16 * 72), (1, 10 * 16)]  # places, weights
    assert facts["multiply_adds"] == 2 * sum(places * weights for places, weights in layers)
    assert facts["weights_bytes"] == 4 * sum(weights for _, weights in layers)


def test_an_lstm_counts_once_per_step(tmp_path: Path) -> None:
    facts = prepared(recurrent(), tmp_path, STEPS)
    assert facts["multiply_adds"] == 5 * 2 * (32 * 8 + 32 * 8) + 5 * 2 * 8 * 4
    assert facts["products"] == {"LSTM": 1, "MatMul": 1}


def test_a_step_that_changes_the_outputs_is_left_out(tmp_path, monkeypatch) -> None:
    def spoil(model: Any) -> Any:
        spoilt = type(model)()
        spoilt.CopyFrom(model)
        weight = spoilt.graph.initializer[0]
        weight.raw_data = bytes(len(weight.raw_data))
        return spoilt

    monkeypatch.setattr(prepare, "_simplified", spoil)
    facts = prepared(perceptron(), tmp_path, ROWS)
    reasons = {step["step"]: step["reason"] for step in facts["forms"]}
    assert reasons["simplified"]["code"] == "wrong_result"
    assert error_of(str(tmp_path / prepare.PREPARED), tmp_path) < 1e-6


def test_a_step_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Mock(side_effect=ValueError("no adapter\nfor Upsample"))
    monkeypatch.setattr(prepare, "_simplified", fail)
    step = prepared(perceptron(), tmp_path, ROWS)["forms"][-1]
    assert (step["step"], step["size_bytes"]) == ("simplified", None)
    assert step["reason"]["message"] == "no adapter for Upsample"


def test_every_node_of_the_prepared_model_has_a_name_of_its_own(tmp_path: Path) -> None:
    model = transformer()
    for node in model.graph.node:
        node.name = ""
    prepared(model, tmp_path, TOKENS)
    names = [node.name for node in onnx.load(str(tmp_path / prepare.PREPARED)).graph.node]
    assert len(set(names)) == len(names) and all(names)


def test_external_weights_are_embedded(tmp_path: Path) -> None:
    file = folder_of(perceptron(), tmp_path, ROWS)
    onnx.save(perceptron(), str(file), save_as_external_data=True, size_threshold=0)
    Lab().prepare(str(file), str(tmp_path))
    moved = (tmp_path / prepare.PREPARED).read_bytes()
    assert cpu_session(moved)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepared(convolutional(9, as_nodes=True), tmp_path, IMAGES)
    build(tmp_path, STATIC)
    build(tmp_path, Recipe("int8", "dynamic"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("model", "shape"),
    [(convolutional(), IMAGES), (perceptron(), ROWS), (transformer(), TOKENS)],
    ids=["conv", "mlp", "transformer"],
)
@pytest.mark.parametrize(
    "recipe",
    [
        STATIC,
        Recipe("int8", "static", "products"),
        Recipe("int8", "static", "products", per_channel=True, reduce_range=True),
        Recipe("int8", "static", calibration="percentile"),
        Recipe("int8", "static", calibration="entropy"),
        Recipe("int8", "dynamic", per_channel=True),
        Recipe("fp16"),
    ],
    ids=lambda recipe: recipe.label,
)
def test_variants_are_made_and_near_the_original(model, shape, recipe, tmp_path) -> None:
    prepared(model, tmp_path, shape)
    made = build(tmp_path, recipe)
    assert Path(made["file"]) == tmp_path / f"{recipe.label}.onnx"
    assert made["size_bytes"] == Path(made["file"]).stat().st_size
    onnx.checker.check_model(made["file"])  # nodes in order, which ONNX Runtime does not require
    assert 0 < error_of(made["file"], tmp_path) < 0.15
    if recipe.precision == "int8":
        assert made["coverage"] > 0.7


def test_calibration_has_the_threads_of_the_other_sessions(tmp_path: Path, monkeypatch) -> None:
    prepared(perceptron(), tmp_path, ROWS)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    opened = Mock(wraps=onnxruntime.InferenceSession)
    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    quantise.ranges(tmp_path, "minmax")
    assert {call.args[1].intra_op_num_threads for call in opened.call_args_list} == {3}


def test_types_are_inferred_once_for_all_static_variants(tmp_path: Path, monkeypatch) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    inferred = Mock(wraps=base_quantizer.save_and_reload_model_with_shape_infer)
    monkeypatch.setattr(base_quantizer, "save_and_reload_model_with_shape_infer", inferred)
    assert build(tmp_path, STATIC)["coverage"] == 1.0
    assert not inferred.called


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize(("made", "shape"), [(convolutional, IMAGES), (transformer, TOKENS)])
def test_channels_have_the_scales_and_weights_of_onnx_runtime(
    made, shape, reduce_range, tmp_path, monkeypatch
) -> None:
    model = made()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[0], weight[:, 0] = 0, 0  # channels without a range
    model.graph.initializer[0].raw_data = weight.tobytes()
    prepared(model, tmp_path, shape)
    recipe = replace(STATIC, per_channel=True, reduce_range=reduce_range)
    scaled = Mock(wraps=qdq_quantizer.compute_data_quant_params)
    monkeypatch.setattr(qdq_quantizer, "compute_data_quant_params", scaled)
    together = Path(build(tmp_path, recipe)["file"]).read_bytes()
    assert not scaled.called  # once for each channel in ONNX Runtime's own loop
    monkeypatch.setattr(quantisation, "_quantiser", lambda: qdq_quantizer.QDQQuantizer)
    one_by_one = quant_utils.quantize_onnx_initializer
    monkeypatch.setattr(qdq_quantizer, "quantize_onnx_initializer", one_by_one)
    assert Path(build(tmp_path, recipe)["file"]).read_bytes() == together
    assert scaled.called


def test_an_older_quantiser_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(qdq_quantizer, "quantize_onnx_initializer")  # new in 1.21
    assert quantisation._quantiser.__wrapped__() is qdq_quantizer.QDQQuantizer


def test_a_weight_whose_name_the_quantiser_uses_keeps_its_values(tmp_path: Path) -> None:
    graph = Graph()
    x = "x"
    for width in (16, 8):
        graph.constant(np.linspace(2, 3, width, dtype=np.float32))
        graph.weights[-1].name = f"{x}_scale"
        x = graph.add("MatMul", graph.add("Mul", x, f"{x}_scale"), graph.weight(width, 8))
    model = folder_of(graph.model(ROWS, x), tmp_path, ROWS, count=32)
    Lab().prepare(str(model), str(tmp_path))
    made = build(tmp_path, STATIC)
    assert made["coverage"] == 1.0
    assert error_of(made["file"], tmp_path) < 0.15


@pytest.mark.parametrize("method", ["static", "dynamic"])
def test_operators_of_other_domains_do_not_hide_the_types_behind_them(method, tmp_path) -> None:
    graph = Graph()
    scaling = {"offset": [0.0] * 16, "scale": [1.0] * 16}
    x = graph.add("Scaler", "x", domain="ai.onnx.ml", **scaling)
    x = graph.add("Relu", graph.add("MatMul", x, graph.weight(16, 16)))
    model = graph.model(ROWS, graph.add("MatMul", x, graph.weight(16, 16)))
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    facts = prepared(model, tmp_path, ROWS)
    assert all(step["reason"] is None for step in facts["forms"])
    assert build(tmp_path, Recipe("int8", method))["coverage"] == 1.0


def test_attention_of_onnx_is_not_taken_for_that_of_onnx_runtime(tmp_path: Path) -> None:
    graph = Graph()
    parts = [graph.add("MatMul", "x", graph.weight(16, 16)) for _ in range(3)]
    x = graph.add("Attention", *parts, q_num_heads=2, kv_num_heads=2)
    prepared(graph.model(TOKENS, x, opset=23), tmp_path, TOKENS)
    assert build(tmp_path, Recipe("int8", "dynamic"))["coverage"] == 1.0


def test_the_nodes_of_a_model_with_a_branch_are_in_order(tmp_path: Path) -> None:
    model = branching()
    outside = onnx.helper.make_node("MatMul", [model.graph.output[0].name, "last"], ["y"])
    model.graph.node.append(outside)
    last = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "last")
    model.graph.initializer.append(last)
    model.graph.output[0].name = "y"
    prepared(model, tmp_path, (2, 16))
    onnx.checker.check_model(build(tmp_path, STATIC)["file"])


def test_the_ends_without_a_fold_are_those_of_the_other_inputs(tmp_path: Path) -> None:
    prepared(perceptron(), tmp_path, ROWS)
    rest = samples.read(tmp_path / samples.CALIBRATION)[1:3]  # 0 and 3 are the first fold
    (found,) = quantisation.activation_ranges(tmp_path / prepare.PREPARED, [rest])
    assert quantise.ranges(tmp_path, "minmax", 0) == found


def test_a_constant_whose_percentiles_cross_is_quantised(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.add("Cast", graph.add("Equal", "x", "x"), to=onnx.TensorProto.FLOAT)
    x = graph.add("MatMul", x, graph.weight(16, 4))
    prepared(graph.model(ROWS, x), tmp_path, ROWS)
    assert build(tmp_path, replace(STATIC, calibration="percentile"))["coverage"] == 1.0


def test_a_batch_of_matrices_has_one_scale_and_runs(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.add("MatMul", "x", graph.weight(2, 16, 3))
    prepared(graph.model((2, *ROWS), x), tmp_path, (2, *ROWS))
    made = build(tmp_path, replace(STATIC, per_channel=True))
    assert made["coverage"] == 1.0
    assert error_of(made["file"], tmp_path) < 0.15


def test_dynamic_products_leave_convolutions_alone(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    assert build(tmp_path, Recipe("int8", "dynamic"))["operators"]["ConvInteger"] == 2
    alone = build(tmp_path, Recipe("int8", "dynamic", "products"))
    assert "ConvInteger" not in alone["operators"]
    assert 0 < alone["coverage"] < 0.01  # the Gemm alone


def test_dynamic_products_of_a_net_of_convolutions_are_none(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.add("Conv", "x", graph.weight(4, 3, 3, 3))
    prepared(graph.model(IMAGES, x), tmp_path, IMAGES)
    with pytest.raises(WorkloadError) as refused:
        build(tmp_path, Recipe("int8", "dynamic", "products"))
    assert refused.value.hint and "another quantisation may work" in refused.value.hint


def test_shared_weights_count_once_in_the_file_and_twice_in_the_work(tmp_path: Path) -> None:
    graph = Graph()
    weight = graph.weight(16, 16)
    x = graph.add("MatMul", graph.add("MatMul", "x", weight), weight)
    facts = prepared(graph.model(ROWS, x), tmp_path, ROWS)
    assert (facts["weights_bytes"], facts["multiply_adds"]) == (4 * 16 * 16, 2 * 4 * 16 * 16)
    assert build(tmp_path, STATIC)["coverage"] == 1.0


def test_an_lstm_goes_dynamic_only(tmp_path: Path) -> None:
    prepared(recurrent(), tmp_path, STEPS)
    made = build(tmp_path, Recipe("int8", "dynamic", "products"))
    assert made["operators"]["DynamicQuantizeLSTM"] == 1 and made["coverage"] == 1.0
    assert build(tmp_path, STATIC)["coverage"] == pytest.approx(32 / (512 + 32))


def test_excluded_nodes_stay_as_they_were(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    first, second, _ = products.kept(tmp_path)
    made = build(tmp_path, Recipe("int8", "static", excluded=(first.name,)))
    expected = 1 - products.share(products.kept(tmp_path), {first.name})
    assert made["coverage"] == pytest.approx(expected)
    (weight,) = second.weights
    kept = {w.name for w in onnx.load(made["file"]).graph.initializer}
    assert set(first.weights) <= kept and weight not in kept


def test_ranges_are_taken_once_for_all_static_variants(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    build(tmp_path, STATIC)
    (tmp_path / samples.CALIBRATION).unlink()
    for recipe in (
        Recipe("int8", "static", "products", per_channel=True),
        Recipe("int8", "static", activations="s8", reduce_range=True),
    ):
        assert error_of(build(tmp_path, recipe)["file"], tmp_path) < 0.15


def test_few_inputs_are_answered_by_ranges_from_the_others(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    answers = tmp_path / f"{STATIC.label}{samples.FOLDED}"
    build(tmp_path, STATIC)
    assert not answers.exists()
    inputs = samples.read(tmp_path / samples.INPUTS)
    inputs[0][0] *= 4  # beyond the range of all others
    for name in (samples.INPUTS, samples.CALIBRATION):
        samples.write(tmp_path / name, inputs)
    (tmp_path / samples.FOLDS).touch()
    for file in tmp_path.glob("ranges-*"):
        file.unlink()
    file = build(tmp_path, STATIC)["file"]
    session = cpu_session(file)
    together = agreement.answers(session, inputs)
    right = agreement.answers(cpu_session(tmp_path / "model.onnx"), inputs)
    errors = [
        agreement.compare(["y"], each[:1], right[:1])[0].relative_error
        for each in (together, samples.read(answers))
    ]
    assert errors[1] > 2 * errors[0]  # its own range did not count
    assert len(samples.read(answers)) == len(inputs)


def test_a_shared_prefix_of_names_is_not_the_same_weight() -> None:
    product = products.Product("a", "MatMul", {"w1": 4}, 1)
    assert not quantise._taken(product, {"w10_quantized"})
    assert quantise._taken(product, {"w1_quantized"})


def test_products_inside_an_if_go_dynamic_only(tmp_path: Path) -> None:
    facts = prepared(branching(), tmp_path, (2, 16))
    assert facts["multiply_adds"] == 2 * 16 * 8  # in the branch that was taken
    assert facts["weights_bytes"] == 4 * 16 * 8 and facts["products"] == {}
    with fails_with("not_quantised", hint="inside If"):
        build(tmp_path, STATIC)
    assert build(tmp_path, Recipe("int8", "dynamic"))["operators"]["MatMulInteger"] == 2


def test_a_model_without_products_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    prepared(graph.model((2, 16), graph.add("Relu", "x")), tmp_path, (2, 16))
    with fails_with("not_quantised"):
        build(tmp_path, STATIC)


def test_a_quantised_model_can_be_prepared(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, IMAGES)
    once = onnx.load(build(tmp_path, STATIC)["file"])
    again = tmp_path / "again"
    again.mkdir()
    facts = prepared(once, again, IMAGES)
    assert facts["multiply_adds"] > 0
    assert np.isfinite(error_of(str(again / prepare.PREPARED), again))
    assert facts["forms"][0]["step"] == "as given"


def test_multiply_adds_are_unknown_with_an_operator_whose_are_not_counted(tmp_path: Path) -> None:
    prepared(perceptron(), tmp_path, ROWS)
    once = onnx.load(build(tmp_path, Recipe("int8", "dynamic"))["file"])
    graph = Graph()
    x = graph.add("Einsum", "x", graph.weight(16, 8), equation="bi,io->bo")
    einsum = graph.model(ROWS, graph.add("MatMul", x, graph.weight(8, 4)))
    for place, net in enumerate((once, einsum)):
        (again := tmp_path / str(place)).mkdir()
        assert prepared(net, again, ROWS)["multiply_adds"] is None


def test_fused_attention_is_a_product_that_only_dynamic_int8_takes(tmp_path: Path) -> None:
    graph = Graph()
    options = {"domain": "com.microsoft", "num_heads": 4}
    x = graph.add("Attention", "x", graph.weight(16, 48), graph.weight(48), **options)
    net = graph.model(TOKENS, graph.add("MatMul", x, graph.weight(16, 4)))
    net.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    facts = prepared(net, tmp_path, TOKENS)
    assert (facts["multiply_adds"], facts["weights_bytes"]) == (None, 4 * 16 * (48 + 4))
    assert facts["products"] == {"Attention": 1, "MatMul": 1}
    assert build(tmp_path, STATIC)["coverage"] == pytest.approx(4 / 52)
    assert build(tmp_path, Recipe("int8", "dynamic"))["coverage"] == 1.0


def test_a_model_in_half_precision_is_prepared_but_not_quantised(tmp_path: Path) -> None:
    """ONNX Runtime's CPU kernels take its weights through casts, which no quantiser sees past."""
    prepared(perceptron(), tmp_path, ROWS)
    half = onnx.load(build(tmp_path, Recipe("fp16"))["file"])
    again = tmp_path / "again"
    again.mkdir()
    assert prepared(half, again, ROWS)["products"] == {}
    with pytest.raises(WorkloadError, match="floating point"):
        build(again, STATIC)
