"""Models of the corpus that no wheel has as ONNX: exported, filled or grown here, all seeded."""

import io
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

IMAGE = 160  # pixels, for the MobileNet
LOGITS = 2.0  # standard deviation in filled networks, which keeps softmax from one-hot answers


def export(
    net: Any, example: Sequence[Any], inputs: Sequence[str], opset: int, axes: Sequence[int] = (0,)
) -> bytes:
    """`net` as a serialised model with dynamic `axes` of its inputs."""
    import torch

    made = io.BytesIO()
    names = {axis: "batch" if axis == 0 else f"length_{axis}" for axis in axes}
    with warnings.catch_warnings():  # the exporter without onnxscript is deprecated
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(),
            tuple(example),
            made,
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=["output"],
            dynamic_axes={**dict.fromkeys(inputs, names), "output": {0: "batch"}},
        )
    return made.getvalue()


def seeded() -> Any:
    import torch

    torch.manual_seed(0)
    return torch


# -------------------------------------------------------------------------------- multilayer


def _layers(widths: Sequence[int]) -> Any:
    from torch import nn

    steps: list[Any] = []
    for pair in itertools.pairwise(widths):
        steps += [nn.Linear(*pair), nn.ReLU()]
    return nn.Sequential(*steps[:-1])


def trained_classifier() -> Any:
    """A module trained for a second on the digits of assets/digits."""
    from workloads._shared import optdigits as digits

    torch = seeded()
    images, labels = (torch.from_numpy(array)[: digits.TRAINING] for array in digits.load())
    net = _layers([64, 128, 64, 10])
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _step in range(200):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(images.flatten(1)), labels).backward()
        optimiser.step()
    return net


def digits_mlp(_: bytes) -> bytes:
    import torch

    return export(trained_classifier(), [torch.zeros(2, 64)], ["pixels"], opset=9)


def tabular_mlp(_: bytes) -> bytes:
    torch = seeded()
    net = _layers([256, 2048, 2048, 1024, 64])
    return export(net, [torch.randn(2, 256)], ["features"], opset=13)


# ------------------------------------------------------------------------------- recurrent


def _recurrent(kind: str) -> Any:
    from torch import nn

    class Recurrent(nn.Module):
        """Two layers; a tagger of tokens (both ways), or a forecast from a series' last step."""

        def __init__(self) -> None:
            super().__init__()
            tagger = kind == "LSTM"
            self.embed = nn.Embedding(10_000, 128) if tagger else nn.Identity()
            self.cell = getattr(nn, kind)(
                128 if tagger else 16, 256, 2, batch_first=True, bidirectional=tagger
            )
            self.head = nn.Linear(512 if tagger else 256, 32 if tagger else 16)
            self.last_only = not tagger

        def forward(self, x: Any) -> Any:
            states = self.cell(self.embed(x))[0]
            return self.head(states[:, -1] if self.last_only else states)

    return Recurrent()


def lstm_tagger(_: bytes) -> bytes:
    torch = seeded()
    tokens = torch.zeros(2, 64, dtype=torch.int64)
    return export(_recurrent("LSTM"), [tokens], ["tokens"], opset=14, axes=(0, 1))


def gru_forecaster(_: bytes) -> bytes:
    torch = seeded()
    return export(_recurrent("GRU"), [torch.randn(2, 96, 16)], ["series"], opset=11, axes=(0, 1))


# ----------------------------------------------------------------------------- transformers


def _block(width: int, heads: int, inner: int, eps: float) -> Any:
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    class Block(nn.Module):
        """An encoder layer with its norms after the sums, as in BERT."""

        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
            self.norm, self.last_norm = (nn.LayerNorm(width, eps=eps) for _ in range(2))

        def forward(self, x: Any, mask: Any) -> Any:
            split = (x.shape[0], -1, heads, width // heads)
            parts = (part(x).view(split).transpose(1, 2) for part in self.projections())
            mixed = scaled_dot_product_attention(*parts, attn_mask=mask)
            mixed = mixed.transpose(1, 2).reshape(x.shape[0], -1, width)
            x = self.norm(x + self.out(mixed))
            return self.last_norm(x + self.down(gelu(self.up(x))))

        def projections(self) -> tuple[Any, ...]:
            return self.query, self.key, self.value

    return Block()


def patch_transformer(_: bytes) -> bytes:
    """Pictures of 128x128 cut into 64 patches; six layers of width 256; 100 classes."""
    from torch import nn

    torch = seeded()

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = nn.Conv2d(3, 256, 16, 16)
            self.position = nn.Parameter(torch.randn(1, 64, 256) * 0.5)
            self.blocks = nn.ModuleList(_block(256, 8, 1024, 1e-5) for _ in range(6))
            self.head = nn.Linear(256, 100)

        def forward(self, x: Any) -> Any:
            x = self.cut(x).flatten(2).transpose(1, 2) + self.position
            for block in self.blocks:
                x = block(x, None)
            return self.head(x.mean(1))

    return export(Vision(), [torch.randn(2, 3, 128, 128)], ["pixels"], opset=20)


# Names in the file to names here.
BERT_NAMES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "last_norm",
}


def _bert(vocabulary: int, layers: int, width: int, heads: int, eps: float) -> Any:
    import torch
    from torch import nn

    class Bert(nn.Module):
        """Tokens (batch, length) and their mask to the mean of the last states (batch, width)."""

        def __init__(self) -> None:
            super().__init__()
            self.word, self.position = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
            self.kind = nn.Embedding(2, width)
            self.norm = nn.LayerNorm(width, eps=eps)
            self.blocks = nn.ModuleList(_block(width, heads, 4 * width, eps) for _ in range(layers))

        def forward(self, tokens: Any, mask: Any) -> Any:
            where = torch.arange(tokens.shape[1])[None]
            x = self.norm(self.word(tokens) + self.position(where) + self.kind.weight[:1])
            seen = (mask > 0)[:, None, None].to(x.dtype)
            for block in self.blocks:
                x = block(x, (seen - 1) * 1e4)
            weight = seen[:, 0].transpose(1, 2)
            return (x * weight).sum(1) / weight.sum(1).clamp(min=1)

    return Bert()


def _export_bert(net: Any, opset: int) -> bytes:
    import torch

    tokens = torch.ones(2, 128, dtype=torch.int64)
    return export(net, [tokens, tokens], ["input_ids", "attention_mask"], opset, axes=(0, 1))


def text_transformer(_: bytes) -> bytes:
    """A text transformer before opset 17, with nine nodes for a layer norm."""
    seeded()
    return _export_bert(_bert(8_000, layers=4, width=256, heads=8, eps=1e-12), opset=14)


def minilm(safetensors: bytes) -> bytes:
    """all-MiniLM-L6-v2 with its own weights."""
    net = _bert(30_522, layers=6, width=384, heads=12, eps=1e-12)
    net.load_state_dict(dict(_bert_weights(safetensors)))
    return _export_bert(net, opset=17)


def _bert_weights(safetensors: bytes) -> Any:
    """Pairs of name and tensor from a file of 8 bytes of header size, a JSON header and data."""
    import torch

    length = int.from_bytes(safetensors[:8], "little")
    for name, entry in json.loads(safetensors[8 : 8 + length]).items():
        if name == "__metadata__" or entry["dtype"] != "F32" or name.startswith("pooler"):
            continue
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        tensor = torch.frombuffer(bytearray(safetensors[first:last]), dtype=torch.float32)
        name = name.replace("encoder.layer", "blocks").replace("_embeddings", "")
        name = name.removeprefix("embeddings.").replace("token_type", "kind")
        if name.startswith("blocks"):
            block, rest = name.split(".", 2)[:2], name.split(".", 2)[2]
            stem, _, part = rest.rpartition(".")
            name = ".".join([*block, BERT_NAMES[stem], part])
        yield name.replace("LayerNorm", "norm"), tensor.view(entry["shape"])


# ---------------------------------------------------------------------------- convolutional


def mobilenet(_: bytes) -> bytes:
    """MobileNet v1 (Howard et al., 2017) for pictures of 160x160; no weight is trained, and its
    batch norms have seen three random batches."""
    from torch import nn

    torch = seeded()

    def convolution(inputs: int, outputs: int, stride: int = 1, groups: int = 1) -> list[Any]:
        side = 1 if groups == 1 and inputs > 3 else 3
        layer = nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outputs, momentum=None), nn.ReLU6()]

    widths = [32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
    steps = convolution(3, 32, stride=2)
    for inputs, outputs in itertools.pairwise(widths):
        stride = 2 if outputs > inputs > 32 else 1
        steps += convolution(inputs, inputs, stride, groups=inputs) + convolution(inputs, outputs)
    net = nn.Sequential(*steps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
    with torch.no_grad():
        for _batch in range(3):
            net(torch.randn(8, 3, IMAGE, IMAGE))
    return export(net, [torch.randn(2, 3, IMAGE, IMAGE)], ["pixels"], opset=17)


def light(file: str, _: bytes) -> bytes:
    """A network of onnx's own tests, with seeded weights and a dynamic batch."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{file}.onnx")
    graph = model.graph
    rng = np.random.default_rng(0)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    users: dict[str, tuple[Any, int]] = {}
    for node in graph.node:
        users.update({name: (node, position) for position, name in enumerate(node.input)})
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        shape = numpy_helper.to_array(constants[node.input[0]]).tolist()
        value = _weight(rng, shape, *_consumer(users, node.output[0]))
        constants[node.output[0]] = numpy_helper.from_array(value, node.output[0])
        graph.node.remove(node)
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[1] in constants:
            shape = numpy_helper.to_array(constants[node.input[1]]).copy()
            if shape[0] == 1:  # the batch; a weight's has more
                shape[0] = 0  # copied from the input
            constants[node.input[1]].CopyFrom(numpy_helper.from_array(shape, node.input[1]))
    _open_batch(graph, constants)
    model.ir_version = 7  # from 4 on, weights need not be inputs
    _scale_logits(model, rng)
    return bytes(model.SerializeToString())


def _consumer(users: dict[str, tuple[Any, int]], name: str) -> tuple[str, int]:
    """The operator that reads a constant, and the position among its inputs."""
    node, position = users[name]
    return (
        _consumer(users, node.output[0])
        if node.op_type == "Unsqueeze"
        else (node.op_type, position)
    )


def _weight(rng: Any, shape: Sequence[int], operator: str, position: int) -> Any:
    """He's scale for products; scales and variances about 1, means and biases about 0."""
    import numpy as np

    normal = rng.standard_normal(shape, dtype=np.float32)
    if operator in ("Conv", "Gemm") and position == 1:
        return normal * np.float32(math.sqrt(2 / math.prod(shape[1:])))
    if operator == "Mul" or (operator == "BatchNormalization" and position in (1, 4)):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return normal * np.float32(0.1)


def _open_batch(graph: Any, constants: dict[str, Any]) -> None:
    used = {name for node in graph.node for name in node.input}
    inputs = [operand for operand in graph.input if operand.name in used - constants.keys()]
    for operand in (*inputs, *graph.output):
        operand.type.tensor_type.shape.dim[0].dim_param = "batch"
    for entries, kept in (
        (graph.input, inputs),
        (graph.initializer, [tensor for name, tensor in constants.items() if name in used]),
        (graph.value_info, []),
    ):
        entries_kept = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
        del entries[:]
        entries.extend(entries_kept)


def _scale_logits(model: Any, rng: Any) -> None:
    """Scale the last weight by the spread of the logits of a random picture."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # too late once it is imported
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    graph = model.graph
    last = [node for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    probe.graph.output.append(helper.make_empty_tensor_value_info(last.output[0]))
    session = onnxruntime.InferenceSession(
        probe.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    picture = rng.standard_normal((1, 3, 224, 224), dtype=np.float32)
    (logits,) = session.run([last.output[0]], {graph.input[0].name: picture})
    for tensor in graph.initializer:
        if tensor.name in last.input:
            value = numpy_helper.to_array(tensor) * np.float32(LOGITS / logits.std())
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


# ------------------------------------------------------------------------------------- trees


def forest(_: bytes) -> bytes:
    """300 random trees of depth 8 at most."""
    import onnx

    from workloads import forest as _forest

    model = onnx.load_model_from_string(_forest.ensemble(_forest.grow(300, 8, seed=0), batch=1))
    for operand in (*model.graph.input, *model.graph.output):
        operand.type.tensor_type.shape.dim[0].dim_param = "batch"
    return bytes(model.SerializeToString())


# Functions from a wheel's file, or nothing, to a serialised model.
BUILDERS: dict[str, Callable[[bytes], bytes]] = {
    "minilm": minilm,
    "text-transformer": text_transformer,
    "light-squeezenet": partial(light, "squeezenet"),
    "light-shufflenet": partial(light, "shufflenet"),
    "light-densenet121": partial(light, "densenet121"),
    "light-inception-v1": partial(light, "inception_v1"),
    "mobilenet": mobilenet,
    "patch-transformer": patch_transformer,
    "lstm-tagger": lstm_tagger,
    "gru-forecaster": gru_forecaster,
    "digits-mlp": digits_mlp,
    "tabular-mlp": tabular_mlp,
    "forest": forest,
}
