"""Every way in which a model can be unusable has an answer of one line that says what to do."""

import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models as made
import pytest
from checking import fails_with
from hypothesis import given, strategies as st
from onnx import TensorProto, helper, numpy_helper

from workbench.contract import WorkloadError
from workloads.lab import graph, load as loading, samples
from workloads.lab.child import Lab
from workloads.lab.errors import clear_errors, one_line, said


def inspect(path: str, folder: Path, **more: Any) -> dict[str, Any]:
    options = {"shapes": {}, "inputs": None, "batch": None, "seed": 0, **more}
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return Lab().inspect(path, str(scratch), **options)


def refusal(path: str | Path, folder: Path, **more: Any) -> WorkloadError:
    with fails_with("bad_model", hint=True) as caught:
        inspect(str(path), folder, **more)
    return caught.value


def test_a_path_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert "No such file" in str(refusal(tmp_path / "none.onnx", tmp_path))
    assert "is a folder" in str(refusal(tmp_path, tmp_path))
    assert "not a regular file" in str(refusal("/dev/null", tmp_path))
    assert "cannot be read" in str(refusal("nul\0l.onnx", tmp_path))
    (tmp_path / "empty.onnx").touch()
    assert "an empty file" in str(refusal(tmp_path / "empty.onnx", tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = Path(made.saved(tmp_path, made.mlp()))
    path.chmod(0)
    assert "Permission denied" in str(refusal(path, tmp_path))


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(loading.LARGEST_FILE + 1)  # sparse: it takes no room
    error = refusal(tmp_path / "large.onnx", tmp_path)
    assert "2.0 GiB" in str(error)
    assert "external data" in str(error.hint)


def zipped(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("net/data.pkl", b"")
    return (folder / "a.zip").read_bytes()


OTHERS = {
    "TensorFlow Lite": b"\x1c\0\0\0TFL3" + bytes(40),
    "ORT format": b"\x1c\0\0\0ORTM" + bytes(40),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(40),
    "GGUF": b"GGUF\x03" + bytes(40),
    "pickle": pickle.dumps([1, 2]),
    "safetensors": (30).to_bytes(8, "little") + b'{"w": {"dtype": "F32"}}' + bytes(40),
    "JSON": b'{"modelTopology": {}}',
    "web page": b"<!DOCTYPE html>\n<html></html>",
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    "text": b"not a model at all",
    "PyTorch checkpoint": b"",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_format_is_recognised(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(OTHERS[kind] or zipped(tmp_path))
    assert kind in str(refusal(path, tmp_path))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = made.conv_net().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    assert "a damaged file" in str(refusal(path, tmp_path))
    path.write_bytes(b"\x08\x08\x12\x04cafe")
    assert "a damaged file" in str(refusal(path, tmp_path))
    path.write_bytes(whole.replace(b"relu", b"\xff\xfe\xfd\xfc"))
    assert "not valid UTF-8" in str(refusal(path, tmp_path))
    path.write_bytes(made.model([], [made.port("x", shape=[1])], []).SerializeToString())
    assert "no nodes" in str(refusal(path, tmp_path))


@given(st.binary(max_size=200))
def test_any_bytes_look_like_something(data: bytes) -> None:
    assert all(loading.looks_like(data))


def opset(domain: str) -> dict[str, Any]:
    return {"domain": domain, "opsets": [helper.make_opsetid(domain, 1)]}


def test_operators_of_onnxruntime_itself_are_fine(tmp_path: Path) -> None:
    gelu = made.one_node("Gelu", **opset("com.microsoft"))
    assert inspect(made.saved(tmp_path, gelu), tmp_path)["operators"] == {"Gelu": 1}


def test_functions_are_counted_by_what_they_do(tmp_path: Path) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Exp", ["b"], ["c"])]
    standard = helper.make_opsetid("", 17)
    function = helper.make_function("own", "Decay", ["a"], ["c"], body, [standard])
    net = made.one_node("Decay", **opset("own"), functions=[function])
    facts = inspect(made.saved(tmp_path, net), tmp_path)
    assert facts["operators"] == {"Neg": 1, "Exp": 1}


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/etc/passwd", "outside its folder"),
        ("../weights.bin", "outside its folder"),
        ("link.bin", "outside its folder"),
        ("absent.bin", "absent.bin is missing"),
        ("sub", "sub is missing or cannot be read"),
        ("", "is missing or cannot be read"),
    ],
)
def test_external_data_elsewhere_is_refused(location: str, message: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    (tmp_path / "weights.bin").write_bytes(bytes(4096))
    (home / "link.bin").symlink_to(tmp_path / "weights.bin")
    made.external(home / "model.onnx")
    net = onnx.load(home / "model.onnx", load_external_data=False)
    for tensor in net.graph.initializer:
        tensor.external_data[0].value = location
    assert message in str(refusal(made.saved(home, net), tmp_path))


def test_external_data_is_counted_and_may_not_be_truncated(tmp_path: Path) -> None:
    made.external(tmp_path / "model.onnx")
    weights = tmp_path / "weights.bin"
    facts = inspect(str(tmp_path / "model.onnx"), tmp_path)
    assert facts["size_bytes"] == (tmp_path / "model.onnx").stat().st_size + weights.stat().st_size
    assert facts["parameters"] == 6 * 8 + 8 * 3
    weights.write_bytes(weights.read_bytes()[:-8])
    assert "truncated" in str(refusal(tmp_path / "model.onnx", tmp_path).hint)


def test_over_two_gib_it_runs_but_cannot_be_quantised(tmp_path: Path) -> None:
    made.external(tmp_path / "model.onnx")
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.truncate(2**31)  # sparse: it takes no room
    facts = inspect(str(tmp_path / "model.onnx"), tmp_path)
    assert facts["unquantisable"]["code"] == "too_large"


def test_training_graphs_are_refused(tmp_path: Path) -> None:
    net = made.mlp()
    net.training_info.add()
    assert "training graph" in str(refusal(made.saved(tmp_path, net), tmp_path))
    net = made.conv_net()
    net.graph.node[1].CopyFrom(
        helper.make_node(
            "BatchNormalization", ["c", "b0", "b0", "b0", "b0"], ["r", "", ""], training_mode=1
        )
    )
    assert "training mode" in str(refusal(made.saved(tmp_path, net), tmp_path))


STRINGS = helper.make_tensor_type_proto(TensorProto.STRING, ["n"])
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
ODD = {
    "string": STRINGS,
    "sequence": helper.make_sequence_type_proto(FLOATS),
    "optional": helper.make_optional_type_proto(FLOATS),
    "map": helper.make_map_type_proto(TensorProto.INT64, FLOATS),
    "bfloat16": helper.make_tensor_type_proto(TensorProto.BFLOAT16, ["n"]),
    "complex64": helper.make_tensor_type_proto(TensorProto.COMPLEX64, ["n"]),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_array_is_not_supported_with_a_reason(kind: str, tmp_path: Path) -> None:
    odd = helper.make_value_info("x", ODD[kind])
    node = helper.make_node("Identity", ["x"], ["y"])
    taken = refusal(made.saved(tmp_path, made.model([node], [odd], [made.port("y")])), tmp_path)
    assert kind in str(taken)
    assert "not supported, since" in str(taken)


def classifier(*outputs: Any) -> Any:
    """Labels as text, probabilities as a tensor and as the maps of scikit-learn's exporters."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["shares"]),
        helper.make_node("ArgMax", ["shares"], ["best"], keepdims=0, axis=1),
        helper.make_node(
            "LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml",
            keys_int64s=[0, 1], values_strings=["no", "yes"],
        ),
        helper.make_node(
            "ZipMap", ["shares"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        ),
    ]  # fmt: skip
    opsets = [helper.make_opsetid("ai.onnx.ml", 2)]
    inputs, weights = [made.port("x", shape=["n", 4])], [made.weight("w", 4, 2)]
    return made.model(nodes, inputs, outputs, weights, opsets=opsets)


MAPS = helper.make_value_info(
    "maps", helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, FLOATS))
)
LABEL = made.port("label", TensorProto.STRING, ["n"])


def test_of_a_classifier_maps_are_not_compared_but_labels_are(tmp_path: Path) -> None:
    facts = inspect(made.saved(tmp_path, classifier(LABEL, MAPS)), tmp_path)
    assert facts["uncompared"] == ["maps"]
    assert [(port["name"], port["type"]) for port in facts["outputs"]] == [("label", "str")]
    kept = samples.read(tmp_path / "scratch" / samples.REFERENCE)
    assert {str(label) for sample in kept for label in sample[0]} <= {"no", "yes"}


def answers_nan() -> Any:
    nodes = [
        helper.make_node(kind, [taken], [given])
        for kind, taken, given in (("Abs", "x", "a"), ("Neg", "a", "n"), ("Log", "n", "y"))
    ]
    return made.model(nodes, [made.port("x", shape=["k", 4])], [made.port("y")])


def without_outputs() -> Any:
    net = made.mlp()
    del net.graph.output[:]
    return net


@pytest.mark.parametrize(
    ("net", "says", "hint"),
    [
        (made.one_node(ir=99), "IR version: 99.*max supported", "lower model.ir_version"),
        (made.one_node("Dropout", opset=6), "Dropout", "raise its opset to 7"),
        (made.one_node(opset=99), "(?i)opset 99", "older"),
        (made.one_node("Frobnicate"), "Frobnicate", ""),
        (made.one_node("Foo", **opset("acme")), "acme:Foo", "library of custom operators"),
        (made.one_node("Foo", **opset("com.microsoft")), "microsoft:Foo", "upgrade onnxruntime"),
        (made.one_node("And"), "invalid model", "^(?!.*upgrade).*export it again"),
        (without_outputs(), "no outputs", ""),
        (classifier(MAPS), r"maps is seq\(map\(int64,tensor\(float\)\)\)", "zipmap=False"),
        (answers_nan(), "NaN or infinity in y", "--inputs"),
    ],
    ids=[
        "ir",
        "old",
        "opset",
        "operator",
        "domain",
        "newer",
        "invalid",
        "no outputs",
        "maps alone",
        "nan",
    ],
)
def test_a_model_that_cannot_be_used_says_why(tmp_path: Path, net, says: str, hint: str) -> None:
    error = refusal(made.saved(tmp_path, net), tmp_path)
    assert re.search(says, str(error))
    assert re.search(hint, str(error.hint))


@pytest.mark.parametrize("kind", sorted(loading.TYPES))
def test_arrays_of_any_number_are_fine(kind: int, tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    net = made.model([node], [made.port("x", kind, ["n", 2])], [made.port("y", kind)])
    facts = inspect(made.saved(tmp_path, net), tmp_path)
    assert facts["inputs"][0]["type"] == facts["outputs"][0]["type"] == loading.TYPES[kind]


def test_without_inputs_it_runs_once(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["y"], value=made.weight("w", 3))
    facts = inspect(made.saved(tmp_path, made.model([node], [], [made.port("y")])), tmp_path)
    assert (facts["inputs"], facts["batch"], facts["samples"]) == ([], None, 1)
    assert samples.read(tmp_path / "scratch" / samples.INPUTS) == [[]]
    assert len(samples.read(tmp_path / "scratch" / samples.REFERENCE)) == 1


def test_facts_of_what_quantisers_treat_specially(tmp_path: Path) -> None:
    facts = inspect(made.saved(tmp_path, made.branching()), tmp_path)
    assert facts["control_flow"] == ["If"]
    assert facts["operators"] == {"Equal": 1, "If": 1, "Relu": 1, "Neg": 1}
    assert not facts["quantised"]
    found = inspect(made.saved(tmp_path, made.quantised()), tmp_path)
    assert (found["quantised"], found["precision"]) == (True, "int8")


def test_weights_in_four_bits_are_not_called_int8(tmp_path: Path) -> None:
    halves = helper.make_tensor("w", TensorProto.INT4, [4, 3], bytes(6), raw=True)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    weights = [halves, made.weight("scale")]
    net = made.model(
        nodes, [made.port("x", shape=[1, 4])], [made.port("y")], weights, opset=21, ir=10
    )
    assert inspect(made.saved(tmp_path, net), tmp_path)["precision"] == "int4"


@pytest.mark.parametrize(("bits", "precision"), [(4, "int4"), (8, "int8")])
def test_packed_weights_have_the_bits_of_their_operator(bits: int, precision: str) -> None:
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft")
    for name, value in {"bits": bits, "K": 32, "N": 8}.items():
        node.attribute.append(helper.make_attribute(name, value))
    packed = helper.make_tensor(
        "w", TensorProto.UINT8, [8, 1, 4 * bits], bytes(32 * bits), raw=True
    )
    net = made.model([node], [made.port("x", shape=[1, 32])], [made.port("y")], [packed])
    assert (graph.precision(net), graph.parameters(net)) == (precision, 32 * 8)


def test_weights_among_the_inputs_are_no_inputs(tmp_path: Path) -> None:
    net = made.mlp()
    net.ir_version = 3
    net.graph.input.append(made.port("w0", shape=[6, 8]))
    net.graph.input.append(made.port("w1", shape=[8, 3]))
    facts = inspect(made.saved(tmp_path, net), tmp_path)
    assert [port["name"] for port in facts["inputs"]] == ["x"]
    assert not facts["weights_are_inputs"], "below IR 4 they are constants"
    net.ir_version = 8
    assert inspect(made.saved(tmp_path, net), tmp_path)["weights_are_inputs"]
    assert not inspect(made.saved(tmp_path, made.mlp()), tmp_path)["weights_are_inputs"]


def test_a_root_is_taken_of_positive_numbers(tmp_path: Path) -> None:
    facts = inspect(made.saved(tmp_path, made.one_node("Log")), tmp_path)
    assert facts["inputs"][0]["values"] == "random, 0 to 1"


def test_a_model_that_cannot_run_says_why_and_asks_for_shapes(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([7, 9], np.int64), "shape")
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    net = made.model([node], [made.port("x", shape=["n", "k"])], [made.port("y")], [shape])
    error = refusal(made.saved(tmp_path, net), tmp_path)
    assert "does not run with x [1, 128]" in str(error)
    assert "--shape" in str(error.hint)
    assert inspect(made.saved(tmp_path, net), tmp_path, shapes={"x": [21, 3]})["batch"] == 21


def test_nothing_is_written_next_to_the_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    made.external(home / "model.onnx")
    before = {path: path.stat().st_mtime_ns for path in home.iterdir()}
    inspect(str(home / "model.onnx"), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in home.iterdir()} == before


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_too_little_memory_has_a_code_of_its_own(error: Exception) -> None:
    with pytest.raises(WorkloadError) as caught, clear_errors("it"):
        raise error
    assert caught.value.code == "no_memory"


@given(st.text(max_size=500))
def test_messages_are_one_printable_line(text: str) -> None:
    for made_line in (one_line(text), said(RuntimeError(text))):
        assert made_line.isprintable()
        assert len(made_line) <= 300


def test_what_onnxruntime_says_loses_its_source_and_signature() -> None:
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : /src/core/graph.cc:12 "
        "void onnxruntime::Graph::Load(const Map<int, Set()>&) Output (y) is missing.\n"
    )
    assert said(RuntimeError(text)) == "Output (y) is missing."
    text = (
        "Non-zero status code returned while running MatMul node. Name:'first' Status Message: "
        "matmul_helper.h:59 Compute MatMul dimension mismatch"
    )
    assert said(RuntimeError(text)) == "MatMul node first: MatMul dimension mismatch"
