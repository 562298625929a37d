"""Training a small conv net on batches that a DataLoader streams from its own processes."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from . import _digits
from ._network import (
    CONVOLUTIONS,
    convnet_multiplications,
    cross_entropy,
    forward,
    relative_error,
    untrained_convnet,
)
from ._torch import TorchTask, arithmetic, module, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEARNING_RATE = 0.01
MOMENTUM = 0.9
CHECKED = 8  # pictures
# The gradient's relative error; several times what is measured on the initial network.
LIMITS = {"fp32": 1e-4, "tf32": 2e-2, "bf16": 0.15, "fp16": 2e-2}


class TrainCnn(Workload):
    """SGD with momentum on coloured, randomly cropped pictures of real digits, made as they go.

    A step fetches a batch, moves it to the device, and does forward, backward and the update.
    """

    name = "train_cnn"
    title = "Conv net training from a stream"
    teaches = "Big batches of convolutions suit a GPU, as long as the CPU cuts batches fast enough."
    parameters = (
        Parameter("image", 32, "side of the square pictures", minimum=16, maximum=256, unit="px"),
        Parameter("loaders", 1, "processes that prepare batches", minimum=1, maximum=64),
    )
    default_batch = 64
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "torch", "bf16"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "tf32"),
        Variant("gpu", "torch", "bf16"),
        Variant("gpu", "torch", "fp16"),
    )

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        forward_pass = 2.0 * batch * convnet_multiplications(image)
        # Backward is a product for the weights and one for the inputs; the first layer needs
        # no gradient of its inputs.
        inputs, outputs, _ = CONVOLUTIONS[0]
        skipped = 2.0 * batch * 9 * inputs * outputs * image * image
        sides = list(itertools.accumulate(CONVOLUTIONS, lambda s, c: -(-s // c[2]), initial=image))
        activations = sum(c[1] * side**2 for c, side in zip(CONVOLUTIONS, sides[1:], strict=True))
        weights = sum(9 * inputs * outputs for inputs, outputs, _ in CONVOLUTIONS)
        return Work(
            flops=3 * forward_pass - skipped,
            bytes_moved=4.0 * (5 * weights + batch * (3 * image**2 + 4 * activations)),
            items=batch,
            item="samples",
            memory_bytes=4.0 * (4 * weights + batch * (8 * 3 * image**2 + 4 * activations)),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        return ConvNetTraining(case, setup)


class Pictures:
    """A data set without an end: batch number `index` is cut when a loader asks for it.

    Each batch has its own random generator, so the stream is the same for any number of loaders.
    """

    def __init__(self, batch: int, image: int, seed: int) -> None:
        images, labels = _digits.load()
        self.images, self.labels = images[: _digits.TRAINING], labels[: _digits.TRAINING]
        self.batch, self.image, self.seed = batch, image, seed

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        import numpy as np

        rng = np.random.default_rng((self.seed, index))
        chosen = rng.integers(0, len(self.images), self.batch)
        return _digits.photographs(self.images[chosen], self.image, rng), self.labels[chosen]


class ConvNetTraining(TorchTask):
    """One step is one optimiser step on one batch."""

    def __init__(self, case: Case, setup: Setup) -> None:
        import torch

        super().__init__(case)
        batch, image = case.batch or 1, int(case.params["image"])
        with setup.phase("build"):
            self.layers = untrained_convnet(setup.seed)
            self.pictures = Pictures(batch, image, setup.seed)
            network = module(self.layers)
        (self.network,) = to_device(setup, case, network)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=arithmetic(case) == "fp16")
        self.latest: Any = None
        with setup.phase("build"):
            self.optimiser = torch.optim.SGD(
                self.network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM
            )
            # Forked before any batch, so that the children share the pictures' memory.  They
            # wait on pipes without a time limit: a task that is frozen and resumed goes on.
            forked = multiprocessing.get_context("fork") if sys.platform == "linux" else None
            self.loader: Any = torch.utils.data.DataLoader(
                self.pictures,
                batch_size=None,  # the data set gives whole batches
                sampler=itertools.count(),
                num_workers=int(case.params["loaders"]),
                persistent_workers=True,
                pin_memory=self.device.type == "cuda",
                multiprocessing_context=forked,
            )
            self.batches: Any = iter(self.loader)

    def step(self) -> None:
        batch, labels = next(self.batches)
        self.optimiser.zero_grad(set_to_none=True)
        self.latest = self._backward(batch, labels)
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def _backward(self, batch: Any, labels: Any) -> Any:
        """The loss on a batch from the host; the (scaled) gradients are left in the weights."""
        import torch

        mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arithmetic(self.case))
        batch = batch.to(self.device, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, dtype=mixed, enabled=mixed is not None):
            loss = torch.nn.functional.cross_entropy(self.network(batch), labels)
        self.scaler.scale(loss).backward()
        return loss.detach()

    def check(self) -> Accuracy:
        """Loss and gradient of a few pictures at the initial weights, against float64.

        The loss is NumPy's; the gradient is torch's on the CPU.
        """
        import torch

        pictures, labels = self.pictures[0]
        pictures, labels = pictures[:CHECKED], labels[:CHECKED]
        batch, classes = torch.from_numpy(pictures), torch.from_numpy(labels)
        loss, gradient = self._gradient(batch, classes)

        expected_loss = cross_entropy(forward(self.layers, pictures), labels)
        exact = module(self.layers).double()
        torch.nn.functional.cross_entropy(exact(batch.double()), classes).backward()
        expected = torch.cat([p.grad.ravel() for p in exact.parameters()])

        error = max(
            abs(loss / expected_loss - 1),
            relative_error(gradient.float().cpu().numpy(), expected.numpy()),
        )
        limit = LIMITS[self.case.precision]
        reference = f"float64 loss (NumPy) and gradient (torch) of {CHECKED} pictures"
        return Accuracy("relative_error", error, reference, limit, error <= limit)

    def _gradient(self, batch: Any, labels: Any) -> tuple[float, Any]:
        """Loss and gradient; where FP16 overflows the loss scale is lowered, as in training."""
        import torch

        while True:
            loss, scale = self._backward(batch, labels), self.scaler.get_scale()
            parts = [p.grad.ravel() / scale for p in self.network.parameters()]
            self.optimiser.zero_grad(set_to_none=True)
            gradient = torch.cat(parts)
            if scale <= 1 or bool(gradient.isfinite().all()):
                return float(loss.item()), gradient
            self.scaler.update(scale / 2)

    def loss(self) -> float | None:
        return None if self.latest is None else float(self.latest.item())

    def close(self) -> None:
        # The loader ends its processes when nobody holds its iterator; it holds it itself, too.
        self.batches = None
        self.loader = None


WORKLOAD = TrainCnn()
