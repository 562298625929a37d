"""Walking a model's graphs: nodes, tensors and constants, subgraphs and functions included."""

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from .._shared.quantisation import subgraphs

# Beginnings of operator names of ONNX and ONNX Runtime that compute with quantised numbers.
_QUANTISED = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "QLinear", "ConvInteger",
    "MatMulInteger", "MatMulNBits", "MatMulBnb4", "GatherBlockQuantized", "QGemm", "QAttention",
    "QEmbedLayerNormalization", "QOrdered",
)  # fmt: skip
# Beginnings of the names of operators that draw random numbers, as Dropout does in training mode.
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")
# Operators whose weights are packed, with the number of bits in an attribute; 4 without it.
_PACKED = ("GatherBlockQuantized", "MatMulBnb4", "MatMulNBits")
_FOUR_BITS = {21, 22}  # UINT4 and INT4 of TensorProto.DataType
_FLOATS = {1: "fp32", 10: "fp16", 11: "fp64", 16: "bf16"}  # by TensorProto.DataType
STANDARD_DOMAINS = ("", "ai.onnx")


def graphs(model: Any) -> Iterator[Any]:
    """The main graph, every subgraph, and the functions (which have nodes, but no tensors)."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            waiting.extend(subgraphs(node))


def nodes(model: Any) -> Iterator[Any]:
    for graph in graphs(model):
        yield from graph.node


def tensors(model: Any) -> Iterator[Any]:
    """Initialisers, and tensors in attributes, since `Constant` nodes hold weights too."""
    for graph in graphs(model):
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                if attribute.HasField("sparse_tensor"):
                    yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
                yield from attribute.tensors


def external_files(model: Any) -> set[str]:
    """The files with weights of the model, relative to its own."""
    entries = (entry for tensor in tensors(model) for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def constants(model: Any) -> dict[str, Any]:
    """The tensors of initialisers and `Constant` nodes, by name, of all graphs."""
    found = {}
    for graph in graphs(model):
        found.update({tensor.name: tensor for tensor in getattr(graph, "initializer", ())})
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                for attribute in node.attribute:
                    if attribute.HasField("t"):
                        found[node.output[0]] = attribute.t
    return found


def parameters(model: Any) -> int:
    """The number of values in the model's tensors; a damaged file may declare any shape."""
    packed = sum(map(_hidden, nodes(model)))
    return min(sum(map(_values, tensors(model))) + packed, 2**62)


def _hidden(node: Any) -> int:
    """The weights of a node beyond the bytes that they are packed in."""
    if node.op_type not in _PACKED:
        return 0
    found: dict[str, int] = {attribute.name: attribute.i for attribute in node.attribute}
    count = found.get("K", 0) * found.get("N", 0)
    return max(0, count - count * found.get("bits", 4) // 8)


def _values(tensor: Any) -> int:
    return max(0, int(prod(tensor.dims)))


def precision(model: Any) -> str:
    """The precision of most weights, as a case names it; FP32 without weights."""
    if is_quantised(model):
        return "int4" if _has_four_bits(model) else "int8"
    counted = Counter[int]()
    for tensor in tensors(model):
        counted[tensor.data_type] += _values(tensor)
    return _FLOATS[max(_FLOATS, key=counted.__getitem__)]


def operators(model: Any) -> dict[str, int]:
    """The number of nodes of each type, the most frequent first."""
    functions = {(function.domain, function.name) for function in model.functions}
    kinds = ((node.domain, node.op_type) for node in nodes(model))
    return dict(Counter(kind[1] for kind in kinds if kind not in functions).most_common())


def control_flow(model: Any) -> list[str]:
    """The types of operators with graphs of their own."""
    return sorted({node.op_type for node in nodes(model) if next(subgraphs(node), None)})


def is_quantised(model: Any) -> bool:
    return any(node.op_type.startswith(_QUANTISED) for node in nodes(model))


def _has_four_bits(model: Any) -> bool:
    packed = (node for node in nodes(model) if node.op_type in _PACKED)
    return any(tensor.data_type in _FOUR_BITS for tensor in tensors(model)) or any(
        all(attribute.i == 4 for attribute in node.attribute if attribute.name == "bits")
        for node in packed
    )


def may_be_random(model: Any) -> bool:
    return any(node.op_type.startswith(_RANDOM) for node in nodes(model))


def opset(model: Any) -> int | None:
    """The version of ONNX's operators that the model imports; None if it imports none."""
    versions = (each.version for each in model.opset_import if each.domain in STANDARD_DOMAINS)
    return max(versions, default=None)


def names_are_text(model: Any) -> bool:
    """Whether every name is valid UTF-8; protobuf returns other names as bytes."""
    names = [each.name for each in (*model.graph.input, *model.graph.output, *tensors(model))]
    for node in nodes(model):
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
    return all(isinstance(name, str) for name in names)


def free_inputs(model: Any) -> list[Any]:
    """The inputs that a caller must feed; up to IR 3 weights are listed as inputs too."""
    given = {tensor.name for tensor in model.graph.initializer}
    given.update(sparse.values.name for sparse in model.graph.sparse_initializer)
    return [value for value in model.graph.input if value.name not in given]
