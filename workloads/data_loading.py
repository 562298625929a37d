"""Feeding a device with pictures: how many loaders it needs, and how long it waits for them."""

from collections.abc import Iterator, Sequence
from typing import Any

from workbench.contract import (
    Accuracy,
    Case,
    Host,
    Parameter,
    ParameterValues,
    Profile,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)
from workbench.worker.libraries import np, torch

from ._shared import pictures
from ._shared.network import untrained_convnet, worst
from ._shared.torch_task import module, to_device
from ._shared.training import exact_gradient, loader, require_shared_memory, train_step
from ._shared.waiting import FedTask, mark

GENERATED = "generated"
PHOTOGRAPHS = 48  # generated ones; every epoch cuts them anew
CONVOLUTIONS = ((3, 16, 4), (16, 32, 2), (32, 64, 2))  # as in `_shared.network`, but little work
LEARNING_RATE = 0.01
CHECKED = 4  # pictures
MOST_LOADERS = 64
LOADER_BYTES = 50e6  # resident in a loader, beyond what it shares with its parent


class DataLoading(Workload):
    """Decodes pictures, cuts, flips and resizes them, and trains a small conv net with them.  One
    step is an epoch of `batches` batches.  It begins and ends with empty queues, so no batch is
    prepared in another candidate's turn, and `persistent=no` pays for its new processes."""

    name = "data_loading"
    title = "Data loading"
    teaches = "A device waits for its data unless enough loaders decode ahead of it."
    parameters = (
        Parameter("image", 224, "side of the training pictures", 16, 1024, unit="px"),
        Parameter("batches", 32, "batches in an epoch", minimum=1, maximum=100_000),
        Parameter("images", GENERATED, f"{GENERATED}, or a folder with your own pictures"),
        Parameter("format", "jpeg", "file format of generated pictures", choices=pictures.FORMATS),
        Parameter("loaders", 2, "decoding processes; 0: none", 0, MOST_LOADERS, tuning=True),
        Parameter("prefetch", 2, "batches that each loader prepares ahead", 1, 16, tuning=True),
        Parameter(
            "pinned", "no", "batches in page-locked memory", choices=("no", "yes"), tuning=True
        ),
        Parameter(
            "persistent", "yes", "loaders survive an epoch", choices=("yes", "no"), tuning=True
        ),
    )
    default_batch = 16
    quick = {"batches": 8, "image": 128}
    variants = (Variant("cpu", "torch", "fp32"), Variant("gpu", "torch", "fp32"))

    def tuning_values(self, parameter: str, host: Host, device_kind: str) -> ParameterValues:
        if parameter == "loaders":
            return sorted({min(n, MOST_LOADERS) for n in (0, 1, host.cores // 2, host.cores)})
        if parameter == "pinned" and device_kind == "gpu":
            return ["yes", "no"]
        return super().tuning_values(parameter, host, device_kind)

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        samples, pixels = batch * int(case.params["batches"]), 3.0 * image**2
        loaders, ahead = int(case.tuning["loaders"]), int(case.tuning["prefetch"])
        # Each layer has half the activations of the layer before.  There are three arrays of each:
        # activations, gradients, and the mask that ReLU keeps.
        channels, stride = CONVOLUTIONS[0][1:]
        activations = 3 * 2 * channels * (image / stride + 1) ** 2
        trained = 4 * batch * (2 * pixels + activations)
        loading = LOADER_BYTES * (1 + loaders) + batch * pixels * (loaders * ahead + 2)
        return Work(
            flops=None,  # the network is a stand-in; feeding it is what is measured
            bytes_moved=samples * pixels * (1 + 4),
            items=samples,
            item="images",
            memory_bytes=trained + (loading if case.device_kind == "cpu" else 0.0),
            transfers="step",
            host_bytes=0.0 if case.device_kind == "cpu" else loading,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        if case.device_kind == "cpu" and case.tuning["pinned"] == "yes":
            hint = "omit pinned=yes on the CPU"
            raise WorkloadError("pinned memory is for copies to a GPU", hint=hint)
        loaders, ahead = int(case.tuning["loaders"]), int(case.tuning["prefetch"])
        pixels = int(case.params["image"]) ** 2
        require_shared_memory(loaders, ahead, 3 * pixels * (case.batch or 1))
        name = str(case.params["images"])
        sources: Sequence[pictures.Source]
        if name == GENERATED:
            sources = pictures.encoded(PHOTOGRAPHS, str(case.params["format"]), setup.seed)
        else:
            sources = pictures.in_folder(name, setup.seed)
        return Feeding(case, setup, sources)


class Epoch:
    """The sample numbers of one epoch, batch by batch; set `number` before each."""

    def __init__(self, batch: int, batches: int) -> None:
        self.batch, self.batches, self.number = batch, batches, 0

    def __iter__(self) -> Iterator[range]:
        for index in range(self.number * self.batches, (self.number + 1) * self.batches):
            yield range(index * self.batch, (index + 1) * self.batch)


class Feeding(FedTask):
    """One step trains on all batches of one epoch."""

    def __init__(self, case: Case, setup: Setup, sources: Sequence[pictures.Source]) -> None:
        super().__init__(case)
        with setup.phase("build"):
            self.layers = untrained_convnet(setup.seed, CONVOLUTIONS)
            network = module(self.layers).to(memory_format=torch.channels_last)
            scales = [torch.tensor(of).reshape(3, 1, 1) * 255 for of in pictures.SCALES]
        self.network, self.mean, self.std = to_device(setup, case, network, *scales)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)
        self.pictures = pictures.RandomCrops(sources, int(case.params["image"]), setup.seed)
        self.epoch = Epoch(case.batch or 1, int(case.params["batches"]))
        loaders = int(case.tuning["loaders"])
        self.loader = loader(
            self.pictures,
            self.epoch,
            loaders,
            pin=case.tuning["pinned"] == "yes" and self.on_gpu,
            prefetch_factor=int(case.tuning["prefetch"]),
            persistent_workers=case.tuning["persistent"] == "yes",
        )

    def step(self) -> None:
        marks = [mark(self.device)]
        for found in self.loader:
            marks.append(mark(self.device))
            inputs = self._inputs(*self._received(found))
            self.latest_loss = train_step(self.network, self.optimiser, *inputs)
            marks.append(mark(self.device))
        marks.append(mark(self.device))
        self.marks.append(marks)
        self.epoch.number += 1

    def profile(self, steps: int) -> Profile:
        if self.on_gpu and self.case.tuning["persistent"] == "no":
            text = "loaders that start under NVIDIA's profiler may hang"
            raise WorkloadError(text, code="no_profiler", hint="use --set persistent=yes")
        return super().profile(steps)

    def _received(self, found: Any) -> tuple[Any, Any]:
        if isinstance(found, str):
            raise pictures.bad_input(found)
        return found[0], found[1]

    def _inputs(self, pixels: Any, labels: Any) -> tuple[Any, Any]:
        """A batch from host memory as the network's inputs and labels, on the device."""
        pixels = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        labels = labels.to(self.device, non_blocking=True)
        return pixels.float().sub_(self.mean).div_(self.std), labels

    def check(self) -> Accuracy:
        """Compare pictures and initial loss of the first batch with float64."""
        pixels, labels = (part[:CHECKED] for part in self._received(next(iter(self.loader))))
        with torch.no_grad():
            inputs, targets = self._inputs(pixels, labels)
            found = torch.nn.functional.cross_entropy(self.network(inputs), targets)
        loss = float(found.item())
        samples = range(len(pixels))
        exact = np.stack([self.pictures.picture(sample, exact=True) for sample in samples])
        due = [self.pictures.label(sample) for sample in samples]
        standardised = torch.from_numpy(pictures.normalise(pixels.numpy()))
        expected, _ = exact_gradient(module(self.layers), standardised, torch.tensor(due))
        error = worst([np.abs(pixels.numpy() - exact).max() / 255, abs(loss / expected - 1)])
        limit = pictures.EIGHT_BIT_LIMIT
        reference = f"float64 resize (NumPy) and loss (torch) of {len(pixels)} pictures; 1 is white"
        return Accuracy.within(error, limit, reference)


WORKLOAD = DataLoading()
