"""The events that announce the rows of a run, each with the command that measures it alone."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from .. import catalog
from ..records import events as ev
from .plan import RowPlan
from .prices import given_prices
from .request import Request, check
from .rows import chosen
from .scenario import Scenario


def outline(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str] = ()
) -> list[ev.RacePlanned] | None:
    """The events that announce the rows of a table, made without their workloads, whose loading
    would delay the first frame; None if only `resolve` can check the request."""
    of_a_workload = request.workloads or request.every or request.settings or request.batch
    if of_a_workload or own or request.modes or request.ceilings or request.question is not None:
        return None
    check(request)
    prices = given_prices(request.prices, request.price_file)
    found = chosen(request, scenarios, own)
    files = catalog.files()
    if not all(catalog.is_built_in(files[scenario.workload]) for scenario in found):
        return None
    members: Any = {"at_s": 0.0, "prices": dict(prices)}
    return [_announced(row, _command(_alone(request, row.id)), **members) for row in found]


def planned(row: RowPlan, request: Request, at_s: float) -> ev.RacePlanned:
    """The event that announces a row before it races."""
    return _announced(
        row.scenario,
        _reproduce(row, request),
        at_s=at_s,
        cases=list(row.cases),  # `CasesJoined` adds those that join later
        work={case.id: row.workload.work(case) for case in row.cases},
        point=dict(row.point),
        of=row.of,
        prices=dict(row.prices),
        what_if=list(row.what_if),
    )


def _announced(scenario: Scenario, reproduce: str, **members: Any) -> ev.RacePlanned:
    limits = {"max_error": scenario.max_error, **msgspec.structs.asdict(scenario.limits)}
    return ev.RacePlanned(
        scenario=scenario.id,
        title=scenario.title,
        question=scenario.question,
        textbook=scenario.textbook,
        objective=scenario.objective,
        reference_only=list(scenario.reference_only),
        reproduce=reproduce,
        workload=scenario.workload,
        limits={name: value for name, value in limits.items() if value is not None},
        **{"cases": [], "work": {}, **members},
    )


def _alone(request: Request, scenario: str, *, crossover: bool = False) -> Request:
    """The request for this scenario alone, with the budget of the whole table."""
    return replace(
        request,
        trace=None,
        scenarios=(scenario,),
        all_scenarios=False,
        crossover=request.crossover or crossover,
        budget_s=request.budget,
    )


def _reproduce(row: RowPlan, request: Request) -> str:
    """The command that measures this row alone; for a carried row, that of the run that did."""
    cut, name = request.resumes, row.scenario.id
    if cut is not None and name in cut.carried:
        return cut.old.report.rows[name].plan.reproduce
    alone = replace(request, every=False, trace=None)
    if request.question is not None:
        alone = replace(alone, question=replace(request.question, save_best=None))
    elif not (request.workloads or request.every):
        alone = _alone(request, row.of or name, crossover=row.of is not None)
    else:
        point = dict(row.point)
        batch = point.pop("batch", None)
        settings = [s for s in alone.settings if s.partition("=")[0] not in point]
        alone = replace(
            alone,
            workloads=(row.workload.name,),
            batch=alone.batch if batch is None else (int(batch),),
            settings=(*settings, *(f"{name}={value}" for name, value in point.items())),
        )
    return _command(alone)


def _command(request: Request) -> str:
    return shlex.join(["workbench", *request.arguments()])
