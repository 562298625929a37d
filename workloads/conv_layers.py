"""Forward and backward through two 3x3 convolutions, most of the work in vision networks."""

from collections.abc import Sequence
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import np, torch

from ._shared.network import he, relative_error, worst
from ._shared.torch_task import TorchTask, dtype_of, to_device

CHANNELS = (64, 128, 256)
# Several times the measured error; ReLUs that switch near zero cost BF16 most.
LIMITS = {"fp32": 1e-4, "tf32": 5e-2, "bf16": 0.1}
CORNER = 10  # rows and columns that the check compares


class ConvLayers(Workload):
    """64 to 128 to 256 channels, 3x3, ReLU after each; gradients of the input and all weights.
    Mode "nhwc" keeps the channels of a pixel together, the layout that suits tensor cores."""

    name = "conv_layers"
    title = "Convolution layers, forward and backward"
    teaches = "Convolutions reuse every number often, so arithmetic and memory layout decide."
    parameters = (
        Parameter("image", 32, "side of the square input", minimum=4, maximum=1024, unit="px"),
    )
    default_batch = 8
    quick = {"batch": 1}
    small = {"batch": 1, "image": 4}
    convolves = True
    variants = (
        *(Variant("cpu", "torch", precision) for precision in ("fp32", "bf16")),
        Variant("cpu", "torch", "bf16", mode="nhwc"),
        *(Variant("gpu", "torch", precision) for precision in ("fp32", "tf32", "bf16")),
        Variant("gpu", "torch", "bf16", mode="nhwc"),
    )

    def work(self, case: Case) -> Work:
        pixels = (case.batch or 1) * int(case.params["image"]) ** 2
        low, middle, high = CHANNELS
        weights = 9 * (low * middle + middle * high)
        size = case.element_bytes
        # Input and output of each layer, and the gradients of both.
        values = 2 * pixels * (low + 2 * middle + 2 * high)
        return Work(
            flops=3 * 2.0 * pixels * weights,  # forward, input gradient, weight gradient
            bytes_moved=float(size * (values + 3 * weights)),
            items=case.batch or 1,
            item="samples",
            memory_bytes=float(size * (2 * values + 4 * weights)),
            transfers="setup",
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        return ConvStep(case, setup)


class ConvStep(TorchTask):
    """One step is one forward and backward pass with a given gradient of the output."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        rng = np.random.default_rng(setup.seed)
        batch, image = case.batch or 1, int(case.params["image"])
        low, middle, high = CHANNELS
        with setup.phase("build"):
            self.arrays = (
                rng.standard_normal((batch, low, image, image), dtype=np.float32),
                he(rng, middle, low, 3, 3),
                he(rng, high, middle, 3, 3),
            )
            order = torch.channels_last if case.mode == "nhwc" else torch.contiguous_format
            tensors = [
                torch.from_numpy(array).to(dtype_of(case)).contiguous(memory_format=order)
                for array in self.arrays
            ]
        self.leaves = [leaf.requires_grad_() for leaf in to_device(setup, case, *tensors)]
        self.output: Any = None

    def step(self) -> None:
        self.output, _ = both_passes(self.leaves)

    def check(self) -> Accuracy:
        """A full-size pass in which only the last corner of the last image's output counts.  Torch
        uses the same kernels as in the timed steps, but the weight gradients depend on that corner
        only, for which the float64 reference needs two more pixels: the reach of two layers."""
        near = (slice(-1, None), slice(None), *[slice(-CORNER - 2, None)] * 2)
        inputs, *weights = map(torch.from_numpy, self.arrays)
        exact = [leaf.double().requires_grad_() for leaf in (inputs[near], *weights)]
        results = []
        for leaves in (self.leaves, exact):
            output, (inner, *others) = both_passes(leaves, corner=True)
            parts = (output[-1:, :, -CORNER:, -CORNER:], inner[near], *others)
            results.append([part.cpu().double().contiguous().numpy() for part in parts])
        error = worst(map(relative_error, *results))
        name = "output and gradients of one corner, float64 torch on the CPU; the worst of four"
        return Accuracy.within(error, LIMITS[self.case.precision], name)

    def result(self) -> Any:
        return self.output


def both_passes(leaves: Sequence[Any], *, corner: bool = False) -> tuple[Any, Any]:
    """The output, and the gradients of half its square; `corner`: of the last image's corner."""
    inputs, first, second = leaves
    hidden = torch.relu(torch.conv2d(inputs, first, padding=1))
    output = torch.relu(torch.conv2d(hidden, second, padding=1))
    signal = output.detach()
    if corner:
        mask = torch.zeros_like(signal[:, :1])
        mask[-1:, :, -CORNER:, -CORNER:] = 1
        signal = signal * mask
    return output.detach(), torch.autograd.grad(output, leaves, signal)


WORKLOAD = ConvLayers()
