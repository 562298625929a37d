"""The one door to NVML: every reading by itself, a value or the reason why not.

Runs in a child process (see `probe`): a lost GPU can crash or hang NVML.  Units are those of
nvml.h, converted where they are read (mW to W).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgspec

from ..document import Gpu, GpuProcess, Nvml, Pcie, Reason
from .gpurow import with_reasons
from .memory import system_memory
from .reasons import (
    NVML_ARGUMENT_VERSION_MISMATCH,
    NVML_DEPRECATED,
    NVML_FUNCTION_NOT_FOUND,
    NVML_NOT_SUPPORTED,
    nvml_reason,
    nvml_text,
)
from .system import container

# This driver lacks this form of a call; an older form of it may work.
_FORM_MISSING = (NVML_FUNCTION_NOT_FOUND, NVML_ARGUMENT_VERSION_MISMATCH, NVML_DEPRECATED)
_MW_PER_W = 1000
_NOT_AVAILABLE = 0xFFFFFFFF  # NVML_VALUE_NOT_AVAILABLE as an unsigned int
_NO_VALUE = "NVML gives no value"
_SHARED_MEMORY = "the GPU has no memory of its own to report; this is the system's, which it shares"

# nvml.h nvmlClocksEventReason*; the last two only under their older name *ThrottleReason*.
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

Call = tuple[Any, ...]  # a function's name in pynvml, then its arguments


class NvmlHeader(msgspec.Struct, frozen=True):
    """The first answer of a pass; `count` rows follow, less those that were skipped."""

    nvml: Nvml
    count: int


def clock_event_names(mask: int) -> list[str]:
    """The names of the bits that are set; a bit without a name shows as `bit_0x800`."""
    bits = [1 << shift for shift in range(mask.bit_length()) if mask >> shift & 1]
    return [_CLOCK_EVENTS.get(bit, f"bit_{bit:#x}") for bit in bits]


class Query:
    """Asks pynvml; every failure comes back as `(None, reason)`."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def ask(self, *forms: Call) -> tuple[Any, str | None]:
        """The answer of the first form of a call that this driver has, newest form first."""
        value, failure = self.ask_code(*forms)
        if isinstance(failure, int):
            return None, nvml_text(failure)
        return value, failure

    def ask_code(self, *forms: Call) -> tuple[Any, int | str | None]:
        """Like `ask`, but an NVML error keeps its code (`NVMLError` itself is unhashable)."""
        failures: list[int | str] = []
        for name, *arguments in forms:
            function = getattr(self._pynvml, name, None)
            if function is None:
                failures.append(f"the installed nvidia-ml-py has no {name}")
                continue
            try:
                return function(*arguments), None
            except self._pynvml.NVMLError as error:
                failures.append(int(error.value))
                if error.value not in (*_FORM_MISSING, NVML_NOT_SUPPORTED):
                    break
            except UnicodeDecodeError:
                failures.append("NVML's text is not valid UTF-8")
                break
        telling = [f for f in failures if isinstance(f, int) and f not in _FORM_MISSING]
        return None, (telling or failures)[-1]


def survey(first: int = 0) -> Iterator[NvmlHeader | Gpu]:
    """The library's state, then one row per GPU from `first` on, each as soon as it is read."""
    in_container = container() is not None
    try:
        import pynvml
    except ImportError as error:
        yield _failed(Reason("pynvml_missing", str(error), "`pip install nvidia-ml-py`"))
        return
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        hint = "`pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py`"
        yield _failed(Reason("pynvml_foreign", "the module pynvml is not nvidia-ml-py's", hint))
        return
    query = Query(pynvml)
    _, failure = query.ask_code(("nvmlInit",))
    count = 0
    if failure is None:
        count, failure = query.ask_code(("nvmlDeviceGetCount",))
    if failure is not None:
        code = failure if isinstance(failure, int) else NVML_FUNCTION_NOT_FOUND
        yield _failed(nvml_reason(code, in_container=in_container))
        return
    driver, driver_reason = query.ask(("nvmlSystemGetDriverVersion",))
    library, _ = query.ask(("nvmlSystemGetNVMLVersion",))
    empty = Reason("no_gpu", "NVML works but lists no GPU", None) if count == 0 else None
    yield NvmlHeader(Nvml(True, empty, driver, library), count)
    for index in range(first, count):
        handle, failure = query.ask_code(("nvmlDeviceGetHandleByIndex", index))
        if failure is not None or handle is None:
            row = Gpu(index, None, None, None, None, driver_version=driver)
            yield with_reasons(row, _handle_failure(failure, in_container))
        else:
            yield _Row(query, handle).read(index, driver, driver_reason)


def _failed(reason: Reason) -> NvmlHeader:
    return NvmlHeader(Nvml(available=False, reason=reason), 0)


def _handle_failure(failure: int | str | None, in_container: bool) -> str:
    if not isinstance(failure, int):
        return failure or _NO_VALUE
    reason = nvml_reason(failure, in_container=in_container)
    return f"{reason.message}; {reason.hint}" if reason.hint else reason.message


class _Row:
    """Reads one GPU through a valid handle, collecting the reasons on the way."""

    def __init__(self, query: Query, handle: Any) -> None:
        self._query = query
        self._handle = handle
        self._reasons: dict[str, str] = {}

    def take(
        self, field: str, *names: str, extra: Call = (), convert: Callable[[Any], Any] | None = None
    ) -> Any:
        """One reading by the first of the functions `names` that this driver has."""
        forms: list[Call] = [(name, self._handle, *extra) for name in names]
        value, reason = self._query.ask(*forms)
        if reason is None and value == _NOT_AVAILABLE:
            value, reason = None, _NO_VALUE
        if reason is not None:
            self._reasons[field] = reason
            return None
        return value if convert is None else convert(value)

    def read(self, index: int, driver: str | None, driver_reason: str | None) -> Gpu:
        if driver_reason is not None:
            self._reasons["driver_version"] = driver_reason
        total, used = self._memory()
        sm, temperature_sensor = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
        return Gpu(
            index=index,
            device=None,
            uuid=self.take("uuid", "nvmlDeviceGetUUID"),
            pci_bus_id=self.take("pci_bus_id", "nvmlDeviceGetPciInfo", convert=_bus_id),
            name=self.take("name", "nvmlDeviceGetName"),
            memory_total_bytes=total,
            memory_used_bytes=used,
            compute_capability=self.take(
                "compute_capability",
                "nvmlDeviceGetCudaComputeCapability",
                convert=lambda pair: f"{pair[0]}.{pair[1]}",
            ),
            driver_version=driver,
            pcie=self._pcie(),
            power_w=self.take("power_w", "nvmlDeviceGetPowerUsage", convert=_watts),
            power_limit_w=self.take(
                "power_limit_w",
                "nvmlDeviceGetEnforcedPowerLimit",
                "nvmlDeviceGetPowerManagementLimit",
                convert=_watts,
            ),
            temperature_c=self.take(
                "temperature_c",
                "nvmlDeviceGetTemperatureV",
                "nvmlDeviceGetTemperature",
                extra=(temperature_sensor,),
                convert=float,
            ),
            utilization_percent=self.take(
                "utilization_percent",
                "nvmlDeviceGetUtilizationRates",
                convert=lambda rates: float(rates.gpu),
            ),
            sm_clock_mhz=self.take(
                "sm_clock_mhz", "nvmlDeviceGetClockInfo", extra=(sm,), convert=float
            ),
            max_sm_clock_mhz=self.take(
                "max_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", extra=(sm,), convert=float
            ),
            clock_event_reasons=self.take(
                "clock_event_reasons",
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
                convert=clock_event_names,
            ),
            ecc=self.take("ecc", "nvmlDeviceGetEccMode", convert=_current_mode),
            mig=self.take("mig", "nvmlDeviceGetMigMode", convert=_current_mode),
            persistence=self.take("persistence", "nvmlDeviceGetPersistenceMode", convert=bool),
            processes=self.take(
                "processes",
                "nvmlDeviceGetComputeRunningProcesses_v3",
                "nvmlDeviceGetComputeRunningProcesses_v2",
                convert=lambda found: [GpuProcess(p.pid, p.usedGpuMemory) for p in found],
            ),
            unavailable=self._reasons,
        )

    def _memory(self) -> tuple[int | None, int | None]:
        """Total and used bytes; v2 keeps the driver's reserve out of `used`, v1 does not."""
        version = 0x02000028  # nvmlMemory_v2: the struct's size and, in the top byte, its version
        info, failure = self._query.ask_code(
            ("nvmlDeviceGetMemoryInfo", self._handle, version),
            ("nvmlDeviceGetMemoryInfo", self._handle),
        )
        if failure is None and info.total:
            return int(info.total), int(info.used)
        # GB10 and Jetson answer "not supported", or success with a total of 0.
        shared = system_memory() if failure in (None, NVML_NOT_SUPPORTED) else None
        reason = nvml_text(failure) if isinstance(failure, int) else failure or "NVML says 0"
        if shared is not None:
            reason = f"{reason}: {_SHARED_MEMORY}"
        self._reasons["memory_total_bytes"] = self._reasons["memory_used_bytes"] = reason
        return (None, None) if shared is None else (shared[0], shared[0] - shared[1])

    def _pcie(self) -> Pcie:
        """The link now (it drops when idle) and the most that card and slot allow."""
        return Pcie(
            generation=self.take("pcie.generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            width=self.take("pcie.width", "nvmlDeviceGetCurrPcieLinkWidth"),
            max_generation=self.take("pcie.max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
            max_width=self.take("pcie.max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
        )


def _bus_id(info: Any) -> str:
    """From the numbers: the struct's text field is bytes or str, as nvidia-ml-py's age has it."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _watts(milliwatts: int) -> float:
    return milliwatts / _MW_PER_W


def _current_mode(modes: list[int]) -> bool:
    """The first of `[current, pending]`: the second applies from the next reboot on."""
    return bool(modes[0])
