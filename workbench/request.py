"""What a user asked for, checked and planned: scenarios or workloads into cases.

Everything that can be wrong with a request is found here, before anything is measured.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from . import catalog
from .advisor.scenarios import Scenario
from .contract import BACKENDS, PRECISIONS, Case, ParameterValue, Workload
from .document import Machine

DEFAULT_BUDGET_S = 60.0
QUICK_BUDGET_S = 20.0
THOROUGH_BUDGET_S = 300.0
LONGEST_BUDGET_S = 86_400.0
MOST_THREADS = 4096


class UsageError(Exception):
    """The request cannot be met as it stands; one line that names the valid choices."""


@dataclass(frozen=True)
class Request:
    """The options of one run, the same for TUI, `--json` and `--jsonl`."""

    scenarios: tuple[str, ...] = ()  # of `advise`; both empty: all scenarios
    workloads: tuple[str, ...] = ()  # of `run`
    budget_s: float | None = None
    quick: bool = False
    thorough: bool = False
    devices: tuple[str, ...] = ()  # "cpu", "gpu", "cuda:0", "fake:0@8"
    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    threads: int | None = None
    batch: int | None = None
    settings: tuple[str, ...] = ()  # "name=value"
    python: str | None = None
    seed: int = 0
    strict: bool = False
    ceilings: bool = False  # of `ceilings`: measure what the machine can reach

    @property
    def budget(self) -> float:
        """Seconds from the start of the process to its end."""
        if self.budget_s is not None:
            return self.budget_s
        if self.quick:
            return QUICK_BUDGET_S
        return THOROUGH_BUDGET_S if self.thorough else DEFAULT_BUDGET_S

    def arguments(self) -> list[str]:
        """The command line that says the same, without the ways of showing it."""
        found: list[str] = []
        if self.workloads:
            found = ["run", *self.workloads]
        elif self.ceilings:
            found = ["ceilings", "--again"]
        elif self.scenarios:
            found = ["advise", *self.scenarios]
        if self.budget_s is not None:
            found += ["--budget", str(self.budget_s).removesuffix(".0")]
        flags = {"--quick": self.quick, "--thorough": self.thorough, "--strict": self.strict}
        found += [name for name, is_set in flags.items() if is_set]
        repeated = {
            "--device": self.devices,
            "--backend": self.backends,
            "--precision": self.precisions,
            "--set": self.settings,
        }
        for name, values in repeated.items():
            for value in values:
                found += [name, value]
        single = {"--threads": self.threads, "--batch": self.batch, "--python": self.python}
        for name, given in single.items():
            if given is not None:
                found += [name, str(given)]
        if self.seed:
            found += ["--seed", str(self.seed)]
        return found


@dataclass
class RowPlan:
    """One row to race: its scenario, and its contenders."""

    scenario: Scenario
    workload: Workload
    cases: list[Case] = field(default_factory=list)


def unknown(noun: str, given: str, choices: Iterable[str]) -> UsageError:
    """`unknown workload 'matmull'; did you mean matmul? Choices: ...`."""
    listed = list(choices)
    close = difflib.get_close_matches(given, listed, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    return UsageError(f"unknown {noun} {given!r}{hint} Choices: {', '.join(listed)}")


def resolve(request: Request, scenarios: Mapping[str, Scenario]) -> list[RowPlan]:
    """The rows a request names, with parameters checked; cases come once the machine is known."""
    for backend in request.backends:
        if backend not in BACKENDS:
            raise unknown("backend", backend, BACKENDS)
    for precision in request.precisions:
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
    for device in request.devices:
        check_device(device)
    fake_devices(request)
    if not 1 <= request.budget <= LONGEST_BUDGET_S:  # so written that NaN is refused
        raise UsageError(f"--budget lies between 1 and {LONGEST_BUDGET_S:g} s")
    if request.threads is not None and not 1 <= request.threads <= MOST_THREADS:
        raise UsageError(f"--threads lies between 1 and {MOST_THREADS}, not at {request.threads}")
    if request.ceilings:
        rows = []  # they depend on the machine
    elif request.workloads:
        rows = [_ad_hoc(name, request) for name in dict.fromkeys(request.workloads)]
    else:
        names = dict.fromkeys(request.scenarios or scenarios)
        rows = [_row(name, request, scenarios) for name in names]
    if request.settings or request.batch is not None:
        rows = [_with_settings(row, request) for row in rows]
    return rows


def check_device(device: str) -> None:
    """Raise UsageError unless `device` has a form this program knows."""
    kind, _, rest = device.partition(":")
    if device in ("cpu", "gpu"):
        return
    number, at, speed = rest.partition("@")
    plain = number.isascii() and number.isdecimal()
    if kind in ("cuda", "fake") and plain and not (at and kind == "cuda"):
        try:
            if not at or 0 < float(speed) < float("inf"):
                return
        except ValueError:
            pass
    raise unknown("device", device, ["cpu", "gpu", "cuda:0", "fake:0", "fake:0@8"])


def fake_devices(request: Request) -> dict[str, float]:
    """The simulated GPUs asked for, with their speed relative to this CPU."""
    found = {}
    for device in request.devices:
        if device.startswith("fake:"):
            name, _, speed = device.partition("@")
            if name in found:
                raise UsageError(f"{name} is given twice; a second one is fake:1")
            found[name] = float(speed or 4.0)
    return found


def _row(name: str, request: Request, scenarios: Mapping[str, Scenario]) -> RowPlan:
    if name not in scenarios:
        raise unknown("scenario", name, scenarios)
    scenario = scenarios[name].quickened() if request.quick else scenarios[name]
    workload = _workload(scenario.workload)
    for parameter in scenario.params:
        if parameter not in {p.name for p in workload.parameters}:
            names = (p.name for p in workload.parameters)
            raise unknown(f"parameter of scenario {name}:", parameter, names)
    params = workload.values(scenario.params)
    return RowPlan(msgspec.structs.replace(scenario, params=params), workload)


def _ad_hoc(name: str, request: Request) -> RowPlan:
    """A plain `run`: every variant, nothing to decide."""
    workload = _workload(name)
    scenario = Scenario(
        id=name,
        title=workload.title,
        question=workload.teaches,
        textbook=None,
        workload=name,
        objective="latency_p99" if workload.latency else "throughput",
        precisions=tuple(dict.fromkeys(v.precision for v in workload.variants)),
        modes=None,
        params=workload.values({}),
        batch=workload.default_batch,
    )
    return RowPlan(scenario, workload)


def _workload(name: str) -> Workload:
    names = catalog.files()
    if name not in names:
        raise unknown("workload", name, names)
    return catalog.load(name)


def _with_settings(row: RowPlan, request: Request) -> RowPlan:
    given = parse_settings(row.workload, request.settings)
    scenario = msgspec.structs.replace(
        row.scenario,
        params={**row.scenario.params, **given},
        batch=_batch(row, request.batch),
    )
    return replace(row, scenario=scenario)


def _batch(row: RowPlan, batch: int | None) -> int | None:
    if batch is None:
        return row.scenario.batch
    if row.workload.default_batch is None:
        raise UsageError(f"{row.workload.name} has no batch; leave out --batch")
    if not 1 <= batch <= 1_000_000:
        raise UsageError(f"--batch lies between 1 and 1000000, not at {batch}")
    return batch


def parse_settings(workload: Workload, settings: Sequence[str]) -> dict[str, ParameterValue]:
    """`name=value` texts as typed parameters of `workload`."""
    known = {parameter.name: parameter for parameter in workload.parameters}
    found: dict[str, ParameterValue] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes name=value, not {setting!r}")
        if name not in known:
            if not known:
                raise UsageError(f"{workload.name} has no parameters to set")
            raise unknown(f"parameter of {workload.name}:", name, known)
        try:
            found[name] = known[name].parse(text)
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
    """Give each row its contenders; UsageError if the filters leave a row without any."""
    gpus = gpu_devices(request, machine)
    with_cpu = not request.devices or "cpu" in request.devices
    for row in rows:
        row.cases = _cases(row, request, machine, gpus, with_cpu=with_cpu)
        if not row.cases:
            if not gpus and all(v.device_kind == "gpu" for v in row.workload.variants):
                raise UsageError(
                    f"{row.scenario.id} needs a GPU, and there is none here that can be used;"
                    " see workbench detect"
                )
            offered = sorted(
                {f"{v.device_kind}/{v.backend}/{v.precision}" for v in row.workload.variants}
            )
            raise UsageError(
                f"{row.scenario.id} has no contender left with these filters. "
                f"It offers: {', '.join(offered)}"
            )


def _cases(
    row: RowPlan, request: Request, machine: Machine, gpus: Sequence[str], *, with_cpu: bool
) -> list[Case]:
    scenario, found = row.scenario, []
    wanted = [*scenario.precisions, *scenario.apart]
    for variant in row.workload.variants:
        if variant.precision not in wanted:
            continue
        if scenario.modes is not None and variant.mode not in (None, *scenario.modes):
            continue
        if request.precisions and variant.precision not in request.precisions:
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
        if variant.device_kind == "gpu":
            found += [replace(template, device=gpu) for gpu in gpus]
        elif with_cpu:
            found += [
                replace(template, threads=t) for t in thread_counts(scenario, request, machine)
            ]
    return found


def thread_counts(scenario: Scenario, request: Request, machine: Machine) -> list[int]:
    """The CPU thread counts to race, never more than the effective cores unless asked for."""
    if request.threads is not None:
        return [request.threads]
    cores = machine.cpu.effective_cores
    counts = [cores if count == "all" else min(count, cores) for count in scenario.threads]
    return list(dict.fromkeys(counts))
