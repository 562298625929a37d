"""The smallest possible operation: the cost of starting one."""

from collections.abc import Callable
from functools import partial
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import torch

from ._shared.torch_task import TorchTask, graphed


class LaunchLatency(Workload):
    """Adds 1 to a single element, over and over.  `wait=no` queues the operations back to back and
    measures how fast they start.  `wait=yes` waits for each: the shortest step of a program that
    looks at its results.  Mode "graph" launches the operation as a CUDA graph."""

    name = "launch"
    title = "Launch latency"
    teaches = "Starting an operation has a fixed cost, which dominates small batches."
    parameters = (
        Parameter("wait", "no", "wait for the device after each operation", choices=("no", "yes")),
    )
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="graph"),
    )

    def work(self, case: Case) -> Work:
        return Work(None, None, items=1, item="launches", memory_bytes=4.0)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return LaunchTask(case)


class LaunchTask(TorchTask):
    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.element = torch.zeros(1, device=self.device)
        self.add: Callable[[], Any] = partial(self.element.add_, 1.0)
        if "graph" in self.modes:
            self.add = graphed(self.add)
        self.waits = self.finishes = case.params["wait"] == "yes"
        self.wait = self.waiter() if self.waits else None

    def step(self) -> None:
        self.add()
        if self.wait is not None:
            self.wait()

    def check(self) -> Accuracy:
        before = float(self.element)
        for _ in range(100):
            self.step()
        error = abs(float(self.element) - before - 100) / 100
        return Accuracy.within(error, 0.0, "counting")


WORKLOAD = LaunchLatency()
