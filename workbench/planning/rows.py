"""From a request to the rows of a run, without their candidates.

Wrong names and values are refused here, before anything is measured.  `cases` fills in the
candidates once the machine is known.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from .. import catalog
from ..contract import ParameterValue, Workload
from . import number_lists
from .plan import RowPlan, point_name
from .prices import given_prices
from .request import Request, check, check_batches
from .scenario import Scenario
from .scenarios import check_name
from .usage import UsageError, check_known, unknown

MOST_ROWS = 512  # in one run


def resolve(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str] = ()
) -> list[RowPlan]:
    """The rows that a request names, with their parameters checked but without candidates.

    `own` are the ids in the user's file; if the request names no scenarios, only these race.
    """
    check(request)
    # Read once: the file of prices may change during the run.
    prices = given_prices(request.prices, request.price_file)
    if request.ceilings:
        return []  # they depend on the machine
    if request.question is not None:  # its candidates follow once the code or model is examined
        scenario = request.question.scenario()
        rows = [RowPlan(scenario, catalog.load(scenario.workload))]
    elif request.every or request.workloads:
        rows = _plain_rows(request)
    else:
        rows = _table(request, scenarios, own)
    return [replace(row, prices=prices) for row in rows]


def _plain_rows(request: Request) -> list[RowPlan]:
    """The rows of `run`: every variant of each workload, without a verdict."""
    if request.every:
        if request.workloads or request.settings or request.batch:
            text = "--all runs every workload with its defaults: leave out names, --set and --batch"
            raise UsageError(text)
        usable, _ = catalog.load_all()  # the engine warns about the others
        rows = [_plain_row(name, request) for name in usable]
    else:
        names = dict.fromkeys(request.workloads)
        rows = [row for name in names for row in _spread(_plain_row(name, request), request)]
    _check_rows(rows, request)
    if not request.largest_batch:
        return rows
    batched = [row for row in rows if row.scenario.batch is not None]
    if not batched:
        listed = ", ".join(row.workload.name for row in rows)
        raise UsageError(f"--largest-batch: no batch in {listed}")
    return batched


def plain_scenario(workload: Workload, **settings: Any) -> Scenario:
    """The scenario of a row that measures a workload and gives no usual advice."""
    return Scenario(
        id=workload.name,
        title=workload.title,
        question=workload.teaches,
        textbook=None,
        workload=workload.name,
        **settings,
    )


def _plain_row(name: str, request: Request) -> RowPlan:
    workload = _workload(name)
    quick = workload.quick if request.quick else {}
    batch = workload.default_batch
    scenario = plain_scenario(
        workload,
        objective=workload.usual_objective,
        precisions=tuple(dict.fromkeys(v.precision for v in workload.variants)),
        modes=None,
        params=workload.values(quick),
        batch=int(quick.get("batch", batch)) if batch is not None else None,
    )
    return RowPlan(scenario, workload)


def _table(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str]
) -> list[RowPlan]:
    rows = list(map(_row, chosen(request, scenarios, own)))
    _check_rows(rows, request)
    spread = [_spread(row, request) for row in rows]
    if any(len(several) > 1 for several in spread):
        raise UsageError("a scenario takes one value per parameter; workbench run takes several")
    return [row for (row,) in spread]


def chosen(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str]
) -> list[Scenario]:
    """The named scenarios, else the user's own, else all that need neither a name nor --all."""
    offered = list(dict.fromkeys(request.scenarios or own or scenarios))
    for name in offered:
        check_name("scenario", name, scenarios)
    named = request.scenarios or request.all_scenarios
    found = [scenarios[name] for name in offered if named or not scenarios[name].on_request]
    if not found:
        names = ", ".join(offered)
        raise UsageError(f"all scenarios are on request only: add --all or name some of {names}")
    for scenario in found:
        _check_countable(scenario, request)
    return [scenario.quickened() for scenario in found] if request.quick else found


def _row(scenario: Scenario) -> RowPlan:
    workload = _workload(scenario.workload)
    parameters = [parameter.name for parameter in workload.parameters]
    check_known(f"parameter of scenario {scenario.id}:", scenario.params, parameters)
    params = workload.values(scenario.params)
    batch = workload.default_batch if scenario.batch is None else scenario.batch
    return RowPlan(msgspec.structs.replace(scenario, params=params, batch=batch), workload)


def _check_countable(scenario: Scenario, request: Request) -> None:
    """Refuse an objective without its prices or its sensor."""
    if scenario.objective == "cost" and not (request.prices or request.price_file):
        prices = "--price cpu=PER_HOUR --price gpu=PER_HOUR, or --prices FILE"
        raise UsageError(f"{scenario.id} compares cost: add {prices}")
    if scenario.objective == "energy":
        from ..machine.host.readings import package_energy_j  # the screens start without psutil

        energy_j, why = package_energy_j()
        if energy_j is None:
            raise UsageError(f"{scenario.id} compares energy: {why}; choose another objective")


def _check_rows(rows: Sequence[RowPlan], request: Request) -> None:
    """Refuse too many rows, and a mode that none of them has."""
    if len(rows) > MOST_ROWS:
        raise UsageError(f"that makes {len(rows)} rows; {MOST_ROWS} at most")
    offered = dict.fromkeys(v.mode or "plain" for row in rows for v in row.workload.variants)
    check_known("mode", request.modes, offered)


def _workload(name: str) -> Workload:
    check_name("workload", name, catalog.files())
    return catalog.load(name)


def _spread(row: RowPlan, request: Request) -> list[RowPlan]:
    """One row for each combination of the requested sizes and batches."""
    given = parse_settings(row.workload, request.settings)
    tuned = [p.name for p in row.workload.parameters if p.tuning and p.name in given]
    tuning = {name: given.pop(name) for name in tuned}
    if request.batch:
        if row.workload.default_batch is None:
            raise UsageError(f"{row.workload.name} has no batch; leave out --batch")
        check_batches(request.batch)
        given = {"batch": list(request.batch), **given}
    several = [name for name, values in given.items() if len(values) > 1]
    if (count := math.prod(map(len, given.values()))) > MOST_ROWS:
        raise UsageError(f"that makes {count:,} rows; {MOST_ROWS} at most")
    if request.largest_batch and "batch" in several:
        raise UsageError("--largest-batch starts from one --batch, not several")
    rows = []
    for place in number_lists.coarse_to_fine(given):
        point = {name: place[name] for name in several}
        batch = place.pop("batch", row.scenario.batch)
        scenario = msgspec.structs.replace(
            row.scenario,
            id=point_name(row.scenario.id, point),
            params={**row.scenario.params, **place},
            batch=batch if batch is None else int(batch),
        )
        rows.append(replace(row, scenario=scenario, tuning=tuning, point=point))
    return rows


def parse_settings(
    workload: Workload, settings: Sequence[str]
) -> dict[str, Sequence[ParameterValue]]:
    """`name=value` texts as typed values of the workload's parameters."""
    known = {parameter.name: parameter for parameter in workload.parameters}
    found: dict[str, Sequence[ParameterValue]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes name=value, not {setting!r}")
        if name not in known:
            if not known:
                raise UsageError(f"{workload.name} has no parameters to set")
            raise unknown(f"parameter of {workload.name}:", name, known)
        if name in found:
            raise UsageError(f"{name} is given twice; write several values as {name}=64,128")
        try:
            found[name] = number_lists.parse(known[name], text)
        except ValueError as error:
            raise UsageError(str(error)) from None
    return found
