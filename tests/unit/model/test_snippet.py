"""The code that a user takes home, and warnings about weak evidence."""

import ast
from dataclasses import replace

import numpy as np
import pytest
from lab_builders import candidate, case, facts

from workbench.advisor.model.snippet import snippet
from workbench.engine.model_lab import weak_evidence

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def port(name: str, kind: str, *run_shape: int) -> dict:
    return {"name": name, "type": kind, "shape": [], "run_shape": list(run_shape), "values": ""}


def test_threads_and_provider_as_measured() -> None:
    text = snippet(facts(), case(threads=2), "net.onnx", CPU)
    assert "options.intra_op_num_threads = 2" in text
    assert f"providers=['{CPU}']" in text
    assert "'x': np.zeros((1, 4)" in text
    assert "spinning" not in text


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("nospin", "'session.intra_op.allow_spinning', '0'"),
        ("bf16", "'mlas.enable_gemm_fastmath_arm64_bfloat16', '1'"),
        ("extended", "GraphOptimizationLevel.ORT_ENABLE_EXTENDED"),
        ("basic", "GraphOptimizationLevel.ORT_ENABLE_BASIC"),
    ],
)
def test_options_as_measured(mode: str, line: str) -> None:
    assert line in snippet(facts(), case(mode=mode), "net.onnx", CPU)
    assert line not in snippet(facts(), case(), "net.onnx", CPU)


def test_on_a_gpu_threads_stay_as_they_are() -> None:
    text = snippet(facts(), case(threads=None, device="cuda:0"), "n.onnx", CUDA)
    assert "intra_op" not in text
    assert text.index("ort.preload_dlls()") < text.index("ort.InferenceSession")


def test_openvinos_provider_has_the_threads_as_measured() -> None:
    name = "OpenVINOExecutionProvider"
    text = snippet(facts(), case(threads=4, mode="openvino"), "n.onnx", name)
    assert f"providers={[(name, {'num_of_threads': '4'}), (CPU, {})]!r}" in text
    assert "preload" not in text
    ast.parse(text)


@pytest.mark.parametrize(("mode", "tf32"), [(None, "0"), ("tf32", "1")])
def test_on_a_gpu_fp32_is_fp32_as_measured(mode: str | None, tf32: str) -> None:
    text = snippet(facts(), case(threads=None, device="cuda:1", mode=mode), "n.onnx", CUDA)
    cuda = (CUDA, {"device_id": "1", "use_tf32": tf32})
    assert f"providers={[cuda, (CPU, {})]!r}" in text
    ast.parse(text)


def test_whatever_a_model_calls_its_inputs_it_is_python() -> None:
    inputs = [
        port('it\'s "x"\n', "float32", 1, 3),
        port("flag", "bool"),
        port("ids", "int64", 4),
        port("half", "float16", 2),
    ]
    text = snippet(facts(inputs=inputs), case(), "o'brien/a b.onnx", CPU)
    ast.parse(text)
    line = next(line for line in text.splitlines() if line.startswith("feeds"))
    names: dict = {"np": np}
    exec(line, names)
    feeds = names["feeds"]
    assert {name: (a.shape, a.dtype.name) for name, a in feeds.items()} == {
        'it\'s "x"\n': ((1, 3), "float32"),
        "flag": ((), "bool"),
        "ids": ((4,), "int64"),
        "half": ((2,), "float16"),
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs_from": "random"}, "--inputs data.npz"),
        (
            {"inputs_from": "d.npz", "samples": 2, "same_samples": True, "needed_inputs": 50},
            "the 2 inputs that also calibrated it; pass at least 50 samples",
        ),
        (
            {"inputs_from": "d.npz", "samples": 1, "same_samples": True, "needed_inputs": 50},
            "the 1 input that also calibrated it; pass",
        ),
        (
            {"inputs_from": "d.npz", "samples": 24, "needed_inputs": 50},
            "only 24 inputs; pass at least 50 samples",
        ),
        (
            {"inputs_from": "d.npz", "samples": 3, "needed_inputs": 50, "batch": 8},
            "only 3 inputs; pass at least 50 batches of 8",
        ),
        ({"inputs_from": "d.npz", "samples": 64}, "no number of inputs"),
        ({"inputs_from": "d.npz", "no_promise": "it is too slow"}, "unseen inputs: it is too slow"),
        ({"inputs_from": "d.npz", "samples": 30, "check_samples": 20}, None),
    ],
)
def test_weak_evidence_is_called_weak(changes, words: str | None) -> None:
    given, pick = candidate(case(), 2e-3), candidate(case("int8-static-u8s8"), 1e-3)
    assert weak_evidence(facts(**changes), given, [given]) is None
    found = weak_evidence(facts(**changes), given, [given, pick])
    assert (found is None) == (changes["inputs_from"] != "random")  # random ones refuse rivals
    found = weak_evidence(facts(**changes), pick, [given, pick])
    assert (found is None) == (words is None)
    if words is not None:
        assert words in found


@pytest.mark.parametrize(
    ("held_out", "bound", "is_weak"),
    [(True, None, True), (True, 0.01, False), (False, None, False)],
)
def test_a_pick_without_a_bound_is_weak_evidence(held_out, bound, is_weak) -> None:
    pick = candidate(case("int8-static-u8s8"), 0.1)
    changes = {"held_out": held_out, "error_bound": bound}
    pick.accuracy = replace(pick.accuracy, **changes)
    found = weak_evidence(facts(inputs_from="d.npz", check_samples=40), pick, [pick])
    assert (found is not None) is is_weak
    assert found is None or "too slow to be checked on enough held-out" in found
    pick.accuracy = replace(pick.accuracy, inputs=40)
    found = weak_evidence(facts(inputs_from="d.npz", check_samples=40), pick, [pick])
    assert found is None or "few inputs make the error of its probabilities" in found
