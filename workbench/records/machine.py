"""The part of the JSON document on hardware and software.

A value that could not be read is None; `unavailable` has the reason by field name.
"""

import re

import msgspec

from ..contract import DEFAULT_CACHE_BYTES
from .reason import Reason

BUSY_PERCENT = 25.0  # a desktop uses less


def version_numbers(version: str | None) -> tuple[int, ...]:
    """The first two numbers of a version or a compute capability; () if it is unknown."""
    return tuple(map(int, re.findall(r"\d+", version or "")[:2]))


class Cache(msgspec.Struct, frozen=True):
    """The caches of one level and kind."""

    level: int
    kind: str  # "data", "instruction", "unified"
    size_bytes: int  # size of one instance
    instances: int


class Isa(msgspec.Struct, frozen=True):
    """Instruction-set extensions that decide which precision is fast."""

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
    """A limit on the usable cores, such as `("cgroup", 4.0, "/sys/fs/cgroup/cpu.max")`."""

    name: str  # "logical", "affinity", "cgroup", or a scheduler: "slurm", "pbs", "lsf", "sge"
    cores: float
    source: str  # file or call it was read from


class Cpu(msgspec.Struct, frozen=True):
    """The processor and the part of it that this process may use."""

    model: str | None
    vendor: str | None
    architecture: str
    sockets: int | None
    physical_cores: int | None
    logical_cores: int
    affinity_cores: int | None
    cgroup_quota_cores: float | None  # unrounded; None without a quota
    effective_cores: int  # number of usable cores, the basis of every thread setting
    limited_by: str  # name of the entry of `limits` that gave `effective_cores`
    limits: list[CoreLimit]
    isa: Isa
    caches: list[Cache]
    max_frequency_mhz: float | None
    numa_nodes: int | None = None
    smt: bool | None = None  # True if a core runs more than one thread
    efficiency_cores: int | None = None  # number of logical cores of the slower kind; 0: one kind
    usable_physical_cores: int | None = None  # those with a logical core in the affinity mask
    unavailable: dict[str, str] = {}

    @property
    def cache_bytes(self) -> int:
        """Bytes of the largest level of cache, over all instances that the affinity mask can
        reach."""
        most = self.affinity_cores or self.logical_cores
        caches = (each for each in self.caches if each.kind != "instruction")
        sizes = (c.size_bytes * min(c.instances, most) for c in caches)
        return max(sizes, default=DEFAULT_CACHE_BYTES)


class Memory(msgspec.Struct, frozen=True):
    """Main memory."""

    total_bytes: int
    available_bytes: int  # after the cgroup limit, if there is one
    cgroup_limit_bytes: int | None
    swap_total_bytes: int
    swap_used_bytes: int
    unavailable: dict[str, str] = {}  # fields that are 0 because they could not be read

    @property
    def usable_bytes(self) -> int:
        """Bytes that this process may use: the cgroup limit, else the machine's memory."""
        return self.cgroup_limit_bytes or self.total_bytes


class Pcie(msgspec.Struct, frozen=True):
    """The PCI Express link of a GPU."""

    generation: int | None = None  # current generation
    width: int | None = None  # current number of lanes
    max_generation: int | None = None  # highest that card and slot have in common
    max_width: int | None = None
    gpu_max_generation: int | None = None  # highest that the card supports


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that uses a GPU."""

    pid: int
    used_memory_bytes: int | None
    name: str | None = None  # program name, never the command line
    user: str | None = None  # None if the process is not visible here, as in a container


class HostReading(msgspec.Struct, frozen=True):
    """Processor and memory at one moment."""

    utilization_percent: float | None = None  # mean of the usable cores since the last reading
    frequency_mhz: float | None = None  # the fastest of the usable cores
    temperature_c: float | None = None  # warmest sensor
    power_w: float | None = None  # all packages together, mean since the last reading
    memory_available_bytes: int | None = None
    unavailable: dict[str, str] = {}


class GpuReading(msgspec.Struct, frozen=True):
    """The changing state of a GPU at one moment."""

    index: int  # NVML's number of the GPU
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    pcie_generation: int | None = None  # current generation of the link, which rises under load
    pcie_width: int | None = None
    clock_event_reasons: list[str] | None = None
    energy_j: float | None = None  # joules since the driver was loaded
    slowed_s: dict[str, float] | None = None  # cause (heat, power) to seconds slowed so far
    fan_percent: float | None = None  # only in some readings, because the call is slow
    processes: list[GpuProcess] | None = None  # only in some readings, too
    power_over_s: float | None = None  # seconds before the reading that `power_w` may stand for
    unavailable: dict[str, str] = {}


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as its vendor's library and CUDA see it, or torch if it is not NVIDIA's."""

    index: int | None  # the index in NVML or AMD SMI, not CUDA's ordinal
    device: str | None  # name in cases, "cuda:0"; None if hidden from CUDA
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
    power_default_w: float | None = None  # factory power limit
    temperature_c: float | None = None
    utilization_percent: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    clock_event_reasons: list[str] | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    ecc_uncorrected: int | None = None  # memory errors since the driver was loaded
    row_remap: str | None = None  # faulty memory: "none", "pending" (until a reset), "failed"
    nvlinks: int | None = None  # number of active links
    virtualization: str | None = None  # "none", "passthrough", "vgpu", ...
    compute_mode: str | None = None  # "default", "exclusive_process", "prohibited"
    processes: list[GpuProcess] | None = None
    visible: bool = True  # False if hidden by CUDA_VISIBLE_DEVICES
    simulated: bool = False  # True only for the test device `fake:N`
    # Cores of its NUMA node, "0-15,32-47", to which its workers are bound; None if not bound.
    worker_cores: str | None = None
    unavailable: dict[str, str] = {}
    l2_cache_bytes: int | None = None  # from CUDA; None if only NVML sees the GPU
    platform: str | None = None  # "ROCm 7.0", "XPU", "MPS", "TPU"; None: CUDA

    @property
    def runs_on(self) -> str:
        """Its platform by the names in `Backend.platforms`."""
        return "" if self.simulated else (self.platform or "CUDA").split()[0]

    @property
    def subject(self) -> str:
        """Its name in warnings."""
        listed = f"gpu {self.index}" if self.index is not None else self.device
        return self.uuid or self.pci_bus_id or listed or "gpu None"

    @property
    def label(self) -> str:
        """Its shortest name for people: `cuda:0`, or `gpu 1` if CUDA cannot use it."""
        return self.device or (self.subject if self.index is None else f"gpu {self.index}")

    @property
    def is_busy(self) -> bool:
        """Whether other processes use it; meaningless while we use it ourselves.

        Without persistence mode, a card with ECC may read 100% for a moment while it loads the
        driver and clears its memory (nvml.h, nvmlDeviceGetUtilizationRates).
        """
        wakes = self.persistence is False and self.ecc is True
        draws = (self.utilization_percent or 0.0) >= BUSY_PERCENT and not wakes
        return bool(self.processes) or draws

    @property
    def is_virtual(self) -> bool:
        """Whether it is in a virtual machine, whose bus hides the real link."""
        return self.virtualization in ("passthrough", "vgpu")

    @property
    def is_cuda(self) -> bool:
        """Whether torch calls it "cuda", which includes AMD's GPUs."""
        return (self.device or "").startswith("cuda")

    @property
    def is_laptop(self) -> bool:
        return (self.name or "").endswith(("Laptop GPU", "with Max-Q Design"))

    @property
    def is_soldered(self) -> bool:
        """Whether its PCIe link cannot be judged: a laptop's board may have fewer lanes than NVML
        reports, and a Grace superchip's GPU has another link to its processor (nvtop#499)."""
        return self.is_laptop or re.match(r"NVIDIA G[BH]\d", self.name or "") is not None

    @property
    def shares_memory(self) -> bool:
        """Whether its memory is the system's, as on GB10 and Jetson (see `NvmlFields`)."""
        return self.memory_total_bytes is not None and "memory_total_bytes" in self.unavailable

    def is_below(self, capability: tuple[int, int]) -> bool:
        """Whether its compute capability is known to be lower."""
        return () < version_numbers(self.compute_capability) < capability


class Nvml(msgspec.Struct, frozen=True):
    """NVIDIA's management library."""

    available: bool
    reason: Reason | None = None
    driver_version: str | None = None
    library_version: str | None = None


class CudaDriver(msgspec.Struct, frozen=True):
    """The CUDA driver library, asked in a child process; it honours CUDA_VISIBLE_DEVICES."""

    available: bool
    device_count: int
    reason: Reason | None = None
    api_version: str | None = None  # highest CUDA version that the driver supports, "13.0"


class Os(msgspec.Struct, frozen=True):
    """The operating system."""

    system: str
    release: str
    distribution: str | None
    container: str | None  # "docker", "kubernetes", ... or None


class Machine(msgspec.Struct, frozen=True):
    """The hardware of a run."""

    hostname: str
    os: Os
    cpu: Cpu
    memory: Memory
    gpus: list[Gpu]
    nvml: Nvml
    cuda: CudaDriver
    mps: bool = False  # NVIDIA's Multi-Process Service runs

    def name_of(self, subject: str | None) -> str:
        """The label of the GPU that a warning is about; any other subject as it is."""
        return next((gpu.label for gpu in self.gpus if gpu.subject == subject), subject or "")

    @property
    def by_device(self) -> dict[str, Gpu]:
        """The usable GPUs by the names of their devices, such as `cuda:0`."""
        return {gpu.device: gpu for gpu in self.gpus if gpu.device is not None}

    @property
    def cuda_gpus(self) -> list[Gpu]:
        """The GPUs that this process may use by CUDA."""
        return [gpu for gpu in self.gpus if gpu.visible and gpu.runs_on == "CUDA"]

    @property
    def watched(self) -> list[Gpu]:
        """The GPUs whose readings the library of `vendor` gives."""
        listed = [gpu for gpu in self.gpus if gpu.index is not None]
        return [gpu for gpu in listed if (gpu.platform is None) == (self.vendor == "nvidia")]

    @property
    def vendor(self) -> str:
        """The vendor whose library gives readings: AMD's only if NVML does not work."""
        return "nvidia" if self.nvml.available else "amd"

    @property
    def exclusive(self) -> frozenset[str]:
        """The GPUs that admit one process at a time; under MPS that process is its server."""
        exclusive = (gpu for gpu in self.gpus if gpu.compute_mode == "exclusive_process")
        names = frozenset(gpu.device for gpu in exclusive if gpu.device is not None)
        return frozenset() if self.mps else names


class Package(msgspec.Struct, frozen=True):
    """An installed distribution, read from its metadata without importing it."""

    version: str | None
    detail: str | None = None  # torch: "CPU build", "CUDA 13.0", "ROCm 7.0"

    @property
    def cuda(self) -> tuple[int, ...]:
        """The CUDA version that it was built for; () if none."""
        detail = self.detail or ""
        return version_numbers(detail) if detail.startswith("CUDA ") else ()


class Software(msgspec.Struct, frozen=True):
    """The Python of the workers and its packages."""

    python: str  # version
    executable: str  # path, with `~` for the home folder
    packages: dict[str, Package]
    environment: dict[str, str]  # variables that change results, such as OMP_NUM_THREADS
    debug_builds: list[str] = []  # "Python", "torch"
    unavailable: dict[str, str] = {}


class Links(msgspec.Struct, frozen=True):
    """The link between each pair of GPUs: "NVLink", or the path over PCIe, with "+P2P" if they can
    read each other's memory; `reason` if NVML cannot be asked."""

    matrix: list[list[str]]  # by NVML's indices; "" on the diagonal, "?" if unknown
    reason: Reason | None = None
