"""What this machine can reach, measured by the same workloads and the same race as all else.

A plan of four rows (products by precision, memory bandwidth, transfers, launches); the ceilings
are what each device reached in its best tenth of samples, and are kept per machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from .. import catalog
from ..contract import Case, ParameterValue, kind_of
from ..planning.admission import most_ops_per_s
from ..planning.plan import RowPlan
from ..planning.scenario import Scenario
from ..records.document import Ceilings, DeviceCeilings
from ..records.machine import Machine, Software
from ..report import journal
from ..report.candidate import Candidate
from ..report.report import Report
from ..stats.samples import quantile

PRODUCT, MEMORY, TRANSFER, LAUNCH = "matmul", "bandwidth", "transfer", "launch"
MANY_CORES = 16  # from here on a larger product is needed to fill them
PRODUCT_SIZES = {"cpu": 2048, "gpu": 8192}
BRIEF_SIZES = {"cpu": 1024, "gpu": 4096}
FP64_GPU_SIZE = 4096  # many GPUs compute FP64 at a 32nd or 64th of their FP32 rate
OUT_OF_CACHE = 4  # times the last-level cache, per array
IN_CACHE = 1 / 8  # of the last-level cache, per array: three of them fit with room to spare
LARGE_MIB = 128.0
TRANSFERS = (  # which way, and the mode; without one: pageable
    ("to_device", None),
    ("to_device", "pinned"),
    ("to_host", None),
    ("to_host", "pinned"),
    ("both", "pinned"),
)
FAST = 0.10  # the quantile of the times that stands for what is reached


# ---------------------------------------------------------------- planning


def plan(
    machine: Machine, devices: Sequence[str], *, threads: int | None = None, brief: bool = False
) -> list[RowPlan]:
    """The rows to measure on `devices` ("cpu", "cuda:0"); `threads` of a CPU, None: all.

    `brief` is what results need to be told as fractions: smaller products, and bandwidth.
    """
    cores = threads or machine.cpu.effective_cores
    settings: dict[str, list[dict[str, ParameterValue]]] = {
        PRODUCT: [{}],
        MEMORY: _bandwidths(machine, ("triad",) if brief else ("copy", "triad")),
        TRANSFER: [
            {"direction": way, "mib": LARGE_MIB} for way in dict.fromkeys(w for w, _ in TRANSFERS)
        ],
        LAUNCH: [{"wait": "no"}, {"wait": "yes"}],
    }
    wanted = (PRODUCT, MEMORY) if brief else tuple(settings)
    rows = [_row(name, settings[name], devices, cores, brief) for name in wanted]
    return [row for row in rows if row.cases]


def _bandwidths(machine: Machine, kernels: Sequence[str]) -> list[dict[str, ParameterValue]]:
    cache = last_level_cache(machine)
    large = LARGE_MIB if cache is None else max(LARGE_MIB, OUT_OF_CACHE * cache / 2**20)
    found: list[dict[str, ParameterValue]] = [
        {"kernel": kernel, "mib": float(round(large))} for kernel in kernels
    ]
    if cache is not None:
        found.append({"kernel": "triad", "mib": IN_CACHE * cache / 2**20})
    return found


def last_level_cache(machine: Machine) -> int | None:
    """Bytes of the largest cache that one core sees; None where the kernel does not tell."""
    return max((cache.size_bytes for cache in machine.cpu.caches), default=None)


def _row(
    name: str,
    settings: Sequence[dict[str, ParameterValue]],
    devices: Sequence[str],
    cores: int,
    brief: bool,
) -> RowPlan:
    workload = catalog.load(name)
    cases = []
    for variant in workload.variants:
        for device in devices:
            kind = kind_of(device).column
            if variant.device_kind != kind:
                continue
            for setting in settings:
                if name == MEMORY and kind == "gpu" and setting["mib"] != settings[0]["mib"]:
                    continue  # a CPU's cache size means nothing to a GPU
                if name == TRANSFER and (
                    kind == "cpu" or (setting["direction"], variant.mode) not in TRANSFERS
                ):
                    continue
                size = {"n": _product_size(kind, variant.precision, cores, brief)}
                given = size if name == PRODUCT else setting
                cases.append(
                    Case(
                        workload=name,
                        device=device,
                        backend=variant.backend,
                        precision=variant.precision,
                        mode=variant.mode,
                        threads=cores if kind == "cpu" else None,
                        params=workload.values(given),
                    )
                )
    scenario = Scenario(
        id=name,
        title=workload.title,
        question=workload.teaches,
        textbook=None,
        workload=name,
        objective="throughput",
        precisions=tuple(dict.fromkeys(case.precision for case in cases)),
        weight=3.0 if name == PRODUCT else 1.0,
    )
    return RowPlan(scenario, workload, cases)


def _product_size(kind: str, precision: str, cores: int, brief: bool) -> int:
    if brief:
        return BRIEF_SIZES[kind]
    if kind == "gpu" and precision == "fp64":
        return FP64_GPU_SIZE
    return PRODUCT_SIZES[kind] * (2 if kind == "cpu" and cores >= MANY_CORES else 1)


# ---------------------------------------------------------------- deriving


def of_report(report: Report, print_: str, *, complete: bool = True) -> Ceilings | None:
    """The ceilings that the rows of `plan` gave; None if nothing was measured."""
    assert report.machine is not None and report.started is not None  # noqa: S101 - a run has both
    groups: dict[str, list[Candidate]] = {}
    for candidate in report.candidates.values():
        groups.setdefault(candidate.case.device, []).append(candidate)
    if not any(candidate.blocks for candidate in report.candidates.values()):
        return None
    devices = [_device(name, group, report.machine) for name, group in groups.items()]
    return Ceilings(print_, report.started.started_at, complete, devices)


def _device(device: str, group: Sequence[Candidate], machine: Machine) -> DeviceCeilings:
    def of(workload: str) -> list[Candidate]:
        # One that failed after a block was faster than the device can be.
        return [
            c for c in group if c.case.workload == workload and c.blocks and c.state != "failed"
        ]

    peaks: dict[str, float] = {}
    for candidate in of(PRODUCT):
        rate = _per_s(candidate, candidate.work.flops)
        peaks[candidate.case.precision] = max(peaks.get(candidate.case.precision, 0.0), rate)
    memory: dict[str, float] = {}
    cached: float | None = None
    bandwidths = of(MEMORY)
    largest = max((c.work.memory_bytes for c in bandwidths), default=0.0)
    for candidate in bandwidths:
        rate = _per_s(candidate, candidate.work.bytes_moved)
        if candidate.work.memory_bytes < largest / 2:
            cached = rate
        else:
            memory[str(candidate.case.params["kernel"])] = rate
    launches = {str(c.case.params["wait"]): quantile(c.samples_s, FAST) for c in of(LAUNCH)}
    gpu = next((gpu for gpu in machine.gpus if gpu.device == device), None)
    return DeviceCeilings(
        device=device,
        name=gpu.name if gpu else machine.cpu.model,
        threads=group[0].case.threads,
        peak_ops_per_s=peaks,
        memory_bytes_per_s=max(memory.values(), default=None),
        memory=memory,
        cache_bytes=last_level_cache(machine) if gpu is None else None,
        cache_bytes_per_s=cached,
        transfer_bytes_per_s={
            f"{c.case.params['direction']}/{c.case.mode or 'pageable'}": _per_s(
                c, c.work.bytes_moved
            )
            for c in of(TRANSFER)
        },
        launch_s=launches.get("no"),
        step_latency_s=launches.get("yes"),
        unavailable=_reasons(group, peaks),
    )


def _per_s(candidate: Candidate, amount: float | None) -> float:
    return (amount or 0.0) / quantile(candidate.samples_s, FAST)


def _reasons(group: Iterable[Candidate], peaks: dict[str, float]) -> dict[str, str]:
    """Why a figure is not there, by the precision or the workload that would have given it."""
    found = {}
    for candidate in group:
        case = candidate.case
        field = case.precision if case.workload == PRODUCT else case.id.partition("/")[0]
        if not candidate.blocks and candidate.reason is not None and field not in peaks:
            found[field] = candidate.reason.message
    return found


def raised(ceilings: Ceilings, report: Report) -> Ceilings:
    """`ceilings`, where a result of this run was faster than a ceiling: that one, but never more
    than the device can reach."""
    assert report.machine is not None  # noqa: S101 - a run has one
    devices = []
    for device in ceilings.devices:
        peaks = dict(device.peak_ops_per_s)
        for candidate in report.candidates.values():
            case, flops = candidate.case, candidate.work.flops
            if case.device != device.device or case.precision not in peaks:
                continue
            if candidate.blocks and candidate.state != "failed" and flops:
                rate = _per_s(candidate, flops)
                bound = most_ops_per_s(case, report.machine, candidate.work.ranks)
                if bound is None or rate <= bound:
                    peaks[case.precision] = max(peaks[case.precision], rate)
        devices.append(msgspec.structs.replace(device, peak_ops_per_s=peaks))
    return msgspec.structs.replace(ceilings, devices=devices)


# ----------------------------------------------------------------- keeping


def fingerprint(machine: Machine, software: Software) -> str:
    """Sixteen hex digits that change with anything a ceiling depends on."""
    cpu = machine.cpu
    parts = [
        [cpu.model, cpu.architecture, cpu.logical_cores, cpu.effective_cores],
        [round(machine.memory.total_bytes / 2**30)],
        [[gpu.uuid, gpu.name, gpu.driver_version] for gpu in machine.gpus if not gpu.simulated],
        sorted((name, package.version) for name, package in software.packages.items()),
        sorted(software.environment.items()),
        machine.os.release,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def folder() -> Path:
    return journal.runs_folder().with_name("ceilings")


def load(print_: str) -> Ceilings | None:
    """Those kept under a fingerprint; None if there are none, or none that can be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder() / f"{print_}.json").read_bytes(), type=Ceilings)
    return None


def save(ceilings: Ceilings) -> None:
    """Keep them for later runs; where nothing can be kept they are measured anew each time."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        beside = folder() / f".{ceilings.fingerprint}.tmp"
        beside.write_bytes(msgspec.json.encode(ceilings))
        beside.replace(folder() / f"{ceilings.fingerprint}.json")
