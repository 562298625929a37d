"""ONNX models in INT8 by ONNX Runtime's own tools: prepare, calibrate, quantise."""

import platform
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import np, onnx, quantization
from workbench.worker.recipe import CALIBRATIONS, Recipe
from workbench.worker.session_options import BASIC, NO_SPIN, UNOPTIMISED

from .session import cpu_session

PRODUCTS = ("Conv", "MatMul", "Gemm")
# Static INT8 of our workloads quantises products and the operators between them in a conv net.
STATIC_OPS = ("Conv", "MatMul", "Gemm", "Relu", "GlobalAveragePool", "Flatten")
# Operators that stand for a quantised layer until ONNX Runtime fuses them.
QUANTISED_OPS = {"dynamic": ("ConvInteger", "MatMulInteger"), "static": ("DequantizeLinear",)}
MASK = 1e8  # no activation is so large, only a number that masks entries, such as -1e9 or -inf
MASKING = ("Add", "Mul", "Sub", "Where")  # operators that mask entries by a constant
LEAST_MASK = 1e4  # its size; another constant of that size has no use for 255 steps either
PASSING = ("Cast", "Expand", "Sub")  # operators that are never quantised themselves
UNEVEN = 16.0  # times the largest number of another part, beyond which a joined tensor hides it

Ranges = dict[str, tuple[float, float, str]]  # smallest, largest, NumPy's name of their type


def quantise(
    model: bytes, method: str, calibration: Iterable[Any], *, symmetric: bool = False
) -> bytes:
    """`model` in INT8, "dynamic" or "static" (QDQ), as the inference workloads measure it.

    Static takes its ranges (MinMax) from the `calibration` inputs.  Activations are unsigned
    and weights signed (U8S8) on x86, both signed (S8S8) on arm64, as ONNX Runtime advises.  The
    last layer stays in FP32: it is little work, and a logit above the calibrated range would
    be cut off (measured: up to 13 % error on single inputs, against 1 %).  Norms and softmax stay
    in FP32 too: in steps of 1/256 the attention to 1024 tokens is lost (measured: 36 % error
    against 1 %).  TensorRT takes `symmetric` ranges of signed integers only, and no biases.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        file = Path(folder, "prepared.onnx")
        simplified = simplify(model)
        file.write_bytes(simplified)
        if method == "dynamic":
            quantised = dynamic(file, Recipe("int8", "dynamic"))
        else:
            proto = onnx.load_model_from_string(simplified)
            batches = ([batch] for batch in calibration)
            (found,) = activation_ranges(file, [batches], types=STATIC_OPS)
            on_arm = platform.machine().lower() in ("aarch64", "arm64")
            recipe = Recipe(
                "int8",
                "static",
                activations="s8" if on_arm or symmetric else "u8",
                excluded=(proto.graph.node[-1].name,),
            )
            more: dict[str, Any] = {"ActivationSymmetric": symmetric, "QuantizeBias": not symmetric}
            quantised = static(proto, found, recipe, STATIC_OPS, **more)
    _require_quantised(quantised, method)
    return quantised


def simplify(model: bytes) -> bytes:
    """`model` optimised, with inferred types; symbolic inference would need sympy.

    A session writes the optimised graph, which `quant_pre_process` loses in ONNX Runtime 1.24 to
    1.30: it infers the types of the given one.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        before, basic, after = (Path(folder, f"{n}.onnx") for n in ("before", "basic", "after"))
        before.write_bytes(model)
        cpu_session(before, BASIC, optimised=basic)
        skipped = {"skip_symbolic_shape": True, "skip_optimization": True}
        quantization.quant_pre_process(str(basic), str(after), **skipped)
        return after.read_bytes()


def activation_ranges(
    file: Path,
    groups: Iterable[Iterable[Sequence[Any]]],
    method: str = "minmax",
    known: Ranges | None = None,
    types: Sequence[str] = (),
) -> list[Ranges]:
    """The range of each tensor by its name, over each group of samples, which are arrays in the
    order of the inputs.  The range of an empty tensor is not finite.  Other methods than minmax
    take one group and the `known` ends: a tensor with a mask keeps those.  `types` are the
    operators whose tensors count, by default all."""
    found = []
    masked = {name: ends for name, ends in (known or {}).items() if not _has_ends(ends)}
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        base = quantization.calibrate.CalibraterBase
        base.create_inference_session = _open  # its own ignores quotas, and takes all cores
        calibrator = quantization.create_calibrator(
            str(file),
            list(types) or None,
            augmented_model_path=str(Path(folder, "augmented.onnx")),
            calibrate_method=quantization.CalibrationMethod[CALIBRATIONS[method]],
            # A symmetric range would waste half of an unsigned type behind a ReLU.
            extra_options={"symmetric": False},
        )
        if masked:  # no histogram holds -inf, nor -1e9 in steps that suit the other numbers
            calibrator.tensors_to_calibrate -= masked.keys()
        names = [port.name for port in calibrator.infer_session.get_inputs()]
        for group in groups:
            feeds = (dict(zip(names, sample, strict=True)) for sample in group)
            calibrator.calibrate_tensors_range = None  # those of the group before
            # A call holds all tensors for a histogram until it ends, but only their ends otherwise.
            for part in [feeds] if method == "minmax" else ([each] for each in feeds):
                calibrator.collect_data(SimpleNamespace(get_next=partial(next, iter(part), None)))
            found.append(masked | _ranges(calibrator.compute_data()))
    return found


def _open(calibrator: Any) -> None:
    file, mode = calibrator.augmented_model_path, f"{UNOPTIMISED}+{NO_SPIN}"
    calibrator.infer_session = cpu_session(file, mode)


def _ranges(collected: Any) -> Ranges:
    ends = {name: [np.asarray(end) for end in data.range_value] for name, data in collected.items()}
    return {
        name: (float(low.min(initial=np.inf)), float(high.max(initial=-np.inf)), low.dtype.name)
        for name, (low, high) in ends.items()
    }


def _has_ends(ends: tuple[float, float, str]) -> bool:
    """Whether a range is one of activations, not of a mask or an empty tensor."""
    return all(-MASK < end < MASK for end in ends[:2])


def static(
    model: Any,
    found: Ranges,
    recipe: Recipe,
    types: Sequence[str],
    only: Sequence[str] = (),
    **options: Any,
) -> bytes:
    """`model` (not changed) in QDQ form: ONNX Runtime fuses the pairs into integer kernels.
    `types` are the operators to quantise, `only` the names of the nodes if not all of those;
    `options` are ONNX Runtime's own."""
    kinds, calibrate = quantization.QuantType, quantization.calibrate
    limits = {  # in the tensor's own type, which its scale takes too
        name: calibrate.TensorData(lowest=np.array(low, kind), highest=np.array(high, kind))
        for name, (low, high, kind) in found.items()
        if _has_ends((low, high, kind))
    }
    # The quantiser fails at a tensor without limits, and 255 steps to -1e9 leave nothing else.
    endless, nodes = found.keys() - limits.keys(), model.graph.node
    kept = options.get("OpTypesToExcludeOutputQuantization", ())
    excluded = [
        node.name
        for node in nodes
        if endless & {*node.input, *(() if node.op_type in kept else node.output)}
    ]
    # Kernels take a scale for each column of a matrix, but not of a batch of matrices.
    batches = {weight.name for weight in model.graph.initializer if len(weight.dims) > 2}
    products = (node for node in nodes if node.op_type == "MatMul")
    whole: dict[str, Any] = {n: [{}] for node in products for n in batches & {*node.input}}
    # quantize_static would infer shapes anew for each variant, and once took no known ranges.
    quantiser = _quantiser()(
        deepcopy(model),
        recipe.per_channel,
        recipe.reduce_range,
        kinds.QInt8,
        kinds.QInt8 if recipe.activations == "s8" else kinds.QUInt8,
        calibrate.TensorsData(calibrate.CalibrationMethod.MinMax, limits),
        list(only),
        [*recipe.excluded, *excluded, *_too_coarse(model, found, types)],
        list(types),
        {**options, "TensorQuantOverrides": whole},
    )
    quantiser.quantize_model()
    return in_order(quantiser.model.model)


def _too_coarse(model: Any, found: Ranges, types: Sequence[str]) -> Iterator[str]:
    """The nodes between products with a tensor that 255 steps spoil: one with a mask, which may
    hide nothing in the calibration inputs, or one that joins large numbers and small ones, such as
    boxes and their scores.  A product would take these in the same steps anyway."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    others = [node for node in model.graph.node if node.op_type not in PRODUCTS]
    read = {port.name for port in model.graph.output}  # by more than products
    for node in reversed(others):
        if node.op_type not in types or read & {*node.output}:
            read.update(node.input)
    spoilt = set[str]()
    for node in others:
        if node.op_type not in (*types, *PASSING):
            continue
        operands = [weights[name] for name in node.input if name in weights]
        is_mask = node.op_type in MASKING and any(map(_masks, operands))
        joined = node.input if node.op_type == "Concat" and node.output[0] in read else ()
        sizes = [max(map(abs, found[name][:2])) for name in joined if name in found]
        sizes = [size for size in sizes if 0 < size < MASK]
        is_uneven = max(sizes, default=0.0) > UNEVEN * min(sizes, default=0.0)
        if is_mask or is_uneven or spoilt & {*node.input}:
            spoilt.update(node.output)
            yield node.name


def _masks(weight: Any) -> bool:
    """Whether a constant is large enough to mask entries, as -1e4 is."""
    values = onnx.numpy_helper.to_array(weight)
    return values.dtype.kind == "f" and bool((np.abs(values) >= LEAST_MASK).any())


@cache
def _quantiser() -> Any:
    """ONNX Runtime's quantiser, but it takes the channels of a weight together.  Its own loops over
    them give the same numbers, and take most of the time to build a form of a large model."""
    tool = quantization.qdq_quantizer
    whole = getattr(tool, "quantize_onnx_initializer", None)
    if whole is None:  # before ONNX Runtime 1.21
        return tool.QDQQuantizer

    def rounded(
        weight: Any, kind: int, zero: Any, scale: Any, axis: Any = None, **more: Any
    ) -> Any:
        if axis is not None:  # a scale for each number
            shape = [-1 if place == axis else 1 for place in range(len(weight.dims))]
            wide = (np.broadcast_to(each.reshape(shape), weight.dims) for each in (zero, scale))
            zero, scale = (each.reshape(-1) for each in wide)
        return whole(weight, kind, zero, scale, **more)

    def scales(self: Any) -> Any:
        low, high = tool.get_qmin_qmax_for_qType(self.weight_qType, self.reduce_range, True)
        for weight in self.model.initializer():
            found = self.tensors_to_quantize.get(weight.name)
            if found is not None and found.axis is not None:
                numbers = onnx.numpy_helper.to_array(weight)
                others = tuple(place for place in range(numbers.ndim) if place != found.axis)
                scale = 2 * np.abs(numbers).max(axis=others, initial=0).astype(np.float64)
                scale /= float(high) - float(low)
                scale[scale < np.finfo(numbers.dtype).tiny] = 1
                self.tensor_quant_overrides[weight.name] = [
                    {"axis": found.axis, "scale": each, "zero_point": 0} for each in scale
                ]
        return tool.QDQQuantizer._calc_initializer_quant_params(self)

    tool.quantize_onnx_initializer = rounded
    return type("Quantiser", (tool.QDQQuantizer,), {"_calc_initializer_quant_params": scales})


def dynamic(file: Path, recipe: Recipe, types: Sequence[str] = (), **options: Any) -> bytes:
    """The model in `file` with weights in INT8, and activations that are quantised in each call.
    `types` are the operators to quantise, by default all that the tool knows."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        result = Path(folder, "result.onnx")
        quantization.quantize_dynamic(
            str(file),
            str(result),
            op_types_to_quantize=list(types) or None,
            per_channel=recipe.per_channel,
            reduce_range=recipe.reduce_range,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=list(recipe.excluded),
            extra_options=options,
        )
        return result.read_bytes()


def halved(model: bytes) -> bytes:
    """`model` in FP16 inside; the inputs and outputs keep their types."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    single = onnx.load_model_from_string(model)
    return in_order(convert_float_to_float16(single, keep_io_types=True))


def in_order(model: Any) -> bytes:
    """`model` serialised with each node after those it reads from, since the tools append nodes."""
    nodes = list(model.graph.node)
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    needs = {
        n: {makers[name] for name in _read(node) if name in makers} for n, node in enumerate(nodes)
    }
    del model.graph.node[:]
    model.graph.node.extend(nodes[place] for place in TopologicalSorter(needs).static_order())
    return bytes(model.SerializeToString())


def _read(node: Any) -> Iterator[str]:
    """The names of the tensors that `node` reads, by itself or in its subgraphs."""
    yield from node.input
    for body in subgraphs(node):
        for inner in body.node:
            yield from _read(inner)


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs that If, Loop and Scan hold."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _require_quantised(model: bytes, method: str) -> None:
    """Refuse a "quantised" model without a quantised layer: the tools skip silently."""
    operators = {node.op_type for node in onnx.load_model_from_string(model).graph.node}
    if operators.isdisjoint(QUANTISED_OPS[method]):
        text = f"{method} quantisation left the model as it was"
        hint = "install another version of onnxruntime; INT8 is not measured with this one"
        raise WorkloadError(text, code="not_quantised", hint=hint)
