"""From the user's model to one that quantisers can work with, step by step.

Exporters leave weights in `Constant` nodes, old opsets and tensors without types; quantisers skip
all of that silently.  Every step is checked against the reference outputs and left out where its
result does not load or does not agree; the next goes on from the last good model.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError

from . import agreement, nodes, samples, sessions
from .nodes import nodes_within, subgraphs

PREPARED = "prepared.onnx"
OPSET = 13  # the first in which weights can have a scale per channel
LARGEST_BYTES = 2**31 - 2**20  # of one serialised protocol buffer, less room for the graph
LARGEST_ERROR = 1e-3  # relative, of a step that must not change what the model computes
CHECKED = 4  # samples that a step is checked on
STANDARD_DOMAINS = ("", "ai.onnx")


def prepare(model: Path, folder: Path) -> dict[str, Any]:
    """Write `prepared.onnx` into `folder`; see `workloads.lab.child.Lab.prepare`."""
    current = load(model)
    forms = [_form("as given", current)]
    with sessions.quiet():
        check = _Check(folder)
        for step, change in _steps(current):
            try:
                changed = change(current, folder)
                if changed is None:
                    continue
                check(changed)
            except Exception as error:
                forms.append(_left_out(step, error))
                continue
            current = changed
            forms.append(_form(step, current))
        _name_nodes(current)
        _fit_weights(current)
        found = nodes.products(current, folder, check.inputs[0])
    nodes.keep(folder, found)
    (folder / PREPARED).write_bytes(current.SerializeToString())
    for stale in folder.glob("ranges-*.json"):  # of a model prepared here before
        stale.unlink()
    return {
        "forms": forms,
        "multiply_adds": nodes.total(found),
        "weights_bytes": nodes.weights_bytes(current),
        "products": dict(Counter(p.type for p in found if p.quantisable and not p.inside)),
    }


def load(file: Path) -> Any:
    """The model with its external data embedded, or a WorkloadError where that is too large."""
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    outside = external_files(model)
    size = model.ByteSize() + sum(_size(file.parent / name) for name in outside)
    if size > LARGEST_BYTES:
        raise WorkloadError(
            f"{size / 2**30:.1f} GiB of model are more than one ONNX file holds",
            code="unsupported",
            hint="its original form is measured; quantise it where it was exported",
        )
    if outside:
        onnx.load_external_data_for_model(model, str(file.parent))
    return model


def external_files(model: Any) -> set[str]:
    """The files that hold weights of a model, relative to its own."""
    return {
        entry.value
        for tensor in _tensors(model.graph)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
        for inner in subgraphs(node):
            yield from _tensors(inner)


class _Check:
    """Raises where a model does not load, or does not compute what the original does."""

    def __init__(self, folder: Path) -> None:
        self.inputs = samples.read(folder / samples.INPUTS)[:CHECKED]
        self._reference = samples.read(folder / samples.REFERENCE)[:CHECKED]

    def __call__(self, model: Any) -> None:
        session = sessions.open_session(model.SerializeToString())
        found = agreement.compare(
            agreement.compared(session),
            sessions.answers(session, self.inputs),
            self._reference,
        )
        error = agreement.summary(found, "relative_error")
        if error > LARGEST_ERROR:
            raise WorkloadError(
                f"its outputs are {error:.2g} from the original's", code="wrong_result"
            )


Step = Callable[[Any, Path], Any]


def _steps(model: Any) -> Iterator[tuple[str, Step]]:
    """Names and functions; a function returns None where there is nothing for it to do."""
    yield "weights as initialisers", _weights_as_initialisers
    if (opset_of(model) or OPSET) < OPSET:
        yield f"opset {OPSET}", _at_opset
    yield "shapes", _with_shapes
    yield "simplified", _simplified


def opset_of(model: Any) -> int | None:
    """Of the standard operators; None where the model uses none of them."""
    versions = [o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS]
    return max(versions, default=None)


def _weights_as_initialisers(model: Any, _folder: Path) -> Any:
    """Constants become initialisers, and none of those remains an input that could be fed."""
    import onnx

    held = [n for n in model.graph.node if n.op_type == "Constant" and _tensor(n) is not None]
    weights = {weight.name for weight in model.graph.initializer}
    fed = [port for port in model.graph.input if port.name in weights]
    if not held and not fed:
        return None
    changed = _copy(model)
    graph = changed.graph
    for node in held:
        weight = onnx.TensorProto()
        weight.CopyFrom(_tensor(node))
        weight.name = node.output[0]
        graph.initializer.append(weight)
    constants = {node.output[0] for node in held}
    rest = [n for n in graph.node if not (n.op_type == "Constant" and n.output[0] in constants)]
    ports = [port for port in graph.input if port.name not in weights]
    for field, kept in ((graph.node, rest), (graph.input, ports)):
        copies = [_copy(item) for item in kept]
        del field[:]
        field.extend(copies)
    changed.ir_version = max(4, changed.ir_version)  # before, every initialiser is an input too
    return changed


def _tensor(node: Any) -> Any:
    """The tensor of a Constant node; None where it is told in another way."""
    return next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)


def _at_opset(model: Any, _folder: Path) -> Any:
    from onnx import version_converter

    return version_converter.convert_version(model, OPSET)


def _with_shapes(model: Any, _folder: Path) -> Any:
    from onnx import shape_inference

    return shape_inference.infer_shapes(model, data_prop=True)


def _simplified(model: Any, folder: Path) -> Any:
    """ONNX Runtime's basic optimisation and its own inference of types.

    Symbolic inference is left out: it needs sympy, and the run-time types are known without it.
    """
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        before, after = Path(scratch, "before.onnx"), Path(scratch, "after.onnx")
        before.write_bytes(model.SerializeToString())
        quant_pre_process(str(before), str(after), skip_symbolic_shape=True)
        return onnx.load(str(after))


def _name_nodes(model: Any) -> None:
    """Give every node of all graphs a name of its own: quantisers tell nodes by it."""
    taken: set[str] = set()
    for number, node in enumerate(nodes_within(model.graph)):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{number}"
            while node.name in taken:
                node.name += "."
        taken.add(node.name)


def _fit_weights(model: Any) -> None:
    """What the quantisers change about weights must not contradict what is told of them.

    They transpose weights and leave the shapes told elsewhere; and a Gemm's bias of one row is
    taken for a scalar where scales are per channel, so it becomes a vector.
    """
    weights = {weight.name: weight for weight in model.graph.initializer}
    stale = [info for info in model.graph.value_info if info.name in weights]
    for info in stale:
        model.graph.value_info.remove(info)
    takers = Counter(name for node in nodes_within(model.graph) for name in node.input)
    for node in model.graph.node:
        operands = list(node.input) if node.op_type == "Gemm" else []
        bias = weights.get(operands[2]) if len(operands) > 2 else None
        if bias is not None and takers[bias.name] == 1 and list(bias.dims[:-1]) == [1]:
            del bias.dims[0]


def _form(step: str, model: Any) -> dict[str, Any]:
    count = sum(1 for _ in nodes_within(model.graph))
    return {"step": step, "size_bytes": model.ByteSize(), "nodes": count, "reason": None}


def _left_out(step: str, error: Exception) -> dict[str, Any]:
    reason = {
        "code": error.code if isinstance(error, WorkloadError) else "failed",
        "message": str(error) if isinstance(error, WorkloadError) else sessions.first_line(error),
        "hint": "quantisation goes on from the step before",
    }
    return {"step": step, "size_bytes": None, "nodes": None, "reason": reason}


def _copy(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
