"""What the ONNX Runtime candidates share: building a graph and quantising it.

Graphs are built node by node (`onnx.helper`), so that no exporter stands between the weights
and what is measured.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError

from .network import Conv, Layer, MeanPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What every ONNX Runtime since 1.14 loads; onnx's own defaults are newer than it accepts.
OPSET = 17
IR_VERSION = 8
LARGEST_BYTES = 2**31 - 2**20  # of one serialised protocol buffer, less room for the graph
# What static quantisation takes: products, and what of a conv net lies between them.
STATIC_OPS = ("Conv", "MatMul", "Gemm", "Relu", "GlobalAveragePool", "Flatten")
# What stands for a quantised layer before ONNX Runtime fuses it.
QUANTISED_OPS = {"dynamic": ("ConvInteger", "MatMulInteger"), "static": ("DequantizeLinear",)}


class GraphBuilder:
    """Collects the nodes of an FP32 model with fixed shapes, from `input` to `output`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, operator: str, *operands: str, **attributes: Any) -> str:
        """Append a node; the name of its result."""
        (result,) = self._append(operator, operands, 1, attributes)
        return result

    def split(self, operand: str, parts: int) -> list[str]:
        """Divide the last axis evenly; the names of the parts."""
        return self._append("Split", (operand,), parts, {"axis": -1})

    def _append(
        self, operator: str, operands: Sequence[str], count: int, attributes: dict[str, Any]
    ) -> list[str]:
        from onnx import helper

        name = f"{operator.lower()}_{len(self.nodes)}"
        results = [name, *(f"{name}_{part}" for part in range(1, count))]
        self.nodes.append(helper.make_node(operator, operands, results, name=name, **attributes))
        return results

    def constant(self, value: Any) -> str:
        """An array as it is, a number in FP32, or a shape; its name."""
        import numpy as np
        from onnx import numpy_helper

        if not isinstance(value, np.ndarray):
            value = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def model(self, input_shape: Sequence[int], output_shape: Sequence[int]) -> bytes:
        """The serialised model, whose output is the last node's."""
        import onnx
        from onnx import helper

        size = sum(len(weight.raw_data) for weight in self.weights)
        if size > LARGEST_BYTES:
            raise WorkloadError(
                f"{size / 2**30:.1f} GiB of weights are more than an ONNX model holds",
                code="unsupported",
                hint="take a smaller size, or torch",
            )
        self.nodes[-1].output[0] = "output"
        single = onnx.TensorProto.FLOAT
        body = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("input", single, input_shape)],
            [helper.make_tensor_value_info("output", single, output_shape)],
            self.weights,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(body, opset_imports=[opset], ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def graph(layers: Sequence[Layer], input_shape: Sequence[int]) -> bytes:
    """The layers as a serialised model."""
    made = GraphBuilder()
    x = "input"
    for layer in layers:
        if isinstance(layer, MeanPool):
            x = made.add("Flatten", made.add("GlobalAveragePool", x))
            continue
        operands = x, made.constant(layer.weight), made.constant(layer.bias)
        if isinstance(layer, Conv):
            strides = [layer.stride, layer.stride]
            x = made.add("Conv", *operands, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=strides)
        else:
            x = made.add("Gemm", *operands, transB=1)
        if layer.relu:
            x = made.add("Relu", x)
    return made.model(input_shape, (input_shape[0], len(layers[-1].bias)))  # type: ignore[union-attr]


def quantise(model: bytes, method: str, calibration: Iterable[NDArray[np.float32]]) -> bytes:
    """`model` in INT8 by ONNX Runtime's own tools: "dynamic", or "static" in QDQ form.

    Static takes its ranges (MinMax) from the `calibration` inputs.  Activations are unsigned
    and weights signed (U8S8) on x86, both signed (S8S8) on arm64, as ONNX Runtime advises.  The
    last layer stays in FP32: it is little work, and a logit above the calibrated range would
    be cut off (measured: up to 13 % error on single inputs, against 1 %).  Norms and softmax stay
    so, too: in steps of 1/256 the attention to 1024 tokens is lost (measured: 36 % against 1 %).
    """
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        source, prepared, result = (str(Path(folder, name)) for name in ("in", "pre", "out"))
        Path(source).write_bytes(model)
        # Symbolic inference needs sympy, and is for graphs whose shapes are not all fixed.
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if method == "dynamic":
            quantization.quantize_dynamic(prepared, result)
        else:
            last = onnx.load(prepared).graph.node[-1].name
            on_arm = platform.machine().lower() in ("aarch64", "arm64")
            kinds = quantization.QuantType
            quantization.quantize_static(
                prepared,
                result,
                _Calibration(calibration),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=kinds.QInt8 if on_arm else kinds.QUInt8,
                weight_type=kinds.QInt8,
                op_types_to_quantize=list(STATIC_OPS),
                nodes_to_exclude=[last],
            )
        quantised = Path(result).read_bytes()
    _require_quantised(quantised, method)
    return quantised


class _Calibration:
    """Feeds the calibration inputs one by one, as `onnxruntime.quantization` asks for them."""

    def __init__(self, inputs: Iterable[NDArray[np.float32]]) -> None:
        self._left = iter(inputs)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        found = next(self._left, None)
        return None if found is None else {"input": found}


def _require_quantised(model: bytes, method: str) -> None:
    """Refuse a "quantised" model in which no layer was: the tools skip silently."""
    import onnx

    operators = {node.op_type for node in onnx.load_model_from_string(model).graph.node}
    if operators.isdisjoint(QUANTISED_OPS[method]):
        raise WorkloadError(
            f"{method} quantisation left the model as it was",
            code="not_quantised",
            hint="another version of onnxruntime may do better; INT8 is not measured here",
        )
