"""The parts of an output that joins numbers of different size, such as boxes and their scores.

Each part has an error of its own, since the norm of large numbers hides the errors of small ones.
The graph shows what was joined.  Sizes alone do not: a norm has columns of large numbers, a softmax
classes that are rare and a ReLU channels that are nearly dead.
"""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.worker.libraries import Array, np, onnx
from workbench.worker.session_options import UNOPTIMISED

from .._shared.quantisation import in_order
from .._shared.session import cpu_session
from . import agreement, graph, samples
from .agreement import Part

FILE = "parts.json"
LARGER = 10.0  # times the root mean square of another part, from which on it hides that
TINY = 1e-7  # a root mean square that counts as zero, as it does in FP16
SIZED = 16  # samples that show the sizes
LABEL = ".label"  # ending of the name of a tensor that holds labels in place of numbers
# Operators that move numbers without changing them, with the first and the step of the operands
# that hold some.
_MOVES = {"Concat": (0, 1), "ScatterElements": (0, 2), "ScatterND": (0, 2)} | dict.fromkeys(
    ("Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
     "Unsqueeze"), (0, 99),
)  # fmt: skip
# Those of several classes or levels are one quantity, however rare some are.
_PROBABILITIES = ("HardSigmoid", "Sigmoid", "Softmax")
_FLOATS = {1, 10, 11}  # FP32, FP16 and FP64 of TensorProto.DataType
Joined = dict[str, tuple[set[int], dict[str, str]]]


def read(folder: Path, outputs: Sequence[str]) -> list[list[Part]]:
    """The parts of each of the `outputs`; none if it counts as a whole."""
    file = folder / FILE
    known = json.loads(file.read_text()) if file.exists() else {}
    return [[Part(**each) for each in known.get(name, ())] for name in outputs]


def keep(folder: Path, model: Any) -> None:
    """Write the parts of the outputs, by the inputs and the reference in `folder`."""
    found: dict[str, list[Part]] = {}
    with suppress(Exception):  # each output counts as a whole
        found = _found(model, folder)
    kept = {name: [asdict(part) for part in parts] for name, parts in found.items()}
    (folder / FILE).write_text(json.dumps(kept))


def _found(model: Any, folder: Path) -> dict[str, list[Part]]:
    joined = _joined(model)
    if not joined:
        return {}
    session = cpu_session(_labelled(model, joined), UNOPTIMISED)
    (first,) = agreement.feeds(session, samples.read(folder / samples.INPUTS)[:1])
    labels = session.run([f"{name}{LABEL}" for name in joined], first)
    references = samples.read(folder / samples.REFERENCE)[:SIZED]
    places = {name: place for place, name in enumerate(agreement.compared(session))}
    return {
        name: _parts(found, [each[places[name]] for each in references])
        for name, found in zip(joined, labels, strict=True)
    }


def _joined(model: Any) -> Joined:
    """The outputs that join several quantities: the places of the nodes that only move numbers, and
    the tensors that hold these first, each with a name for its quantity, "" if it is given."""
    makers, likely = dict[str, int](), set[str]()  # likely: probabilities, and the rest to 1
    for place, node in enumerate(model.graph.node):
        makers.update(dict.fromkeys(node.output, place))
        is_rest = node.op_type == "Sub" and node.input[1] in likely
        if is_rest or node.op_type in _PROBABILITIES:
            likely.update(node.output)
    found: Joined = {}
    for port in model.graph.output:
        if port.type.tensor_type.elem_type not in _FLOATS:  # labels have no size
            continue
        nodes, held = set[int](), dict[str, str]()
        waiting, seen = [port.name], {port.name}
        for name in waiting:  # the loop extends it
            node = model.graph.node[makers[name]] if name in makers else None
            if node is not None and (moved := _moved(node)):
                nodes.add(makers[name])
                fresh = [each for each in map(node.input.__getitem__, moved) if each not in seen]
                seen.update(fresh)
                waiting += fresh
            elif node is None or node.op_type.startswith("Constant"):
                held[name] = ""
            else:
                held[name] = "probability" if name in likely else f"of {name}"
        if len({*held.values()}) > 1:
            found[port.name] = nodes, held
    return found


def _moved(node: Any) -> range:
    """The positions of the operands whose numbers a node moves; none if it changes them."""
    is_known = node.op_type in _MOVES and node.domain in graph.STANDARD_DOMAINS
    first, step = _MOVES[node.op_type] if is_known else (0, 1)
    return range(first, len(node.input) if is_known else 0, step)


def _labelled(model: Any, joined: Joined) -> bytes:
    """`model` with outputs that hold labels of quantities, which move as the numbers do."""
    made, helper = deepcopy(model), onnx.helper
    kinds = {port.name: port.type.tensor_type.elem_type for port in model.graph.output}
    quantities, known, moving = {"": 0}, set[str](), set[int]()
    for name, (places, held) in joined.items():
        moving |= places
        made.graph.output.append(onnx.ValueInfoProto(name=f"{name}{LABEL}"))
        for tensor in (each for each in held if each not in known):
            label = quantities.setdefault(held[tensor], len(quantities))
            value = helper.make_tensor(LABEL, kinds[name], [1], [label])
            shape, filled = f"{tensor}.shape{LABEL}", f"{tensor}{LABEL}"
            made.graph.node.append(helper.make_node("Shape", [tensor], [shape]))
            filling = helper.make_node("ConstantOfShape", [shape], [filled], value=value)
            made.graph.node.append(filling)
        known |= held.keys()
    for place in moving:
        node = deepcopy(model.graph.node[place])
        node.name += LABEL
        for n in _moved(node):
            node.input[n] += LABEL
        node.output[:] = [name and f"{name}{LABEL}" for name in node.output]
        made.graph.node.append(node)
    return in_order(made)


def _parts(labels: Array, references: Sequence[Array]) -> list[Part]:
    """The parts along the axis on which they differ most in size; [] if all are alike.  Entries of
    an axis belong together if they hold the same quantities."""
    found: list[Part] = []
    widest = LARGER
    for axis, size in enumerate(labels.shape if labels.size else ()):
        others = tuple(n for n in range(labels.ndim) if n != axis)
        ends = np.stack([labels.min(others), labels.max(others)], axis=1)
        unique = np.unique(ends, axis=0)  # sorted: given numbers alone come first
        kinds = [np.flatnonzero((each == ends).all(1)) for each in unique]
        squares = [
            np.square(np.nan_to_num(each, posinf=0, neginf=0), dtype=float).mean(others)
            for each in references
            if each.size and each.ndim == labels.ndim and each.shape[axis] == size
        ]
        sizes = [math.sqrt(np.mean([each[places].mean() for each in squares])) for places in kinds]
        if not unique[0].any() and sizes[0] > TINY:  # their error is none, whatever their size
            sizes[0] = min((each for each in sizes[1:] if each > TINY), default=0.0) / LARGER
        groups: list[tuple[float, list[int]]] = []
        for each, places in sorted(zip(sizes, kinds, strict=True), key=lambda pair: -pair[0]):
            if not groups or TINY < each <= groups[-1][0] / LARGER:
                groups.append((each, []))
            groups[-1][1].extend(places.tolist())
        if len(groups) > 1 and groups[0][0] / groups[-1][0] >= widest:
            widest = groups[0][0] / groups[-1][0]
            found = [Part(axis, size, sorted(places)) for _, places in groups]
    return found
