"""The sensors of a machine in words, with curves of their last readings."""

from collections.abc import Iterator, Sequence

import msgspec

from ...records.machine import Cpu, Gpu, GpuReading, HostReading, Machine
from ...report.report import KEPT, Report
from . import glyphs
from .machine import clock_events, facts_of, gpu_memory, gpu_title, memory, missing, number_text
from .section import Section
from .spans import Fact, Text, fact, join

VALUE_WIDTH = 18
SHORT = 12  # readings in a curve that shares its line with others
LONGEST = {"%": 4, "MHz": 8, "W": 5, "°C": 5}  # width of a value in cells, so that nothing moves

# Field of a reading -> its label, its unit and the field of its limit; "": the limit is 100.
SENSORS = {
    "utilization_percent": ("busy", "%", ""),
    "frequency_mhz": ("clock", "MHz", "max_frequency_mhz"),
    "sm_clock_mhz": ("SM clock", "MHz", "max_sm_clock_mhz"),
    "power_w": ("power", "W", "power_limit_w"),
    "temperature_c": ("temperature", "°C", ""),
}


def live_sections(machine: Machine, report: Report) -> list[Section]:
    """The sensors of a machine `with_readings`, and why those of the GPUs are missing."""
    found, gap = [], report.gap
    if report.host:
        held = Fact("memory", memory(machine.memory)[0].text)
        facts = [*sensors(report.host, machine.cpu, "cpu"), held]
        found.append(Section("CPU now", facts=facts, tone="strong cpu"))
    for card in machine.watched:
        facts = [fact("! readings", gap.message, "warning")] if gap else []
        if readings := report.gpus.get(-1 if card.index is None else card.index):
            events = clock_events(card.clock_event_reasons)
            facts = sensors(readings, card, "gpu")
            facts += facts_of(("memory", gpu_memory(card)), ("clock events", events))
        if facts:
            found.append(Section(f"{gpu_title(card)} now", facts=facts, tone="strong gpu"))
    return found


def sensors(
    readings: Sequence[HostReading] | Sequence[GpuReading], limits: Cpu | Gpu, tone: str
) -> list[Fact]:
    """Each sensor with its latest value and a curve up to its limit, then the missing ones."""
    facts = []
    for field, (label, unit, limit) in SENSORS.items():
        course = [v for each in readings if (v := getattr(each, field, None)) is not None]
        now = getattr(readings[-1], field, None)
        if now is not None:  # an old reading must not look like a new one
            most = getattr(limits, limit, None)
            text = number_text(now, unit, most) or ""
            high = most or (max(course) if limit else 100.0) or 1.0
            # One cell per reading, the newest at the right, so that the curve scrolls.
            line = glyphs.sparkline(course, len(course), 0.0, high).rjust(KEPT)
            facts.append(Fact(label, Text.of(text.ljust(VALUE_WIDTH), (line, tone))))
    return facts + missing(readings[-1].unavailable)


def now_line(report: Report) -> Text:
    """The processor and each GPU in one line: latest readings, and a curve of the utilisation."""
    parts = [_now("CPU", report.host, "cpu")] if report.host else []
    cards = report.machine.watched if report.machine is not None else []
    watched = [card.index for card in cards if card.index is not None]
    known = {index: report.gpus[index] for index in watched if report.gpus.get(index)}
    for index, readings in known.items():
        parts.append(_now("GPU" if len(known) == 1 else f"GPU {index}", readings, "gpu"))
    return join(parts, "    ")


def known_readings(found: HostReading | GpuReading) -> Iterator[tuple[str, str]]:
    """The unit and the text of each reading that is known."""
    for field, (_, unit, _) in SENSORS.items():
        if (text := number_text(getattr(found, field, None), unit)) is not None:
            yield unit, text


def _now(name: str, readings: Sequence[HostReading] | Sequence[GpuReading], tone: str) -> Text:
    latest = readings[-1]
    course = [v for each in readings if (v := each.utilization_percent) is not None][-SHORT:]
    line = glyphs.sparkline(course, len(course), 0.0, 100.0).rjust(SHORT)
    values = [text.rjust(LONGEST[unit]) for unit, text in known_readings(latest)]
    return Text.of((f"{name} ", tone), ("  ".join(values), "dim"), (f" {line}", tone))


def with_readings(machine: Machine, report: Report) -> Machine:
    """The machine with its latest readings, while a run goes on."""
    free = report.host[-1].memory_available_bytes if report.host else None
    held = machine.memory
    if free is not None:
        held = msgspec.structs.replace(held, available_bytes=free)
    watched = machine.watched
    cards = []
    for card in machine.gpus:
        readings = None if card.index is None else report.gpus.get(card.index)
        cards.append(_with_readings(card, readings) if readings and card in watched else card)
    return msgspec.structs.replace(machine, memory=held, gpus=cards)


def _with_readings(found: Gpu, readings: Sequence[GpuReading]) -> Gpu:
    common = {*GpuReading.__struct_fields__} & {*Gpu.__struct_fields__} - {"index", "unavailable"}
    read, why = {field: getattr(readings[-1], field) for field in common}, readings[-1].unavailable
    listed = (each.processes for each in reversed(readings) if each.processes is not None)
    read["processes"] = next(listed, None)  # only some readings have them
    known = {f: now for f, now in read.items() if now is not None or f in why or "*" in why}
    return msgspec.structs.replace(found, **known)
