"""Time to accuracy: training on the real digits until it recognises enough of the unseen ones."""

from __future__ import annotations

import copy
from typing import ClassVar

from workbench.contract import (
    Accuracy,
    Case,
    Parameter,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)

from ._shared import digits
from ._shared.training import require_batch
from .digits import TorchDigits, memory_bytes

MOST_EPOCHS = 100


class DigitsToAccuracy(Workload):
    """The training of `digits`, from the same initial weights to a test accuracy of `target`.

    One step is one whole training, tested on the 360 unseen digits after each epoch.  The seed
    fixes the initial weights and the order of batches on every device.  Operations are not counted,
    since the number of epochs is only known after the training.
    """

    name = "digits_to_accuracy"
    title = "Handwritten digits, time to accuracy"
    teaches = "The time until the network is good enough counts, not the speed of a single step."
    parameters = (Parameter("target", 0.97, "share of the unseen digits to recognise", 0.5, 0.98),)
    default_batch = 64
    quick: ClassVar = {"target": 0.9}
    variants = (Variant("cpu", "torch", "fp32"), Variant("gpu", "torch", "fp32"))

    def work(self, case: Case) -> Work:
        memory = memory_bytes(case.batch or 1)
        return Work(flops=None, bytes_moved=None, items=1, item="runs", memory_bytes=memory)

    def prepare(self, case: Case, setup: Setup) -> Task:
        require_batch(case, digits.TRAINING, "training digits")
        return TrainingToAccuracy(case, setup)


class TrainingToAccuracy(TorchDigits):
    """One step is one training, until the target is reached."""

    waits = finishes = True  # reads the accuracy back after each epoch

    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case, setup)
        self.target = float(case.params["target"])
        self.reached = 0.0

    def step(self) -> None:
        self.start()
        for _ in range(MOST_EPOCHS):
            for _ in range(digits.TRAINING // self.batch):
                self.train()
            self.reached = self.test_accuracy()
            if self.reached >= self.target:
                return
        raise WorkloadError(
            f"the training reached {self.reached:.3f} in {MOST_EPOCHS} epochs, not {self.target:g}",
            code="not_reached",
            hint="choose a lower target, a smaller --batch or another --seed",
        )

    def check(self) -> Accuracy:
        """Train once, and test the trained weights in float64 on the CPU."""
        self.step()
        unseen, labels = (x[digits.TRAINING :].cpu() for x in (self.pictures, self.labels))
        answers = copy.deepcopy(self.network).cpu().double()(unseen.double()).argmax(dim=1)
        accuracy = float((answers == labels).double().mean())
        reference = f"{len(labels)} unseen digits, the trained weights in float64 on the CPU"
        passed = accuracy >= self.target
        return Accuracy("test_accuracy", accuracy, reference, self.target, passed)

    def metrics(self) -> dict[str, float]:
        return {"epochs": self.batches.epoch, "test_accuracy": self.reached}


WORKLOAD = DigitsToAccuracy()
