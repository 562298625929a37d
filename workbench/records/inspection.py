"""The JSON documents of `workbench detect`, `doctor` and `ceilings`, and a line of `watch`."""

import msgspec

from .document import Ceilings, Headed
from .machine import GpuReading, HostReading, Links, Machine, Software
from .reason import Reason, Warning

OK, WARN, FAIL = "ok", "warn", "fail"


class Detected(Headed, frozen=True):
    """The document of `detect`."""

    machine: Machine
    software: Software
    warnings: list[Warning]


class Level(msgspec.Struct, frozen=True):
    """One line of the stack as it is drawn, from python down to the GPU."""

    depth: int
    name: str
    found: str
    status: str | None  # "ok", "warn", "fail"; None: absent and not needed
    note: str = ""


class Check(msgspec.Struct, frozen=True):
    """One check; `name` is stable, for scripts."""

    name: str
    status: str  # "ok", "warn", "fail"
    message: str
    remedy: str | None = None


class Trial(msgspec.Struct, frozen=True):
    """The outcome of importing a package and computing with it."""

    version: str | None = None
    libraries: dict[str, str | None] = {}  # "CUDA", "cuDNN", "ROCm" -> version
    devices: dict[str, str | None] = {}  # device or provider -> None if it works, else the reason
    failure: str | None = None  # why it could not be tried at all


class DoctorReport(Headed, frozen=True):
    """The document of `doctor`, in which names are replaced as by --anonymize."""

    stack: list[Level]
    checks: list[Check]
    links: Links | None  # between GPUs; only with --all-gpus
    trials: dict[str, Trial]  # by package
    machine: Machine
    software: Software

    @property
    def failed(self) -> bool:
        return any(check.status == FAIL for check in self.checks)


class Datasheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of one card in its vendor's datasheet."""

    names: list[str]  # the card's names in NVML
    peak_ops_per_s: dict[str, float]  # dense, by precision
    memory_bytes_per_s: float
    power_w: float
    source: str
    quoted_by: str


class CeilingsReport(Headed, frozen=True):
    """The document of `ceilings`."""

    machine: Machine
    software: Software
    ceilings: Ceilings | None  # None: nothing was measured
    datasheets: dict[str, Datasheet]  # by the card's name in NVML
    warnings: list[Warning]


class Snapshot(msgspec.Struct, frozen=True):
    """A line of `watch`: the machine at one moment."""

    time: str  # ISO 8601, UTC
    host: HostReading
    gpus: list[GpuReading]
    gap: Reason | None = None  # why GPU readings are missing or old
