"""A small transformer encoder.

The blocks are pre-norm (Xiong et al., "On Layer Normalization in the Transformer Architecture",
2020): x + attention(norm(x)), then x + feed_forward(norm(x)) with GELU.  A last norm, the mean
over the tokens and one dense layer give the answer.  Inputs are embeddings, positions included.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .network import CLASSES, Attention, Dense, Gelu, Layer, MeanTokens, Norm, Residual

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCKS = 4
WIDTH = 256
HEADS = 4
HIDDEN = 4 * WIDTH


def untrained(seed: int) -> list[Layer]:
    """Random weights with which every layer keeps the scale of its input: embeddings (batch,
    tokens, WIDTH) to answers (batch, CLASSES).

    Dense layers have variance 1 / fan-in (LeCun et al., "Efficient BackProp", 1998).  Those that
    add to the residual stream have less, as in GPT-2 (Radford et al., 2019).  Gains and biases are
    random too: a backend that omits one gives a wrong answer.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def draw(*shape: int, scale: float) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def dense(inputs: int, outputs: int, scale: float = 1.0) -> Dense:
        weight = draw(outputs, inputs, scale=scale / math.sqrt(inputs))
        return Dense(weight, draw(outputs, scale=0.1), relu=False)

    def norm() -> Norm:
        return Norm(1 + draw(WIDTH, scale=0.1), draw(WIDTH, scale=0.1))

    residual = 1 / math.sqrt(2 * BLOCKS)
    layers: list[Layer] = []
    for _ in range(BLOCKS):
        mixing: list[Layer] = [norm(), dense(WIDTH, 3 * WIDTH), Attention(WIDTH, HEADS)]
        layers.append(Residual([*mixing, dense(WIDTH, WIDTH, residual)]))
        feeding: list[Layer] = [norm(), dense(WIDTH, HIDDEN), Gelu()]
        layers.append(Residual([*feeding, dense(HIDDEN, WIDTH, residual)]))
    return [*layers, norm(), MeanTokens(), dense(WIDTH, CLASSES)]


def multiplications(tokens: int) -> int:
    """Multiply-adds of the encoder's forward pass on one sequence."""
    dense = 4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN
    return BLOCKS * tokens * (dense + 2 * tokens * WIDTH) + WIDTH * CLASSES


def parameters() -> int:
    """Number of weights of all layers, without biases and norms."""
    return BLOCKS * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) + WIDTH * CLASSES
