"""Training a small conv net on batches that the processes of a DataLoader prepare."""

import itertools
from collections.abc import Sequence
from typing import Any

from workbench.contract import Accuracy, Case, Host, Parameter, Setup, Task, Work, Workload
from workbench.worker.libraries import np, torch

from ._shared import optdigits
from ._shared.network import CONVOLUTIONS, convnet_multiplications, untrained_convnet
from ._shared.torch_task import module
from ._shared.training import CONVOLVING, IGNORED, compare, loader, require_shared_memory
from ._shared.waiting import AHEAD, FedTraining

LEARNING_RATE = 0.01
MOMENTUM = 0.9
CHECKED = 8  # pictures
MOST_LOADERS = 64
LEAST_IMAGE = 16  # pixels
# Limits of the gradient's relative error: several times the error of the initial network.  In FP32
# it is 1e-6, but up to 2e-3 where rounding moves one activation across the kink of a ReLU.
LIMITS = {"fp32": 1e-2, "tf32": 0.1, "bf16": 0.3, "fp16": 0.1}


class TrainCnn(Workload):
    """SGD with momentum on coloured, randomly cropped pictures of real digits, made on the fly.  A
    step fetches a batch, moves it to the device, and does forward, backward and the update."""

    name = "train_cnn"
    title = "Conv net training from a stream"
    teaches = "Big batches of convolutions suit a GPU if the CPU prepares them fast enough."
    parameters = (
        Parameter("image", 32, "side of the square pictures", LEAST_IMAGE, 256, unit="px"),
        Parameter("loaders", 1, "processes that prepare batches", 1, MOST_LOADERS, tuning=True),
    )
    default_batch = 64
    quick = {"batch": 16}
    # With fewer than four pictures the cost of calls would hide an emulation.
    small = {"batch": 4, "image": LEAST_IMAGE}
    convolves = True
    variants = CONVOLVING

    def tuning_values(self, parameter: str, host: Host, device_kind: str) -> Sequence[int]:
        if device_kind == "cpu":
            return []  # one loader keeps ahead of a CPU, and more would take its cores
        some = max(1, min(host.cores // 4, MOST_LOADERS // 2))
        return list(dict.fromkeys((some, 1, min(2 * some, host.cores))))

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        forward_pass = 2.0 * batch * convnet_multiplications(image)
        # Backward is one product for the weights and one for the inputs, except in the first layer,
        # which needs no gradient of its inputs.
        inputs, outputs, _ = CONVOLUTIONS[0]
        skipped = 2.0 * batch * 9 * inputs * outputs * image * image
        sides = list(itertools.accumulate(CONVOLUTIONS, lambda s, c: -(-s // c[2]), initial=image))
        activations = sum(c[1] * side**2 for c, side in zip(CONVOLUTIONS, sides[1:], strict=True))
        weights = sum(9 * inputs * outputs for inputs, outputs, _ in CONVOLUTIONS)
        size = case.element_bytes  # bytes of an activation, which autocast halves
        return Work(
            flops=3 * forward_pass - skipped,
            bytes_moved=4.0 * (5 * weights + batch * (3 * image**2 + size * activations)),
            items=batch,
            item="samples",
            memory_bytes=4.0 * (4 * weights + batch * (8 * 3 * image**2 + 4 * activations)),
            transfers="step",
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        loaders, pixels = int(case.tuning.get("loaders", 1)), int(case.params["image"]) ** 2
        require_shared_memory(loaders, AHEAD, 4 * 3 * pixels * (case.batch or 1))
        return ConvNetTraining(case, setup)


class PictureStream:
    """An endless data set: batch number `index` is made when a loader asks for it.  Each batch has
    its own random generator, so the stream is the same for any number of loaders."""

    def __init__(self, batch: int, image: int, seed: int) -> None:
        images, labels = optdigits.load()
        self.images, self.labels = images[: optdigits.TRAINING], labels[: optdigits.TRAINING]
        self.batch, self.image, self.seed = batch, image, seed

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Pictures in FP32 (batch, 3, image, image), and their labels (batch)."""
        rng = np.random.default_rng((self.seed, index))
        chosen = rng.integers(0, len(self.images), self.batch)
        return optdigits.coloured(self.images[chosen], self.image, rng), self.labels[chosen]


class ConvNetTraining(FedTraining):
    """One step is one optimiser step on one batch, fetched from the loaders."""

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        batch, image = case.batch or 1, int(case.params["image"])
        with setup.phase("build"):
            self.layers = untrained_convnet(setup.seed)
            self.pictures = PictureStream(batch, image, setup.seed)
            network = module(self.layers)
        self.make_ready(setup, network, torch.optim.SGD, lr=LEARNING_RATE, momentum=MOMENTUM)
        self.compile(setup, tuple(map(torch.from_numpy, self.pictures[0])))
        with setup.phase("build"):
            workers, numbers = int(case.tuning.get("loaders", 1)), itertools.count()
            self.loader = loader(
                self.pictures, numbers, workers, pin=self.on_gpu, persistent_workers=True
            )
            self.batches = iter(self.loader)  # forks before the first batch
        self.together = workers
        self.workers = workers if workers > 1 else 0

    def check(self) -> Accuracy:
        """Compare loss and gradient of a few pictures at the initial weights with float64.  The
        rest of the batch passes through uncounted, so the kernels are those of timed steps."""
        pictures, labels = self.pictures[0]
        counted = labels.copy()
        counted[CHECKED:] = IGNORED
        found = self.gradient((torch.from_numpy(pictures), torch.from_numpy(counted)))

        inputs, targets = (torch.from_numpy(array[:CHECKED]) for array in (pictures, labels))
        what, limit = f"{len(targets)} pictures", LIMITS[self.case.precision]
        return compare(found, module(self.layers), inputs, targets, what, limit)


WORKLOAD = TrainCnn()
