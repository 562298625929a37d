"""Tasks of workloads, as a worker prepares them."""

from typing import Any

from workbench import catalog
from workbench.contract import Case, Setup


def prepared(case: Case, seed: int = 0, setup: Setup | None = None) -> Any:
    task = catalog.load(case.workload).prepare(case, setup or Setup(seed=seed))
    task.activate()
    return task
