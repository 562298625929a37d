"""The output of `workbench watch` without a screen: one line per snapshot."""

from ..records.inspection import Snapshot
from ..records.machine import GpuReading, HostReading, Machine
from ..report.names import gpu_line
from ..text import units
from .view.sensors import known_readings


def header(machine: Machine) -> list[str]:
    """A line for each watched device."""
    cores = units.counted(machine.cpu.effective_cores, "core")
    lines = [f"cpu: {machine.cpu.model or 'unknown'}, {cores}"]
    for gpu in machine.gpus:
        number = "" if gpu.index is None else f" {gpu.index}"
        lines.append(f"gpu{number} ({gpu.device or 'not usable'}): {gpu_line(gpu)}")
    return lines


def line(snapshot: Snapshot) -> str:
    """`12:00:01Z  cpu 37%, 2500 MHz | gpu 0 98%, 1980 MHz, 650 W`, without unknown readings."""
    parts = [_device("cpu", snapshot.host, snapshot.host.memory_available_bytes, "free")]
    for gpu in snapshot.gpus:
        text = _device(f"gpu {gpu.index}", gpu, gpu.memory_used_bytes, "used")
        held = [r.replace("_", " ") for r in gpu.clock_event_reasons or () if r != "gpu_idle"]
        parts.append(", ".join([text, *held]))
    if snapshot.gap is not None:
        parts.append(f"GPUs: {snapshot.gap.message}")
    return f"{snapshot.time[11:19]}Z  {' | '.join(parts)}"


def _device(name: str, found: HostReading | GpuReading, memory: int | None, word: str) -> str:
    """The known readings of one device; `word` says whether `memory` (bytes) is free or used."""
    known = [text.replace("°", "") for _, text in known_readings(found)]  # a log is ASCII
    held = "" if memory is None else f", {units.size(memory)} {word}"
    why = next(iter(found.unavailable.values()), "") if not known else ""
    nothing = f"{units.NOT_AVAILABLE} ({why})" if why else units.NOT_AVAILABLE
    return f"{name} {', '.join(known) or nothing}{held}"
