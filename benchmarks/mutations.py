"""Small seed models, and ways to damage them: in bytes, and in fields that still parse."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import numpy as np
import onnx
import onnx_models
from onnx import helper

EXTERNAL = "external"
MAKERS: dict[str, Callable[[], Any]] = {
    "conv": onnx_models.conv_net,
    "mlp": onnx_models.mlp,
    "lstm": onnx_models.lstm,
    "if": onnx_models.branching,
    "qdq": onnx_models.quantised,
    "tokens": onnx_models.tokens,
    "shapes": onnx_models.shaping,
}
SIZES = (0, 1, 2, 3, 7, 255, 4096, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -1, -(2**63))
NAMES = ("", "x", "y", "\n", "a\nb", "\ud7ff\u2028", "%s{}", "x" * 5000, "../x", "c", "w0", "/")
OPERATORS = (
    *("Conv", "MatMul", "Gemm", "LSTM", "If", "Loop", "Scan", "Relu", "Reshape", "Gather", "Cast"),
    *("Expand", "Tile", "ConstantOfShape", "Pad", "Range", "Resize", "Concat", "Split", "Einsum"),
    *("Constant", "SequenceEmpty", "StringNormalizer", "Identity", "Frobnicate", "NonZero", "GRU"),
    *("QuantizeLinear", "ConvTranspose", "MaxPool", "TopK", "OneHot", "Transpose", "Optional"),
)
UNARY = (
    "Relu",
    "Neg",
    "Identity",
    "Exp",
    "Log",
    "Sqrt",
    "Floor",
    "Shape",
    "Softmax",
    "Not",
    "Size",
)
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "acme", "\n")
LOCATIONS = ("/etc/passwd", "../weights.bin", "absent", ".", "", "weights.bin", "/dev/zero", "\0")


def seeds(folder: Path) -> dict[str, bytes]:
    """The models by name; the weights of one of them are written into `folder`."""
    found = {name: make().SerializeToString() for name, make in MAKERS.items()}
    onnx_models.external(folder / "model.onnx")
    found[EXTERNAL] = (folder / "model.onnx").read_bytes()
    return found


def mutate(rng: random.Random, models: dict[str, bytes]) -> tuple[str, bytes]:
    """The changes in words, and the changed model."""
    name = rng.choice(list(models))
    data = models[name]
    words = [name]
    if rng.random() < 0.75:
        model = onnx.ModelProto.FromString(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            change = rng.choice(FIELD_CHANGES)
            try:
                change(rng, model)
            except (ValueError, IndexError, TypeError):
                continue  # nothing there to change, or the value is out of the field's range
            words.append(change.__name__)
        try:
            data = model.SerializeToString()
        except ValueError:
            return " ".join([*words, "unserialisable"]), b""
    if len(words) == 1 or rng.random() < 0.1:
        change_bytes = rng.choice(BYTE_CHANGES)
        words.append(change_bytes.__name__)
        data = change_bytes(rng, data, models)
    return " ".join(words), data


# ---------------------------------------------------------------------- bytes


def flip(rng: random.Random, data: bytes, _: Any) -> bytes:
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


def overwrite(rng: random.Random, data: bytes, _: Any) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice((1, 2, 4, 8))
    return data[:at] + rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * length + data[at + length :]


def truncate(rng: random.Random, data: bytes, _: Any) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(rng: random.Random, data: bytes, models: dict[str, bytes]) -> bytes:
    other = models[rng.choice(list(models))]
    start, end = sorted(rng.randrange(len(other)) for _ in range(2))
    at = rng.randrange(len(data))
    return data[:at] + other[start:end] + data[at + rng.choice((0, end - start)) :]


def join(rng: random.Random, data: bytes, models: dict[str, bytes]) -> bytes:
    """Append another model: protobuf merges the fields of consecutive messages."""
    return data + models[rng.choice(list(models))]


def remove(rng: random.Random, data: bytes, _: Any) -> bytes:
    start, end = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:start] + data[min(end, start + 64) :]


BYTE_CHANGES = (flip, flip, overwrite, truncate, splice, join, remove)

# --------------------------------------------------------------------- fields


def _values(rng: random.Random, model: Any) -> Any:
    return rng.choice([*model.graph.input, *model.graph.output])


def change_type(rng: random.Random, model: Any) -> None:
    _values(rng, model).type.tensor_type.elem_type = rng.randint(0, 26)


def change_weight_type(rng: random.Random, model: Any) -> None:
    rng.choice(model.graph.initializer).data_type = rng.randint(0, 26)


def change_axis(rng: random.Random, model: Any) -> None:
    axis = rng.choice(_values(rng, model).type.tensor_type.shape.dim)
    if rng.random() < 0.5:
        axis.dim_value = rng.choice(SIZES)
    else:
        axis.dim_param = rng.choice((*NAMES, "a + b", "seq", "past + past + 1", "-1", "?"))


def add_axis(rng: random.Random, model: Any) -> None:
    _values(rng, model).type.tensor_type.shape.dim.add().dim_value = rng.choice(SIZES)


def change_dims(rng: random.Random, model: Any) -> None:
    dims = rng.choice(model.graph.initializer).dims
    dims[rng.randrange(len(dims))] = rng.choice(SIZES)


def change_data(rng: random.Random, model: Any) -> None:
    tensor = rng.choice(model.graph.initializer)
    filler = rng.choice((b"", b"\xff", b"\x7f\xf0", bytes(7)))
    tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)] + filler


def fill_data(rng: random.Random, model: Any) -> None:
    """Overwrite data at its length: indices and shapes of any size, NaN, infinity."""
    tensor = rng.choice(model.graph.initializer)
    filler = rng.choice((b"\xff", b"\x7f", b"\0", b"\x80", b"\x01"))
    tensor.raw_data = filler * len(tensor.raw_data)


def change_number(rng: random.Random, model: Any) -> None:
    tensor = rng.choice(
        [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT64]
    )
    numbers = bytearray(tensor.raw_data)
    at = 8 * rng.randrange(len(numbers) // 8)
    numbers[at : at + 8] = rng.choice(SIZES).to_bytes(8, "little", signed=True)
    tensor.raw_data = bytes(numbers)


def rename(rng: random.Random, model: Any) -> None:
    node = rng.choice(model.graph.node)
    names = rng.choice((node.input, node.output))
    names[rng.randrange(len(names))] = rng.choice(NAMES)


def rename_port(rng: random.Random, model: Any) -> None:
    value = rng.choice([*model.graph.input, *model.graph.output, *model.graph.initializer])
    value.name = rng.choice(NAMES)


def change_operator(rng: random.Random, model: Any) -> None:
    rng.choice(model.graph.node).op_type = rng.choice(OPERATORS)


def change_domain(rng: random.Random, model: Any) -> None:
    rng.choice(model.graph.node).domain = rng.choice(DOMAINS)


def change_attribute(rng: random.Random, model: Any) -> None:
    node = rng.choice([node for node in model.graph.node if node.attribute])
    attribute = rng.choice(node.attribute)
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(SIZES)
    elif rng.random() < 0.5:
        attribute.i = rng.choice(SIZES)
    else:
        attribute.type = rng.randint(0, 15)


def add_attribute(rng: random.Random, model: Any) -> None:
    name = rng.choice(("axis", "to", "pads", "strides", "group", "hidden_size", "value", "body"))
    value = rng.choice((rng.choice(SIZES), [rng.choice(SIZES)] * 4, "x", 1.5))
    rng.choice(model.graph.node).attribute.append(helper.make_attribute(name, value))


def drop_node(rng: random.Random, model: Any) -> None:
    del model.graph.node[rng.randrange(len(model.graph.node))]


def repeat_node(rng: random.Random, model: Any) -> None:
    model.graph.node.append(rng.choice(model.graph.node))


def insert_node(rng: random.Random, model: Any) -> None:
    """Insert a node between a node and its consumers."""
    place = rng.randrange(len(model.graph.node))
    before = model.graph.node[place]
    name, before.output[0] = before.output[0], f"{before.output[0]}_inner"
    operator = rng.choice((*OPERATORS, *UNARY))
    fresh = helper.make_node(operator, [before.output[0]], [name])
    following = [*model.graph.node[place + 1 :]]
    del model.graph.node[place + 1 :]
    model.graph.node.extend([fresh, *following])


def scale_data(rng: random.Random, model: Any) -> None:
    """Scale weights by a large power of two."""
    tensor = rng.choice([t for t in model.graph.initializer if t.data_type == 1])
    with np.errstate(over="ignore"):
        scale = np.float32(2.0 ** rng.choice((-140, -20, 9, 60, 120)))
        tensor.raw_data = (np.frombuffer(tensor.raw_data, "<f4") * scale).tobytes()


def drop_field(rng: random.Random, model: Any) -> None:
    fields = rng.choice((model.graph.initializer, model.graph.input, model.graph.output))
    del fields[rng.randrange(len(fields))]


def change_version(rng: random.Random, model: Any) -> None:
    if rng.random() < 0.5:
        model.ir_version = rng.choice((*SIZES, 3, 10, 13, 14))
    else:
        opset = rng.choice(model.opset_import)
        opset.version = rng.choice((*SIZES, 5, 9, 11, 13, 21, 26, 27))
        opset.domain = rng.choice(("", "", *DOMAINS))


def make_external(rng: random.Random, model: Any) -> None:
    tensor = rng.choice(model.graph.initializer)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": rng.choice(LOCATIONS), "offset": str(rng.choice(SIZES)), "length": "8"}
    for key, value in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value


def nest(rng: random.Random, model: Any) -> None:
    """Make the whole graph a branch of itself."""
    branch = helper.make_attribute("then_branch", model.graph)
    node = next((n for n in model.graph.node if n.op_type == "If"), model.graph.node[0])
    if node.op_type == "If":
        del node.attribute[rng.randrange(len(node.attribute))]
    node.attribute.append(branch)


def odd_port(rng: random.Random, model: Any) -> None:
    value = _values(rng, model)
    kind = rng.choice(("sequence_type", "optional_type", "map_type", "sparse_tensor_type"))
    getattr(value.type, kind).SetInParent()


FIELD_CHANGES = (
    *(change_type, change_weight_type, change_axis, change_axis, add_axis, change_dims),
    *(
        change_data,
        fill_data,
        change_number,
        change_number,
        rename,
        rename_port,
        change_operator,
        change_operator,
    ),
    *(change_domain, change_attribute, change_attribute, add_attribute, drop_node, repeat_node),
    *(
        insert_node,
        insert_node,
        scale_data,
        scale_data,
        drop_field,
        change_version,
        make_external,
        nest,
        odd_port,
    ),
)
