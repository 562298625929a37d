"""A small network trained once, as in a prototype: from data on the host to the final loss."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import jax, torch

from ._shared.jax_task import JaxTask, cross_entropy, weights_of
from ._shared.network import mlp, mlp_training_flops, samples
from ._shared.torch_task import WARM_UPS, TorchTask, graphed, module
from ._shared.training import compare_losses, train_step

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
    quick = {"steps": 20}
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "jax", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="graph"),
        Variant("gpu", "jax", "fp32"),
    )

    def work(self, case: Case) -> Work:
        count, steps = int(case.params["samples"]), int(case.params["steps"])
        return Work(
            flops=mlp_training_flops(SIZES, steps * count),
            bytes_moved=4.0 * steps * count * (2 * SIZES[0] + 4 * SIZES[1] + 4 * SIZES[2]),
            items=1,
            item="runs",
            memory_bytes=4.0 * count * (2 * SIZES[0] + 4 * SIZES[1] + 6 * SIZES[2]),
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        return JaxRun(case, setup) if case.backend == "jax" else TorchRun(case, setup)


class MlpRun(Task):
    """One step is one training run."""

    waits = finishes = True  # reads the final loss back

    def make(self, case: Case, seed: int) -> None:
        """The initial network and the data, on the host."""
        self.steps = int(case.params["steps"])
        self.layers = mlp(SIZES, seed)
        self.data, self.labels = samples(int(case.params["samples"]), SIZES[0], SIZES[-1], seed)

    @abstractmethod
    def train(self, steps: int) -> Iterator[Any]:
        """The loss of each step, still on the device, and valid until the next."""

    def step(self) -> None:
        (latest,) = deque(self.train(self.steps), maxlen=1)
        self.latest_loss = float(latest)

    def check(self) -> Accuracy:
        steps = min(CHECKED_STEPS, self.steps)
        losses = [float(loss.item()) for loss in self.train(steps)]
        optimiser = partial(torch.optim.SGD, lr=LEARNING_RATE)
        data, labels = map(torch.from_numpy, (self.data, self.labels))
        return compare_losses(losses, module(self.layers), optimiser, data, labels, LIMIT)


class TorchRun(MlpRun, TorchTask):
    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        with setup.phase("build"):
            self.make(case, setup.seed)
            self.hosted = torch.from_numpy(self.data), torch.from_numpy(self.labels)
            # With its first optimiser torch imports its compiler: start-up, not training.
            list(self.train(steps=0))

    def train(self, steps: int) -> Iterator[Any]:
        network = module(self.layers).to(self.device)
        data, labels = (tensor.to(self.device) for tensor in self.hosted)
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


class JaxRun(MlpRun, JaxTask):
    def __init__(self, case: Case, setup: Setup) -> None:
        super().__init__(case)
        with setup.phase("build"):
            self.make(case, setup.seed)
            self.hosted = weights_of(self.layers), self.data, self.labels

        loss = partial(cross_entropy, self.layers)

        def update(weights: Any, *batch: Any) -> Any:
            found, slopes = jax.value_and_grad(loss)(weights, *batch)
            return found, jax.tree.map(lambda w, s: w - LEARNING_RATE * s, weights, slopes)

        self.update = self.compiled(setup, update, *jax.device_put(self.hosted, self.device))

    def train(self, steps: int) -> Iterator[Any]:
        weights, *batch = jax.device_put(self.hosted, self.device)
        for _ in range(steps):
            found, weights = self.update(weights, *batch)
            yield found


WORKLOAD = TrainMlp()
