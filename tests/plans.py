"""The rows of a request on a machine that is made up."""

from pathlib import Path

from builders import machine

from workbench.planning import scenarios
from workbench.planning.cases import fill_cases
from workbench.planning.plan import resolve
from workbench.planning.request import Request

SHIPPED = scenarios.load()


FIXTURES = Path(__file__).resolve().parent / "fixtures" / "workloads"


def plan(request: Request, *gpus: str):
    rows = resolve(request, SHIPPED)
    fill_cases(rows, request, machine(*gpus))
    return rows
