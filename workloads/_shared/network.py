"""The networks that all backends run, as plain NumPy weights, and their float64 reference.

The reference uses none of them, so agreement with torch or ONNX Runtime is evidence and not a
tautology.  It computes a 3x3 convolution as nine shifted matrix products.
"""

import hashlib
import math
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from workbench import assets
from workbench.worker.libraries import np

CLASSES = 10
EPSILON = 1e-5  # added to the variance in norms
# The conv net: (channels in, channels out, stride) of its 3x3 layers; a mean over the image
# and one dense layer follow.  281,000 parameters.
CONVOLUTIONS = ((3, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2))


@dataclass(frozen=True)
class Conv:
    """A 3x3 convolution, padding 1, then ReLU; weight (out, in, 3, 3), bias (out)."""

    weight: Any
    bias: Any
    stride: int
    relu: ClassVar[bool] = True


@dataclass(frozen=True)
class Mean:
    """The mean of a picture, (batch, channels, h, w) to (batch, channels), or of a sequence,
    (batch, tokens, width) to (batch, width)."""


@dataclass(frozen=True)
class Dense:
    """A fully connected layer, with ReLU unless it is the last; weight (out, in), bias (out)."""

    weight: Any
    bias: Any
    relu: bool


@dataclass(frozen=True)
class Norm:
    """Mean 0 and variance 1 over the last axis, then gain (weight) and shift (bias)."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class Attention:
    """Self-attention from queries, keys and values side by side: (batch, tokens, 3 * width)."""

    width: int
    heads: int


@dataclass(frozen=True)
class Gelu:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016), exactly."""


@dataclass(frozen=True)
class Residual:
    """The sum of the input and the layers' output for it."""

    layers: "list[Layer]"


Layer = Conv | Mean | Dense | Norm | Attention | Gelu | Residual


def untrained_convnet(
    seed: int, convolutions: Sequence[tuple[int, int, int]] = CONVOLUTIONS
) -> list[Layer]:
    """The conv net before its training: He initialisation, biases zero."""
    rng = np.random.default_rng(seed)
    layers: list[Layer] = [
        Conv(he(rng, outputs, inputs, 3, 3), np.zeros(outputs, np.float32), stride)
        for inputs, outputs, stride in convolutions
    ]
    return [*layers, Mean(), *mlp((convolutions[-1][1], CLASSES), seed)]


def trained_convnet() -> list[Layer]:
    """The conv net trained on the real digits (assets/digits/SOURCE.md).  INT8 errors are only
    meaningful on a trained network.  With random weights the answers hardly depend on the input,
    and rounding errors hide the little that does."""
    stored = np.load(assets.path("digits/convnet.npz"))
    arrays = [stored[f"arr_{i}"].astype(np.float32) for i in range(len(stored.files))]
    pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    strides = [stride for _, _, stride in CONVOLUTIONS]
    layers = [Conv(*pair, stride) for pair, stride in zip(pairs, strides, strict=False)]
    return [*layers, Mean(), Dense(*pairs[-1], relu=False)]


def mlp(sizes: Sequence[int], seed: int) -> list[Layer]:
    """A multi-layer perceptron with ReLU between layers: He initialisation, biases zero."""
    rng = np.random.default_rng(seed)
    last = len(sizes) - 2
    return [
        Dense(he(rng, outputs, inputs), np.zeros(outputs, np.float32), relu=index < last)
        for index, (inputs, outputs) in enumerate(pairwise(sizes))
    ]


def samples(count: int, inputs: int, classes: int, seed: int) -> tuple[Any, Any]:
    """Normal random inputs (count, inputs), and their labels (count) by a linear rule."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((count, inputs), dtype=np.float32)
    rule = rng.standard_normal((inputs, classes), dtype=np.float32)
    return data, (data @ rule).argmax(axis=1)


def he(rng: Any, *shape: int) -> Any:
    """Normal weights of variance 2 / fan-in, which keeps the scale of activations under ReLU."""
    fan_in = int(np.prod(shape[1:]))
    weights = rng.standard_normal(shape, dtype=np.float32)
    return weights * np.float32(np.sqrt(2 / fan_in))


_latest: dict[bytes, Any] = {}  # by a digest of network and inputs: one entry at most


def exact_answers(layers: Sequence[Layer], inputs: Any) -> Any:
    """`forward`, cached for the other candidates of a row."""
    content = hashlib.blake2b(pickle.dumps((layers, inputs))).digest()
    if content not in _latest:
        _latest.clear()
        _latest[content] = forward(layers, inputs)
    return _latest[content]


def forward(layers: Sequence[Layer], inputs: Any) -> Any:
    """The network's output in float64, one picture or sequence at a time to save memory."""
    if inputs.ndim > 2 and len(inputs) > 1:
        return np.concatenate([forward(layers, one[None]) for one in inputs])
    x = inputs.astype(np.float64)
    for layer in layers:
        x = _applied(layer, x)
    return x


def _applied(layer: Layer, x: Any) -> Any:
    if isinstance(layer, Residual):
        return x + forward(layer.layers, x)
    if isinstance(layer, Mean):
        return x.mean(axis=(2, 3) if x.ndim == 4 else 1)
    if isinstance(layer, Attention):
        return attention(x[0], layer.heads)[None]
    if isinstance(layer, Gelu):
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if isinstance(layer, Norm):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        return centred / deviation * layer.weight + layer.bias
    if isinstance(layer, Conv):
        x = conv3x3(x, layer.weight, layer.stride) + layer.bias[:, None, None]
    else:
        x = x @ layer.weight.T.astype(np.float64) + layer.bias
    return np.maximum(x, 0) if layer.relu else x


def attention(qkv: Any, heads: int) -> Any:
    """Attention in one sequence, head by head: (tokens, 3 * width) to (tokens, width)."""
    parts = [np.split(part, heads, axis=1) for part in np.split(qkv, 3, axis=1)]
    mixed = []
    for queries, keys, values in zip(*parts, strict=True):
        scores = queries @ keys.T / math.sqrt(queries.shape[1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed.append(weights / weights.sum(axis=1, keepdims=True) @ values)
    return np.concatenate(mixed, axis=1)


def conv3x3(x: Any, weight: Any, stride: int) -> Any:
    """A 3x3 convolution with padding 1 in float64: the sum of nine shifted products.  x (batch, in,
    h, w), weight (out, in, 3, 3) to (batch, out, h / stride, w / stride)."""
    height, width = ((size - 1) // stride + 1 for size in x.shape[2:])
    padded = np.pad(x.astype(np.float64, copy=False), ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((weight.shape[0], len(x), height, width))
    for row in range(3):
        for column in range(3):
            rows = slice(row, row + stride * (height - 1) + 1, stride)
            columns = slice(column, column + stride * (width - 1) + 1, stride)
            tap = weight[:, :, row, column].astype(np.float64)
            total += np.tensordot(tap, padded[:, :, rows, columns], axes=(1, 1))
    return total.transpose(1, 0, 2, 3)


def spread(count: int, most: int) -> Any:
    """At most `most` of `count` places, evenly from the first to the last."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def relative_error(result: Any, reference: Any) -> float:
    """||result - reference|| / ||reference|| over all elements."""
    difference = np.linalg.norm(result.astype(np.float64).ravel() - reference.ravel())
    return float(difference / np.linalg.norm(reference.ravel()))


def worst(errors: Iterable[float]) -> float:
    """The largest error, or NaN if there is one: Python's max may skip it."""
    return float(np.max([*errors]))


def convnet_multiplications(image: int) -> int:
    """Multiply-adds of the conv net's forward pass on one picture of `image` x `image` pixels."""
    total, side = CONVOLUTIONS[-1][1] * CLASSES, image
    for inputs, outputs, stride in CONVOLUTIONS:
        side = (side - 1) // stride + 1
        total += 9 * inputs * outputs * side * side
    return total


def mlp_multiplications(sizes: Sequence[int]) -> int:
    """Multiply-adds of an MLP's forward pass on one sample."""
    return sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def mlp_training_flops(sizes: Sequence[int], samples: int) -> float:
    """Operations of a training step: three products for each layer, but no gradient of the data."""
    return 2.0 * samples * (3 * mlp_multiplications(sizes) - sizes[0] * sizes[1])
