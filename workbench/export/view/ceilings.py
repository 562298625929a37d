"""The ceilings of a machine: a table with a column for each device, and a roofline chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...contract import PRECISIONS
from ...machine.datasheets import columns
from ...records.document import Ceilings, DeviceCeilings
from ...text import units
from .chart import Place, Series, chart
from .curves import HEIGHT, MARKS, WIDTH
from .spans import Span, Text, plain_lines
from .table import plain_table

LOW, HIGH = -4, 12  # powers of two of the arithmetic intensity, FLOP/byte
KERNELS = ("copy", "triad")
AXIS = range(LOW, HIGH + 1, 4)
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
        f"measured {ceilings.measured_at[:16].replace('T', ' ')} UTC, "
        "burst: fastest 10% of samples",
        plain_lines(plain_table(header, rows(ceilings), range(1, len(header)))),
    ]
    missing = [f"{d.device} {what}: {why}" for d in devices for what, why in d.unavailable.items()]
    parts += ["\n".join(missing)] if missing else []
    chart = plain_lines(roofline(devices))
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
        rate = _rate_of("sustained_ops_per_s", precision, unit)
        found.append(line(f"{precision.upper()} sustained, 5 s", rate))
    found += [line(f"memory, {kernel}", _rate_of("memory", kernel, "B/s")) for kernel in KERNELS]
    found.append(line("last-level cache", lambda d: _or_dash(d.cache_bytes_per_s, "B/s")))
    found += [
        line(label, _rate_of("transfer_bytes_per_s", way, "B/s"))
        for way, label in TRANSFERS.items()
    ]
    found.append(line("launch", lambda d: _seconds(d.launch_s)))
    found.append(line("step and wait", lambda d: _seconds(d.step_latency_s)))
    return [row for row in found if any(cell != "-" for cell in row[1:])]


def _rate_of(field: str, key: str, unit: str) -> Callable[[DeviceCeilings], str]:
    return lambda device: _or_dash(getattr(device, field).get(key), unit)


def _seconds(value: float | None) -> str:
    return units.duration(value) if value else "-"


def _or_dash(value: float | None, unit: str) -> str:
    return units.rate(value, unit) if value else "-"


def roof(peak: float, bandwidth: float) -> list[Place]:
    """The limit over arithmetic intensity: the slope of memory, then the peak."""
    ends = sorted((2.0**LOW, min(peak / bandwidth, 2.0**HIGH), 2.0**HIGH))
    return [(math.log10(x), math.log10(min(peak, x * bandwidth))) for x in ends]


def roof_labels(tone: str = "") -> list[tuple[float, Span]]:
    """Powers of two of the arithmetic intensity."""
    powers = [(power, f"1/{2**-power}" if power < 0 else f"{2**power}") for power in AXIS]
    return [(power * math.log10(2), (text, tone)) for power, text in powers]


def roofline(devices: Sequence[DeviceCeilings]) -> list[Text]:
    """FP32 rooflines over arithmetic intensity; empty without any."""
    lines, legend = [], []
    for mark, device in zip(MARKS, devices, strict=False):
        peak, bandwidth = device.peak_ops_per_s.get("fp32"), device.memory_bytes_per_s
        if peak and bandwidth:
            lines.append(Series((mark, ""), roof(peak, bandwidth)))
            ridge = units.significant(peak / bandwidth)
            legend.append(
                f"  {mark} {device.device}: memory-bound below {ridge} FLOP/byte, "
                "compute-bound above"
            )
    if not lines:
        return []
    title = "Roofline, FP32: the highest rate of a job, by its FLOP per byte of memory traffic"
    drawn = chart(lines, roof_labels(), "FLOP/s", WIDTH, HEIGHT)
    return [Text.of(title), *drawn, *map(Text.of, legend)]
