"""The rows that measure ceilings: products by precision, bandwidth, transfers and launches."""

from collections.abc import Sequence

from .. import catalog
from ..contract import ParameterValue, Variant, kind_of
from ..records.machine import Machine
from .cases import case_of, devices_of
from .plan import RowPlan
from .request import Request
from .rows import plain_scenario

PRODUCT, MEMORY, TRANSFER, LAUNCH = "matmul", "bandwidth", "transfer", "launch"
MANY_CORES = 16  # from which a larger product is needed to fill them
PRODUCT_SIZES = {"cpu": 2048, "gpu": 8192}
BRIEF_SIZES = {"cpu": 1024, "gpu": 4096}
FP64_GPU_SIZE = 4096  # many GPUs compute FP64 at a 32nd or 64th of their FP32 rate
OUT_OF_CACHE = 4  # times the last-level cache, per array (STREAM, run rules)
BRIEF_OUT_OF_CACHE = 1.5  # the three arrays of a triad together are still 4.5 times as large
# Share of the last-level cache per array, so that three arrays fit.  On a GPU a smaller one would
# be read in less time than a launch takes.
IN_CACHE = {"cpu": 1 / 8, "gpu": 1 / 4}
LEAST_L2_BYTES = 16 << 20
LARGE_MIB = 128.0
TRANSFERS = (  # direction and mode; None: pageable memory
    ("to_device", None),
    ("to_device", "pinned"),
    ("to_host", None),
    ("to_host", "pinned"),
    ("both", "pinned"),
)


def requested_rows(request: Request, machine: Machine, *, brief: bool = False) -> list[RowPlan]:
    """The rows to measure on the devices of a request, simulated ones left out.

    `brief` plans only smaller products and bandwidth, enough to report results as fractions.
    """
    devices = [d for d in devices_of(request, machine) if not kind_of(d).simulated]
    cores = max(request.threads, default=machine.cpu.effective_cores)
    wanted = (PRODUCT, MEMORY) if brief else (PRODUCT, MEMORY, TRANSFER, LAUNCH)
    rows = [_row(name, machine, devices, cores, brief=brief) for name in wanted]
    return [row for row in rows if row.cases]


def _settings(
    variant: Variant, name: str, machine: Machine, device: str, cores: int, *, brief: bool
) -> list[dict[str, ParameterValue]]:
    """The parameters at which a variant of the workload `name` is measured on a device."""
    kind = kind_of(device).column
    if variant.device_kind != kind:
        return []
    if name == PRODUCT:
        size = PRODUCT_SIZES[kind] * (2 if kind == "cpu" and cores >= MANY_CORES else 1)
        if kind == "gpu" and variant.precision == "fp64":
            size = FP64_GPU_SIZE
        return [{"n": BRIEF_SIZES[kind] if brief else size}]
    if name == MEMORY:
        return _bandwidths(machine, device, brief=brief)
    if name == TRANSFER:
        ways = [way for way, mode in TRANSFERS if kind == "gpu" and mode == variant.mode]
        return [{"direction": way, "mib": LARGE_MIB} for way in ways]
    # Other modes than eager do not launch kernel by kernel.
    return [] if variant.mode else [{"wait": "no"}, {"wait": "yes"}]


def _bandwidths(machine: Machine, device: str, *, brief: bool) -> list[dict[str, ParameterValue]]:
    cache = last_level_cache(machine, device)
    all_caches = machine.cpu.cache_bytes if device == "cpu" else 0
    # A virtual machine may report its host's cache, and arrays so large take seconds to fill.
    times, kernels = (BRIEF_OUT_OF_CACHE, ["triad"]) if brief else (OUT_OF_CACHE, ["copy", "triad"])
    large = max(LARGE_MIB, times * (cache or 0) / 2**20, all_caches / 2**20)
    found: list[dict[str, ParameterValue]] = [
        {"kernel": kernel, "mib": float(round(large))} for kernel in kernels
    ]
    # Reading the L2 of a small GPU takes no longer than a launch.
    if cache is not None and (device == "cpu" or cache >= LEAST_L2_BYTES):
        in_cache = IN_CACHE[kind_of(device).column] * cache / 2**20
        found.append({"kernel": "triad", "mib": in_cache})
    return found


def last_level_cache(machine: Machine, device: str) -> int | None:
    """Bytes of the largest cache that one core sees, or of a GPU's L2; None where unknown."""
    if device != "cpu":
        gpu = machine.by_device.get(device)
        return None if gpu is None else gpu.l2_cache_bytes
    return max((cache.size_bytes for cache in machine.cpu.caches), default=None)


def _row(
    name: str, machine: Machine, devices: Sequence[str], cores: int, *, brief: bool
) -> RowPlan:
    workload = catalog.load(name)
    threads = {"cpu": cores}  # none on a GPU
    cases = [
        case_of(
            variant, workload, device, threads=threads.get(device), params=workload.values(setting)
        )
        for variant in workload.variants
        # The limits of a machine do not depend on what is installed.
        if not catalog.backend(variant.backend).optional
        for device in devices
        for setting in _settings(variant, name, machine, device, cores, brief=brief)
    ]
    cases.sort(key=lambda case: case.device_kind == "cpu")  # GPU cases first, which are faster
    scenario = plain_scenario(
        workload,
        objective="throughput",
        precisions=tuple(dict.fromkeys(case.precision for case in cases)),
        weight=3.0 if name == PRODUCT else 1.0,
    )
    return RowPlan(scenario, workload, cases)
