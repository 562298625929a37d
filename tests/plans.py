"""Requests of a command line, and the rows of a request on a machine that is made up."""

from pathlib import Path

import pytest
from builders import machine

from workbench.cli import main, measure
from workbench.planning import scenarios
from workbench.planning.cases import fill_cases
from workbench.planning.request import Request
from workbench.planning.rows import resolve

SHIPPED = scenarios.load()
FIXTURES = Path(__file__).resolve().parent / "fixtures" / "workloads"


def plan(request: Request, *gpus: str):
    rows = resolve(request, SHIPPED)
    fill_cases(rows, request, machine(*gpus))
    return rows


def parsed(arguments: list[str]) -> Request:
    """The request that the command line makes of `arguments`."""
    seen: list[Request] = []

    def record(options, scenarios=(), workloads=()):
        given = {n: v for n, v in options.items() if n in Request.__dataclass_fields__}
        seen.append(Request(scenarios=scenarios, workloads=workloads, **given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "start", record)
        main.cli.main(arguments, standalone_mode=False)
    return seen[0]
