"""The output of `workbench watch` without a screen: one line per snapshot."""

from __future__ import annotations

from ..machine.snapshots import Snapshot
from ..records.machine import GpuReading, HostReading, Machine
from ..report.names import gpu_line
from ..text import units


def header(machine: Machine) -> list[str]:
    """The devices that are watched."""
    lines = [f"cpu: {machine.cpu.model or 'unknown'}, {machine.cpu.effective_cores} cores"]
    return lines + [f"gpu {gpu.index}: {gpu_line(gpu)}" for gpu in machine.gpus]


def line(snapshot: Snapshot) -> str:
    """`12:00:01  cpu 37 %, 2500 MHz | gpu 0 98 %, 1980 MHz, 650 W`, without unknown readings."""
    parts = [_host(snapshot.host), *(_gpu(reading) for reading in snapshot.gpus)]
    if snapshot.gap is not None:
        parts.append(f"GPUs: {snapshot.gap.message}")
    return f"{snapshot.time[11:19]}  {' | '.join(parts)}"


def _host(found: HostReading) -> str:
    known = _readings(
        found.utilization_percent, found.frequency_mhz, found.power_w, found.temperature_c
    )
    free = found.memory_available_bytes
    return ", ".join([f"cpu {known}", *([f"{units.size(free)} free"] if free is not None else [])])


def _gpu(found: GpuReading) -> str:
    known = _readings(
        found.utilization_percent, found.sm_clock_mhz, found.power_w, found.temperature_c
    )
    parts = [f"gpu {found.index} {known}"]
    if found.memory_used_bytes is not None:
        parts.append(f"{units.size(found.memory_used_bytes)} used")
    held = [r for r in found.clock_event_reasons or () if r != "gpu_idle"]
    return ", ".join([*parts, *(reason.replace("_", " ") for reason in held)])


def _readings(
    percent: float | None, mhz: float | None, watts: float | None, celsius: float | None
) -> str:
    readings = ((percent, "%"), (mhz, "MHz"), (watts, "W"), (celsius, "C"))
    known = [f"{value:.0f} {unit}" for value, unit in readings if value is not None]
    return ", ".join(known) or units.NOT_AVAILABLE
