"""Feeding a device with pictures: how many loaders it takes, and how long it waits for them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from workbench.contract import (
    Accuracy,
    Case,
    Host,
    Parameter,
    ParameterValue,
    Profile,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)

from ._shared import pictures
from ._shared.network import cross_entropy, forward, untrained_convnet
from ._shared.torch_task import TorchTask, module, to_device

MADE_UP = "generated"
PHOTOGRAPHS = 48  # made up; every epoch cuts them anew
CONVOLUTIONS = ((3, 16, 4), (16, 32, 2), (32, 64, 2))  # as in `_network`; light, as on a GPU
LEARNING_RATE = 0.01
CHECKED = 4  # pictures
MOST_LOADERS = 64
LOADER_BYTES = 50e6  # resident in a loader, beyond what it shares with its parent
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where torch passes batches between processes


class DataLoading(Workload):
    """Decodes pictures, cuts, flips and resizes them, and trains a small conv net with them.

    One step is an epoch of `batches` batches: it begins and ends with empty queues, so nothing is
    prepared ahead in another candidate's turn, and `persistent=no` pays for its new processes.
    """

    name = "data_loading"
    title = "Data loading"
    teaches = "A device waits for its data unless enough loaders decode ahead of it."
    parameters = (
        Parameter("image", 224, "side of the pictures it trains on", 16, 1024, unit="px"),
        Parameter("batches", 32, "batches of an epoch", minimum=1, maximum=100_000),
        Parameter("images", MADE_UP, f"{MADE_UP}, or a folder of your own pictures"),
        Parameter("format", "jpeg", "of the generated ones", choices=tuple(pictures.ENCODERS)),
        Parameter("loaders", 2, "processes that decode; 0: none", 0, MOST_LOADERS, tuning=True),
        Parameter("prefetch", 2, "batches ahead, each loader", 1, 16, tuning=True),
        Parameter("pinned", "no", "page-locked batches", choices=("no", "yes"), tuning=True),
        Parameter(
            "persistent", "yes", "loaders outlive an epoch", choices=("yes", "no"), tuning=True
        ),
    )
    default_batch = 16
    quick: ClassVar = {"batches": 8, "image": 128}
    variants = (Variant("cpu", "torch", "fp32"), Variant("gpu", "torch", "fp32"))

    def tuning_values(
        self, parameter: str, host: Host, device_kind: str
    ) -> Sequence[ParameterValue]:
        if parameter == "loaders":
            return sorted({min(n, MOST_LOADERS) for n in (0, 1, host.cores // 2, host.cores)})
        if parameter == "pinned" and device_kind == "gpu":
            return ["yes", "no"]
        return super().tuning_values(parameter, host, device_kind)

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        samples, pixels = batch * int(case.params["batches"]), 3.0 * image**2
        loaders, ahead = int(case.tuning["loaders"]), int(case.tuning["prefetch"])
        # The first activations are the largest and each layer's are half of the one's before;
        # with their gradients and what ReLU keeps, three of each.
        channels, stride = CONVOLUTIONS[0][1:]
        activations = 3 * 2 * channels * (image / stride + 1) ** 2
        return Work(
            flops=None,  # the small net stands in for any; what counts is how it is fed
            bytes_moved=samples * pixels * (1 + 4),
            items=samples,
            item="images",
            memory_bytes=LOADER_BYTES * (1 + loaders)
            + batch * pixels * (loaders * ahead + 2)
            + 4 * batch * (2 * pixels + activations),
            transfers="step",
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        if case.device_kind == "cpu" and case.tuning["pinned"] == "yes":
            raise WorkloadError(
                "pinned memory is for copies to a GPU", hint="leave pinned=yes out on the CPU"
            )
        _require_shared_memory(case)
        name = str(case.params["images"])
        sources: Sequence[pictures.Source]
        if name == MADE_UP:
            sources = pictures.encoded(PHOTOGRAPHS, str(case.params["format"]), setup.seed)
        else:
            sources = pictures.in_folder(name, setup.seed)
        return Feeding(case, setup, sources)


def _require_shared_memory(case: Case) -> None:
    """Refuse what would end in a bus error: containers often have 64 MB only."""
    loaders, ahead = int(case.tuning["loaders"]), int(case.tuning["prefetch"])
    if not loaders or not os.path.isdir(SHARED_MEMORY):  # noqa: PTH112 - one question
        return
    needed = loaders * ahead * (case.batch or 1) * 3 * int(case.params["image"]) ** 2
    found = os.statvfs(SHARED_MEMORY)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise WorkloadError(
            f"{loaders} loaders need {needed / 1e6:.0f} MB of shared memory, {SHARED_MEMORY} has "
            f"{free / 1e6:.0f} MB",
            code="no_memory",
            hint="fewer loaders, a smaller prefetch or batch, or docker run --shm-size=1g",
        )


class Epoch:
    """The sample numbers of one epoch, batch by batch; set `number` before each."""

    def __init__(self, batch: int, batches: int) -> None:
        self.batch, self.batches, self.number = batch, batches, 0

    def __iter__(self) -> Iterator[range]:
        first = self.number * self.batches * self.batch
        for index in range(self.batches):
            start = first + index * self.batch
            yield range(start, start + self.batch)


class Feeding(TorchTask):
    """One step trains on all batches of one epoch."""

    waits = True  # for the loaders

    def __init__(self, case: Case, setup: Setup, sources: Sequence[pictures.Source]) -> None:
        import torch

        super().__init__(case)
        with setup.phase("build"):
            self.layers = untrained_convnet(setup.seed, CONVOLUTIONS)
            network = module(self.layers).to(memory_format=torch.channels_last)
            scales = [torch.tensor(of).reshape(3, 1, 1) * 255 for of in pictures.SCALES]
        self.network, self.mean, self.std = to_device(setup, case, network, *scales)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)
        self.pictures = pictures.Cuttings(sources, int(case.params["image"]), setup.seed)
        self.epoch = Epoch(case.batch or 1, int(case.params["batches"]))
        self.latest: Any = None
        self.marks: list[list[Any]] = []  # of each epoch since `activate`
        loaders = int(case.tuning["loaders"])
        ahead = {
            "prefetch_factor": int(case.tuning["prefetch"]),
            "persistent_workers": case.tuning["persistent"] == "yes",
            # Forked, so that the children share the pictures' memory; they wait without a time
            # limit, so that a task that is frozen and resumed goes on.
            "multiprocessing_context": (
                multiprocessing.get_context("fork") if sys.platform == "linux" else None
            ),
        }
        self.loader: Any = torch.utils.data.DataLoader(
            self.pictures,
            batch_size=None,  # the data set gives whole batches
            sampler=self.epoch,
            num_workers=loaders,
            pin_memory=case.tuning["pinned"] == "yes" and self.device.type == "cuda",
            **(ahead if loaders else {}),
        )

    def activate(self) -> None:
        super().activate()
        self.marks.clear()

    def step(self) -> None:
        marks = [self._mark()]
        for found in self.loader:
            marks.append(self._mark())
            self._train(*self._received(found))
            marks.append(self._mark())
        marks.append(self._mark())
        self.marks.append(marks)
        self.epoch.number += 1

    def profile(self, steps: int) -> Profile:
        if self.device.type == "cuda" and self.case.tuning["persistent"] == "no":
            raise WorkloadError(
                "loaders that start under NVIDIA's profiler may hang",
                code="no_profiler",
                hint="--set persistent=yes",
            )
        return super().profile(steps)

    def _mark(self) -> Any:
        """Now, or on CUDA the moment at which all that is queued is done."""
        if self.device.type != "cuda":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _received(self, found: Any) -> tuple[Any, Any]:
        if isinstance(found, str):
            raise pictures.bad_input(found)
        return found[0], found[1]

    def _train(self, pixels: Any, labels: Any) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._loss(pixels, labels)
        loss.backward()
        self.optimiser.step()
        self.latest = loss.detach()

    def _loss(self, pixels: Any, labels: Any) -> Any:
        """Of a batch in host memory."""
        import torch

        pixels = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        labels = labels.to(self.device, non_blocking=True)
        inputs = pixels.float().sub_(self.mean).div_(self.std)
        return torch.nn.functional.cross_entropy(self.network(inputs), labels)

    def figures(self) -> dict[str, float]:
        """`waiting_fraction`: the share of an epoch in which the device had no batch to work on.

        From the end of the work on one batch to the arrival of the next, by CUDA events on a GPU;
        the start and the end of the loaders belong to it.
        """
        waited = total = 0.0
        for marks in self.marks:
            waited += sum(map(self._between, marks[::2], marks[1::2]))
            total += self._between(marks[0], marks[-1])
        return {"waiting_fraction": waited / total} if total else {}

    def _between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end) if self.device.type == "cuda" else end - start)

    def check(self) -> Accuracy:
        """The first batch that the loaders give: its pictures against float64, from the files
        that are due, and the loss on it at the initial weights."""
        import numpy as np
        import torch

        pixels, labels = (part[:CHECKED] for part in self._received(next(iter(self.loader))))
        with torch.no_grad():
            loss = float(self._loss(pixels, labels).item())
        samples = range(len(pixels))
        exact = np.stack([self.pictures.reference(sample) for sample in samples])
        due = [self.pictures.label(sample) for sample in samples]
        inputs = pictures.normalise(pixels.numpy())
        expected = cross_entropy(forward(self.layers, inputs), np.array(due))
        error = max(
            float(np.abs(pixels.numpy() - exact).max()) / 255,
            abs(loss / expected - 1),
        )
        limit = pictures.EIGHT_BIT_LIMIT
        reference = f"float64 resize and loss (NumPy) of {len(pixels)} pictures; 1 is white"
        return Accuracy("relative_error", error, reference, limit, error <= limit)

    def loss(self) -> float | None:
        return None if self.latest is None else float(self.latest.item())

    def close(self) -> None:
        # The loader ends its processes when nobody holds its iterator; it holds it itself.
        self.loader = None


WORKLOAD = DataLoading()
