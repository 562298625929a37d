"""Tasks of workloads, as a worker prepares them."""

from collections.abc import Callable
from typing import Any

from workbench import catalog
from workbench.contract import Case, Setup, Task


def prepared(case: Case, seed: int = 0, setup: Setup | None = None) -> Any:
    task = catalog.load(case.workload).prepare(case, setup or Setup(seed=seed))
    task.activate()
    return task


def spoil(task: Any, array: Any, index: int, change: Callable[[Any], Any]) -> None:
    """From now on each step leaves one element wrong."""
    step = task.step

    def spoiled() -> None:
        step()
        array[index] = change(array[index])

    task.step = spoiled


def losses(task: Task, steps: int) -> list[float | None]:
    """The loss after each of so many further steps."""
    found = []
    for _ in range(steps):
        task.step()
        found.append(task.loss())
    return found
