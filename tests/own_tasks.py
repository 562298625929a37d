"""The facts and the tasks of a user's module, as a worker makes them."""

from typing import Any

from workbench.contract import Case, Setup, Task
from workbench.worker.code import Code
from workloads.own.workload import WORKLOAD


def facts_of(code: Code) -> dict[str, Any]:
    found: dict[str, Any] = WORKLOAD.consult("examine", code=code.as_text())
    return found


def task_of(
    code: Code, precision: str = "fp32", mode: str | None = None, batch: int | None = 4
) -> Task:
    case = Case("own", "cpu", "torch", precision, threads=1, batch=batch, mode=mode)
    return WORKLOAD.prepare(case, Setup(files={"code": code.as_text()}))
