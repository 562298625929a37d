"""The candidates of each row and their thread counts, once the machine is known."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from .. import catalog
from ..contract import Case, Host, ParameterValue, Variant, Workload, WorkloadError
from ..records.machine import Cpu, Machine
from ..records.reason import Reason, Warning
from ..stats.objectives import UNTIMED
from ..text import units
from .admission import small_probe_of
from .plan import RowPlan
from .request import Request
from .scenario import Scenario
from .usage import UsageError

MOST_CASES = 64  # in one row


def gpu_devices(request: Request, machine: Machine) -> list[str]:
    """The GPUs to race: those requested, otherwise one of each model."""
    usable = machine.by_device
    explicit = list(dict.fromkeys(d.partition("@")[0] for d in request.devices if ":" in d))
    for device in explicit:
        if device not in usable:
            raise UsageError(f"no device {device} here. Choices: {', '.join(['cpu', *usable])}")
    if request.devices and "gpu" not in request.devices:
        return explicit
    if request.devices and not usable:
        raise UsageError("no GPU here can be used; see workbench detect")
    idle_first = sorted(usable, key=lambda device: usable[device].is_busy)
    one_of_each = {usable[device].name: device for device in reversed(idle_first)}.values()
    return list(dict.fromkeys([*explicit, *(name for name in usable if name in one_of_each)]))


def devices_of(request: Request, machine: Machine) -> list[str]:
    """The devices to race: the CPU, unless only others are requested, and those GPUs."""
    return [*(["cpu"] if request.with_cpu else []), *gpu_devices(request, machine)]


def fill_cases(
    rows: Sequence[RowPlan],
    request: Request,
    machine: Machine,
    installed: Collection[str] | None = (),
) -> None:
    """Fill in the candidates of each row; UsageError if the filters leave a row without any, or if
    a workload that the user named cannot describe them.  Optional backends take part if they are
    `installed`, or all if that is unknown (None)."""
    devices = devices_of(request, machine)
    for row in rows:
        try:
            row.cases = cases_on(row, request, machine, devices, installed)
            row.refining = _refining(row, request, machine)
            row.cases = [case for case in row.cases if case not in row.refining]
            if len(row.cases) > MOST_CASES:
                text = f"{row.scenario.id} has {len(row.cases)} candidates, {MOST_CASES} at most"
                narrow = "narrow it with --device, --precision, --threads or --set"
                raise UsageError(f"{text}: {narrow}")
            # All calls of a race, so that a user's file fails now if it does.
            for case in (*row.cases, *row.refining):
                row.workload.work(case)
                small_probe_of(case, row.workload, machine.cpu)
        except WorkloadError as error:
            reason = Reason(error.code, str(error), error.hint)
            if not request.every:
                raise UsageError(reason.one_line) from None
            row.cases, row.refining, row.refused = [], [], reason
        if not (row.cases or request.every):
            lacking = _not_installed(row, installed)
            if lacking is None:
                raise _no_candidate(row, devices)
            if not request.all_scenarios:
                raise UsageError(f"{lacking.message}: {lacking.hint}")
            row.refused = lacking
    if rows and not any(row.cases for row in rows):
        raise UsageError("no workload has a candidate left with these filters")


def share_workers(rows: Sequence[RowPlan], *, quick: bool, fresh: bool) -> None:
    """Let rows in which start-up counts take the workers that all rows share: the first on the CPU
    if they are `fresh` when the races begin, and with `quick` each on a GPU."""
    for row in rows:
        if not row.scenario.counts_start_up:
            continue
        if row.is_on_host:
            row.shares_workers, fresh = fresh, False
        elif quick:
            row.shares_workers, question = True, row.scenario.question
            question += " (--quick: all rows share the workers, and their start-up times.)"
            row.scenario = msgspec.structs.replace(row.scenario, question=question)


def _refining(row: RowPlan, request: Request, machine: Machine) -> list[Case]:
    """The cases that enter only once they may beat a leader.

    These are further numbers of loaders and, in rows that end with a pick, compiled cases on GPUs
    and fewer threads on a CPU with several threads per core, or with two kinds of core.  What the
    user names races at once.
    """
    on_gpu = [case for case in row.cases if case.device_kind == "gpu"]
    found = [
        case
        for case in on_gpu
        if (case.is_compiled and row.decides and not request.modes)
        or ([*case.tuning] == ["loaders"] and case.tuning != on_gpu[0].tuning and not row.tuning)
    ]
    if row.decides and not request.threads:
        full = [case for case in row.cases if case.threads == machine.cpu.effective_cores]
        for fewer in filter(None, (one_thread_per_core(machine.cpu), faster_cores(machine.cpu))):
            others = (replace(each, threads=fewer) for each in full)
            found += [case for case in others if case not in row.cases]
    return found


def _not_installed(row: RowPlan, installed: Collection[str] | None) -> Reason | None:
    """Why no variant of a row can run, where all of them need libraries that are missing."""
    needed = sorted({variant.backend for variant in row.workload.variants})
    if not all(is_lacking(name, installed) for name in needed):
        return None
    text = f"{row.scenario.id} needs {' or '.join(needed)}"
    return Reason("not_installed", text, catalog.backend(needed[0]).install)


def _no_candidate(row: RowPlan, devices: Sequence[str]) -> UsageError:
    name, variants = row.scenario.id, row.workload.variants
    gpus = [device for device in devices if device != "cpu"]
    if not gpus and all(variant.device_kind == "gpu" for variant in variants):
        return UsageError(f"{name} needs a GPU, and none here can be used; see workbench detect")
    if row.scenario.objective in UNTIMED and gpus:
        return UsageError(f"{name} compares {row.scenario.objective} on the CPU only: --device cpu")
    ways = ((v.device_kind, v.backend, v.precision, v.mode) for v in variants)
    offered = ", ".join(sorted({"/".join(filter(None, way)) for way in ways}))
    return UsageError(f"{name} has no candidate left with these filters. It offers: {offered}")


def cases_on(
    row: RowPlan,
    request: Request,
    machine: Machine,
    devices: Sequence[str],
    installed: Collection[str] | None,
) -> list[Case]:
    """The candidates of a row on these devices of `machine`."""
    found: list[Case] = []
    for variant in row.workload.variants:
        is_wanted = _is_wanted(variant, row.scenario, request)
        if not is_wanted or (not request.backends and is_lacking(variant.backend, installed)):
            continue
        sizes = {"batch": row.scenario.batch, "params": row.scenario.params}
        template = case_of(variant, row.workload, "cpu", **sizes)
        placed: list[Case] = []
        if variant.device_kind == "cpu" and "cpu" in devices:
            counts = thread_counts(row.scenario, request, machine)
            known = dict.fromkeys(min(variant.threads or count, count) for count in counts)
            placed = [replace(template, threads=count) for count in known]
        elif variant.device_kind == "gpu" and row.scenario.objective not in UNTIMED:
            usable = usable_by(variant.backend, machine)
            placed = [replace(template, device=gpu) for gpu in devices if gpu in usable]
        for tuning in _tunings(row, machine, variant.device_kind):
            found += [replace(case, tuning=tuning) for case in placed]
    return found


def case_of(variant: Variant, workload: Workload, device: str, **fields: Any) -> Case:
    way = variant.backend, variant.precision, variant.quantization
    return Case(workload.name, device, *way, mode=variant.mode, **fields)


def usable_by(name: str, machine: Machine) -> list[str | None]:
    platforms = catalog.backend(name).platforms
    return [gpu.device for gpu in machine.gpus if gpu.simulated or gpu.runs_on in platforms]


def is_lacking(name: str, installed: Collection[str] | None) -> bool:
    """Whether the backend called `name` is an optional one that is not `installed`."""
    backend = catalog.backend(name)
    packages = backend.packages or (name,)
    return backend.optional and installed is not None and not {*packages} & {*installed}


def _is_wanted(variant: Variant, scenario: Scenario, request: Request) -> bool:
    """Whether a variant is admissible in its scenario and passes the filters of the request."""
    return (
        variant.precision in (*scenario.precisions, *scenario.reference_only)
        and (scenario.modes is None or variant.mode in scenario.modes_on(variant.device_kind))
        and request.admits(variant)
    )


def _tunings(row: RowPlan, machine: Machine, device_kind: str) -> list[dict[str, ParameterValue]]:
    """Every combination of the tuning parameters, as requested or as the workload proposes."""
    gpus = sum(gpu.simulated or gpu.is_cuda for gpu in machine.gpus)  # those that ranks can use
    host = Host(cores=machine.cpu.effective_cores, gpus=gpus)
    names = [parameter.name for parameter in row.workload.parameters if parameter.tuning]
    values = {
        name: row.tuning.get(name) or row.workload.tuning_values(name, host, device_kind)
        for name in names
    }
    axes = {name: found for name, found in values.items() if found}
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def thread_counts(scenario: Scenario, request: Request, machine: Machine) -> list[int]:
    """The CPU thread counts to race, within the scenario's limit and, by default, the cores."""
    cores, most = machine.cpu.effective_cores, scenario.limits.threads or math.inf
    if request.threads:
        counts = [n for n in request.threads if n <= most]
        if not counts:
            text = f"--threads: {scenario.id} allows at most {most} (limits.threads)"
            raise UsageError(f"{text}, not {', '.join(map(str, request.threads))}")
    else:
        allowed = [n for n in scenario.threads if n == "all" or n <= most]
        counts = [int(min(cores, most if n == "all" else n)) for n in allowed]
    return list(dict.fromkeys(counts))


def one_thread_per_core(cpu: Cpu) -> int | None:
    """The usable physical cores, if the CPU has several threads per core; else None."""
    physical = cpu.usable_physical_cores
    return physical if physical and physical < cpu.effective_cores else None


def faster_cores(cpu: Cpu) -> int | None:
    """The physical cores of the faster kind, if there are two kinds and all cores are usable; else
    None.  Slower ones run one thread each, and may hold up the others: an i9-13900K generates text
    fastest with 8 threads of 32 (github.com/ggml-org/llama.cpp/issues/34)."""
    if not cpu.efficiency_cores or cpu.physical_cores != cpu.usable_physical_cores:
        return None
    faster = (cpu.physical_cores or 0) - cpu.efficiency_cores
    return faster if 0 < faster < cpu.effective_cores else None


def useful_thread_counts(cpu: Cpu, requested: Sequence[int] = ()) -> tuple[int, ...]:
    """The requested counts, else powers of two and the physical, faster and usable cores; largest
    first."""
    if requested:
        return tuple(sorted(set(requested), reverse=True))
    cores = cpu.effective_cores
    counts = {cores, one_thread_per_core(cpu) or cores, faster_cores(cpu) or cores}
    counts |= {1 << power for power in range(cores.bit_length()) if 1 << power <= cores}
    return tuple(sorted(counts, reverse=True))


def fewer_threads(
    scenarios: Iterable[Scenario], request: Request, machine: Machine
) -> Iterator[Warning]:
    """A warning for each scenario that asks for more threads than there are cores."""
    cores = machine.cpu.effective_cores
    for scenario in scenarios if not request.threads else ():
        most = scenario.limits.threads or math.inf
        if beyond := [n for n in scenario.threads if n != "all" and cores < n <= most]:
            asked = ", ".join(map(str, beyond))
            usable = units.counted(cores, "core")
            text = f"{scenario.id} asks for {asked} threads but only {usable} can be used"
            remedy = f"it runs on {cores}; --threads {beyond[0]} runs more threads than cores"
            yield Warning("fewer_threads", text, remedy)
