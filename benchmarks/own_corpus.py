"""Modules of others, with random weights: the corpus of `make own`.

`workbench advise --torch benchmarks.own_corpus:NAME` takes every entry as it is.  All come out of
wheels and download nothing.  `python benchmarks/own_corpus.py [NAME...]` runs them and prints
what they are.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

LICENCES = {
    "torch": "BSD-3-Clause",
    "torchvision": "BSD-3-Clause",
    "timm": "Apache-2.0",
    "transformers": "Apache-2.0",
    "torch-geometric": "MIT",
}
# Not looked at while the advisor is tuned: random.Random(16).sample(sorted(CORPUS), 17).
# fmt: off
HELD_OUT = {
    "albert", "efficientnet_b0", "eva02_tiny", "gat", "graph_sage", "gru",
    "mobilenet_v3_small", "mobilevit", "point_net", "r3d_18", "resmlp", "segformer",
    "squeezenet", "swin", "t5_encoder", "vit_tiny", "wav2vec2",
}
# fmt: on
Feed = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Entry:
    """One module; no `batches` where its inputs share no first axis."""

    name: str
    wheel: str
    kind: str
    batches: tuple[int, ...]
    feed: Feed  # makes the inputs of a batch
    make: Callable[[], Any]  # makes the module

    def build(self) -> tuple[Any, tuple[Any, ...]]:
        """The module and its inputs at its first batch."""
        return self.make().eval(), self.feed((self.batches or (1,))[0])


def images(side: int) -> Feed:
    return lambda batch: (torch.randn(batch, 3, side, side),)


def values(*shape: int) -> Feed:
    return lambda batch: (torch.randn(batch, *shape),)


def tokens(length: int, vocabulary: int = 30_000, *, mask: bool = False) -> Feed:
    def feed(batch: int) -> tuple[Any, ...]:
        ids = torch.randint(vocabulary, (batch, length))
        return (ids, torch.ones_like(ids)) if mask else (ids,)

    return feed


def graph(nodes: int, width: int, edges: int, *, points: bool = False) -> Feed:
    """Features, positions if `points`, and pairs of nodes."""

    def feed(_: int) -> tuple[Any, ...]:
        position = (torch.randn(nodes, 3),) if points else ()
        return torch.randn(nodes, width), *position, torch.randint(nodes, (2, edges))

    return feed


def dense_graphs(batch: int) -> tuple[Any, ...]:
    return torch.randn(batch, 120, 128), (torch.rand(batch, 120, 120) < 0.1).float()


def vision(path: str, *arguments: Any, **options: Any) -> Any:
    """A part of torchvision.  Where PyPI's wheel finds no CUDA libraries its extension does not
    load, and its import asks for two operators of that extension, which no module here uses."""
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)
        import torchvision
    folder, _, name = path.rpartition(".")
    parent = importlib.import_module(f"{torchvision.__name__}.{folder}")
    return getattr(parent, name)(*arguments, **options)


def timm(name: str, **options: Any) -> Any:
    import timm

    return timm.create_model(name, **options)


def hugging(family: str, model: str = "", **options: Any) -> Any:
    """A model of transformers with these options in its configuration."""
    import transformers

    config = getattr(transformers, f"{family}Config")(**options)
    return getattr(transformers, family + (model or "Model"))(config)


def geometric(name: str, *arguments: Any, **options: Any) -> Any:
    import torch_geometric

    return getattr(torch_geometric.nn, name)(*arguments, **options)


def points() -> Any:
    near = geometric("MLP", [16 + 3, 64, 128], norm=None)
    return geometric("PointNetConv", near, geometric("MLP", [128, 128, 10], norm=None))


def pyramid() -> Any:
    backbone = "models.detection.backbone_utils.resnet_fpn_backbone"
    return vision(backbone, backbone_name="resnet18", weights=None)


def codec() -> Any:
    """The convolutions and LSTMs of an audio codec, without its quantiser."""
    whole = hugging("Encodec", num_filters=16)
    return torch.nn.Sequential(whole.encoder, whole.decoder)


SMALL: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
BERT = {**SMALL, "intermediate_size": 1024}
SWIN = {"img_size": 112, "embed_dim": 48, "depths": (2, 2, 4, 2)}
DISTIL = {"dim": 256, "n_layers": 3, "n_heads": 4, "hidden_dim": 1024}
GPT = {"n_embd": 256, "n_layer": 4, "n_head": 4, "use_cache": False}
T5 = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
WAV = {**BERT, "num_hidden_layers": 2, "conv_dim": (128,) * 7}
LLAMA = {**BERT, "vocab_size": 30_000, "use_cache": False}
WHISPER = {"d_model": 256, "encoder_layers": 4, "encoder_attention_heads": 4}
WHISPER |= {"max_source_positions": 200, "decoder_attention_heads": 4}
RNN = {"batch_first": True}

# fmt: off
ENTRIES = (
    Entry("resnet18", "torchvision", "cnn", (1, 8), images(128), lambda: vision("models.resnet18")),
    Entry("mobilenet_v3_small", "torchvision", "cnn", (1, 8), images(160),
          lambda: vision("models.mobilenet_v3_small")),
    Entry("efficientnet_b0", "torchvision", "cnn", (1, 8), images(128),
          lambda: vision("models.efficientnet_b0")),
    Entry("convnext_tiny", "torchvision", "cnn", (1, 4), images(96),
          lambda: vision("models.convnext_tiny")),
    Entry("squeezenet", "torchvision", "cnn", (1, 8), images(128),
          lambda: vision("models.squeezenet1_1")),
    Entry("shufflenet", "torchvision", "cnn", (1, 8), images(128),
          lambda: vision("models.shufflenet_v2_x1_0")),
    Entry("lraspp", "torchvision", "segmentation", (1, 8), images(128),
          lambda: vision("models.segmentation.lraspp_mobilenet_v3_large", weights_backbone=None)),
    Entry("detector_backbone", "torchvision", "detection", (1, 4), images(96), pyramid),
    Entry("r3d_18", "torchvision", "video", (1, 2), values(3, 4, 56, 56),
          lambda: vision("models.video.r3d_18")),
    Entry("mlp", "torchvision", "tabular", (1, 64), values(100),
          lambda: vision("ops.MLP", 100, [1024, 1024, 256, 10])),
    Entry("vit_tiny", "timm", "transformer", (1, 8), images(160),
          lambda: timm("vit_tiny_patch16_224", img_size=160)),
    Entry("swin", "timm", "transformer", (1, 8), images(112),
          lambda: timm("swin_tiny_patch4_window7_224", **SWIN)),
    Entry("eva02_tiny", "timm", "transformer", (1, 8), images(112),
          lambda: timm("eva02_tiny_patch14_224", img_size=112)),
    Entry("mixer", "timm", "mixer", (1, 4), images(224), lambda: timm("mixer_s32_224")),
    Entry("resmlp", "timm", "mixer", (1, 8), images(112),
          lambda: timm("resmlp_12_224", img_size=112)),
    Entry("mobilevit", "timm", "cnn", (1, 8), images(128), lambda: timm("mobilevit_xxs")),
    Entry("ghostnet", "timm", "cnn", (1, 8), images(128), lambda: timm("ghostnet_100")),
    Entry("bert", "transformers", "transformer", (1, 8), tokens(64, mask=True),
          lambda: hugging("Bert", **BERT)),
    Entry("distilbert", "transformers", "transformer", (1, 8), tokens(128),
          lambda: hugging("DistilBert", "ForSequenceClassification", **DISTIL)),
    Entry("gpt2", "transformers", "transformer", (1, 8), tokens(32),
          lambda: hugging("GPT2", "LMHeadModel", **GPT)),
    Entry("t5_encoder", "transformers", "transformer", (1, 8), tokens(64),
          lambda: hugging("T5", "EncoderModel", **T5)),
    Entry("albert", "transformers", "transformer", (1, 8), tokens(64, mask=True),
          lambda: hugging("Albert", **BERT)),
    Entry("llama", "transformers", "transformer", (1, 8), tokens(32),
          lambda: hugging("Llama", **LLAMA)),
    Entry("wav2vec2", "transformers", "audio", (1, 4), values(8_000),
          lambda: hugging("Wav2Vec2", **WAV)),
    Entry("whisper_encoder", "transformers", "audio", (1, 4), values(80, 400),
          lambda: hugging("Whisper", **WHISPER).get_encoder()),
    Entry("segformer", "transformers", "segmentation", (1, 8), images(128),
          lambda: hugging("Segformer", "ForSemanticSegmentation")),
    Entry("autoencoder", "transformers", "audio", (1, 4), values(1, 4_000), codec),
    Entry("gcn", "torch-geometric", "graph", (), graph(2_000, 64, 10_000),
          lambda: geometric("GCN", 64, 64, 3, 16)),
    Entry("gat", "torch-geometric", "graph", (), graph(1_000, 32, 5_000),
          lambda: geometric("GAT", 32, 64, 2, 8, heads=4)),
    Entry("graph_sage", "torch-geometric", "graph", (), graph(3_000, 32, 15_000),
          lambda: geometric("GraphSAGE", 32, 64, 2, 8)),
    Entry("point_net", "torch-geometric", "points", (), graph(1_024, 16, 16_384, points=True),
          lambda: points()),
    Entry("dense_gcn", "torch-geometric", "graph", (1, 16), dense_graphs,
          lambda: geometric("DenseGCNConv", 128, 256)),
    Entry("lstm", "torch", "rnn", (1, 8), values(64, 64),
          lambda: torch.nn.LSTM(64, 128, 2, bidirectional=True, **RNN)),
    Entry("gru", "torch", "rnn", (1, 8), values(96, 16), lambda: torch.nn.GRU(16, 96, **RNN)),
)
# fmt: on
CORPUS = {entry.name: entry for entry in ENTRIES}


def builder(entry: Entry) -> Callable[[], Any]:
    """What the tool calls; it finds the inputs of other batches in the attribute `inputs`."""

    def build() -> Any:
        return entry.build()

    build.__name__ = build.__qualname__ = entry.name
    if entry.batches:
        build.inputs = entry.feed  # type: ignore[attr-defined]
    return build


globals().update({entry.name: builder(entry) for entry in ENTRIES})


def eager_ms(entry: Entry, batch: int, seconds: float = 0.5) -> float:
    """Median milliseconds of an eager call on all threads."""
    torch.manual_seed(0)
    module, arguments = entry.make().eval(), entry.feed(batch)
    times: list[float] = []
    with torch.inference_mode():
        module(*arguments)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(times) < 3:
            began = time.perf_counter()
            module(*arguments)
            times.append((time.perf_counter() - began) * 1e3)
    return median(times)


def main() -> None:
    names = sys.argv[1:] or list(CORPUS)
    print("| module | kind | wheel | licence | batches | eager, ms | held out |")
    print("|---" * 7 + "|")
    for entry in map(CORPUS.__getitem__, names):
        times = " / ".join(f"{eager_ms(entry, batch):.2f}" for batch in entry.batches or (1,))
        batches = ", ".join(map(str, entry.batches)) or "-"
        cells = (entry.name, entry.kind, entry.wheel, LICENCES[entry.wheel], batches, times)
        held_out = "yes" if entry.name in HELD_OUT else ""
        print(f"| {' | '.join(cells)} | {held_out} |", flush=True)


if __name__ == "__main__":
    main()
