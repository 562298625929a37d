"""The nodes that do a model's arithmetic: their weights and multiply-adds."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
    inside: bool = False  # of a graph that If, Loop or Scan runs, where only dynamic INT8 goes

    @property
    def quantisable(self) -> bool:
        return bool(self.weights) and self.type in QUANTISABLE


def products(model: Any, folder: Path, sample: Sequence[Any]) -> list[Product]:
    """The products of all graphs, their shapes taken from a profiled run of `sample`.

    Node names must be unique.  Shapes seen at run time hold for dynamic axes too, where inference
    on the graph gives up; what a branch not taken holds counts nothing.
    """
    seen = _profile(model.SerializeToString(), folder, sample)
    found = []
    for node, weights, inside in _multiplying(model.graph, {}, False):
        places = WEIGHTS[node.op_type]
        held = [node.input[i] for i in places if i < len(node.input) and node.input[i] in weights]
        sizes = {name: list(weights[name].dims) for name in held}
        counts = [_multiply_adds(node, sizes, event) for event in seen.get(node.name, [])]
        known = bool(seen) and None not in counts and (inside or bool(counts))
        found.append(
            Product(
                name=node.name,
                type=node.op_type,
                weights=held,
                weights_bytes=sum(_bytes(weights[name]) for name in held),
                multiply_adds=sum(count or 0 for count in counts) if known else None,
                inside=inside,
            )
        )
    return found


def _multiplying(
    graph: Any, outer: Mapping[str, Any], inside: bool
) -> Iterator[tuple[Any, Mapping[str, Any], bool]]:
    """Each product with the constants that it can see, and whether it lies in an inner graph."""
    weights = {**outer, **{item.name: item for item in graph.initializer}}
    for node in graph.node:
        if node.op_type in WEIGHTS and node.domain in ("", "ai.onnx"):
            yield node, weights, inside
        for inner in subgraphs(node):
            yield from _multiplying(inner, weights, True)


def subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_within(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of all graphs inside it."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from nodes_within(inner)


def weights_bytes(model: Any) -> int:
    """Of all weights of products; those that several share count once."""
    taken = {
        (name, _bytes(weights[name]))
        for node, weights, _ in _multiplying(model.graph, {}, False)
        for name in (node.input[i] for i in WEIGHTS[node.op_type] if i < len(node.input))
        if name in weights
    }
    return sum(size for _, size in taken)


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


def _profile(model: bytes, folder: Path, sample: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """What ONNX Runtime's profiler tells of each node's calls; nothing where the run fails."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            session = sessions.open_session(model, level="none", profile=Path(scratch, "profile"))
            sessions.answers(session, [sample])
            events = json.loads(Path(session.end_profiling()).read_text())
        except Exception:
            return {}
    mark = "_kernel_time"
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(mark):
            found.setdefault(event["name"].removesuffix(mark), []).append(event)
    return found


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
