"""The nodes that do a model's arithmetic: their weights and multiply-adds."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import sessions

# Operators that multiply by weights, and where among their inputs the weights stand.
WEIGHTS = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "MatMul": (1, 0),
    "Gemm": (1, 0),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
}
QUANTISABLE = ("Conv", "MatMul", "Gemm", "LSTM")  # those with an integer kernel on the CPU
FILE = "products.json"


@dataclass(frozen=True)
class Product:
    """A node that multiplies; all figures are of one run."""

    name: str
    type: str
    weights: list[str]  # names of its constant operands
    weights_bytes: int
    multiply_adds: int | None  # None where its shapes were not seen
    seconds: float | None  # in FP32, unoptimised

    @property
    def quantisable(self) -> bool:
        return bool(self.weights) and self.type in QUANTISABLE


def products(model: Any, folder: Path, sample: Sequence[Any]) -> list[Product]:
    """The products of the main graph, their shapes taken from a profiled run of `sample`.

    Node names must be unique.  Shapes seen at run time hold for dynamic axes too, where inference
    on the graph gives up.
    """
    sizes = {item.name: list(item.dims) for item in model.graph.initializer}
    bytes_of = {item.name: _bytes(item) for item in model.graph.initializer}
    seen = _profile(model.SerializeToString(), folder, sample)
    found = []
    for node in model.graph.node:
        places = WEIGHTS.get(node.op_type)
        if places is None or node.domain not in ("", "ai.onnx"):
            continue
        held = [node.input[i] for i in places if i < len(node.input) and node.input[i] in sizes]
        event = seen.get(node.name)
        found.append(
            Product(
                name=node.name,
                type=node.op_type,
                weights=held,
                weights_bytes=sum(bytes_of[name] for name in held),
                multiply_adds=_multiply_adds(node, sizes, event) if event else None,
                seconds=event["dur"] * 1e-6 if event else None,
            )
        )
    return found


def weights_bytes(model: Any) -> int:
    """Of all weights of products in the main graph; those that several share count once."""
    taken = {
        node.input[place]
        for node in model.graph.node
        for place in WEIGHTS.get(node.op_type, ())
        if place < len(node.input)
    }
    return sum(_bytes(item) for item in model.graph.initializer if item.name in taken)


def keep(folder: Path, found: Sequence[Product]) -> None:
    (folder / FILE).write_text(json.dumps([asdict(product) for product in found]))


def kept(folder: Path) -> list[Product]:
    return [Product(**fields) for fields in json.loads((folder / FILE).read_text())]


def total(found: Sequence[Product]) -> int | None:
    """Multiply-adds of one run; None where those of a product are not known."""
    counts = [product.multiply_adds for product in found]
    return None if None in counts else sum(count for count in counts if count is not None)


def share(found: Sequence[Product], chosen: set[str]) -> float | None:
    """The part of the multiply-adds, or of the weights where those are not known, that falls on
    the nodes whose names are `chosen`."""
    known = total(found) is not None
    cost = {p.name: (p.multiply_adds if known else p.weights_bytes) or 0 for p in found}
    whole = sum(cost.values())
    return sum(cost[name] for name in cost if name in chosen) / whole if whole else None


def _profile(model: bytes, folder: Path, sample: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """What ONNX Runtime's profiler tells of each node; nothing where the run fails."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            session = sessions.open_session(model, level="none", profile=Path(scratch, "profile"))
            sessions.answers(session, [sample])  # the first run pays for what later ones reuse
            sessions.answers(session, [sample])
            events = json.loads(Path(session.end_profiling()).read_text())
        except Exception:
            return {}
    mark = "_kernel_time"
    return {
        event["name"].removesuffix(mark): event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(mark)
    }


def _multiply_adds(node: Any, sizes: Mapping[str, list[int]], event: Any) -> int | None:
    """By the shapes of its first input and output; packed weights are not among the inputs."""
    try:
        first, *others = [_shape(entry) for entry in event["args"]["input_type_shape"]]
        result = _shape(event["args"]["output_type_shape"][0])
        if node.op_type == "MatMul":
            return math.prod(result) * first[-1]
        if node.op_type == "Gemm":
            return math.prod(first) * result[1]
        if node.op_type in ("Conv", "ConvTranspose"):
            weight = sizes.get(node.input[1]) or others[0]
            return math.prod(result if node.op_type == "Conv" else first) * math.prod(weight[1:])
        steps = first[0] * first[1]
        return steps * sum(math.prod(sizes[name]) for name in node.input[1:3])
    except (KeyError, IndexError):
        return None


def _shape(entry: Mapping[str, list[int]]) -> list[int]:
    return next(iter(entry.values()))


def _bytes(tensor: Any) -> int:
    from onnx import helper

    count: int = math.prod(tensor.dims)
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
