"""The ceilings of a machine: a table with a column for each device."""

from ...contract import PRECISIONS
from ...machine.datasheets import columns
from ...records.document import Ceilings, DeviceCeilings
from ...text import units
from .spans import plain_lines
from .table import plain_table

KERNELS = ("copy", "triad")
TRANSFERS = {
    "to_device/pageable": "to device, pageable",
    "to_device/pinned": "to device, pinned",
    "to_host/pageable": "to host, pageable",
    "to_host/pinned": "to host, pinned",
    "both/pinned": "both ways, pinned",
}


def ceilings_text(ceilings: Ceilings) -> str:
    """The output of `workbench ceilings`."""
    named = columns(ceilings)
    header = ("", *(device.device for device in named))
    times = (at[:16].replace("T", " ") for at in (ceilings.since, ceilings.measured_at) if at)
    parts = [
        f"measured {' to '.join(dict.fromkeys(times))} UTC, burst: fastest 10% of samples",
        plain_lines(plain_table(header, rows(ceilings), range(1, len(header)))),
    ]
    reasons = ((d.device, each) for d in ceilings.devices for each in d.unavailable.items())
    missing = "\n".join(f"{device} {what}: {why}" for device, (what, why) in reasons)
    return "\n\n".join([*parts, missing] if missing else parts)


def rows(ceilings: Ceilings) -> list[tuple[str, ...]]:
    """A line per figure and a column per device and datasheet, without empty lines."""
    found = [_figures(device) for device in columns(ceilings)]
    lines = [(label, *(figures[label] for figures in found)) for label in found[0]]
    return [line for line in lines if any(cell != "-" for cell in line[1:])]


def bars(ceilings: Ceilings, device: str) -> list[tuple[str, float | None, str]]:
    """Label, share and text of each ceiling of `device` and of its datasheet.

    The share (0 to 1) is relative to the largest rate of any device in the same unit; None for
    figures that are not rates.
    """
    known = {each.device: each for each in columns(ceilings)}
    sheet, most = known.get(f"{device} datasheet"), dict[str, float]()
    measured = {k for each in ceilings.devices for k, (value, _) in _rates(each).items() if value}
    for label, (value, unit) in (rate for each in known.values() for rate in _rates(each).items()):
        if label in measured:
            most[_kind(unit)] = max(most.get(_kind(unit), 0.0), value or 0.0)

    def drawn(name: str, of: DeviceCeilings, label: str) -> tuple[str, float | None, str]:
        value, unit = _rates(of).get(label, (None, ""))
        return name, value and value / most[_kind(unit)], _figures(of)[label]

    found = []
    for label, text in _figures(known[device]).items():
        if text != "-" and label not in ("name", "threads"):
            found.append(drawn(label, known[device], label))
            found += [drawn("  datasheet", sheet, label)] if sheet else []
    return [each for each in found if each[2] != "-"]


def _kind(unit: str) -> str:
    return unit.removeprefix("FL")


def _rates(device: DeviceCeilings) -> dict[str, tuple[float | None, str]]:
    """Each rate of one device with its unit, by its label."""
    rates: dict[str, tuple[float | None, str]] = {}
    for precision in PRECISIONS:
        unit, name = units.per_s(precision), precision.upper()
        rates[name] = device.peak_ops_per_s.get(precision), unit
        rates[f"{name} sustained, 5 s"] = device.sustained_ops_per_s.get(precision), unit
    rates |= {f"memory, {kernel}": (device.memory.get(kernel), "B/s") for kernel in KERNELS}
    rates["last-level cache"] = device.cache_bytes_per_s, "B/s"
    ways = device.transfer_bytes_per_s
    return rates | {label: (ways.get(way), "B/s") for way, label in TRANSFERS.items()}


def _figures(device: DeviceCeilings) -> dict[str, str]:
    """Each figure of one device by its label."""
    rates = _rates(device)
    waits = {"launch": device.launch_s, "step and wait": device.step_latency_s}
    peak, bandwidth = device.peak_ops_per_s.get("fp32"), device.memory_bytes_per_s
    ridge = f"{units.significant(peak / bandwidth)} FLOP/byte" if peak and bandwidth else "-"
    return {
        "name": device.name or "-",
        "threads": str(device.threads or "-"),
        **{label: units.rate(v, unit) if v else "-" for label, (v, unit) in rates.items()},
        **{label: units.duration(s) if s else "-" for label, s in waits.items()},
        "ridge point": ridge,
    }
