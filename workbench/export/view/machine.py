"""The machine in words: each reading as a labelled fact, each missing one with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...contract import kind_of
from ...records.document import Ceilings
from ...records.machine import (
    Cache,
    CoreLimit,
    Cpu,
    Gpu,
    Isa,
    Machine,
    Memory,
    Os,
    Pcie,
    Software,
)
from ...records.reason import Reason, Warning
from ...text import units
from . import glyphs
from .ceilings import rows as ceiling_rows
from .facts import Fact, fact, facts_lines, heading, label_width, warning_facts
from .spans import Text

BAR_WIDTH = 12

# Field of `Isa` -> its usual name, by processor family.
X86 = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI-512",
    "avx_vnni": "AVX-VNNI",
    "avx512_bf16": "BF16",
    "avx512_fp16": "FP16",
    "amx_int8": "AMX-INT8",
    "amx_bf16": "AMX-BF16",
}
ARM = {
    "neon": "NEON",
    "asimddp": "DotProd",
    "i8mm": "I8MM",
    "bf16": "BF16",
    "sve": "SVE",
}


def warnings(found: Sequence[Warning], titles: Mapping[str, str]) -> list[Fact]:
    """Each warning with its remedy; one about several rows, named by `titles`, only once."""
    groups: dict[object, list[Warning]] = {}
    for number, warning in enumerate(found):
        groups.setdefault(warning.code if warning.subject in titles else number, []).append(warning)
    facts: list[Fact] = []
    for first, *others in groups.values():
        title = titles.get(first.subject or "")
        more = f", and {len(others)} more" if others else ""
        text = first.message if title is None else f"{first.message} ({title}{more})"
        facts += warning_facts(text, first.remedy)
    return facts


def ceilings(found: Ceilings | None, device: str | None) -> list[Fact]:
    """The measured ceilings of `device`; empty where it was not measured."""
    named = [d for d in found.devices if d.device == device] if found else []
    if found is None or not named:
        return []
    alone = msgspec.structs.replace(found, devices=named)
    rows = (row for row in ceiling_rows(alone) if row[0] not in ("name", "threads"))
    facts = []
    for label, cell, *sheet in rows:
        datasheet = f"  (datasheet: {sheet[0]})" if sheet and sheet[0] != "-" else ""
        facts.append(fact(label, cell + datasheet))
    return [*facts, fact("measured", found.measured_at[:10])]


def reading(value: str | None) -> Text:
    return Text.of(value) if value is not None else Text.of((units.NOT_AVAILABLE, "dim"))


def cpu(found: Cpu) -> list[Fact]:
    clock = f", up to {found.max_frequency_mhz / 1000:.2f} GHz" if found.max_frequency_mhz else ""
    limited = found.effective_cores < found.logical_cores
    why = f", limited by {found.limited_by}" if limited else ""
    cores = f"{found.effective_cores} of {found.logical_cores} cores"
    model = found.model or units.NOT_AVAILABLE
    facts = [
        Fact("", Text.of((model, "strong"), f"  {found.architecture}{clock}")),
        Fact("usable", Text.of((cores, "strong"), why)),
        fact("cores", _cores(found)),
        Fact("limits", [Text.of(_limit(one)) for one in found.limits]),
        Fact("instructions", instructions(found.isa, found.architecture)),
        Fact("caches", [Text.of(_cache(cache)) for cache in found.caches] or reading(None)),
    ]
    return facts + missing(found.unavailable)


def _cores(found: Cpu) -> str:
    parts = (
        (found.sockets, "socket" if found.sockets == 1 else "sockets"),
        (found.physical_cores, "physical"),
        (found.logical_cores, "logical"),
    )
    counts = [f"{units.NOT_AVAILABLE if count is None else count} {noun}" for count, noun in parts]
    if found.numa_nodes is not None and found.numa_nodes > 1:
        counts.append(f"{found.numa_nodes} NUMA nodes")
    if found.efficiency_cores:
        counts.append(f"{found.efficiency_cores} efficiency cores")
    return ", ".join(counts)


def _limit(found: CoreLimit) -> str:
    where = f" ({found.source})" if found.source.startswith("/") else ""
    return f"{found.name} {found.cores:g}{where}"


def _cache(cache: Cache) -> str:
    kind = {"data": "d", "instruction": "i"}.get(cache.kind, "")
    times = f" x{cache.instances}" if cache.instances > 1 else ""
    return f"L{cache.level}{kind} {units.size(cache.size_bytes)}{times}"


def instructions(isa: Isa, architecture: str) -> list[Text]:
    """`AVX2 yes  AVX-512 no`: words, because presence must not depend on a colour."""
    names = ARM if architecture in ("aarch64", "arm64") else X86
    chips = []
    for field, name in names.items():
        present: bool | None = getattr(isa, field)
        word = {True: "yes", False: "no", None: "?"}[present]
        shown = [f"{name} ", (word, "strong good")] if present else [(f"{name} {word}", "dim")]
        chips.append(Text.of(*shown))
    return chips


def used_bar(used: float, total: float, tone: str) -> Text:
    share = used / total if total else 0.0
    return Text.of(
        (glyphs.gauge(share, BAR_WIDTH), tone),
        f" {units.size(used)} of {units.size(total)}, {units.percent(share)}",
    )


def memory(found: Memory) -> list[Fact]:
    used = found.total_bytes - found.available_bytes
    facts = [
        Fact("used", used_bar(used, found.total_bytes, "cpu")),
        fact("available", units.size(found.available_bytes)),
    ]
    if found.cgroup_limit_bytes is not None:
        facts.append(fact("cgroup limit", units.size(found.cgroup_limit_bytes)))
    swap = f"{units.size(found.swap_used_bytes)} of {units.size(found.swap_total_bytes)} used"
    facts.append(fact("swap", swap if found.swap_total_bytes else "none"))
    return facts + missing(found.unavailable)


def gpu_title(found: Gpu) -> str:
    device = found.device or "hidden"
    number = "" if found.index is None else f" {found.index}"
    mark = "  SIMULATED" if found.simulated else ""
    word = kind_of(device).word
    return f"{word}{number}  {found.name or units.NOT_AVAILABLE}  ({device}){mark}"


def gpu(found: Gpu) -> list[Fact]:
    if found.simulated:  # there is nothing to read: a column of n/a would say no more
        return [fact("! simulated", "a CPU worker poses as this GPU; it has no sensors", "warning")]
    facts: list[Fact] = []
    reasons = dict(found.unavailable)
    if not found.visible:
        why = reasons.pop("device", "by CUDA_VISIBLE_DEVICES")
        facts.append(fact("! hidden", why.removeprefix("hidden "), "warning"))
    if found.platform is not None:
        facts.append(fact("platform", f"{found.platform}, unproven", "warning"))
    facts += [
        Fact("memory used", gpu_memory(found)),
        Fact("driver", reading(found.driver_version)),
        Fact("compute", reading(found.compute_capability)),
        Fact("PCIe", _pcie(found.pcie)),
        Fact("power", reading(number_text(found.power_w, "W", found.power_limit_w))),
        Fact("temperature", reading(number_text(found.temperature_c, "°C"))),
        Fact("busy", reading(number_text(found.utilization_percent, "%"))),
        Fact("SM clock", reading(number_text(found.sm_clock_mhz, "MHz", found.max_sm_clock_mhz))),
        Fact("clock events", clock_events(found.clock_event_reasons)),
        Fact("processes", _processes(found)),
        Fact("modes", _modes(found)),
        Fact("NVLink", reading(None if found.nvlinks is None else f"{found.nvlinks} links active")),
    ]
    if found.worker_cores is not None:
        facts.append(fact("workers", f"bound to cores {found.worker_cores}, its NUMA node's"))
    return facts + missing(reasons)


def gpu_memory(found: Gpu) -> Text:
    if found.memory_total_bytes is None:
        return reading(None)
    if found.memory_used_bytes is None:
        return Text.of(f"{units.size(found.memory_total_bytes)} in total")
    return used_bar(found.memory_used_bytes, found.memory_total_bytes, "gpu")


def _pcie(link: Pcie) -> Text:
    if link.generation is None and link.width is None:
        return reading(None)

    def side(generation: int | None, width: int | None) -> str:
        return f"{generation or '?'}.0 x{width or '?'}"

    now, most = side(link.generation, link.width), side(link.max_generation, link.max_width)
    # Links slow down at idle: less than the maximum is no fault by itself.
    return Text.of(now if now == most else f"{now} now, maximum {most}")


def number_text(value: float | None, unit: str, most: float | None = None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f} {unit}" if most is None else f"{value:.0f} of {most:.0f} {unit}"


def clock_events(reasons: list[str] | None) -> Text:
    if reasons is None:
        return reading(None)
    slowed = [reason for reason in reasons if "idle" not in reason.lower()]
    return Text.of((", ".join(reasons) or "none", "warning" if slowed else ""))


def _processes(found: Gpu) -> Text:
    if found.processes is None:
        return reading(None)
    count = len(found.processes)
    held = sum(process.used_memory_bytes or 0 for process in found.processes)
    names = sorted({f"{p.name} ({p.user or '?'})" for p in found.processes if p.name})
    whose = f": {', '.join(names)}" if names else ""
    return Text.of(f"{count}, holding {units.size(held)}{whose}" if count else "none")


def _modes(found: Gpu) -> Text:
    words = {True: "on", False: "off", None: units.NOT_AVAILABLE}
    named = (("ECC", found.ecc), ("MIG", found.mig), ("persistence", found.persistence))
    return Text.of(", ".join(f"{name} {words[value]}" for name, value in named))


def missing(unavailable: Mapping[str, str]) -> list[Fact]:
    """The reasons for missing readings, each with its readings."""
    by_reason: dict[str, list[str]] = {}
    for field, why in unavailable.items():
        by_reason.setdefault(why, []).append(field)
    named = {why: ", ".join(fields).replace("*", "all") for why, fields in by_reason.items()}
    return [fact("n/a", f"{fields}: {why}", "dim") for why, fields in named.items()]


def no_gpu(machine: Machine) -> list[Fact]:
    is_none = not machine.cuda.available and machine.cuda.device_count == 0
    found = [fact("", "No GPU was found." if is_none else "GPUs could not be read.", "strong")]
    return found + because("NVML", machine.nvml.reason) + because("CUDA", machine.cuda.reason)


def because(name: str, reason: Reason | None) -> list[Fact]:
    if reason is None:
        return []
    facts = [fact(name, reason.message)]
    return [*facts, fact("  remedy", reason.hint)] if reason.hint else facts


def drivers(machine: Machine) -> list[Fact]:
    nvml, cuda = machine.nvml, machine.cuda
    versions = f"driver {nvml.driver_version or '?'}, library {nvml.library_version or '?'}"
    noun = "device" if cuda.device_count == 1 else "devices"
    devices = f"{cuda.api_version or '?'}, {cuda.device_count} {noun}"
    facts = []
    for name, driver, text in (("NVML", nvml, versions), ("CUDA", cuda, devices)):
        if driver.available or driver.reason is None or not machine.gpus:
            # Without GPUs their section has the reason.
            facts.append(fact(name, text if driver.available else "not available"))
        else:
            facts += because(name, driver.reason)
    return facts


def software(found: Software, system: Os) -> list[Fact]:
    where = f" in {system.container}" if system.container else ""
    facts = [
        fact("system", f"{system.distribution or system.system} {system.release}{where}"),
        fact("Python", f"{found.python}  {found.executable}"),
    ]
    for name, package in found.packages.items():
        if package.version is None:
            facts.append(fact(name, "not installed", "dim"))
        else:
            detail = f"  {package.detail}" if package.detail else ""
            facts.append(fact(name, f"{package.version}{detail}"))
    return facts + missing(found.unavailable)


def environment(found: Software) -> list[Fact]:
    if not found.environment:
        return [fact("", "no environment variables affect results", "dim")]
    return [fact("", f"{name}={value}") for name, value in found.environment.items()]


# ------------------------------------------------------------- the sections

Section = tuple[str, str, list[Fact]]  # title, tone, facts


def processor_sections(
    machine: Machine, installed: Software, known: Ceilings | None
) -> list[Section]:
    reached = ceilings(known, "cpu")
    return [
        ("CPU", "strong cpu", cpu(machine.cpu)),
        *([("CPU ceilings", "strong cpu", reached)] if reached else []),
        ("Memory", "strong", memory(machine.memory)),
        ("Software", "strong", software(installed, machine.os)),
        ("Environment", "strong", environment(installed)),
    ]


def accelerator_sections(machine: Machine, known: Ceilings | None) -> list[Section]:
    cards: list[Section] = []
    for card in machine.gpus:
        cards.append((gpu_title(card), "strong gpu", gpu(card)))
        if reached := ceilings(known, card.device):
            cards.append((f"{card.device} ceilings", "strong gpu", reached))
    return [
        *(cards or [("GPU", "strong gpu", no_gpu(machine))]),
        ("Drivers", "strong", drivers(machine)),
    ]


def section_lines(sections: Sequence[Section], width: int) -> list[Text]:
    """Sections under one another, with a blank line after each."""
    lines: list[Text] = []
    indent = max((label_width(facts) for _, _, facts in sections), default=0)
    for title, tone, facts in sections:
        lines += [heading(title, width, tone), *facts_lines(facts, width, indent), Text()]
    return lines
