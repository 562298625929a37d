"""Small ONNX models for tests and for the fuzz target, built node by node."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def port(name: str, kind: int = FLOAT, shape: Sequence[int | str | None] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int, seed: int = 0) -> Any:
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(made, name)


def ints(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Sequence[Any] = (),
    *,
    opset: int = 17,
    ir: int = 8,
    **more: Any,
) -> Any:
    graph = helper.make_graph(nodes, "net", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, **more)


def one_node(operator: str = "Relu", shape: Any = ("n", 4), **more: Any) -> Any:
    node = helper.make_node(operator, ["x"], ["y"], domain=more.pop("domain", ""))
    return model([node], [port("x", shape=shape)], [port("y")], **more)


def conv_net() -> Any:
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], name="gemm", transB=1),
    ]
    weights = [weight("w0", 4, 3, 3, 3), weight("b0", 4), weight("w1", 5, 4), weight("b1", 5)]
    return model(nodes, [port("x", shape=["batch", 3, 8, 8])], [port("y")], weights)


def mlp() -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], name="second"),
    ]
    weights = [weight("w0", 6, 8), weight("w1", 8, 3)]
    return model(nodes, [port("x", shape=["n", 6])], [port("y")], weights)


def lstm() -> Any:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y", "", ""], name="lstm", hidden_size=4)
    weights = [weight("w", 1, 16, 3), weight("r", 1, 16, 4)]
    return model([node], [port("x", shape=["seq", "batch", 3])], [port("y")], weights)


def branching() -> Any:
    """Equal(rate, 16000) chooses between two graphs."""
    branches = {
        f"{word}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], [f"{word}_y"])], word, [], [port(f"{word}_y")]
        )
        for word, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["is_16k"]),
        helper.make_node("If", ["is_16k"], ["y"], **branches),
    ]
    wanted = numpy_helper.from_array(np.array(16000, np.int64), "wanted")
    inputs = [port("x", shape=["n", 4]), port("rate", INT64, [])]
    return model(nodes, inputs, [port("y", shape=["n", 4])], [wanted])


def quantised() -> Any:
    """MatMul between QuantizeLinear and DequantizeLinear."""
    scale = numpy_helper.from_array(np.array(0.05, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(128, np.uint8), "zero")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    return model(nodes, [port("x", shape=[1, 4])], [port("y")], [scale, zero, weight("w", 4, 3)])


def tokens(rows: int = 50) -> Any:
    """Ids index a table; a mask multiplies the rows."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["cast"], to=INT64),
        helper.make_node("Gather", ["table", "cast"], ["found"]),
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["wide"]),
        helper.make_node("Mul", ["found", "wide"], ["y"]),
    ]
    inputs = [port(name, TensorProto.INT32, ["b", "seq"]) for name in ("ids", "attention_mask")]
    return model(nodes, inputs, [port("y")], [weight("table", rows, 4), ints("last", -1)])


def shaping() -> Any:
    """A model with sizes in constants, where mutations can reach them."""
    nodes = [
        helper.make_node("Expand", ["x", "wide"], ["e"]),
        helper.make_node("ConstantOfShape", ["made"], ["ones"]),
        helper.make_node("Add", ["e", "ones"], ["a"]),
        helper.make_node("Tile", ["a", "times"], ["t"]),
        helper.make_node("Reshape", ["t", "flat"], ["y"]),
    ]
    sizes = [ints("wide", 2, 4), ints("made", 2, 1), ints("times", 3, 2), ints("flat", -1, 8)]
    return model(nodes, [port("x", shape=["n", 4])], [port("y")], sizes)


def external(path: Path) -> None:
    """Write the MLP to `path` and its weights to `weights.bin` in the same folder."""
    made = mlp()
    onnx.save(
        made,
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=False,
    )


def saved(folder: Path, made: Any, name: str = "model.onnx") -> str:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return str(path)
