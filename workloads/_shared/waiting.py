"""The share of its time in which a device has no batch to work on."""

import time
from typing import Any

from workbench.contract import WAITING_FRACTION, Case

from .._backends.torch import library_of
from .torch_task import TorchTask
from .training import TrainingTask

AHEAD = 2  # batches that each loader process makes in advance: DataLoader's prefetch_factor


def mark(device: Any) -> Any:
    """The time now, or on a GPU an event after all queued work."""
    if device.type == "cpu":
        return time.perf_counter()
    event = library_of(device.type).Event(enable_timing=True)
    event.record()
    return event


class FedTask(TorchTask):
    """A task whose batches come from the processes of a DataLoader.  A step's `mark`s
    alternate: the device starts to wait, the batch has come.  The step lasts from the first mark to
    the last."""

    waits = True
    loader: Any = None
    batches: Any = None  # the iterator of the loader, if one lasts longer than a step

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.marks: list[list[Any]] = []  # one list for each step since `activate`

    def activate(self) -> None:
        super().activate()
        self.marks.clear()

    def metrics(self) -> dict[str, float]:
        """`waiting_fraction`: the share of the time in which the device waits for a batch."""

        def between(start: Any, end: Any) -> float:
            return float(end - start if self.device.type == "cpu" else start.elapsed_time(end))

        waited = total = 0.0
        for marks in self.marks:
            waited += sum(map(between, marks[::2], marks[1::2]))
            total += between(marks[0], marks[-1])
        return {WAITING_FRACTION: waited / total} if total else {}

    def close(self) -> None:
        # The loader ends its processes when its iterator is deleted, which it may hold as well.
        self.batches = self.loader = None


class FedTraining(FedTask, TrainingTask):
    """One step is one optimiser step on the next of `batches`."""

    workers = 0  # loader processes that make batches while others are timed

    def activate(self) -> None:
        super().activate()
        for _ in range(AHEAD * self.workers):  # made while nothing was timed
            next(self.batches)

    def batch(self) -> Any:
        return next(self.batches)

    def step(self) -> None:
        began = mark(self.device)
        batch = self.batch()
        arrived = mark(self.device)
        self.update(batch)
        self.marks.append([began, arrived, mark(self.device)])
