"""Forward and backward through two 3x3 convolutions, most of the work in vision networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._shared.network import conv3x3, relative_error
from ._shared.torch_task import TorchTask, dtype_of, time_to_host, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

CHANNELS = (64, 128, 256)
# Several times the measured error; ReLUs that switch near zero cost BF16 most.
LIMITS = {"fp32": 1e-4, "tf32": 5e-2, "bf16": 0.1}
CORNER = 10  # rows and columns that the check compares


class ConvLayers(Workload):
    """64 to 128 to 256 channels, 3x3, ReLU after each; gradients of the input and all weights.

    Mode "nhwc" keeps the channels of a pixel together (channels-last), the layout that suits
    tensor cores.
    """

    name = "conv_layers"
    title = "Convolution layers, forward and backward"
    teaches = "Convolutions reuse every number often, so arithmetic and memory layout decide."
    parameters = (
        Parameter("image", 32, "side of the square input", minimum=4, maximum=1024, unit="px"),
    )
    default_batch = 8
    quick: ClassVar = {"batch": 1}
    convolves = True
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "torch", "bf16"),
        Variant("cpu", "torch", "bf16", mode="nhwc"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "tf32"),
        Variant("gpu", "torch", "bf16"),
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
        import numpy as np
        import torch

        super().__init__(case)
        rng = np.random.default_rng(setup.seed)
        batch, image = case.batch or 1, int(case.params["image"])
        low, middle, high = CHANNELS

        def normal(*shape: int, fan_in: int = 2) -> Array:
            values = rng.standard_normal(shape, dtype=np.float32)
            return values * np.float32(np.sqrt(2 / fan_in))

        with setup.phase("build"):
            self.arrays = (
                normal(batch, low, image, image),
                normal(middle, low, 3, 3, fan_in=9 * low),
                normal(high, middle, 3, 3, fan_in=9 * middle),
            )
            order = torch.channels_last if case.mode == "nhwc" else torch.contiguous_format
            tensors = [
                torch.from_numpy(array).to(dtype_of(case)).contiguous(memory_format=order)
                for array in self.arrays
            ]
        self.leaves = [leaf.requires_grad_() for leaf in to_device(setup, case, *tensors)]
        self.output: Any = None

    def step(self) -> None:
        self._pass()

    def _pass(self, mask: Any = None) -> Any:
        """The gradients of half the squared (and masked) output; keeps the output."""
        import torch

        inputs, first, second = self.leaves
        hidden = torch.relu(torch.conv2d(inputs, first, padding=1))
        output = torch.relu(torch.conv2d(hidden, second, padding=1))
        self.output = output.detach()
        gradient = self.output if mask is None else self.output * mask
        return torch.autograd.grad(output, self.leaves, gradient)

    def check(self) -> Accuracy:
        """A full-size pass in which only one corner of the first image's output counts.

        Torch uses the same kernels as in the timed steps, but the weight gradients depend on that
        corner alone, which the float64 reference can compute.
        """
        import torch

        mask = torch.zeros_like(self.leaves[0][:, :1], requires_grad=False)
        mask[:1, :, :CORNER, :CORNER] = 1
        gradients = self._pass(mask)
        expected = reference(*self.arrays)
        found = (
            self.output[:1, :, :CORNER, :CORNER],
            gradients[0][:1, :, : CORNER + 2, : CORNER + 2],
            *gradients[1:],
        )
        errors = [
            relative_error(tensor.float().cpu().contiguous().numpy(), array)
            for tensor, array in zip(found, expected, strict=True)
        ]
        limit, error = LIMITS[self.case.precision], max(errors)
        name = "output and gradients of one corner, NumPy float64; the worst of four"
        return Accuracy.within(error, limit, name)

    def transfer_out_s(self) -> float | None:
        return time_to_host(self.case, self.output)


def reference(inputs: Array, first: Array, second: Array) -> tuple[Array, ...]:
    """Output and gradients of input and weights for the first image's corner, in float64.

    The input's corner is two pixels larger than the output's: the reach of two layers.
    """
    import numpy as np

    x = inputs[:1, :, : CORNER + 2, : CORNER + 2]
    hidden = np.maximum(conv3x3(x, first), 0)
    output = np.maximum(conv3x3(hidden, second), 0)
    corner = np.s_[:, :, :CORNER, :CORNER]
    signal = np.zeros_like(output)  # the gradient of half the squared output is the output
    signal[corner] = output[corner]
    second_gradient = _weight_gradient(hidden, signal)
    signal = conv3x3(signal, _turned(second)) * (hidden > 0)
    first_gradient = _weight_gradient(x, signal)
    return output[corner], conv3x3(signal, _turned(first)), first_gradient, second_gradient


def _turned(weight: Array) -> Array:
    """The weights for the backward pass: in and out exchanged, kernel rotated by 180 degrees."""
    return weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]


def _weight_gradient(x: Array, signal: Array) -> Array:
    """The gradient of a 3x3 convolution's weights; each tap sees a shifted input."""
    import numpy as np

    height, width = x.shape[2:]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [
        np.einsum(
            "nohw,nchw->oc", signal, padded[:, :, i : i + height, j : j + width], optimize=True
        )
        for i in range(3)
        for j in range(3)
    ]
    return np.stack(taps, axis=-1).reshape(*taps[0].shape, 3, 3)


WORKLOAD = ConvLayers()
