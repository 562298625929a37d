"""Answering one sequence at a time with a transformer encoder: the latency of a text service."""

from __future__ import annotations

from typing import Any, ClassVar

from workbench.contract import Case, Parameter, Setup, Task, Work, Workload

from ._shared import encoder, inference
from ._shared.encoder import HEADS, HIDDEN, WIDTH

INPUTS = 8
CALIBRATION_INPUTS = 16
CHECKED_TOKENS = 1024  # most tokens checked in float64, but at least two sequences
SMALL_TOKENS = 8  # length of a small probe


class InferEncoder(Workload):
    """Four pre-norm blocks, 256 wide with 4 heads, on random embeddings of `tokens` tokens.

    Every candidate has the same random weights.  Batches come from the host and answers return to
    it, as in a service.
    """

    name = "infer_encoder"
    title = "Transformer encoder inference, one sequence at a time"
    teaches = (
        "A transformer is mostly matrix products: INT8, compiling and input length all matter."
    )
    parameters = (Parameter("tokens", 128, "length of the sequence", minimum=1, maximum=2048),)
    default_batch = 1
    quick: ClassVar = {"tokens": 32}
    latency = True
    variants = (*inference.VARIANTS, inference.BF16)

    def work(self, case: Case) -> Work:
        batch, tokens = case.batch or 1, int(case.params["tokens"])
        weights = encoder.parameters()
        size = case.element_bytes
        embeddings = batch * tokens * WIDTH
        # All inputs, the activations of one block, and its scores, which ONNX Runtime stores.
        held = INPUTS * embeddings + 2 * batch * tokens * HIDDEN + 2 * batch * HEADS * tokens**2
        return Work(
            flops=2.0 * batch * encoder.multiplications(tokens),
            bytes_moved=float(size * weights + 4 * embeddings),
            items=batch,
            item="sequences",
            memory_bytes=4.0 * (4 * weights + held),
            transfers="step",
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        import numpy as np

        tokens = int(case.params["tokens"])
        shape = (case.batch or 1, tokens, WIDTH)
        rng = np.random.default_rng(setup.seed + 1)  # the seed itself draws the weights

        def draw() -> Any:
            """Sequences whose tokens share a component, as the tokens of a text do.

            Without it the mean over many tokens would be nearly the same for every sequence.
            """
            own = rng.standard_normal(shape, dtype=np.float32)
            common = rng.standard_normal((shape[0], 1, WIDTH), dtype=np.float32)
            return (own + common) * np.float32(np.sqrt(0.5))

        inputs = [draw() for _ in range(INPUTS)]
        calibration = (draw() for _ in range(CALIBRATION_INPUTS))
        layers = encoder.untrained(setup.seed)
        checked = max(2, CHECKED_TOKENS // tokens)
        return inference.prepare(case, setup, layers, inputs, calibration, checked)

    def small_probe(self, case: Case) -> Case | None:
        return inference.small_probe(case, "tokens", SMALL_TOKENS)


WORKLOAD = InferEncoder()
