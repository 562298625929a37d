"""Reads one GPU through NVML.  Each field is a value, or has a reason for its absence.

Units are those of nvml.h, converted where they are read (mW to W).
"""

from collections.abc import Callable
from typing import Any

from ...records.machine import Gpu, GpuProcess, GpuReading, Pcie
from ..host.memory import system_memory
from .driver_errors import NVML_INVALID_ARGUMENT, NVML_NOT_SUPPORTED, nvml_text
from .gpu_fields import gpu_process
from .nvml_query import Call, Failure, Query

_NS_PER_S = 1e9
_SM = 1  # NVML_CLOCK_SM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_UNCORRECTED = 1  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_SINCE_DRIVER_LOAD = 0  # NVML_VOLATILE_ECC
# nvml.h nvmlGpuVirtualizationMode_t
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
# nvml.h nvmlComputeMode_t; no driver since CUDA 8 sets 1, "exclusive thread"
_COMPUTE_MODE = {0: "default", 1: "exclusive_process", 2: "prohibited", 3: "exclusive_process"}
# Above NVML_NVLINK_MAX_LINKS of any version (6, then 18, now 36), since the driver ends the list.
_MOST_NVLINKS = 256
_MPS_SERVER = "nvidia-cuda-mps"  # "-server" is cut, since the kernel keeps 15 letters of a name
_NOT_AVAILABLE = 0xFFFFFFFF  # NVML_VALUE_NOT_AVAILABLE as an unsigned int
_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, mW as an unsigned int, for the whole GPU
# nvmlDeviceGetPowerUsage is instantaneous up to this compute capability, and a mean over
# `_AVERAGED_S` on newer GPUs (nvml.h).
_GA100 = (8, 0)
_AVERAGED_S = 1.0
# A reading of the moment may be this old: A100 and H100 take one each 0.1 s (arXiv:2312.02741).
_INSTANT_S = 0.1
_SHARED_MEMORY = "the GPU reports no memory of its own; this is the system memory that it shares"

# nvml.h nvmlClocksEventReason*; the last two only have the older name *ThrottleReason*.
_CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}

# nvml.h NVML_FI_DEV_PERF_POLICY_POWER and _THERMAL, in nanoseconds.  Hardware causes come from the
# mask, since NVML_FI_DEV_CLOCKS_EVENT_REASON_* moved from 251-253 to 269-271, which have another
# meaning in driver 580.65 (NVIDIA/k8s-test-infra#691).
_SLOWED_FIELDS = {74: "sw_power_cap", 75: "sw_thermal_slowdown"}


def clock_event_names(mask: int) -> list[str]:
    """The names of the bits that are set, such as `bit_0x800` for one without a name."""
    bits = [1 << shift for shift in range(mask.bit_length()) if mask >> shift & 1]
    return [_CLOCK_EVENTS.get(bit, f"bit_{bit:#x}") for bit in bits]


class _Reading:
    """NVML's functions for one field, newest first, and the conversion of their result."""

    def __init__(
        self, *functions: str, extra: Call = (), convert: Callable[[Any], Any] = lambda value: value
    ) -> None:
        self.functions = functions
        self.extra = extra  # arguments after the handle
        self.convert = convert


def _bus_id(info: Any) -> str:
    """The id from its numbers, since its text is bytes or str, depending on nvidia-ml-py."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _named(names: dict[int, str]) -> Callable[[int], str]:
    return lambda mode: names.get(mode, f"mode_{mode}")


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _current_mode(modes: list[int]) -> bool:
    """The first of `[current, pending]`."""
    return bool(modes[0])


def _row_remap(found: tuple[int, int, int, int] | int) -> str:
    """Two numbers, then flags: whether a row waits for a reset, and whether one failed.  Before
    Ampere one flag: whether a page waits for a reset to be retired."""
    pending, failed = (found, 0) if isinstance(found, int) else found[2:]
    return "failed" if failed else "pending" if pending else "none"


def _users(listed: list[Any]) -> list[GpuProcess]:
    """The processes without the server of MPS, whose clients are ours or listed themselves."""
    found = [gpu_process(each.pid, each.usedGpuMemory) for each in listed]
    return [process for process in found if process.name != _MPS_SERVER]


_PROCESSES = _Reading(
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    convert=_users,
)
# The current link, which slows down when it is idle.
_LINK = {
    "generation": _Reading("nvmlDeviceGetCurrPcieLinkGeneration"),
    "width": _Reading("nvmlDeviceGetCurrPcieLinkWidth"),
}
_PCIE = _LINK | {  # the most that card and slot allow
    "max_generation": _Reading("nvmlDeviceGetMaxPcieLinkGeneration"),
    "max_width": _Reading("nvmlDeviceGetMaxPcieLinkWidth"),
    "gpu_max_generation": _Reading("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
}
# Fields of both `Gpu` and `GpuReading`.
_CHANGING = {
    "utilization_percent": _Reading(
        "nvmlDeviceGetUtilizationRates", convert=lambda rates: float(rates.gpu)
    ),
    "temperature_c": _Reading(
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", extra=(_GPU_SENSOR,), convert=float
    ),
    "sm_clock_mhz": _Reading("nvmlDeviceGetClockInfo", extra=(_SM,), convert=float),
    "clock_event_reasons": _Reading(
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        convert=clock_event_names,
    ),
}
_OF_GPU = _CHANGING | {
    "uuid": _Reading("nvmlDeviceGetUUID"),
    "pci_bus_id": _Reading("nvmlDeviceGetPciInfo", convert=_bus_id),
    "name": _Reading("nvmlDeviceGetName"),
    "compute_capability": _Reading(
        "nvmlDeviceGetCudaComputeCapability", convert=lambda pair: f"{pair[0]}.{pair[1]}"
    ),
    "power_limit_w": _Reading(
        "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit", convert=_watts
    ),
    "power_default_w": _Reading("nvmlDeviceGetPowerManagementDefaultLimit", convert=_watts),
    "max_sm_clock_mhz": _Reading("nvmlDeviceGetMaxClockInfo", extra=(_SM,), convert=float),
    "ecc": _Reading("nvmlDeviceGetEccMode", convert=_current_mode),
    "mig": _Reading("nvmlDeviceGetMigMode", convert=_current_mode),
    "persistence": _Reading("nvmlDeviceGetPersistenceMode", convert=bool),
    "ecc_uncorrected": _Reading(
        "nvmlDeviceGetTotalEccErrors", extra=(_UNCORRECTED, _SINCE_DRIVER_LOAD)
    ),
    "row_remap": _Reading(
        "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus", convert=_row_remap
    ),
    "virtualization": _Reading("nvmlDeviceGetVirtualizationMode", convert=_named(_VIRTUALIZATION)),
    "compute_mode": _Reading("nvmlDeviceGetComputeMode", convert=_named(_COMPUTE_MODE)),
    "processes": _PROCESSES,
}
_OF_SAMPLE = _CHANGING | {
    "pcie_generation": _LINK["generation"],
    "pcie_width": _LINK["width"],
    "energy_j": _Reading(
        "nvmlDeviceGetTotalEnergyConsumption", convert=lambda millijoules: millijoules / 1000
    ),
}
# With slow fields: on an RTX 4090, processes take 4.5 ms and the fan 0.14 ms, memory only 12 us
# (MangoHud#2104).
_OF_SLOW_SAMPLE = _OF_SAMPLE | {
    "fan_percent": _Reading("nvmlDeviceGetFanSpeed", convert=float),
    "processes": _PROCESSES,
}


class NvmlFields:
    """Reads one GPU through a valid handle and collects reasons for missing values."""

    def __init__(self, query: Query, handle: Any) -> None:
        self._query = query
        self._handle = handle
        self._reasons: dict[str, str] = {}

    def read(self, index: int, driver: str | None, driver_failure: Failure | None) -> Gpu:
        if driver_failure is not None:
            self._reasons["driver_version"] = driver_failure.text
        total, used = self._memory()
        return Gpu(
            index=index,
            device=None,
            memory_total_bytes=total,
            memory_used_bytes=used,
            driver_version=driver,
            pcie=Pcie(**{name: self._take(f"pcie.{name}", _PCIE[name]) for name in _PCIE}),
            power_w=self._power()[0],
            nvlinks=self._nvlinks(),
            **self._each(_OF_GPU),
            unavailable=self._reasons,
        )

    def sample(self, index: int, *, slow: bool) -> GpuReading:
        """The fields that change; slow ones only if `slow`."""
        self._reasons = {}
        _, used = self._memory()
        power_w, power_over_s = self._power()
        return GpuReading(
            index=index,
            memory_used_bytes=used,
            power_w=power_w,
            power_over_s=power_over_s,
            slowed_s=self._slowed(),
            **self._each(_OF_SLOW_SAMPLE if slow else _OF_SAMPLE),
            unavailable=self._reasons,
        )

    def _each(self, readings: dict[str, _Reading]) -> dict[str, Any]:
        return {field: self._take(field, reading) for field, reading in readings.items()}

    def _take(self, field: str, reading: _Reading) -> Any:
        """One reading by the first of its functions that this driver has."""
        forms: list[Call] = [(name, self._handle, *reading.extra) for name in reading.functions]
        value, failure = self._query.ask(*forms)
        if failure is None and value != _NOT_AVAILABLE:
            return reading.convert(value)
        self._reasons[field] = failure.text if failure else "NVML gives no value"
        return None

    def _power(self) -> tuple[float | None, float | None]:
        """Watts, and the seconds before now that they may stand for."""
        known, _ = self._numbered(_POWER_INSTANT)
        milliwatts = known[_POWER_INSTANT].uiVal if known else 0
        if milliwatts not in (0, _NOT_AVAILABLE):
            return _watts(milliwatts), _INSTANT_S
        watts = self._take("power_w", _Reading("nvmlDeviceGetPowerUsage", convert=_watts))
        if watts is None:
            return None, None
        capability, _ = self._query.ask(("nvmlDeviceGetCudaComputeCapability", self._handle))
        instantaneous = capability is not None and tuple(capability) <= _GA100
        return watts, _INSTANT_S if instantaneous else _AVERAGED_S

    def _numbered(self, *numbers: int) -> tuple[dict[int, Any], str]:
        """The values that NVML has of its numbered fields, and why it lacks the first."""
        values, failure = self._query.ask(("nvmlDeviceGetFieldValues", self._handle, list(numbers)))
        if failure is not None:
            return {}, failure.text
        known = {each.fieldId: each.value for each in values if each.nvmlReturn == 0}
        return known, nvml_text(values[0].nvmlReturn)

    def _slowed(self) -> dict[str, float] | None:
        """Seconds by cause."""
        known, why = self._numbered(*_SLOWED_FIELDS)
        if not known:
            self._reasons["slowed_s"] = why
            return None
        return {_SLOWED_FIELDS[field]: value.ullVal / _NS_PER_S for field, value in known.items()}

    def _memory(self) -> tuple[int | None, int | None]:
        """Total and used bytes; version 2 of the call excludes the driver's reserve from `used`."""
        version = 0x02000028  # nvmlMemory_v2: the struct's size and, in the top byte, its version
        info, failure = self._query.ask(
            ("nvmlDeviceGetMemoryInfo", self._handle, version),
            ("nvmlDeviceGetMemoryInfo", self._handle),
        )
        if failure is None and info.total:
            return int(info.total), int(info.used)
        # GB10 and Jetson answer "not supported", or success with a total of 0 (nvitop#208).
        is_shared = failure is None or failure.code == NVML_NOT_SUPPORTED
        shared = system_memory() if is_shared else None
        reason = failure.text if failure else "NVML says 0"
        if shared is not None:
            reason = f"{reason}: {_SHARED_MEMORY}"
        self._reasons["memory_total_bytes"] = self._reasons["memory_used_bytes"] = reason
        return (None, None) if shared is None else (shared[0], shared[0] - shared[1])

    def _nvlinks(self) -> int | None:
        """Number of active links; the driver refuses the first index that the card lacks."""
        active = 0
        for link in range(_MOST_NVLINKS):
            state, failure = self._query.ask(("nvmlDeviceGetNvLinkState", self._handle, link))
            if failure and failure.code in (NVML_NOT_SUPPORTED, NVML_INVALID_ARGUMENT):
                break
            if failure:
                self._reasons["nvlinks"] = failure.text
                return None
            active += bool(state)
        return active
