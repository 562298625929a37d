"""Answering one sequence at a time with a transformer encoder: the latency of a text service.

The blocks are pre-norm (Xiong et al., "On Layer Normalization in the Transformer Architecture",
2020): x + attention(norm(x)), then x + feed_forward(norm(x)) with GELU.  A last norm, the mean
over the tokens and one dense layer give the answer.  Inputs are embeddings, positions included.
"""

import math
from typing import Any

from workbench.contract import Case, Parameter, Setup, Task, Work, Workload
from workbench.worker.libraries import np

from ._shared import inference
from ._shared.network import CLASSES, Attention, Dense, Gelu, Layer, Mean, Norm, Residual

BLOCKS = 4
WIDTH = 256
HEADS = 4
HIDDEN = 4 * WIDTH
# Without biases and norms.
WEIGHTS = BLOCKS * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) + WIDTH * CLASSES
INPUTS = 8
CALIBRATION_INPUTS = 16
CHECKED_TOKENS = 1024  # most tokens checked in float64, but at least two sequences


class InferEncoder(Workload):
    """Four pre-norm blocks, 256 wide with 4 heads, on random embeddings of `tokens` tokens.

    All candidates share random weights.  Batches come from the host and answers return to it.
    """

    name = "infer_encoder"
    title = "Transformer encoder inference, one sequence at a time"
    teaches = (
        "A transformer is mostly matrix products: INT8, compiling and input length all matter."
    )
    parameters = (Parameter("tokens", 128, "length of the sequence", minimum=1, maximum=2048),)
    default_batch = 1
    quick = {"tokens": 32}
    small = {"batch": 1, "tokens": 8}
    latency = True
    variants = (*inference.VARIANTS, inference.BF16)

    def work(self, case: Case) -> Work:
        batch, tokens = case.batch or 1, int(case.params["tokens"])
        embeddings = batch * tokens * WIDTH
        # The activations of one block, and its scores, which ONNX Runtime stores.
        held = 2 * batch * tokens * HIDDEN + 2 * batch * HEADS * tokens**2
        drawn, on_host = inference.input_bytes(case, 4.0 * embeddings, INPUTS)
        return Work(
            flops=2.0 * batch * multiplications(tokens),
            bytes_moved=float(case.element_bytes * WEIGHTS + 4 * embeddings),
            items=batch,
            item="sequences",
            memory_bytes=4.0 * (4 * WEIGHTS + held) + drawn,
            transfers="step",
            host_bytes=on_host,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        tokens = int(case.params["tokens"])
        shape = (case.batch or 1, tokens, WIDTH)
        rng = np.random.default_rng(setup.seed + 1)  # the seed itself draws the weights

        def draw() -> Any:
            """Sequences whose tokens share a component, as the tokens of a text do.  Without it the
            mean over many tokens would be nearly the same for every sequence."""
            own = rng.standard_normal(shape, dtype=np.float32)
            common = rng.standard_normal((shape[0], 1, WIDTH), dtype=np.float32)
            return (own + common) * np.float32(np.sqrt(0.5))

        inputs = [draw() for _ in range(INPUTS)]
        calibration = (draw() for _ in range(CALIBRATION_INPUTS))
        layers = untrained(setup.seed)
        checked = max(2, CHECKED_TOKENS // tokens)
        return inference.prepare(case, setup, layers, inputs, calibration, checked)


def untrained(seed: int) -> list[Layer]:
    """Random weights with which every layer keeps the scale of its input: embeddings (batch,
    tokens, WIDTH) to answers (batch, CLASSES).

    Dense layers have variance 1 / fan-in (LeCun et al., "Efficient BackProp", 1998).  Those that
    add to the residual stream have less, as in GPT-2 (Radford et al., 2019).  Gains and biases are
    random too: a backend that omits one gives a wrong answer.
    """
    rng = np.random.default_rng(seed)

    def draw(*shape: int, scale: float) -> Any:
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
    return [*layers, norm(), Mean(), dense(WIDTH, CLASSES)]


def multiplications(tokens: int) -> int:
    """Multiply-adds of the forward pass on one sequence."""
    dense, attention = WEIGHTS - WIDTH * CLASSES, 2 * BLOCKS * tokens * WIDTH
    return tokens * (dense + attention) + WIDTH * CLASSES


WORKLOAD = InferEncoder()
