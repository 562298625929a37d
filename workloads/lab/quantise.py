"""One form of the prepared model by its recipe, refused where it is not what its name says."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.recipe import Recipe

from . import nodes, sessions
from .nodes import nodes_within
from .prepare import PREPARED
from .ranges import Ranges, ranges

PRODUCTS = ("Conv", "MatMul", "Gemm")
ABSORBED = ("Clip", "Relu")  # become part of the product before them
# What lies between products and has an integer kernel: a chain of these stays in INT8.  Left out:
# softmax and norms, which lose in 256 steps what they are there for, and ConvTranspose, which has
# no integer kernel.
BETWEEN = (
    "Add", "AveragePool", "Clip", "Concat", "Flatten", "Gather", "GlobalAveragePool", "LeakyRelu",
    "MaxPool", "Mul", "Pad", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
DYNAMIC = ("MatMul", "Attention", "LSTM", "EmbedLayerNormalization")  # Gemm is rewritten as MatMul
INTEGER = {  # operators of an optimised graph that multiply integers
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "QAttention",
    "QGemm",
    "QLinearConv",
    "QLinearMatMul",
}
FALLBACK_HINT = "the other forms are measured without it"


def build(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Write `<label>.onnx` into `folder`; see `workloads.lab.child.Lab.build`."""
    import onnx

    model = onnx.load(str(folder / PREPARED))
    with sessions.quiet():
        made = make(model, folder, recipe)
    return keep(folder, recipe, made)


def keep(folder: Path, recipe: Recipe, made: bytes) -> dict[str, Any]:
    """Write a form that was made, with what is told of it."""
    import onnx

    coverage = None
    if recipe.method is not None:
        coverage = integer_share(made, folder)
        if not coverage:
            raise WorkloadError(
                f"{recipe.quantization} quantisation left every product in floating point",
                code="not_quantised",
                hint=_why_none(nodes.kept(folder)),
            )
    else:
        _require_loads(made)
    file = folder / f"{recipe.label}.onnx"
    file.write_bytes(made)
    graph = onnx.load_model_from_string(made).graph
    return {
        "file": str(file),
        "size_bytes": len(made),
        "operators": dict(Counter(node.op_type for node in nodes_within(graph))),
        "coverage": coverage,
    }


def _why_none(found: Sequence[nodes.Product]) -> str:
    quantisable = [product for product in found if product.quantisable]
    if not quantisable:
        return "none of its products has constant weights"
    if all(product.inside for product in quantisable):
        return "they lie inside If, Loop or Scan, where only dynamic quantisation goes"
    return "this form has no integer kernels for them; another may"


def make(model: Any, folder: Path, recipe: Recipe) -> bytes:
    """`model` (not changed) in the form of `recipe`, serialised; WorkloadError `not_quantised`."""
    if recipe.precision == "fp32" and recipe.method is None:
        return bytes(model.SerializeToString())
    with refusing(recipe):
        if recipe.precision == "fp16":
            return _halved(model)
        if recipe.method == "dynamic":
            return _dynamic(model, folder, recipe)
        return static(model, ranges(folder, recipe.calibration), recipe)


@contextlib.contextmanager
def refusing(recipe: Recipe) -> Iterator[None]:
    """Whatever the tools raise becomes a WorkloadError `not_quantised`."""
    try:
        yield
    except (WorkloadError, MemoryError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise WorkloadError(
            f"onnxruntime cannot make {recipe.label}: {sessions.first_line(error)}",
            code="not_quantised",
            hint=FALLBACK_HINT,
        ) from error


def static_types(recipe: Recipe) -> tuple[str, ...]:
    """The operators that a static form quantises."""
    return PRODUCTS + (BETWEEN if recipe.scope == "all" else ABSORBED)


def static(model: Any, found: Ranges, recipe: Recipe, only: Sequence[str] = ()) -> bytes:
    """QDQ form; ONNX Runtime fuses the pairs into integer kernels where it loads them.

    `only`: names of the nodes to quantise, where not all of them are.
    """
    import numpy as np
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import QuantType

    limits = {  # in the tensor's own type, which its scale takes too
        name: TensorData(lowest=np.array(low, kind), highest=np.array(high, kind))
        for name, (low, high, kind) in found.items()
    }
    copied = type(model)()
    copied.CopyFrom(model)
    everything = recipe.scope == "all"
    # Not quantize_static, which reads the file and infers shapes anew for every form; older
    # versions of it take no ranges that are known either.
    quantiser = QDQQuantizer(
        copied,
        recipe.per_channel,
        recipe.reduce_range,
        QuantType.QInt8,
        QuantType.QInt8 if recipe.activations == "s8" else QuantType.QUInt8,
        TensorsData(CalibrationMethod.MinMax, limits),
        list(only),
        list(recipe.excluded),
        list(static_types(recipe)),
        {
            # Of two activations each is quantised for this one product: dearer than what it saves.
            "MatMulConstBOnly": True,
            # A matrix product gives FP32 as cheaply, and the next operator is not quantised here.
            "OpTypesToExcludeOutputQuantization": [] if everything else ["Gemm", "MatMul"],
        },
    )
    quantiser.quantize_model()
    return _in_order(quantiser.model.model)


def _dynamic(model: Any, folder: Path, recipe: Recipe) -> bytes:
    """Weights in INT8, activations quantised as they come."""
    types = [*DYNAMIC, *(["Conv"] if recipe.scope == "all" else [])]
    try:
        return _quantised_dynamically(model, folder, recipe, types)
    except Exception:
        if "LSTM" not in {node.op_type for node in model.graph.node}:
            raise
        # Some LSTMs (weights shared or per channel) stop the tool; the rest may well go.
        return _quantised_dynamically(model, folder, recipe, [t for t in types if t != "LSTM"])


def _quantised_dynamically(model: Any, folder: Path, recipe: Recipe, types: list[str]) -> bytes:
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source, result = Path(scratch, "source.onnx"), Path(scratch, "result.onnx")
        source.write_bytes(model.SerializeToString())
        quantization.quantize_dynamic(
            str(source),
            str(result),
            op_types_to_quantize=types,
            per_channel=recipe.per_channel,
            reduce_range=recipe.reduce_range,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=list(recipe.excluded),
            extra_options={"EnableSubgraph": any(p.inside for p in nodes.kept(folder))},
        )
        return result.read_bytes()


def _halved(model: Any) -> bytes:
    """FP16 inside, the inputs and outputs as they were."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    copied = type(model)()
    copied.CopyFrom(model)
    return _in_order(convert_float_to_float16(copied, keep_io_types=True))


def _in_order(model: Any) -> bytes:
    """Serialised, each node behind those it reads from: the tools put theirs last.

    Their sorting does not see what a graph within a node reads; ONNX Runtime loads either.
    """
    from onnxruntime.quantization.onnx_model import ONNXModel

    attributes = (attribute for node in model.graph.node for attribute in node.attribute)
    if not any(attribute.HasField("g") for attribute in attributes):
        ONNXModel(model).topological_sort()
    return bytes(model.SerializeToString())


def integer_share(made: bytes, folder: Path) -> float | None:
    """Of the products' multiply-adds, those in INT8 in the graph as ONNX Runtime runs it.

    A quantised weight counts only where an integer kernel takes it: pairs that find no kernel
    are computed in FP32, at more cost than before.
    """
    import onnx

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch, "optimised.onnx")
        _require_loads(made, file)
        graph = onnx.load(str(file)).graph
    taken = {name for node in nodes_within(graph) if node.op_type in INTEGER for name in node.input}
    found = nodes.kept(folder)
    chosen = {p.name for p in found if p.quantisable and _taken(p, taken)}
    return nodes.share(found, chosen) or 0.0


def _taken(product: nodes.Product, taken: set[str]) -> bool:
    """Whether one of its weights is among `taken`, under a name that the tools give it."""
    endings = ("", "_quantized", "_Transposed_quantized")
    return any(f"{weight}{ending}" in taken for weight in product.weights for ending in endings)


def _require_loads(made: bytes, optimised: Path | None = None) -> None:
    # Level "all" would lay out products anew and rename their weights.
    try:
        sessions.open_session(made, level="extended", optimised=optimised)
    except Exception as error:
        raise WorkloadError(
            f"onnxruntime does not load what it made: {sessions.first_line(error)}",
            code="not_quantised",
            hint=FALLBACK_HINT,
        ) from error
