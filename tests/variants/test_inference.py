"""Inference: one encoder in every backend, real INT8, compiled candidates, profiles."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from checking import fails_with
from inference_cases import TOKENS, case_of, encoder_case
from onnx import numpy_helper
from tasks import prepared
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from workbench import catalog
from workbench.contract import Case, Setup, WorkloadError
from workloads import infer_encoder as encoder
from workloads._shared import (
    inference,
    network,
    onnx_model,
    onnx_task,
    quantisation,
    session,
    torch_task,
)
from workloads._shared.session import BoundSession


def test_the_reference_agrees_with_torch_in_float64() -> None:
    layers = encoder.untrained(3)
    inputs = np.random.default_rng(3).standard_normal((3, 9, encoder.WIDTH))
    with torch.inference_mode():
        expected = torch_task.module(layers).double()(torch.from_numpy(inputs)).numpy()
    assert np.allclose(network.forward(layers, inputs), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("half", "place"), [(h, p) for h in (0, 1) for p in (0, 1, 3)])
def test_a_layer_that_is_wrong_is_found(half: int, place: int) -> None:
    """Bias of each kind of layer in turn: the smallest mistake that a graph can contain."""
    task = prepared(encoder_case())
    assert task.check().passed
    block = task.layers[2 + half].layers
    block[place] = replace(block[place], bias=block[place].bias * 1.1)
    assert not task.check().passed


def test_the_answer_depends_on_the_input() -> None:
    """Otherwise an INT8 error would only show how well a constant is kept."""
    task = prepared(encoder_case(tokens=128))
    answers = np.concatenate([task.infer(batch) for batch in task.inputs])
    assert np.linalg.norm(answers - answers.mean(axis=0)) > 0.5 * np.linalg.norm(answers)


def test_activations_keep_their_scale() -> None:
    x = np.random.default_rng(0).standard_normal((1, 32, encoder.WIDTH))
    for residual in encoder.untrained(0)[: 2 * encoder.BLOCKS]:
        x = network.forward([residual], x)
        assert 0.5 < x.std() < 2


def test_the_same_seed_gives_the_same_answers_and_another_does_not() -> None:
    case = encoder_case()
    first, again, other = (
        (task := prepared(case, seed)).infer(task.inputs[0]) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("batch", [1, 3])
def test_operations_agree_with_torchs_own_counter(batch: int) -> None:
    """At a length at which attention is a third of all work."""
    case = encoder_case(tokens=512, batch=batch)
    task = prepared(case)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        task.step()
    assert counter.get_total_flops() == catalog.load("infer_encoder").work(case).flops


def test_costs_follow_length_and_batch() -> None:
    work = catalog.load("infer_encoder").work
    short, long = (work(encoder_case(tokens=tokens)) for tokens in (128, 2048))
    assert long.flops > 16 * short.flops
    assert long.memory_bytes > 16 * (short.memory_bytes - 16 * encoder.WEIGHTS)
    assert work(encoder_case("onnxruntime", batch=64, tokens=2048)).memory_bytes > 8e9


@pytest.mark.parametrize(
    ("method", "tokens"),
    [
        ("dynamic", TOKENS),
        ("static", 1),
        ("static", TOKENS),
        pytest.param("static", 512, marks=pytest.mark.campaign),
    ],
)
def test_int8_of_the_encoder_stays_within_three_percent(method: str, tokens: int) -> None:
    case = encoder_case("onnxruntime", "int8", quantization=method, tokens=tokens)
    found = prepared(case).check()
    assert found.passed
    assert 1e-3 < found.value < 0.03, "an error below 1e-3 would mean that nothing was quantised"


@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_every_dense_layer_of_the_encoder_is_quantised(method: str) -> None:
    shape = (1, 4, encoder.WIDTH)
    inputs = [np.random.default_rng(0).standard_normal(shape, dtype=np.float32)]
    model = quantisation.quantise(onnx_model.graph(encoder.untrained(0), shape), method, inputs)
    stored = onnx.load_model_from_string(model).graph.initializer
    whole = sum(math.prod(w.dims) for w in stored if w.data_type in (onnx.TensorProto.INT8,))
    least = encoder.WEIGHTS - encoder.WIDTH * 10
    assert whole >= least


def test_weights_too_large_for_an_onnx_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_model, "LARGEST_MODEL", 1000)
    with pytest.raises(WorkloadError, match="ONNX model") as caught:
        onnx_model.graph(encoder.untrained(0), (1, 4, encoder.WIDTH))
    assert caught.value.hint


def test_a_check_of_a_large_batch_takes_a_few_samples_of_every_input() -> None:
    task = prepared(case_of("infer_mlp", batch=100, width=8))
    assert task.check().reference == "NumPy float64 forward pass of 128 inputs"
    infer = task.infer
    task.infer = lambda batch: infer(batch) * np.r_[np.ones(99), -1.0][:, None]
    assert not task.check().passed, "the last sample of each is among them"


def test_a_check_does_no_more_work_than_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "CHECKED_TOKENS", 2 * TOKENS)
    task = prepared(encoder_case(batch=3))
    assert task.check().reference == "NumPy float64 forward pass of 2 inputs"
    monkeypatch.setattr(encoder, "CHECKED_TOKENS", 12 * TOKENS)
    assert prepared(encoder_case(batch=3)).check().reference.endswith(" of 8 inputs")
    sides = {image: prepared(case_of("infer_cnn", image=image)).checked for image in (64, 128, 512)}
    assert sides == {64: 128, 128: 32, 512: 2}


def test_pictures_are_checked_one_by_one_to_save_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    convolve = network.conv3x3

    def counted(x: Any, *rest: Any) -> Any:
        together.append(len(x))
        return convolve(x, *rest)

    monkeypatch.setattr(network, "conv3x3", counted)
    assert prepared(case_of("infer_cnn", batch=3, image=16)).check().passed
    assert {*together} == {1}


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """ONNX Runtime's CPU in the place of a GPU; the lengths of its first runs."""
    first_runs: list[float] = []

    class Bound(session.BoundSession):
        def __init__(self, opened: Any, device: str, batch: Any) -> None:
            assert device == "cuda:0"
            super().__init__(opened, "cpu", batch)

        def run(self, *asked: Any) -> Any:
            first_runs.append(0.0)
            return super().run(*asked)

    def opened(model: bytes, case: Case, *, shared: bool) -> Any:
        return session.cpu_session(model)

    monkeypatch.setattr(onnx_task, "open_session", opened)
    monkeypatch.setattr(inference, "BoundSession", Bound)
    return first_runs


@pytest.mark.parametrize("name", ["infer_cnn", "infer_mlp", "infer_encoder"])
@pytest.mark.parametrize(
    ("precision", "quantization", "mode", "stored"),
    [
        ("fp32", None, None, {"FLOAT"}),
        ("tf32", None, None, {"FLOAT"}),
        ("fp16", None, None, {"FLOAT16"}),
        ("fp16", None, "tensorrt", {"FLOAT16"}),
        ("int8", "static", "tensorrt", {"INT8", "FLOAT"}),
    ],
)
def test_candidates_of_onnx_runtime_on_a_gpu_are_right(
    as_gpu, name, precision, quantization, mode, stored
) -> None:
    sizes = {"infer_cnn": {"image": 16}, "infer_mlp": {"width": 64}, "infer_encoder": {"tokens": 4}}
    variants = {(v.device_kind, v.backend, v.precision, v.quantization, v.mode) for v in
                catalog.load(name).variants}  # fmt: skip
    assert ("gpu", "onnxruntime", precision, quantization, mode) in variants
    case = case_of(
        name, "onnxruntime", precision, device="cuda:0", quantization=quantization, mode=mode,
        batch=2, **sizes[name],
    )  # fmt: skip
    task = prepared(case, setup=(setup := Setup(seed=0)))
    assert as_gpu == [0.0], "cuDNN searches before the check and before any sample"
    assert setup.seconds["compile"] > 0
    assert task.waits, "a run reads its answer back"
    assert task.check().passed
    task.step()
    kinds = {w.data_type for w in onnx.load_model_from_string(task.model).graph.initializer}
    floats = {onnx.TensorProto.DataType.Name(kind) for kind in kinds} - {"INT64"}
    assert floats == stored


def test_a_bound_session_answers_each_batch_anew() -> None:
    task = prepared(case_of("infer_mlp", "onnxruntime", batch=3, width=16))
    bound = BoundSession(task.session, "cpu", task.inputs[0])
    for batch in (*task.inputs, task.inputs[0]):
        assert np.allclose(bound.run(None, {"input": batch})[0], task.infer(batch), atol=1e-6)
    task.session = bound
    first = task.infer(task.inputs[0])
    assert not np.array_equal(first, task.infer(task.inputs[1]))


def test_int8_for_tensorrt_has_symmetric_signed_ranges_only() -> None:
    inputs = [np.random.default_rng(0).standard_normal((1, 8), dtype=np.float32)]
    model = onnx_model.graph(network.mlp((8, 16, 4), seed=0), (1, 8))

    def zero_points(**options: bool) -> list[Any]:
        made = onnx.load_model_from_string(
            quantisation.quantise(model, "static", inputs, **options)
        )
        stored = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
        nodes = [node for node in made.graph.node if node.op_type == "QuantizeLinear"]
        return [stored[node.input[2]] for node in nodes]

    symmetric = zero_points(symmetric=True)
    assert symmetric
    assert all(point.dtype == np.int8 and not point.any() for point in symmetric)
    usual = zero_points()
    assert any(point.dtype == np.uint8 for point in usual) or any(p.any() for p in usual)


@pytest.mark.campaign
def test_code_is_compiled_once_for_its_threads() -> None:
    """Otherwise the first timed step would compile again."""
    from torch._dynamo.utils import counters

    torch.set_num_threads(2)
    setup = Setup(seed=0)
    task = prepared(case_of("infer_mlp", mode="compile", batch=3, width=8), setup=setup)
    graphs = counters["stats"]["unique_graphs"]
    assert setup.seconds["compile"] > 0
    assert task.check().passed
    task.step()
    assert counters["stats"]["unique_graphs"] == graphs
    assert isinstance(task.model, torch._dynamo.eval_frame.OptimizedModule)


def test_a_missing_compiler_is_a_reason_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found in ...")

    monkeypatch.setattr(torch, "compile", lambda module, **_: refuse)
    with fails_with("no_compiler", hint=True):
        prepared(encoder_case(mode="compile"))
