"""ONNX models built node by node, without an exporter between the weights and the measurement."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import np, onnx

from .network import EPSILON, Attention, Conv, Dense, Gelu, Layer, Mean, Norm, Residual

# Versions that every ONNX Runtime since 1.14 loads; onnx's own defaults are newer than it accepts.
OPSET = 17
IR_VERSION = 8
LARGEST_FILE = 2**31 - 1  # bytes of one protocol buffer
LARGEST_MODEL = LARGEST_FILE - 2**20  # bytes of weights that leave room for the graph


def require_fit(size: int) -> None:
    """WorkloadError if `size` bytes of weights or nodes are too many for one file."""
    if size > LARGEST_MODEL:
        text = f"{size / 2**30:.1f} GiB are more than an ONNX model holds"
        raise WorkloadError(text, hint="take a smaller size, or torch")


class GraphBuilder:
    """Collects the nodes of a model with fixed shapes, from `input` to an FP32 `output`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, operator: str, *operands: str, **attributes: Any) -> str:
        """Append a node; returns its name, which is that of its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        node = onnx.helper.make_node(operator, operands, [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def split(self, operand: str, parts: int) -> list[str]:
        """Divide the last axis evenly; returns the names of the parts."""
        name = self.add("Split", operand, axis=-1)
        self.nodes[-1].output.extend(f"{name}_{part}" for part in range(1, parts))
        return list(self.nodes[-1].output)

    def constant(self, value: Any) -> str:
        """Add an array as it is, a number in FP32, or a shape; returns its name."""
        if not isinstance(value, np.ndarray):
            value = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        name = f"constant_{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def model(
        self,
        input_shape: Sequence[int],
        output_shape: Sequence[int],
        *,
        element: str = "FLOAT",
        opset: int = OPSET,
        domains: Mapping[str, int] | None = None,
    ) -> bytes:
        """The serialised model; its output is the result of the last node.  `element` is ONNX's
        name of the input's type, `domains` are further operator sets with their versions."""
        require_fit(sum(len(weight.raw_data) for weight in self.weights))
        self.nodes[-1].output[0] = "output"
        single, kind = onnx.TensorProto.FLOAT, onnx.TensorProto.DataType.Value(element)
        body = onnx.helper.make_graph(
            self.nodes,
            "network",
            [onnx.helper.make_tensor_value_info("input", kind, input_shape)],
            [onnx.helper.make_tensor_value_info("output", single, output_shape)],
            self.weights,
        )
        sets = [onnx.helper.make_opsetid(*each) for each in {"": opset, **(domains or {})}.items()]
        model = onnx.helper.make_model(body, opset_imports=sets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def attention(made: GraphBuilder, x: str, layer: Attention, batch: int, tokens: int) -> str:
    """Append `layer`; returns the name of its result."""

    def heads(part: str, *order: int) -> str:
        shape = made.constant([batch, tokens, layer.heads, layer.width // layer.heads])
        return made.add("Transpose", made.add("Reshape", part, shape), perm=order)

    queries, keys, values = made.split(x, 3)
    scores = made.add("MatMul", heads(queries, 0, 2, 1, 3), heads(keys, 0, 2, 3, 1))
    scale = made.constant(1 / math.sqrt(layer.width // layer.heads))
    weights = made.add("Softmax", made.add("Mul", scores, scale), axis=-1)
    mixed = made.add("MatMul", weights, heads(values, 0, 2, 1, 3))
    joined = made.add("Transpose", mixed, perm=(0, 2, 1, 3))
    return made.add("Reshape", joined, made.constant([batch, tokens, layer.width]))


def graph(layers: Sequence[Layer], input_shape: Sequence[int]) -> bytes:
    """`layers` as a serialised model."""
    made = GraphBuilder()

    def applied(x: str, layer: Layer) -> str:
        if isinstance(layer, Residual):
            return made.add("Add", x, reduce(applied, layer.layers, x))
        if isinstance(layer, Mean):
            if len(input_shape) == 3:
                return made.add("ReduceMean", x, axes=[1], keepdims=0)
            return made.add("Flatten", made.add("GlobalAveragePool", x))
        if isinstance(layer, Attention):
            return attention(made, x, layer, *input_shape[:2])
        if isinstance(layer, Gelu):
            error = made.add("Erf", made.add("Div", x, made.constant(math.sqrt(2))))
            doubled = made.add("Mul", x, made.add("Add", error, made.constant(1.0)))
            return made.add("Mul", doubled, made.constant(0.5))
        if isinstance(layer, Dense) and len(input_shape) == 3 and layer is not layers[-1]:
            product = made.add("MatMul", x, made.constant(layer.weight.T.copy()))
            return made.add("Add", product, made.constant(layer.bias))
        operands = x, made.constant(layer.weight), made.constant(layer.bias)
        if isinstance(layer, Norm):
            return made.add("LayerNormalization", *operands, axis=-1, epsilon=EPSILON)
        if isinstance(layer, Conv):
            strides = [layer.stride, layer.stride]
            x = made.add("Conv", *operands, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=strides)
        else:
            x = made.add("Gemm", *operands, transB=1)
        return made.add("Relu", x) if layer.relu else x

    reduce(applied, layers, "input")
    return made.model(input_shape, (input_shape[0], len(layers[-1].bias)))  # type: ignore[union-attr]
