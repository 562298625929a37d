"""A small network trained once, as in a prototype: from data on the host to the final loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload

from ._shared.cuda_graph import WARM_UPS, graphed
from ._shared.network import mlp, mlp_multiplications, samples
from ._shared.torch_task import TorchTask, module
from ._shared.training import compare_losses, exact_losses, train_step

SIZES = (100, 50, 10)
LEARNING_RATE = 0.01
CHECKED_STEPS = 5
LIMIT = 1e-4


class TrainMlp(Workload):
    """A 100-50-10 perceptron, full-batch SGD; one step is the whole run.

    Each run builds the same initial model, moves it and the data to the device, trains, and reads
    the final loss back.  It reuses nothing from the run before.  Mode "graph" captures a step as a
    CUDA graph, in each run anew, and replays it.
    """

    name = "train_mlp"
    title = "Small network, one whole training run"
    teaches = "When there is little to compute, start-up and transfers decide, not peak speed."
    parameters = (
        Parameter("samples", 10_000, "training samples, all used in every step", 1, 10_000_000),
        Parameter("steps", 100, "optimiser steps in a run", minimum=1, maximum=100_000),
    )
    quick: ClassVar = {"steps": 20}
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="graph"),
    )

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

    waits = finishes = True  # reads the final loss back

    def __init__(self, case: Case, setup: Setup) -> None:
        import torch

        super().__init__(case)
        self.steps = int(case.params["steps"])
        with setup.phase("build"):
            self.layers = mlp(SIZES, setup.seed)
            count = int(case.params["samples"])
            data, labels = samples(count, SIZES[0], SIZES[-1], setup.seed)
            self.data, self.labels = torch.from_numpy(data), torch.from_numpy(labels)
            # With its first optimiser torch imports its compiler: start-up, not training.
            list(self._train(steps=0))
        self.final: float | None = None

    def step(self) -> None:
        (latest,) = deque(self._train(self.steps), maxlen=1)
        self.final = float(latest.item())

    def _train(self, steps: int) -> Iterator[Any]:
        """The loss of each step, still on the device, and valid until the next."""
        import torch

        network = module(self.layers).to(self.device)
        data, labels = self.data.to(self.device), self.labels.to(self.device)
        optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
        step: Callable[[], Any] = partial(train_step, network, optimiser, data, labels)
        if "graph" in self.modes and steps > WARM_UPS:
            first: list[Any] = []  # the warm-ups train as well

            def noted() -> Any:
                first.append(train_step(network, optimiser, data, labels))
                return first[-1]

            step = graphed(noted)
            yield from first[:WARM_UPS]
            steps -= WARM_UPS
        for _ in range(steps):
            yield step()

    def check(self) -> Accuracy:
        import torch

        steps = min(CHECKED_STEPS, self.steps)
        losses = [float(loss.item()) for loss in self._train(steps)]
        optimiser = partial(torch.optim.SGD, lr=LEARNING_RATE)
        expected = exact_losses(module(self.layers), optimiser, self.data, self.labels, steps)
        return compare_losses(losses, expected, LIMIT)

    def loss(self) -> float | None:
        return self.final


WORKLOAD = TrainMlp()
