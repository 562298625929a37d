"""The child process that asks AMD SMI, as `nvidia.probe` asks NVML; nothing else imports amdsmi.

`cards`                     a list of the `Gpu` that it lists
`sample SECONDS INDEX...`   a `GpuSample` of these GPUs every SECONDS, until it is killed

Source: AMD SMI Python API reference, ROCm 6.4 to 7.2.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ...records.machine import Gpu, GpuReading
from ...records.reason import Reason
from ..nvidia.gpu_fields import normalise_bus_id, with_reasons
from ..nvidia.nvml import GpuSample
from ..nvidia.probe import answer

# Values for "the card has none": "N/A", and the largest numbers of a field's type (amdsmi.h).
UNKNOWN = ("N/A", 0xFFFF, 0xFFFFFFFF)
NOT_GIVEN = "AMD SMI has no value for it"
NO_BUILD = "torch here is not a build for ROCm, which an AMD GPU needs"


class AmdSmi:
    """The initialised library; errors of its import and start pass through."""

    def __init__(self) -> None:
        import amdsmi

        amdsmi.amdsmi_init()
        self._library = amdsmi
        self.handles = amdsmi.amdsmi_get_processor_handles()

    def ask(self, name: str, handle: Any, field: str = "", *kinds: tuple[str, str]) -> Any:
        """The result of amdsmi_get_NAME, or a `field` of it; None if the card or version lacks it.

        `kinds` are members of the library's enumerations.
        """
        try:
            further = [getattr(getattr(self._library, kind), member) for kind, member in kinds]
            found = getattr(self._library, f"amdsmi_get_{name}")(handle, *further)
            found = found[field] if field else found
        except Exception:
            return None
        return None if found in UNKNOWN else found

    def readings(self, handle: Any) -> dict[str, Any]:
        """The state of a card now."""
        memory_mb = self.ask("gpu_vram_usage", handle, "vram_used")
        power_w = self.ask("power_info", handle, "current_socket_power")
        heat = ("AmdSmiTemperatureType", "JUNCTION"), ("AmdSmiTemperatureMetric", "CURRENT")
        return {
            "utilization_percent": self.ask("gpu_activity", handle, "gfx_activity"),
            "memory_used_bytes": memory_mb and memory_mb << 20,
            # A card has only one of the two.
            "power_w": power_w or self.ask("power_info", handle, "average_socket_power"),
            "temperature_c": self.ask("temp_metric", handle, "", *heat),
            "sm_clock_mhz": self.ask("clock_info", handle, "clk", ("AmdSmiClkType", "GFX")),
        }


def cards() -> list[Gpu]:
    """The GPUs that AMD SMI lists, without `device`, which only torch knows; [] if it fails."""
    try:
        smi = AmdSmi()
    except Exception:
        return []
    return [_card(smi, index, handle) for index, handle in enumerate(smi.handles)]


def _card(smi: AmdSmi, index: int, handle: Any) -> Gpu:
    memory_mb = smi.ask("gpu_vram_usage", handle, "vram_total")
    gpu = Gpu(
        index=index,
        device=None,
        uuid=None,
        pci_bus_id=normalise_bus_id(str(smi.ask("gpu_device_bdf", handle))),
        name=smi.ask("gpu_asic_info", handle, "market_name"),
        memory_total_bytes=memory_mb and memory_mb << 20,
        driver_version=smi.ask("gpu_driver_info", handle, "driver_version"),
        platform="ROCm",
        unavailable={"device": NO_BUILD},
        **smi.readings(handle),
    )
    return with_reasons(gpu, NOT_GIVEN)


def samples(indices: Sequence[int], *, every_s: float) -> Iterator[GpuSample]:
    """Readings of these GPUs every `every_s` seconds, endlessly."""
    try:
        smi = AmdSmi()
    except Exception as error:
        reason = Reason("amdsmi_failed", f"AMD SMI: {type(error).__name__}: {error}")
        yield GpuSample(time.monotonic(), [], reason)
        return
    while True:
        gpus = []
        for index in indices:
            now = smi.readings(smi.handles[index])
            missing = dict.fromkeys((name for name in now if now[name] is None), NOT_GIVEN)
            gpus.append(GpuReading(index, **now, unavailable=missing))
        yield GpuSample(time.monotonic(), gpus)
        time.sleep(every_s)


def main(arguments: list[str]) -> None:
    topic, *further = arguments
    if topic == "cards":
        answer([cards()])
    else:
        answer(samples([int(index) for index in further[1:]], every_s=float(further[0])))
