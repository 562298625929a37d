"""What vendors say a card reaches (assets/devices.toml), beside what was measured here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache

import msgspec

from .. import assets
from ..records.document import Ceilings, DeviceCeilings
from ..text import units

# Far below what such a card reaches: an H200 gave 80 % of its BF16 peak and 90 % of its bandwidth
# (FACTS, GPU.md), so half of either is a fault and not a matter of tuning.
FAR_BELOW = 0.5


class Datasheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One card; a figure that no document gives is not there."""

    names: list[str]  # as NVML gives them
    peak_ops_per_s: dict[str, float]  # dense, by precision
    memory_bytes_per_s: float
    power_w: float
    pcie_generation: int
    source: str
    quoted_by: str


class _File(msgspec.Struct, frozen=True):
    device: list[Datasheet]


@cache
def load() -> dict[str, Datasheet]:
    """By the card's name in NVML."""
    text = assets.path("devices.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), _File)
    return {name: sheet for sheet in found.device for name in sheet.names}


def columns(ceilings: Ceilings) -> list[DeviceCeilings]:
    """The measured devices, each followed by its datasheet where there is one."""
    found: list[DeviceCeilings] = []
    for device in ceilings.devices:
        found.append(device)
        sheet = load().get(device.name or "")
        if sheet is not None:
            found.append(
                DeviceCeilings(
                    device=f"{device.device} datasheet",
                    name=None,
                    threads=None,
                    peak_ops_per_s=sheet.peak_ops_per_s,
                    memory_bytes_per_s=sheet.memory_bytes_per_s,
                    memory={"copy": sheet.memory_bytes_per_s},
                    cache_bytes=None,
                    cache_bytes_per_s=None,
                )
            )
    return found


def shortfalls(ceilings: Ceilings) -> Iterator[tuple[str, str]]:
    """(device, what) for each measured ceiling that is far below the card's datasheet."""
    for device in ceilings.devices:
        sheet = load().get(device.name or "")
        if sheet is None:
            continue
        pairs = [
            (f"{precision} products", device.peak_ops_per_s.get(precision), peak)
            for precision, peak in sheet.peak_ops_per_s.items()
        ]
        pairs.append(("memory bandwidth", device.memory_bytes_per_s, sheet.memory_bytes_per_s))
        for what, measured, promised in pairs:
            if measured and measured < FAR_BELOW * promised:
                share = units.percent(measured / promised)
                yield device.device, f"{what} reach {share} of the datasheet"
