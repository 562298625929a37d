"""The nodes that multiply by weights, and how much arithmetic each of them does."""

import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.worker.libraries import onnx
from workbench.worker.session_options import UNOPTIMISED

from .._shared.profiling import end_profile, kernels
from .._shared.quantisation import subgraphs
from .._shared.session import cpu_session
from . import agreement, graph

# Operators that multiply; an integer operator or a fused one counts without its weights.
_MULTIPLIES = re.compile("Attention|Conv|Einsum|Gemm|GRU|LSTM|MatMul|RNN")
WEIGHTS = {  # the positions of the weights among their inputs
    **dict.fromkeys(("Attention", "Conv", "ConvTranspose"), (1,)),  # ONNX's own Attention has none
    **dict.fromkeys(("Einsum", "Gemm", "MatMul"), (1, 0)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (1, 2)),
}
DOMAINS = (*graph.STANDARD_DOMAINS, "com.microsoft")
QUANTISABLE = ("Attention", "Conv", "MatMul", "Gemm", "LSTM")  # with an integer kernel on the CPU
INTEGER = {  # operators that multiply integers, most of them in optimised graphs only
    "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger",
    "MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul",
}  # fmt: skip
FILE = "products.json"
RUNS = 3  # the fastest counts for the seconds of each node


@dataclass(frozen=True)
class Product:
    """A node that multiplies; all numbers are per run of the model."""

    name: str
    type: str
    weights: dict[str, int]  # constant operands: name to size in bytes
    multiply_adds: int | None  # None: not known
    seconds: float = 0.0  # without graph optimisations, which would rename or fuse it; 0: unknown
    inside: bool = False  # in a subgraph of If, Loop or Scan, where only dynamic INT8 works

    @property
    def weights_bytes(self) -> int:
        return sum(self.weights.values())

    @property
    def quantisable(self) -> bool:
        return bool(self.weights) and self.type in QUANTISABLE


def find(model: Any, folder: Path, sample: Sequence[Any]) -> list[Product]:
    """The products of all graphs, with the shapes and seconds of profiled runs of `sample`.  Node
    names must be unique.  A run shows shapes of dynamic axes too, where inference on the graph
    gives up; a branch that is not taken counts as no work."""
    seen: dict[str, list[Any]] = {}
    for name, event in _profiled(model.SerializeToString(), folder, [sample] * RUNS):
        seen.setdefault(name, []).append(event)
    found = []
    for node, weights, inside in _multiplying(model.graph, {}, False):
        places = WEIGHTS.get(node.op_type, ()) if node.domain in DOMAINS else ()
        held = [node.input[i] for i in places if i < len(node.input) and node.input[i] in weights]
        sizes = {name: list(weights[name].dims) for name in held}
        events = seen.get(node.name, [])
        counts = [_multiply_adds(node, sizes, event) for event in events]
        known = bool(seen) and None not in counts and (inside or bool(counts))
        fastest_s = min((event["dur"] * 1e-6 for event in events), default=0.0)
        found.append(
            Product(
                name=node.name,
                type=node.op_type,
                weights={name: _bytes(weights[name]) for name in held},
                multiply_adds=sum(count or 0 for count in counts) // RUNS if known else None,
                seconds=fastest_s * len(events) / RUNS,
                inside=inside,
            )
        )
    return found


def _multiplying(
    body: Any, outer: Mapping[str, Any], inside: bool
) -> Iterator[tuple[Any, Mapping[str, Any], bool]]:
    """Each product with the constants in its scope, and whether it lies in a subgraph."""
    weights = {**outer, **{item.name: item for item in body.initializer}}
    for node in body.node:
        if _MULTIPLIES.search(node.op_type):
            yield node, weights, inside
        for inner in subgraphs(node):
            yield from _multiplying(inner, weights, True)


def weights_bytes(found: Sequence[Product]) -> int:
    """Size of all weights of products; shared weights count once."""
    return sum({name: size for p in found for name, size in p.weights.items()}.values())


def keep(folder: Path, found: Sequence[Product]) -> None:
    (folder / FILE).write_text(json.dumps([asdict(product) for product in found]))


def kept(folder: Path) -> list[Product]:
    return [Product(**fields) for fields in json.loads((folder / FILE).read_text())]


def total(found: Sequence[Product]) -> int | None:
    """Multiply-adds of one run; None if those of any product are unknown."""
    counts = [product.multiply_adds for product in found]
    return None if None in counts else sum(count for count in counts if count is not None)


def work(found: Sequence[Product]) -> dict[str, int]:
    """Multiply-adds by name, or sizes of weights where some multiply-adds are unknown."""
    known = total(found) is not None
    return {p.name: (p.multiply_adds if known else p.weights_bytes) or 0 for p in found}


def share(found: Sequence[Product], chosen: set[str]) -> float:
    """The share of the work in the `chosen` products, 0 to 1."""
    cost = work(found)
    return sum(cost[name] for name in cost if name in chosen) / (sum(cost.values()) or 1)


def _profiled(
    model: bytes, folder: Path, samples: Sequence[Sequence[Any]]
) -> list[tuple[str, Any]]:
    """The kernels that ran for `samples`, without optimisations; empty if the run fails."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            session = cpu_session(model, UNOPTIMISED, profile=Path(scratch, "profile"))
            agreement.answers(session, samples)
            return list(kernels(end_profile(session)))
        except Exception:
            return []


def _multiply_adds(node: Any, sizes: Mapping[str, list[int]], event: Any) -> int | None:
    """Multiply-adds by the first input and output: packed weights are no longer inputs."""
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
        if node.op_type in ("GRU", "LSTM", "RNN"):
            return first[0] * first[1] * sum(math.prod(sizes[name]) for name in node.input[1:3])
    except (KeyError, IndexError):
        pass
    return None


def _shape(entry: Mapping[str, list[int]]) -> list[int]:
    return next(iter(entry.values()))


def _bytes(tensor: Any) -> int:
    count: int = math.prod(tensor.dims)
    return count * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
