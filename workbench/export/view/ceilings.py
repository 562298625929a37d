"""The ceilings of a machine: a table with a column for each device."""

from typing import NamedTuple

from ...contract import PRECISIONS
from ...machine.datasheets import with_datasheets
from ...records.document import Ceilings, DeviceCeilings
from ...text import units
from .spans import plain_lines
from .table import plain_cells, table_lines

TRANSFERS = {
    "to_device/pageable": "to device, pageable",
    "to_device/pinned": "to device, pinned",
    "to_host/pageable": "to host, pageable",
    "to_host/pinned": "to host, pinned",
    "both/pinned": "both ways, pinned",
}


def ceilings_text(ceilings: Ceilings) -> str:
    """The output of `workbench ceilings`: a line for each figure that a device or sheet has."""
    devices = with_datasheets(ceilings)
    header = ("", *(device.device for device in devices))
    found = [_figures(device) for device in devices]
    lines = [(label, *(figures[label].text for figures in found)) for label in found[0]]
    lines = [line for line in lines if any(cell != "-" for cell in line[1:])]
    times = (at[:16].replace("T", " ") for at in (ceilings.since, ceilings.measured_at) if at)
    parts = [
        f"measured {' to '.join(dict.fromkeys(times))} UTC, burst: fastest 10% of samples",
        plain_lines(table_lines(*plain_cells(header, lines, range(1, len(header))))),
    ]
    reasons = ((d.device, each) for d in ceilings.devices for each in d.unavailable.items())
    missing = "\n".join(f"{device} {what}: {why}" for device, (what, why) in reasons)
    return "\n\n".join([*parts, missing] if missing else parts)


class _Figure(NamedTuple):
    """A figure as text and, if it is a rate, its value and what it counts: operations or bytes."""

    text: str
    rate: float = 0.0
    counts: str = ""


def bars(ceilings: Ceilings, device: str) -> list[tuple[str, float | None, str]]:
    """Label, share and text of each ceiling of `device` and of its datasheet.  The share is of the
    largest rate of any device that counts the same; None for figures that are not rates."""
    known = {each.device: _figures(each) for each in with_datasheets(ceilings)}
    sheet, most = known.get(f"{device} datasheet"), dict[str, float]()
    measured = [known[each.device] for each in ceilings.devices]
    for label, figure in (pair for figures in known.values() for pair in figures.items()):
        if any(figures[label].rate for figures in measured):
            most[figure.counts] = max(most.get(figure.counts, 0.0), figure.rate)
    found: list[tuple[str, _Figure]] = []
    for label, figure in known[device].items():
        if figure.text != "-" and label not in ("name", "threads"):
            found += [(label, figure), *([("  datasheet", sheet[label])] if sheet else [])]
    return [
        (label, rate / most[counts] if rate else None, text)
        for label, (text, rate, counts) in found
        if text != "-"
    ]


def _figures(device: DeviceCeilings) -> dict[str, _Figure]:
    """Each figure of one device by its label."""
    found = {"name": _Figure(device.name or "-"), "threads": _Figure(str(device.threads or "-"))}
    for precision in PRECISIONS:
        unit, name = units.per_s(precision), precision.upper()
        found[name] = _rate(device.peak_ops_per_s.get(precision), unit)
        found[f"{name} sustained, 5 s"] = _rate(device.sustained_ops_per_s.get(precision), unit)
    found |= {f"memory, {each}": _rate(device.memory.get(each)) for each in ("copy", "triad")}
    found["last-level cache"] = _rate(device.cache_bytes_per_s)
    ways = device.transfer_bytes_per_s
    found |= {label: _rate(ways.get(way)) for way, label in TRANSFERS.items()}
    for label, seconds in (("launch", device.launch_s), ("step and wait", device.step_latency_s)):
        found[label] = _Figure(units.duration(seconds) if seconds else "-")
    peak, bandwidth = device.peak_ops_per_s.get("fp32"), device.memory_bytes_per_s
    ridge = f"{units.significant(peak / bandwidth)} FLOP/byte" if peak and bandwidth else "-"
    return {**found, "ridge point": _Figure(ridge)}


def _rate(value: float | None, unit: str = "B/s") -> _Figure:
    text = units.rate(value, unit) if value else "-"
    return _Figure(text, value or 0.0, unit.removeprefix("FL"))
