"""The machine's half of the JSON document: what was detected, and the words for what is missing.

Imported through `workbench.records.document`, which is the whole schema.
"""

from __future__ import annotations

import msgspec

from .reason import Reason

# ---------------------------------------------------------------- machine


class Cache(msgspec.Struct, frozen=True):
    level: int
    kind: str  # "data", "instruction", "unified"
    size_bytes: int
    instances: int


class Isa(msgspec.Struct, frozen=True):
    """Instruction-set extensions that decide which precision is fast; None: could not be read."""

    avx2: bool | None = None
    avx512f: bool | None = None
    avx512_vnni: bool | None = None
    avx_vnni: bool | None = None
    avx512_bf16: bool | None = None
    avx512_fp16: bool | None = None
    amx_tile: bool | None = None
    amx_int8: bool | None = None
    amx_bf16: bool | None = None
    neon: bool | None = None
    sve: bool | None = None
    asimddp: bool | None = None  # arm64 dot product
    i8mm: bool | None = None
    bf16: bool | None = None  # arm64 BF16


class CoreLimit(msgspec.Struct, frozen=True):
    """One thing that limits the usable cores, e.g. `("cgroup", 4.0, "/sys/fs/cgroup/cpu.max")`."""

    name: str  # "logical", "affinity", "cgroup", "slurm"
    cores: float
    source: str


class Cpu(msgspec.Struct, frozen=True):
    model: str | None
    vendor: str | None
    architecture: str
    sockets: int | None
    physical_cores: int | None
    logical_cores: int
    affinity_cores: int | None
    cgroup_quota_cores: float | None  # as the kernel says, unrounded; None: no quota
    effective_cores: int  # what every thread setting derives from
    limited_by: str  # which of `limits` gave `effective_cores`
    limits: list[CoreLimit]
    isa: Isa
    caches: list[Cache]
    max_frequency_mhz: float | None
    numa_nodes: int | None = None
    smt: bool | None = None  # more than one thread a core
    efficiency_cores: int | None = None  # logical cores of the slower kind; 0: all are alike
    unavailable: dict[str, str] = {}


class Memory(msgspec.Struct, frozen=True):
    total_bytes: int
    available_bytes: int  # after the cgroup limit, where there is one
    cgroup_limit_bytes: int | None
    swap_total_bytes: int
    swap_used_bytes: int
    unavailable: dict[str, str] = {}  # a 0 above is explained here where it was not read


class Pcie(msgspec.Struct, frozen=True):
    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None  # of card and slot together
    max_width: int | None = None
    gpu_max_generation: int | None = None  # of the card alone


class GpuProcess(msgspec.Struct, frozen=True):
    pid: int
    used_memory_bytes: int | None
    name: str | None = None  # of the program, never its command line
    user: str | None = None  # None: not a process here, as for others' in a container


class HostReading(msgspec.Struct, frozen=True):
    """The processor and memory at one moment; None where it could not be read."""

    utilization_percent: float | None = None  # of the cores this process may use, since the last
    frequency_mhz: float | None = None  # mean of these cores
    temperature_c: float | None = None  # warmest sensor
    power_w: float | None = None  # mean of all packages since the last reading
    memory_available_bytes: int | None = None
    unavailable: dict[str, str] = {}


class GpuReading(msgspec.Struct, frozen=True):
    """What changes on a GPU from one moment to the next; None where it could not be read."""

    index: int  # NVML's number of the GPU
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    pcie_generation: int | None = None  # of the link now: it rises under load
    pcie_width: int | None = None
    clock_event_reasons: list[str] | None = None
    energy_j: float | None = None  # since the driver was loaded
    slowed_s: dict[str, float] | None = None  # time held back by heat or power, by cause, so far
    fan_percent: float | None = None  # this and the next every few looks only: slow calls
    processes: list[GpuProcess] | None = None
    power_over_s: float | None = None  # what `power_w` is a mean over; 0: it is of this moment
    unavailable: dict[str, str] = {}


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as NVML and CUDA see it; `unavailable` explains each None."""

    index: int | None  # NVML's index; not CUDA's ordinal
    device: str | None  # the name used in cases, "cuda:0"; None: hidden from CUDA
    uuid: str | None
    pci_bus_id: str | None
    name: str | None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: str | None = None
    driver_version: str | None = None
    pcie: Pcie = Pcie()
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None  # the limit it leaves the factory with
    temperature_c: float | None = None
    utilization_percent: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    clock_event_reasons: list[str] | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    ecc_uncorrected: int | None = None  # memory errors since the driver was loaded
    nvlinks: int | None = None  # active links
    virtualization: str | None = None  # "none", "passthrough", "vgpu", ...
    processes: list[GpuProcess] | None = None
    visible: bool = True  # False: hidden by CUDA_VISIBLE_DEVICES
    simulated: bool = False  # True only for the test device `fake:N`
    unavailable: dict[str, str] = {}


class Nvml(msgspec.Struct, frozen=True):
    available: bool
    reason: Reason | None = None
    driver_version: str | None = None
    library_version: str | None = None


class CudaDriver(msgspec.Struct, frozen=True):
    """What libcuda itself says, asked in a child process; it honours CUDA_VISIBLE_DEVICES."""

    available: bool
    device_count: int
    reason: Reason | None = None
    api_version: str | None = None  # highest CUDA version of the driver, "13.0"


class Os(msgspec.Struct, frozen=True):
    system: str
    release: str
    distribution: str | None
    container: str | None  # "docker", "kubernetes", ... or None


class Machine(msgspec.Struct, frozen=True):
    hostname: str
    os: Os
    cpu: Cpu
    memory: Memory
    gpus: list[Gpu]
    nvml: Nvml
    cuda: CudaDriver


class Package(msgspec.Struct, frozen=True):
    """An installed distribution, read from its metadata, never imported."""

    version: str | None
    detail: str | None = None  # torch: "CPU build", "CUDA 13.0", "ROCm 7.0"


class Software(msgspec.Struct, frozen=True):
    python: str
    executable: str  # of the workers, `~` in place of the home folder
    packages: dict[str, Package]
    environment: dict[str, str]  # the variables that change results, such as OMP_NUM_THREADS
    debug_builds: list[str] = []  # "Python", "torch"
    unavailable: dict[str, str] = {}
