"""Turns the user's model into one that quantisers can work with, step by step.

Exporters leave weights in `Constant` nodes, old opsets and tensors without types; quantisers skip
those silently.  Each step is checked against the reference outputs.  A step whose result does not
load or does not agree is undone, and the next continues from the last good model.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import onnx, quantization
from workbench.worker.session_options import UNOPTIMISED

from .._shared import quantisation
from .._shared.session import cpu_session
from . import agreement, graph, parts, products, samples
from .errors import said

PREPARED = "prepared.onnx"
OPSET = 13  # the first in which weights can have a scale per channel
LARGEST_ERROR = 1e-3  # relative; preparation must not change what the model computes
CHECKED = 4  # samples that check each step
DERIVED = ("_scale", "_zero_point", "_quantized")  # endings of names that quantisers add


def prepare(model: Path, folder: Path) -> dict[str, Any]:
    """Write `prepared.onnx` into `folder`; returns the steps, and what can be quantised."""
    current = onnx.load(str(model))
    steps = [_step("as given", current)]
    _drop_weight_inputs(current)
    inputs = samples.read(folder / samples.INPUTS)[:CHECKED]
    reference = samples.read(folder / samples.REFERENCE)[:CHECKED]
    for name, change in _steps(current):
        try:
            changed = change(current)
            off = agreement.error(cpu_session(changed.SerializeToString()), inputs, reference)
            if off > LARGEST_ERROR:
                text = f"its outputs differ from the original's by {off:.2g}"
                raise WorkloadError(text, code="wrong_result")
        except Exception as error:
            code = error.code if isinstance(error, WorkloadError) else "failed"
            hint = "quantisation continues without this step"
            reason = {"code": code, "message": said(error), "hint": hint}
            steps.append({"step": name, "size_bytes": None, "nodes": None, "reason": reason})
            continue
        current = changed
        steps.append(_step(name, current))
    _name_nodes(current)
    _fit_weights(current)
    found = products.find(current, folder, inputs[0])
    products.keep(folder, found)
    parts.keep(folder, current)
    (folder / PREPARED).write_bytes(current.SerializeToString())
    for stale in folder.glob("ranges-*.json"):  # from a model prepared here earlier
        stale.unlink()
    return {
        "forms": steps,
        "multiply_adds": products.total(found),
        "weights_bytes": products.weights_bytes(found),
        "products": dict(Counter(p.type for p in found if p.quantisable and not p.inside)),
    }


def _steps(model: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    if (graph.opset(model) or OPSET) < OPSET:
        upgraded = partial(onnx.version_converter.convert_version, target_version=OPSET)
        yield f"opset {OPSET}", upgraded
    yield "simplified", _simplified


def _drop_weight_inputs(model: Any) -> None:
    """Remove weights from the inputs, since ONNX Runtime does not fold those that a caller may
    change."""
    free = graph.free_inputs(model)
    del model.graph.input[:]
    model.graph.input.extend(free)
    model.ir_version = max(4, model.ir_version)  # below 4, every initialiser is an input too


def _simplified(model: Any) -> Any:
    """The model with constants as initialisers, and types inferred."""
    changed = onnx.load_model_from_string(quantisation.simplify(model.SerializeToString()))
    _rename(changed)
    _complete_types(changed)
    # Without this mark the quantiser writes the model to a file and infers them for each variant.
    quantization.quant_utils.add_infer_metadata(changed)
    return changed


def _rename(model: Any) -> None:
    """Rename tensors such as `x_scale`, since quantisers would take that for the scale of `x`."""
    tensors = [*model.graph.initializer, *model.graph.value_info]
    new = {each.name: f"{each.name}." for each in tensors if each.name.endswith(DERIVED)}
    for port in (*model.graph.input, *model.graph.output):
        new.pop(port.name, None)
    for each in tensors:
        each.name = new.get(each.name, each.name)
    for node in graph.nodes(model):
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]


def _complete_types(model: Any) -> None:
    """Add the types that ONNX Runtime knows, since ONNX stops at operators of other domains."""
    ports = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    made = (name for node in model.graph.node for name in node.output if name)
    unknown = set(made) - {port.name for port in ports}
    if not unknown:
        return
    wide = deepcopy(model)
    wide.graph.output.extend(onnx.ValueInfoProto(name=name) for name in unknown)
    for port in cpu_session(wide.SerializeToString(), UNOPTIMISED).get_outputs():
        if port.name in unknown and port.type == "tensor(float)":
            shape = port.shape or None  # [] may also stand for an unknown rank
            typed = onnx.helper.make_tensor_value_info(port.name, onnx.TensorProto.FLOAT, shape)
            model.graph.value_info.append(typed)


def _name_nodes(model: Any) -> None:
    """Give every node a unique name, since quantisers select nodes by name."""
    taken: set[str] = set()
    for number, node in enumerate(graph.nodes(model)):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{number}"
            while node.name in taken:
                node.name += "."
        taken.add(node.name)


def _fit_weights(model: Any) -> None:
    """Adapt weights and their shapes to faults of the quantisers.  They transpose weights but not
    the shapes recorded for them, so these are removed.  With scales per channel they take a Gemm's
    bias of one row for a scalar, so it becomes a vector."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    stale = [info for info in model.graph.value_info if info.name in weights]
    for info in stale:
        model.graph.value_info.remove(info)
    takers = Counter(name for node in graph.nodes(model) for name in node.input)
    for node in model.graph.node:
        operands = list(node.input) if node.op_type == "Gemm" else []
        bias = weights.get(operands[2]) if len(operands) > 2 else None
        if bias is not None and takers[bias.name] == 1 and list(bias.dims[:-1]) == [1]:
            del bias.dims[0]


def _step(name: str, model: Any) -> dict[str, Any]:
    count = sum(1 for _ in graph.nodes(model))
    return {"step": name, "size_bytes": model.ByteSize(), "nodes": count, "reason": None}
