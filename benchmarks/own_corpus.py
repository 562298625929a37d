"""Modules of others, with random weights: the corpus of `make own`.

`workbench advise --torch benchmarks.own_corpus:NAME` takes every entry as it is.  All come out of
wheels and download nothing: torch and torchvision (BSD-3-Clause), timm and transformers
(Apache-2.0), torch-geometric (MIT).
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# Not looked at while the advisor is tuned: random.Random(16).sample(sorted(CORPUS), 17), without
# those that led to changes of the search.
# fmt: off
HELD_OUT = {
    "efficientnet_b0", "gat", "gru", "mobilenet_v3_small", "mobilevit",
    "r3d_18", "resmlp", "squeezenet", "swin", "t5_encoder", "wav2vec2",
}
# fmt: on
Feed = Callable[[int], tuple[Any, ...]]


def values(*shape: int) -> Feed:
    return lambda batch: (torch.randn(batch, *shape),)


def tokens(length: int, *, mask: bool = False) -> Feed:
    def feed(batch: int) -> tuple[Any, ...]:
        ids = torch.randint(30_000, (batch, length))
        return (ids, torch.ones_like(ids)) if mask else (ids,)

    return feed


def graph(nodes: int, width: int, edges: int, *more: int) -> Feed:
    """Features, values of other widths, and pairs of nodes."""
    widths = (width, *more)
    return lambda _: (*(torch.randn(nodes, w) for w in widths), torch.randint(nodes, (2, edges)))


def dense_graphs(batch: int) -> tuple[Any, ...]:
    return torch.randn(batch, 120, 128), (torch.rand(batch, 120, 120) < 0.1).float()


def wheel(name: str) -> Any:
    """A package.  Where the wheel of torchvision on PyPI finds no CUDA libraries its extension
    does not load, and its import, which others do too, lacks two operators that none uses here."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for operator in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
    return importlib.import_module(name)


def vision(path: str, *arguments: Any, **options: Any) -> Any:
    """A module of torchvision."""
    folder, _, name = path.rpartition(".")
    return getattr(wheel("torchvision." + folder), name)(*arguments, **options)


def timm(name: str, **options: Any) -> Any:
    """A model of timm."""
    return wheel("timm").create_model(name, **options)


def hugging(family: str, model: str = "Model", **options: Any) -> Any:
    """A model of transformers with these options in its configuration."""
    package = wheel("transformers")
    config = getattr(package, f"{family}Config")(**options)
    made = getattr(package, family + model)(config)
    if family == "Encodec":  # without its quantiser, which rounds to the nearest code
        return nn.Sequential(made.encoder, made.decoder)
    return made.get_encoder() if family == "Whisper" else made


def geometric(name: str, *arguments: Any, **options: Any) -> Any:
    """A module of PyTorch Geometric."""
    layers = wheel("torch_geometric.nn")
    parts = [layers.MLP(x, norm=None) if isinstance(x, list) else x for x in arguments]
    return getattr(layers, name)(*parts, **options)


def entry(
    batches: tuple[int, ...], feed: Feed, source: Any, *arguments: Any, **options: Any
) -> Any:
    """A function for the tool to call.  Its attribute `inputs` makes the inputs of other batches;
    without `batches` there are none, since the inputs share no first axis."""

    def build() -> Any:
        return source(*arguments, **options).eval(), feed((batches or (1,))[0])

    vars(build).update(batches=batches, feed=feed)
    vars(build).update({"inputs": feed} if batches else {})
    return build


FPN18 = {"backbone_name": "resnet18", "weights": None}
RNN = {"batch_first": True}
FPN = "models.detection.backbone_utils.resnet_fpn_backbone"
SEGMENT = "ForSemanticSegmentation"
LRASPP = "models.segmentation.lraspp_mobilenet_v3_large"
RESMLP = {"img_size": 112, "num_classes": 0}  # its head starts at zero
SWIN = {"img_size": 112, "embed_dim": 48, "depths": (2, 2, 4, 2)}
BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
BERT |= {"intermediate_size": 1024}
DISTIL = {"dim": 256, "n_layers": 3, "n_heads": 4, "hidden_dim": 1024}
GPT = {"n_embd": 256, "n_layer": 4, "n_head": 4, "use_cache": False}
T5 = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
WAV = {**BERT, "num_hidden_layers": 2, "conv_dim": (128,) * 7}
LLAMA = {**BERT, "vocab_size": 30_000, "use_cache": False}
WHISPER = {"d_model": 256, "encoder_layers": 4, "encoder_attention_heads": 4}
WHISPER |= {"max_source_positions": 200, "decoder_attention_heads": 4}

# fmt: off
CORPUS = {
    "resnet18": entry((1, 8), values(3, 128, 128), vision, "models.resnet18"),
    "mobilenet_v3_small": entry((1, 8), values(3, 160, 160), vision, "models.mobilenet_v3_small"),
    "efficientnet_b0": entry((1, 8), values(3, 128, 128), vision, "models.efficientnet_b0"),
    "convnext_tiny": entry((1, 4), values(3, 96, 96), vision, "models.convnext_tiny"),
    "squeezenet": entry((1, 8), values(3, 128, 128), vision, "models.squeezenet1_1"),
    "shufflenet": entry((1, 8), values(3, 128, 128), vision, "models.shufflenet_v2_x1_0"),
    "lraspp": entry((1, 8), values(3, 128, 128), vision, LRASPP, weights_backbone=None),
    "detector_backbone": entry((1, 4), values(3, 96, 96), vision, FPN, **FPN18),
    "r3d_18": entry((1, 2), values(3, 4, 56, 56), vision, "models.video.r3d_18"),
    "mlp": entry((1, 64), values(100), vision, "ops.MLP", 100, [1024, 1024, 256, 10]),
    "vit_tiny": entry((1, 8), values(3, 160, 160), timm, "vit_tiny_patch16_224", img_size=160),
    "swin": entry((1, 8), values(3, 112, 112), timm, "swin_tiny_patch4_window7_224", **SWIN),
    "eva02_tiny": entry((1, 8), values(3, 112, 112), timm, "eva02_tiny_patch14_224", img_size=112),
    "mixer": entry((1, 4), values(3, 224, 224), timm, "mixer_s32_224", num_classes=0),
    "resmlp": entry((1, 8), values(3, 112, 112), timm, "resmlp_12_224", **RESMLP),
    "mobilevit": entry((1, 8), values(3, 128, 128), timm, "mobilevit_xxs"),
    "ghostnet": entry((1, 8), values(3, 128, 128), timm, "ghostnet_100"),
    "bert": entry((1, 8), tokens(64, mask=True), hugging, "Bert", **BERT),
    "distilbert": entry((1, 8), tokens(128), hugging, "DistilBert", **DISTIL),
    "gpt2": entry((1, 8), tokens(32), hugging, "GPT2", "LMHeadModel", **GPT),
    "t5_encoder": entry((1, 8), tokens(64), hugging, "T5", "EncoderModel", **T5),
    "albert": entry((1, 8), tokens(64, mask=True), hugging, "Albert", **BERT),
    "llama": entry((1, 8), tokens(32), hugging, "Llama", **LLAMA),
    "wav2vec2": entry((1, 4), values(8_000), hugging, "Wav2Vec2", **WAV),
    "whisper_encoder": entry((1, 4), values(80, 400), hugging, "Whisper", **WHISPER),
    "segformer": entry((1, 8), values(3, 128, 128), hugging, "Segformer", SEGMENT),
    "autoencoder": entry((1, 4), values(1, 4_000), hugging, "Encodec", num_filters=16),
    "gcn": entry((), graph(2_000, 64, 10_000), geometric, "GCN", 64, 64, 3, 16),
    "gat": entry((), graph(1_000, 32, 5_000), geometric, "GAT", 32, 64, 2, 8, heads=4),
    "graph_sage": entry((), graph(3_000, 32, 15_000), geometric, "GraphSAGE", 32, 64, 2, 8),
    "point_net": entry((), graph(1_024, 16, 16_384, 3), geometric, "PointNetConv",
        [19, 64, 128], [128, 128, 10]),
    "dense_gcn": entry((1, 16), dense_graphs, geometric, "DenseGCNConv", 128, 256),
    "lstm": entry((1, 8), values(64, 64), nn.LSTM, 64, 128, 2, **RNN),
    "gru": entry((1, 8), values(96, 16), nn.GRU, 16, 96, **RNN),
}
# fmt: on
globals().update(CORPUS)
