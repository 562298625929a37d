"""A small network trained once, from the data on the host to the final loss: a prototype."""

from __future__ import annotations

from typing import Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._shared import mlp_reference
from ._shared.network import mlp, mlp_multiplications
from ._shared.torch_task import TorchTask, module

SIZES = (100, 50, 10)
LEARNING_RATE = 0.01
CHECKED_STEPS = 5
LIMIT = 1e-4


class TrainMlp(Workload):
    """A 100-50-10 perceptron, full-batch SGD; one step is the whole run.

    Each run builds the same initial model, moves it and the data to the device, trains, and
    reads the final loss back; nothing is left over from the run before.
    """

    name = "train_mlp"
    title = "Small network, one whole training run"
    teaches = "When little is to be computed, start-up and transfers decide, not peak speed."
    parameters = (
        Parameter("samples", 10_000, "training samples, all in every step", 1, 10_000_000),
        Parameter("steps", 100, "optimiser steps of a run", minimum=1, maximum=100_000),
    )
    quick: ClassVar = {"steps": 20}
    variants = (Variant("cpu", "torch", "fp32"), Variant("gpu", "torch", "fp32"))

    def work(self, case: Case) -> Work:
        samples, steps = int(case.params["samples"]), int(case.params["steps"])
        # Three products per layer, but no gradient of the data in the first.
        multiplications = 3 * mlp_multiplications(SIZES) - SIZES[0] * SIZES[1]
        return Work(
            flops=2.0 * steps * samples * multiplications,
            bytes_moved=4.0 * steps * samples * (2 * SIZES[0] + 4 * SIZES[1] + 4 * SIZES[2]),
            items=1,
            item="runs",
            memory_bytes=4.0 * samples * (2 * SIZES[0] + 4 * SIZES[1] + 6 * SIZES[2]),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        return MlpRun(case, setup)


class MlpRun(TorchTask):
    """One step is one training run."""

    waits = True  # for the final loss

    def __init__(self, case: Case, setup: Setup) -> None:
        import torch

        super().__init__(case)
        self.steps = int(case.params["steps"])
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            data, labels = mlp_reference.samples(
                int(case.params["samples"]), SIZES[0], SIZES[-1], setup.seed
            )
            self.data, self.labels = torch.from_numpy(data), torch.from_numpy(labels)
            # torch loads its compiler with the first optimiser: part of every prototype's start.
            self._train(steps=0)
        self.final: float | None = None

    def step(self) -> None:
        self.final = float(self._train(self.steps)[-1].item())

    def _train(self, steps: int) -> list[Any]:
        """The loss of each step, still on the device."""
        import torch

        network = module(self.layers).to(self.device)
        data, labels = self.data.to(self.device), self.labels.to(self.device)
        optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
        losses = []
        for _ in range(steps):
            optimiser.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(network(data), labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return losses

    def check(self) -> Accuracy:
        steps = min(CHECKED_STEPS, self.steps)
        losses = [float(loss.item()) for loss in self._train(steps)]
        expected = mlp_reference.reference_losses(
            self.layers,
            self.data.numpy(),
            self.labels.numpy(),
            lambda _, value, gradient: value - LEARNING_RATE * gradient,
            steps,
        )
        error = mlp_reference.largest_deviation(losses, list(expected))
        reference = f"NumPy float64 training, losses of the first {steps} steps"
        return Accuracy("relative_error", error, reference, LIMIT, error <= LIMIT)

    def loss(self) -> float | None:
        return self.final


WORKLOAD = TrainMlp()
