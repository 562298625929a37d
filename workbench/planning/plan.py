"""From a request to the rows of a run.

Wrong names and values are refused here, before anything is measured.  `cases` fills in the
candidates once the machine is known.
"""

import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from .. import catalog
from ..contract import Case, ParameterValue, Workload, kind_of
from ..records import events as ev
from ..records.reason import Reason
from ..records.verdict import WhatIf
from ..report.candidate import Candidate
from . import number_lists
from .prices import given_prices
from .request import Request, check, check_batches
from .scenario import Scenario
from .scenarios import check_name
from .usage import UsageError, check_known, unknown

MOST_ROWS = 512  # in one run


class CandidateSource(ABC):
    """Proposes further candidates while their row races, and provides the files each one needs.

    By default it proposes none.
    """

    extra: Collection[str] = ()  # ids of cases whose absence leaves no gap in the evidence

    @abstractmethod
    def files(self, case: Case) -> Mapping[str, str]:
        """The files that `case` gets as `Setup.files`."""

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """Cases that join after this round, when the row has `left_s` seconds left."""
        return []

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The id of the case that gains are stated over, so that it keeps racing although slower.

        By default the first: the code as written, unless an option leaves it out.
        """
        return candidates[0].case.id if candidates else None

    def gap(self, candidates: Sequence[Candidate]) -> str:
        """The candidates that might have won but lacked time: "its INT8 forms"; "" if none did."""
        return ""


@dataclass
class RowPlan:
    """One row of a run: its scenario and its candidates."""

    scenario: Scenario
    workload: Workload
    cases: list[Case] = field(default_factory=list)
    # Cases that join once they may beat the leader of their device.
    refining: list[Case] = field(default_factory=list)
    tuning: Mapping[str, Sequence[ParameterValue]] = field(default_factory=dict)  # if requested
    # The row's own values of the parameters for which several were requested.
    point: Mapping[str, ParameterValue] = field(default_factory=dict)
    source: CandidateSource | None = None  # proposes candidates that join during the race
    of: str | None = None  # the scenario whose crossover this row is a point of
    after: str | None = None  # id of the row that must race first
    protected: frozenset[str] = frozenset()  # ids of cases that a slow block does not eliminate
    what_if: list[WhatIf] = field(default_factory=list)  # recorded results of other devices
    prices: Mapping[str, float] = field(default_factory=dict)  # per hour, as given by the user
    refused: Reason | None = None  # why none of its cases can be prepared

    @property
    def decides(self) -> bool:
        """Whether it races for a pick; otherwise it races until all medians are well known."""
        return self.scenario.owes_verdict or self.of is not None

    @property
    def is_on_host(self) -> bool:
        """Whether none of its candidates needs a GPU; simulated ones need none."""
        return all(kind_of(case.device).on_host for case in self.cases)


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
    found = [_scenario(name, request, scenarios) for name in _chosen(request, scenarios, own)]
    files = catalog.files()
    if not all(catalog.is_built_in(files[scenario.workload]) for scenario in found):
        return None
    members: Any = {"at_s": 0.0, "prices": dict(prices)}
    return [_announced(row, _command(_alone(request, row.id)), **members) for row in found]


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
    """The rows of `advise`."""
    rows = [_row(name, request, scenarios) for name in _chosen(request, scenarios, own)]
    _check_rows(rows, request)
    spread = [_spread(row, request) for row in rows]
    if any(len(several) > 1 for several in spread):
        raise UsageError("a scenario takes one value per parameter; workbench run takes several")
    return [row for (row,) in spread]


def _chosen(request: Request, scenarios: Mapping[str, Scenario], own: Collection[str]) -> list[str]:
    """The named scenarios, else the user's own, else all that need neither a name nor --all."""
    offered = list(request.scenarios or own or scenarios)
    named = request.scenarios or request.all_scenarios
    chosen = [name for name in dict.fromkeys(offered) if named or not scenarios[name].on_request]
    if not chosen:
        names = ", ".join(offered)
        raise UsageError(f"all scenarios are on request only: add --all or name some of {names}")
    return chosen


def _scenario(name: str, request: Request, scenarios: Mapping[str, Scenario]) -> Scenario:
    check_name("scenario", name, scenarios)
    scenario = scenarios[name].quickened() if request.quick else scenarios[name]
    _check_countable(scenario, request)
    return scenario


def _row(name: str, request: Request, scenarios: Mapping[str, Scenario]) -> RowPlan:
    scenario = _scenario(name, request, scenarios)
    workload = _workload(scenario.workload)
    parameters = [parameter.name for parameter in workload.parameters]
    check_known(f"parameter of scenario {name}:", scenario.params, parameters)
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


def point_name(name: str, point: Mapping[str, ParameterValue]) -> str:
    """The id of a row at one of several points: `matmul[n=64]`."""
    listed = ",".join(f"{parameter}={value}" for parameter, value in point.items())
    return f"{name}[{listed}]" if point else name


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
    if request.model is not None:
        alone = replace(alone, model=replace(request.model, save_best=None))
    elif request.own is not None:
        alone = replace(alone, own=replace(request.own, save_best=None))
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
