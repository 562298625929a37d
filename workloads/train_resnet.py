"""Training a residual network on CIFAR-shaped pictures in the device's memory."""

from collections.abc import Iterator
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Work, Workload
from workbench.worker.libraries import nn, np, torch

from ._shared import optdigits
from ._shared.network import CLASSES, he
from ._shared.torch_task import initialise, to_device
from ._shared.training import CONVOLVING, TrainingTask, compare, require_batch, shuffled_batches

SIDE = 32
WIDTHS = (16, 32, 64)  # channels of the three stages
POOL = 4_096  # pictures, made once
SGD_SETTINGS = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}
CHECKED = 8  # pictures
CHECKED_SHIFT = 2.0  # standard deviations; the ReLU then cuts off 2 % of the values
# Limits of the gradient's relative error: several times the measured error.  FP32 is at 2e-5, and
# at 5e-3 where a value happens to lie on the kink of its ReLU.
LIMITS = {"fp32": 2e-2, "tf32": 0.25, "bf16": 0.5, "fp16": 0.25}


class TrainResnet(Workload):
    """The CIFAR network of He et al. 2016, section 4.2, with 6 x `blocks` + 2 layers of weights.
    Where size and channels change, the shortcut is a 1 x 1 convolution.  Shuffled batches come from
    4,096 coloured pictures (3, 32, 32) of real digits.  SGD with momentum."""

    name = "train_resnet"
    title = "Residual network training"
    teaches = (
        "Many small layers in a row leave a GPU idle with small batches and fill it with big ones."
    )
    parameters = (Parameter("blocks", 3, "residual blocks in each of the three stages", 1, 9),)
    default_batch = 64
    quick = {"batch": 16, "blocks": 1}
    convolves = True
    variants = CONVOLVING

    def work(self, case: Case) -> Work:
        batch, layers = case.batch or 1, list(convolutions(int(case.params["blocks"])))
        counted = [i * o * kernel**2 * side**2 for i, o, kernel, side in layers]
        dense = WIDTHS[-1] * CLASSES
        # Forward is one product, backward two: for the weights and for the inputs.  The first
        # layer needs no gradient of its inputs.
        multiplications = 3 * (sum(counted) + dense) - counted[0]
        weights = sum(i * o * kernel**2 + 2 * o for i, o, kernel, _ in layers) + dense
        outputs = sum(o * side**2 for _, o, _, side in layers)
        pictures = 3 * SIDE**2
        return Work(
            flops=2.0 * batch * multiplications,
            # Each layer's output and its gradient, which autocast halves, are written and read; SGD
            # reads weights, gradients and momentum, and writes them.
            bytes_moved=4.0 * (batch * (2 * pictures + case.element_bytes * outputs) + 6 * weights),
            items=batch,
            item="samples",
            # Backward keeps each layer's output before and after its normalisation; the check
            # holds the weights in float64 too.
            memory_bytes=4.0 * (batch * (2 * pictures + 3 * outputs) + 10 * weights)
            + 4.0 * 3 * POOL * pictures
            + 8.0 * CHECKED * 3 * outputs,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        require_batch(case, POOL, "pictures")
        return ResnetTraining(case, setup)


class ResnetTraining(TrainingTask):
    """One step is one optimiser step on the next batch of a shuffled epoch."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        self.blocks, self.seed = int(case.params["blocks"]), setup.seed
        with setup.phase("build"):
            images, labels = optdigits.load()
            chosen = np.arange(POOL) % optdigits.TRAINING
            rng = np.random.default_rng(setup.seed)
            self.pictures = torch.from_numpy(optdigits.coloured(images[chosen], SIDE, rng))
            self.labels = torch.from_numpy(labels[chosen])
            network = resnet(self.blocks, self.seed)
        self.pictures, self.labels = to_device(setup, case, self.pictures, self.labels)
        self.make_ready(setup, network, torch.optim.SGD, **SGD_SETTINGS)
        self.batches = shuffled_batches(POOL, case.batch or 1, setup.seed, self.device)
        self.compile(setup, [x[: case.batch or 1] for x in (self.pictures, self.labels)])

    def batch(self) -> tuple[Any, Any]:
        chosen = next(self.batches)
        return self.pictures[chosen], self.labels[chosen]

    def check(self) -> Accuracy:
        """Compare loss and gradient of a few pictures at the initial weights with float64.

        A batch of full size repeats the few: its loss, gradient, and BatchNorm's mean and variance
        equal theirs.  There are two at least, in one more than the batch if need be: the means of a
        single picture, once it is normalised, hardly depend on the weights.  Each normalisation is
        shifted.  Otherwise half of a layer's values are near the kink of the ReLU, where rounding
        decides whether a gradient passes.  In BF16 that alone makes the gradient of ResNet-20 35 %
        wrong.
        """
        batch = self.case.batch or 1
        few = next((n for n in range(CHECKED, 1, -1) if batch % n == 0), 2)
        chosen = torch.arange(batch + batch % few, device=self.device) % few
        pictures, labels = self.pictures[chosen], self.labels[chosen]
        exact = resnet(self.blocks, self.seed)
        for network in (exact, self.network):
            shift(network, CHECKED_SHIFT)
        found = self.gradient((pictures, labels))
        shift(self.network, 0.0)
        what, limit = f"{few} pictures", LIMITS[self.case.precision]
        return compare(found, exact, pictures[:few], labels[:few], what, limit)


def convolutions(blocks: int) -> Iterator[tuple[int, int, int, int]]:
    """Inputs, outputs, kernel and side of the output of each convolution."""
    yield 3, WIDTHS[0], 3, SIDE
    inputs = WIDTHS[0]
    for stage, outputs in enumerate(WIDTHS):
        side = SIDE >> stage
        for block in range(blocks):
            yield inputs, outputs, 3, side
            yield outputs, outputs, 3, side
            if block == 0 and inputs != outputs:
                yield inputs, outputs, 1, side
            inputs = outputs


def resnet(blocks: int, seed: int) -> Any:
    """The network in FP32 on the CPU: pictures (batch, 3, 32, 32) to logits (batch, 10).  He
    initialisation; the scales of BatchNorm are one, all biases zero."""

    def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[Any]:
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        return [layer, nn.BatchNorm2d(outputs)]

    class ResidualBlock(nn.Module):  # type: ignore[misc]  # torch is not typed here
        """Two 3 x 3 convolutions, added to the block's input."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            stride = 1 if inputs == outputs else 2
            self.residual = nn.Sequential(
                *convolution(inputs, outputs, 3, stride),
                nn.ReLU(),
                *convolution(outputs, outputs, 3, 1),
            )
            shortcut = [] if stride == 1 else convolution(inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(*shortcut)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.residual(x) + self.shortcut(x))

    parts = [*convolution(3, WIDTHS[0], 3, 1), nn.ReLU()]
    inputs = WIDTHS[0]
    for outputs in WIDTHS:
        for _ in range(blocks):
            parts.append(ResidualBlock(inputs, outputs))
            inputs = outputs
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES)]
    return initialise(nn.Sequential(*parts), seed, lambda rng, _, shape: he(rng, *shape))


def shift(network: Any, value: float) -> None:
    """Set the bias of every BatchNorm."""
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.bias.fill_(value)


WORKLOAD = TrainResnet()
