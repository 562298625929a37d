"""A checked request into rows of candidates.

What a request names wrongly is found here, before anything is measured.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from .. import catalog
from ..contract import Case, Host, ParameterValue, Workload
from ..records import events as ev
from ..records.machine import Machine
from ..records.verdict import WhatIf
from ..report.candidate import Candidate
from . import number_lists
from .defaults import by_default, check_countable
from .prices import given_prices
from .request import Request, check, check_batches
from .scenario import Scenario
from .threads import thread_counts
from .usage import UsageError, unknown

MOST_ROWS = 512
MOST_CASES = 64  # of one row


class Entries(Protocol):
    """Who finds further candidates while their row is raced, and makes ready what each needs."""

    def files(self, case: Case) -> Mapping[str, str]:
        """What `Setup.files` shall say."""

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """Candidates that enter now, after a round of these; `left_s` is the row's time."""

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The id of the case that stays though it is beaten: by it the gain of all is told."""


@dataclass
class RowPlan:
    """One row to race: its scenario, and its candidates."""

    scenario: Scenario
    workload: Workload
    cases: list[Case] = field(default_factory=list)
    tuning: Mapping[str, Sequence[ParameterValue]] = field(default_factory=dict)  # asked for
    point: Mapping[str, ParameterValue] = field(
        default_factory=dict
    )  # where several were asked for
    entries: Entries | None = None
    of: str | None = None  # the scenario whose crossover this row is a point of
    spared: frozenset[str] = frozenset()  # cases that one slow block does not send away
    what_if: list[WhatIf] = field(default_factory=list)  # what is recorded of devices elsewhere
    prices: Mapping[str, float] = field(default_factory=dict)  # per hour, as they were given

    @property
    def decides(self) -> bool:
        """Whether it is raced until somebody can be picked; otherwise until all are well known."""
        return self.scenario.textbook is not None or self.of is not None


def _with_batch(rows: list[RowPlan]) -> list[RowPlan]:
    """The rows in which a largest batch can be looked for."""
    found = [row for row in rows if row.scenario.batch is not None]
    if not found:
        names = ", ".join(row.workload.name for row in rows)
        raise UsageError(f"--largest-batch: there is no batch in {names}")
    return found


def _check_modes(rows: Sequence[RowPlan], request: Request) -> None:
    offered = dict.fromkeys(v.mode or "plain" for row in rows for v in row.workload.variants)
    for mode in request.modes:
        if mode not in offered:
            raise unknown("mode", mode, offered)


def resolve(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str] = ()
) -> list[RowPlan]:
    """The rows a request names, with parameters checked; cases come once the machine is known.

    `own` are the ids of the user's file: without names only these race.
    """
    check(request)
    prices = given_prices(request.prices, request.price_file)  # once: the file may be edited later
    if request.ceilings:
        return []  # they depend on the machine
    if request.model is not None:  # the cases once it was read
        return [RowPlan(request.model.scenario(), catalog.load("model"), prices=prices)]
    return [replace(row, prices=prices) for row in _rows(request, scenarios, own)]


def _rows(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str]
) -> list[RowPlan]:
    if request.every:
        if request.workloads or request.settings or request.batch:
            raise UsageError("--all stands for every workload as it is: no names, --set or --batch")
        usable, _ = catalog.load_all()  # the engine warns of the others
        rows = [_ad_hoc(name, request) for name in usable]
        _check_modes(rows, request)
        return _with_batch(rows) if request.largest_batch else rows
    if request.workloads:
        names = dict.fromkeys(request.workloads)
        rows = [row for name in names for row in _spread(_ad_hoc(name, request), request)]
        if len(rows) > MOST_ROWS:
            raise UsageError(f"that makes {len(rows)} rows; {MOST_ROWS} at most")
        _check_modes(rows, request)
        return _with_batch(rows) if request.largest_batch else rows
    chosen = dict.fromkeys(request.scenarios or by_default(request, scenarios, own))
    if len(chosen) > MOST_ROWS:
        raise UsageError(f"that makes {len(chosen)} rows; {MOST_ROWS} at most")
    rows = [_row(name, request, scenarios) for name in chosen]
    _check_modes(rows, request)
    spread = [_spread(row, request) for row in rows]
    if any(len(several) > 1 for several in spread):
        raise UsageError("a scenario takes one value of each; several are for workbench run")
    return [row for (row,) in spread]


def _row(name: str, request: Request, scenarios: Mapping[str, Scenario]) -> RowPlan:
    if name not in scenarios:
        raise unknown("scenario", name, scenarios)
    scenario = scenarios[name].quickened() if request.quick else scenarios[name]
    workload = _workload(scenario.workload)
    for parameter in scenario.params:
        if parameter not in {p.name for p in workload.parameters}:
            names = (p.name for p in workload.parameters)
            raise unknown(f"parameter of scenario {name}:", parameter, names)
    check_countable(scenario, request)
    params = workload.values(scenario.params)
    batch = workload.default_batch if scenario.batch is None else scenario.batch
    return RowPlan(msgspec.structs.replace(scenario, params=params, batch=batch), workload)


def _ad_hoc(name: str, request: Request) -> RowPlan:
    """A plain `run`: every variant, nothing to decide."""
    workload = _workload(name)
    quick = workload.quick if request.quick else {}
    batch = workload.default_batch
    scenario = Scenario(
        id=name,
        title=workload.title,
        question=workload.teaches,
        textbook=None,
        workload=name,
        objective="latency_p99" if workload.latency else "throughput",
        precisions=tuple(dict.fromkeys(v.precision for v in workload.variants)),
        modes=None,
        params=workload.values(quick),
        batch=int(quick.get("batch", batch)) if batch is not None else None,
    )
    return RowPlan(scenario, workload)


def _workload(name: str) -> Workload:
    names = catalog.files()
    if name not in names:
        raise unknown("workload", name, names)
    return catalog.load(name)


def _spread(row: RowPlan, request: Request) -> list[RowPlan]:
    """The row as it was asked for: one for each combination of several sizes or batches."""
    given = parse_settings(row.workload, request.settings)
    tuning = {
        p.name: given.pop(p.name) for p in row.workload.parameters if p.tuning and p.name in given
    }
    if batches := _batches(row, request.batch):
        given = {"batch": batches, **given}
    several = [name for name, found in given.items() if len(found) > 1]
    if (count := math.prod(map(len, given.values()))) > MOST_ROWS:
        raise UsageError(f"that makes {count:,} rows; {MOST_ROWS} at most")
    if request.largest_batch and "batch" in several:
        raise UsageError("--largest-batch begins at one --batch, not at several")
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


def _batches(row: RowPlan, batches: Sequence[int]) -> list[ParameterValue]:
    if batches and row.workload.default_batch is None:
        raise UsageError(f"{row.workload.name} has no batch; leave out --batch")
    check_batches(batches)
    return list(batches)


def parse_settings(
    workload: Workload, settings: Sequence[str]
) -> dict[str, Sequence[ParameterValue]]:
    """`name=value` texts as typed values of the parameters of `workload`."""
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
            raise UsageError(f"{name} is given twice; several values are {name}=64,128")
        try:
            found[name] = number_lists.parse(known[name], text)
        except ValueError as error:
            raise UsageError(str(error)) from None
    return found


def gpu_devices(request: Request, machine: Machine) -> list[str]:
    """The GPUs to race: those asked for, otherwise one of each kind."""
    available = [gpu for gpu in machine.gpus if gpu.device is not None]
    explicit = list(dict.fromkeys(d.partition("@")[0] for d in request.devices if ":" in d))
    if explicit:
        names = [gpu.device for gpu in available if gpu.device]
        for device in explicit:
            if device not in names:
                choices = ["cpu", *names]
                raise UsageError(f"there is no {device} here. Choices: {', '.join(choices)}")
    if request.devices and "gpu" not in request.devices:
        return explicit
    one_of_each: dict[str | None, str | None] = {}
    for gpu in sorted(available, key=lambda gpu: bool(gpu.processes)):  # one that nobody works on
        one_of_each.setdefault(gpu.name, gpu.device)
    if "gpu" in request.devices and not one_of_each:
        raise UsageError("there is no GPU here that CUDA can use; see workbench detect")
    chosen = [gpu.device for gpu in available if gpu.device in one_of_each.values() and gpu.device]
    return list(dict.fromkeys([*explicit, *chosen]))


def fill_cases(rows: Sequence[RowPlan], request: Request, machine: Machine) -> None:
    """Give each row its candidates; UsageError if the filters leave a row without any."""
    gpus = gpu_devices(request, machine)
    with_cpu = not request.devices or "cpu" in request.devices
    for row in rows:
        row.cases = cases_on(row, request, machine, gpus, with_cpu=with_cpu)
        if len(row.cases) > MOST_CASES:
            raise UsageError(
                f"{row.scenario.id} has {len(row.cases)} candidates, {MOST_CASES} at most: "
                "narrow it with --device, --precision, --threads or --set"
            )
        if not row.cases and not request.every:
            if not gpus and all(v.device_kind == "gpu" for v in row.workload.variants):
                raise UsageError(
                    f"{row.scenario.id} needs a GPU, and there is none here that can be used;"
                    " see workbench detect"
                )
            offered = sorted(
                {
                    "/".join((v.device_kind, v.backend, v.precision, *filter(None, [v.mode])))
                    for v in row.workload.variants
                }
            )
            raise UsageError(
                f"{row.scenario.id} has no candidate left with these filters. "
                f"It offers: {', '.join(offered)}"
            )
    if rows and not any(row.cases for row in rows):
        raise UsageError("no workload has a candidate left with these filters")


def cases_on(
    row: RowPlan, request: Request, machine: Machine, gpus: Sequence[str], *, with_cpu: bool
) -> list[Case]:
    """The candidates a row has on `machine`, on these of its GPUs."""
    scenario = row.scenario
    found: list[Case] = []
    wanted = [*scenario.precisions, *scenario.apart]
    for variant in row.workload.variants:
        if variant.precision not in wanted:
            continue
        if scenario.modes is not None and variant.mode not in (None, *scenario.modes):
            continue
        if request.precisions and variant.precision not in request.precisions:
            continue
        if request.modes and (variant.mode or "plain") not in request.modes:
            continue
        if request.backends and variant.backend not in request.backends:
            continue
        template = Case(
            workload=row.workload.name,
            device="cpu",
            backend=variant.backend,
            precision=variant.precision,
            quantization=variant.quantization,
            mode=variant.mode,
            batch=scenario.batch,
            params=scenario.params,
        )
        placed: list[Case] = []
        if variant.device_kind == "gpu":
            placed = [replace(template, device=gpu) for gpu in gpus]
        elif with_cpu:
            counts = thread_counts(scenario, request, machine)
            if variant.threads is not None:
                counts = list(dict.fromkeys(min(variant.threads, count) for count in counts))
            placed = [replace(template, threads=count) for count in counts]
        for tuning in _tunings(row, machine, variant.device_kind):
            found += [replace(case, tuning=tuning) for case in placed]
    return found


def _tunings(row: RowPlan, machine: Machine, device_kind: str) -> list[dict[str, ParameterValue]]:
    """The settings to race: those asked for, otherwise what the workload proposes here."""
    host = Host(
        cores=machine.cpu.effective_cores,
        gpus=sum(gpu.device is not None for gpu in machine.gpus),
    )
    axes = {
        p.name: row.tuning.get(p.name) or row.workload.tuning_values(p.name, host, device_kind)
        for p in row.workload.parameters
        if p.tuning
    }
    return [dict(zip(axes, found, strict=True)) for found in itertools.product(*axes.values())]


def planned(row: RowPlan, request: Request, at_s: float) -> ev.RacePlanned:
    """What a run tells of a row before it is raced."""
    scenario = row.scenario
    return ev.RacePlanned(
        at_s=at_s,
        scenario=scenario.id,
        title=scenario.title,
        question=scenario.question,
        textbook=scenario.textbook,
        objective=scenario.objective,
        reference_only=list(scenario.apart),
        reproduce=_reproduce(row, request),
        cases=list(row.cases),  # of those who join later another event tells
        work={case.id: row.workload.work(case) for case in row.cases},
        workload=row.workload.name,
        point=dict(row.point),
        of=row.of,
        prices=dict(row.prices),
        what_if=list(row.what_if),
    )


def _reproduce(row: RowPlan, request: Request) -> str:
    """The command that measures this row alone."""
    once = replace(request, every=False, trace=None)
    if row.of is not None:
        alone = replace(
            once,
            scenarios=(row.of,),
            all_scenarios=False,
            crossover=True,
            budget_s=request.budget,
        )
    elif request.model is not None:
        alone = replace(once, model=replace(request.model, save_best=None))
    elif not (request.workloads or request.every):
        name, budget = row.scenario.id, request.budget
        alone = replace(once, scenarios=(name,), all_scenarios=False, budget_s=budget)
    else:
        point = dict(row.point)
        batch = point.pop("batch", None)
        settings = [s for s in once.settings if s.partition("=")[0] not in point]
        alone = replace(
            once,
            workloads=(row.workload.name,),
            batch=once.batch if batch is None else (int(batch),),
            settings=(*settings, *(f"{name}={value}" for name, value in point.items())),
        )
    return shlex.join(["workbench", *alone.arguments()])
