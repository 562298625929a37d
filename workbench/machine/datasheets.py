"""Compares measured ceilings with the vendors' datasheets (assets/devices.toml)."""

from collections.abc import Iterator
from functools import cache

import msgspec

from .. import assets
from ..records.document import Ceilings, DeviceCeilings
from ..records.inspection import Datasheet
from ..text import units

# Shares of the datasheet below which a card has a fault, not poor tuning.  A healthy H200 reached
# 80% of the BF16 peak and 90% of the bandwidth, but an L40S 51% of its FP32 peak.
LEAST_RATE, LEAST_BANDWIDTH = 0.4, 0.5
# The power limit of a healthy 70 W card keeps its products at 35 to 65% of their peak.
LOW_POWER_W, LEAST_RATE_AT_LOW_POWER = 100.0, 0.3


class _File(msgspec.Struct, frozen=True):
    device: list[Datasheet]


@cache
def load() -> dict[str, Datasheet]:
    """Card name in NVML -> datasheet."""
    file = msgspec.toml.decode(assets.path("devices.toml").read_bytes(), type=_File)
    return {name: sheet for sheet in file.device for name in sheet.names}


def with_datasheets(ceilings: Ceilings) -> list[DeviceCeilings]:
    """The measured devices, each followed by its datasheet if there is one."""
    devices: list[DeviceCeilings] = []
    for device in ceilings.devices:
        devices.append(device)
        if (sheet := load().get(device.name or "")) is not None:
            name, peaks = f"{device.device} datasheet", sheet.peak_ops_per_s
            memory = sheet.memory_bytes_per_s, {"copy": sheet.memory_bytes_per_s}
            devices.append(DeviceCeilings(name, None, None, peaks, *memory, None, None))
    return devices


def shortfalls(ceilings: Ceilings) -> Iterator[tuple[str, str]]:
    """(device, message) for each measured ceiling that is far below the card's datasheet."""
    for device in ceilings.devices:
        sheet = load().get(device.name or "")
        if sheet is None:
            continue
        least = LEAST_RATE if sheet.power_w >= LOW_POWER_W else LEAST_RATE_AT_LOW_POWER
        pairs = [
            (f"{precision} products reach", device.peak_ops_per_s.get(precision), peak, least)
            for precision, peak in sheet.peak_ops_per_s.items()
        ]
        bandwidth = device.memory_bytes_per_s, sheet.memory_bytes_per_s
        pairs.append(("memory bandwidth reaches", *bandwidth, LEAST_BANDWIDTH))
        for what, measured, promised, share_least in pairs:
            if measured and measured < share_least * promised:
                share = units.percent(measured / promised)
                yield device.device, f"{what} {share} of the datasheet"
