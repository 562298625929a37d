"""The ceilings of a machine: a table with a column for each device, and a roofline chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ...contract import PRECISIONS
from ...machine.datasheets import columns
from ...records.document import Ceilings, DeviceCeilings
from ...text import units
from .spans import plain_lines
from .table import plain_table

LOW, HIGH = -4, 12  # powers of two of the arithmetic intensity, FLOP/byte
KERNELS = ("copy", "triad")
MARKS = "*o+x"  # one for each device
TRANSFERS = {
    "to_device/pageable": "to device, pageable",
    "to_device/pinned": "to device, pinned",
    "to_host/pageable": "to host, pageable",
    "to_host/pinned": "to host, pinned",
    "both/pinned": "both ways, pinned",
}


def ceilings_text(ceilings: Ceilings) -> str:
    """The output of `workbench ceilings`."""
    devices, named = ceilings.devices, columns(ceilings)
    header = ("", *(device.device for device in named))
    parts = [
        f"measured {ceilings.measured_at[:16].replace('T', ' ')} UTC, fastest 10% of samples",
        plain_lines(plain_table(header, rows(ceilings), range(1, len(header)))),
    ]
    missing = [f"{d.device} {what}: {why}" for d in devices for what, why in d.unavailable.items()]
    parts += ["\n".join(missing)] if missing else []
    chart = roofline(devices)
    return "\n\n".join([*parts, chart] if chart else parts)


def rows(ceilings: Ceilings) -> list[tuple[str, ...]]:
    """A line per figure, a column per device and datasheet; empty lines are left out."""
    devices = columns(ceilings)

    def line(label: str, cell: Callable[[DeviceCeilings], str]) -> tuple[str, ...]:
        return (label, *(cell(device) for device in devices))

    found = [
        line("name", lambda d: d.name or "-"),
        line("threads", lambda d: str(d.threads) if d.threads else "-"),
    ]
    for precision in PRECISIONS:
        unit = "OP/s" if precision == "int8" else "FLOP/s"
        found.append(line(precision.upper(), _rate_of("peak_ops_per_s", precision, unit)))
    found += [line(f"memory, {kernel}", _rate_of("memory", kernel, "B/s")) for kernel in KERNELS]
    found.append(line("last-level cache", lambda d: _or_dash(d.cache_bytes_per_s, "B/s")))
    found += [
        line(label, _rate_of("transfer_bytes_per_s", way, "B/s"))
        for way, label in TRANSFERS.items()
    ]
    found.append(line("launch", lambda d: units.duration(d.launch_s) if d.launch_s else "-"))
    found.append(
        line(
            "step and wait", lambda d: units.duration(d.step_latency_s) if d.step_latency_s else "-"
        )
    )
    return [row for row in found if any(cell != "-" for cell in row[1:])]


def _rate_of(field: str, key: str, unit: str) -> Callable[[DeviceCeilings], str]:
    return lambda device: _or_dash(getattr(device, field).get(key), unit)


def _or_dash(value: float | None, unit: str) -> str:
    return units.rate(value, unit) if value else "-"


def roofline(devices: list[DeviceCeilings], width: int = 64, height: int = 12) -> str:
    """FP32 rooflines over arithmetic intensity, both axes logarithmic; empty without any."""
    roofs = [
        (MARKS[i % len(MARKS)], device, device.peak_ops_per_s["fp32"], device.memory_bytes_per_s)
        for i, device in enumerate(devices)
        if device.peak_ops_per_s.get("fp32") and device.memory_bytes_per_s
    ]
    if not roofs:
        return ""
    top = max(math.log10(peak) for _, _, peak, _ in roofs) + 0.2
    bottom = min(math.log10(bandwidth or 1.0) for *_, bandwidth in roofs) + LOW * math.log10(2)
    grid = [[" "] * width for _ in range(height)]
    for mark, _, peak, bandwidth in roofs:
        for column in range(width):
            intensity = 2 ** (LOW + (HIGH - LOW) * column / (width - 1))
            rate = math.log10(min(peak, intensity * (bandwidth or 0.0)))
            line = round((top - rate) / (top - bottom) * (height - 1))
            grid[min(max(line, 0), height - 1)][column] = mark
    lines = ["Roofline, FP32: the highest rate of a job, by its FLOP per byte of memory traffic"]
    for number, cells in enumerate(grid):
        rate = 10 ** (top - number * (top - bottom) / (height - 1))
        label = units.rate(rate, "FLOP/s") if number % 3 == 0 else ""
        lines.append(f"{label:>13} |{''.join(cells).rstrip()}")
    lines += [" " * 14 + "+" + "-" * width, " " * 15 + _axis(width)]
    return "\n".join([*lines, *_legend(roofs)])


def _axis(width: int) -> str:
    cells = [" "] * (width + 6)
    for power in range(LOW, HIGH + 1, 4):
        label = f"1/{2**-power}" if power < 0 else f"{2**power}"
        start = round((power - LOW) / (HIGH - LOW) * (width - 1))
        cells[start : start + len(label)] = label
    return "".join(cells).rstrip()


def _legend(roofs: Sequence[tuple[str, DeviceCeilings, float, float | None]]) -> Iterator[str]:
    for mark, device, peak, bandwidth in roofs:
        ridge = peak / (bandwidth or 1.0)
        yield (
            f"  {mark} {device.device}: memory-bound below {units.significant(ridge)} FLOP/byte, "
            "compute-bound above"
        )
