"""A small transformer encoder as plain NumPy weights, as a torch module and as an ONNX model.

The blocks are pre-norm (Xiong et al., "On Layer Normalization in the Transformer Architecture",
2020): x + attention(norm(x)), then x + feed_forward(norm(x)) with GELU.  A last norm, the mean
over the tokens and one dense layer give the answer.  Inputs are embeddings, positions included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .network import CLASSES
from .onnx_model import GraphBuilder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

BLOCKS = 4
WIDTH = 256
HEADS = 4
HEAD_WIDTH = WIDTH // HEADS
HIDDEN = 4 * WIDTH
EPSILON = 1e-5  # added to the variance in norms


class Affine(NamedTuple):
    """A dense layer, weight (out, in), or a norm's gain, weight (width); bias (out or width)."""

    weight: Array
    bias: Array


class EncoderBlock(NamedTuple):
    """The layers of one block, in the order of their use."""

    attention_norm: Affine
    qkv: Affine  # queries, keys and values side by side
    projection: Affine
    feed_forward_norm: Affine
    expansion: Affine
    contraction: Affine


@dataclass(frozen=True)
class Encoder:
    """Embeddings (batch, tokens, WIDTH) to answers (batch, CLASSES)."""

    blocks: Sequence[EncoderBlock]
    norm: Affine
    head: Affine

    def forward(self, inputs: Array) -> NDArray[np.float64]:
        """The answers in float64, one sequence at a time."""
        import numpy as np

        return np.stack([self._answer(sequence.astype(np.float64)) for sequence in inputs])

    def _answer(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        for block in self.blocks:
            x = x + dense(
                attention(dense(norm(x, block.attention_norm), block.qkv)), block.projection
            )
            hidden = gelu(dense(norm(x, block.feed_forward_norm), block.expansion))
            x = x + dense(hidden, block.contraction)
        return dense(norm(x, self.norm).mean(axis=0), self.head)

    def module(self) -> Any:
        """As a torch module in FP32 on the CPU."""
        return torch_module(self)

    def graph(self, input_shape: Sequence[int]) -> bytes:
        """As a serialised ONNX model of one batch and sequence length."""
        batch, tokens, _ = input_shape
        graph = GraphBuilder()

        def dense(x: str, layer: Affine) -> str:
            product = graph.add("MatMul", x, graph.constant(layer.weight.T.copy()))
            return graph.add("Add", product, graph.constant(layer.bias))

        def norm(x: str, layer: Affine) -> str:
            gain, shift = (graph.constant(values) for values in layer)
            return graph.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=EPSILON)

        def heads(x: str, *order: int) -> str:
            parted = graph.add("Reshape", x, graph.constant([batch, tokens, HEADS, HEAD_WIDTH]))
            return graph.add("Transpose", parted, perm=order)

        def attention(x: str) -> str:
            queries, keys, values = graph.split(x, 3)
            scores = graph.add("MatMul", heads(queries, 0, 2, 1, 3), heads(keys, 0, 2, 3, 1))
            scaled = graph.add("Mul", scores, graph.constant(1 / math.sqrt(HEAD_WIDTH)))
            weights = graph.add("Softmax", scaled, axis=-1)
            mixed = graph.add("MatMul", weights, heads(values, 0, 2, 1, 3))
            joined = graph.add("Transpose", mixed, perm=(0, 2, 1, 3))
            return graph.add("Reshape", joined, graph.constant([batch, tokens, WIDTH]))

        def gelu(x: str) -> str:
            error = graph.add("Erf", graph.add("Div", x, graph.constant(math.sqrt(2))))
            doubled = graph.add("Mul", x, graph.add("Add", error, graph.constant(1.0)))
            return graph.add("Mul", doubled, graph.constant(0.5))

        x = "input"
        for block in self.blocks:
            mixed = attention(dense(norm(x, block.attention_norm), block.qkv))
            x = graph.add("Add", x, dense(mixed, block.projection))
            hidden = gelu(dense(norm(x, block.feed_forward_norm), block.expansion))
            x = graph.add("Add", x, dense(hidden, block.contraction))
        pooled = graph.add("ReduceMean", norm(x, self.norm), axes=[1], keepdims=0)
        weight, bias = (graph.constant(values) for values in self.head)
        graph.add("Gemm", pooled, weight, bias, transB=1)
        return graph.model(input_shape, (batch, CLASSES))


def untrained(seed: int) -> Encoder:
    """Random weights with which every layer keeps the scale of its input.

    Dense layers have variance 1 / fan-in (LeCun et al., "Efficient BackProp", 1998).  Those that
    add to the residual stream have less, as in GPT-2 (Radford et al., 2019).  Gains and biases are
    random too: a backend that omits one gives a wrong answer.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def draw(*shape: int, scale: float) -> Array:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def dense(inputs: int, outputs: int, scale: float = 1.0) -> Affine:
        return Affine(
            draw(outputs, inputs, scale=scale / math.sqrt(inputs)), draw(outputs, scale=0.1)
        )

    def norm() -> Affine:
        return Affine(1 + draw(WIDTH, scale=0.1), draw(WIDTH, scale=0.1))

    residual = 1 / math.sqrt(2 * BLOCKS)
    blocks = [
        EncoderBlock(
            norm(),
            dense(WIDTH, 3 * WIDTH),
            dense(WIDTH, WIDTH, residual),
            norm(),
            dense(WIDTH, HIDDEN),
            dense(HIDDEN, WIDTH, residual),
        )
        for _ in range(BLOCKS)
    ]
    return Encoder(blocks, norm(), dense(WIDTH, CLASSES))


def multiplications(tokens: int) -> int:
    """Multiply-adds of the encoder's forward pass on one sequence."""
    dense = 4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN
    return BLOCKS * tokens * (dense + 2 * tokens * WIDTH) + WIDTH * CLASSES


def parameters() -> int:
    """Number of weights of all layers, without biases and norms."""
    return BLOCKS * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) + WIDTH * CLASSES


# ------------------------------------------------------- the float64 reference


def dense(x: NDArray[np.float64], layer: Affine) -> NDArray[np.float64]:
    """x (..., in) to (..., out)."""
    product: NDArray[np.float64] = x @ layer.weight.T.astype(x.dtype) + layer.bias
    return product


def norm(x: NDArray[np.float64], layer: Affine) -> NDArray[np.float64]:
    """Mean 0 and variance 1 over the last axis, then gain and shift."""
    import numpy as np

    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
    scaled: NDArray[np.float64] = centred / deviation * layer.weight + layer.bias
    return scaled


def attention(qkv: NDArray[np.float64]) -> NDArray[np.float64]:
    """Attention in one sequence, head by head: qkv (tokens, 3 * WIDTH) to (tokens, WIDTH)."""
    import numpy as np

    def mixed() -> Iterator[NDArray[np.float64]]:
        for head in range(HEADS):
            own = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            queries, keys, values = (part[:, own] for part in np.split(qkv, 3, axis=1))
            scores = queries @ keys.T / math.sqrt(HEAD_WIDTH)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            yield weights / weights.sum(axis=1, keepdims=True) @ values

    return np.concatenate(list(mixed()), axis=1)


def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016), exactly."""
    import numpy as np

    error = np.asarray(np.frompyfunc(math.erf, 1, 1)(x / math.sqrt(2)), np.float64)
    product: NDArray[np.float64] = 0.5 * x * (1 + error)
    return product


# ------------------------------------------------------------------ in torch


def torch_module(encoder: Encoder) -> Any:
    """`encoder` as a torch module in FP32 on the CPU."""
    import torch
    from torch import nn

    def linear(layer: Affine) -> Any:
        outputs, inputs = layer.weight.shape
        return filled(nn.Linear(inputs, outputs), layer)

    def layer_norm(layer: Affine) -> Any:
        return filled(nn.LayerNorm(WIDTH, eps=EPSILON), layer)

    def filled(part: Any, layer: Affine) -> Any:
        with torch.no_grad():
            part.weight.copy_(torch.from_numpy(layer.weight))
            part.bias.copy_(torch.from_numpy(layer.bias))
        return part

    class TorchBlock(nn.Module):  # type: ignore[misc]
        def __init__(self, block: EncoderBlock) -> None:
            super().__init__()
            self.attention_norm = layer_norm(block.attention_norm)
            self.qkv = linear(block.qkv)
            self.projection = linear(block.projection)
            self.feed_forward = nn.Sequential(
                layer_norm(block.feed_forward_norm),
                linear(block.expansion),
                nn.GELU(),
                linear(block.contraction),
            )

        def forward(self, x: Any) -> Any:
            shape = (*x.shape[:2], 3, HEADS, HEAD_WIDTH)
            qkv = self.qkv(self.attention_norm(x)).view(shape).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(*qkv.unbind())
            x = x + self.projection(mixed.transpose(1, 2).flatten(2))
            return x + self.feed_forward(x)

    class TorchEncoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*map(TorchBlock, encoder.blocks))
            self.norm = layer_norm(encoder.norm)
            self.head = linear(encoder.head)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(x)).mean(dim=1))

    return TorchEncoder()
