"""Training a small decoder-only transformer on a stream of tokens in the device's memory."""

from collections import OrderedDict
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Work, Workload, WorkloadError
from workbench.worker.libraries import nn, np, torch

from ._shared.torch_task import initialise, self_attention, to_device
from ._shared.training import (
    IGNORED,
    VARIANTS,
    TrainingTask,
    compare,
    require_batch,
    shuffled_batches,
)

VOCABULARY = 256
SUCCESSORS = 8  # tokens that may follow a token
STREAM = 1 << 20  # tokens
HEAD = 64  # channels of an attention head
DEVIATION = 0.02  # standard deviation of the initial weights (Radford et al. 2019)
LEARNING_RATE = 1e-3
CHECKED = 2  # sequences
CHECKED_TOKENS = 256
# Limits of the gradient's relative error: several times the error of the initial network.
LIMITS = {"fp32": 3e-5, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}


class TrainGpt(Workload):
    """GPT-2's blocks (Radford et al. 2019): normalisation first, causal attention through
    scaled_dot_product_attention, a dense layer of four times the width with GELU.

    Positions are learned; the head shares its weights with the token embedding.  AdamW minimises
    the next token's cross-entropy.  The stream is a Markov chain in which one of eight tokens
    follows each of 256: the loss falls from 5.5 towards the chain's entropy, 1.8 nats.
    """

    name = "train_gpt"
    title = "Small GPT training"
    teaches = "A transformer is mostly large products: precision and batch size decide its speed."
    parameters = (
        Parameter("tokens", 128, "context length of a sequence", minimum=8, maximum=4096),
        Parameter("width", 256, "channels, a multiple of 64", minimum=HEAD, maximum=4096),
        Parameter("blocks", 4, "blocks of attention and dense layers", minimum=1, maximum=48),
    )
    default_batch = 16
    quick = {"batch": 4, "tokens": 64, "width": 128, "blocks": 2}
    variants = VARIANTS

    def work(self, case: Case) -> Work:
        length, width, blocks = (int(case.params[n]) for n in ("tokens", "width", "blocks"))
        tokens = (case.batch or 1) * length
        on_gpu = case.device_kind == "gpu"
        matrices = 12 * width**2 * blocks + VOCABULARY * width
        weights = matrices + width * (length + 13 * blocks + 2)
        # A token attends to itself and to those before it, (length + 1) / 2 on average: queries
        # times keys, then weights times values.
        attention = blocks * width * (length + 1)
        # Saved per token and block: 2 inputs and outputs of normalisations, queries, keys and
        # values, attention's output twice, and the dense layer before and after its GELU.
        saved = blocks * 18 * width + 4 * width + 4 * VOCABULARY
        return Work(
            flops=3 * 2.0 * tokens * (matrices + attention),
            # Activations, which autocast halves, are written and read; AdamW reads weights,
            # gradients and two moments, and writes all but the gradients.
            bytes_moved=2.0 * case.element_bytes * tokens * saved + 36.0 * weights,
            items=tokens,
            item="tokens",
            # A step holds weights, gradients, two moments and as much again.  The check, on the
            # host, holds weights and gradients in float64, and the gradients to compare.
            memory_bytes=4.0 * (1.3 * tokens * saved + (5 if on_gpu else 10) * weights)
            + 16.0 * STREAM,
            host_bytes=20.0 * weights if on_gpu else 0.0,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        width, length = int(case.params["width"]), int(case.params["tokens"])
        if width % HEAD:
            text = f"a width of {width} is not a multiple of {HEAD}, the width of a head"
            hint = f"use --set width={width + HEAD - width % HEAD}"
            raise WorkloadError(text, code="bad_input", hint=hint)
        require_batch(case, (STREAM - 1) // length, f"sequences of {length} tokens")
        return GptTraining(case, setup)


class GptTraining(TrainingTask):
    """One step is one optimiser step on the next batch of a shuffled epoch."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.length = int(case.params["tokens"])
        self.shape = self.length, int(case.params["width"]), int(case.params["blocks"]), setup.seed
        with setup.phase("build"):
            stream = torch.from_numpy(markov_chain(STREAM, setup.seed))
            network = gpt(*self.shape)
        (stream,) = to_device(setup, case, stream)
        # Each sequence has one more token, its last target, which starts the next sequence.
        self.sequences = stream.unfold(0, self.length + 1, self.length)
        self.make_ready(setup, network, torch.optim.AdamW, lr=LEARNING_RATE)
        self.batches = shuffled_batches(
            len(self.sequences), case.batch or 1, setup.seed, self.device
        )
        self.compile(setup, self._take(slice(case.batch)))

    def batch(self) -> tuple[Any, Any]:
        return self._take(next(self.batches))

    def _take(self, rows: Any) -> tuple[Any, Any]:
        """Inputs (batch, tokens), and targets (batch * tokens): the token after each input."""
        sequences = self.sequences[rows]
        return sequences[:, :-1].contiguous(), sequences[:, 1:].flatten()

    def check(self) -> Accuracy:
        """Compare loss and gradient at the initial weights with float64.  The whole batch passes
        through the network, but only the first tokens of the first sequences count.  Causal
        attention ignores later tokens, so the reference omits them."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        inputs, targets = self._take(slice(self.case.batch))
        targets = targets.view(inputs.shape).clone()  # it may be a view of the stream
        targets[CHECKED:] = IGNORED
        targets[:, CHECKED_TOKENS:] = IGNORED
        found = self.gradient((inputs, targets.view(-1)))

        inputs, targets = (x[:CHECKED, :CHECKED_TOKENS] for x in (inputs, targets))
        what, limit = f"{targets.numel()} tokens", LIMITS[self.case.precision]
        with sdpa_kernel(SDPBackend.MATH):  # products and a softmax, no fused kernel
            return compare(found, gpt(*self.shape), inputs, targets.reshape(-1), what, limit)


def markov_chain(length: int, seed: int) -> Any:
    """Tokens (length): each has its own eight successors, the k-th in proportion to 1 / k."""
    rng = np.random.default_rng(seed)
    followers = rng.permuted(np.tile(np.arange(VOCABULARY), (VOCABULARY, 1)), axis=1).tolist()
    shares = 1 / np.arange(1, SUCCESSORS + 1)
    choices = rng.choice(SUCCESSORS, length, p=shares / shares.sum()).tolist()
    token, tokens = 0, []
    for choice in choices:
        token = followers[token][choice]
        tokens.append(token)
    return np.array(tokens, dtype=np.int64)


def gpt(length: int, width: int, blocks: int, seed: int) -> Any:
    """The network in FP32 on the CPU: tokens (batch, length) to logits (batch * length, 256).  A
    shorter input uses the first positions.  Initial weights are normal, divided by the root of the
    number of residual branches where they end one; biases are zero."""

    class Residual(nn.Sequential):  # type: ignore[misc]  # torch is not typed here
        def __init__(self, enter: Any, inner: Any, leave: Any) -> None:
            norm = nn.LayerNorm(width)
            super().__init__(OrderedDict(norm=norm, enter=enter, inner=inner, leave=leave))

        def forward(self, x: Any) -> Any:
            return x + super().forward(x)

    def block() -> list[Any]:
        attention = self_attention(width // HEAD, causal=True)
        gelu = nn.GELU("tanh")
        return [
            Residual(nn.Linear(width, 3 * width), attention, nn.Linear(width, width)),
            Residual(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width)),
        ]

    class Gpt(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(VOCABULARY, width)
            self.position = nn.Embedding(length, width)
            layers = [part for _ in range(blocks) for part in block()]
            self.blocks = nn.Sequential(*layers, nn.LayerNorm(width))

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
            return nn.functional.linear(self.blocks(x), self.token.weight).flatten(0, 1)

    def draw(rng: Any, name: str, shape: Any) -> Any:
        shrink = (2 * blocks) ** -0.5 if "leave" in name else 1.0
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(DEVIATION * shrink)

    return initialise(Gpt(), seed, draw)


WORKLOAD = TrainGpt()
