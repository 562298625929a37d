"""The machine in words: each reading as a labelled fact, each missing one with its reason."""

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from ...contract import kind_of
from ...machine.nvidia.gpus import cuda_remedy
from ...machine.packages import onnx_cuda
from ...machine.warnings import NOT_BY_TORCH, hardware_warnings
from ...records import machine as records
from ...records.document import Ceilings
from ...records.reason import Reason, Warning
from ...report.report import Report
from ...text import units
from . import glyphs
from .ceilings import bars as ceiling_bars
from .section import Section, section_text
from .spans import Fact, Text, fact, join, unbroken, warning_fact

BAR_WIDTH = 12
MANY = 3  # number of equal GPUs from which they share a table
# Label of a reading of one GPU -> its title in that table.
READINGS = {
    "memory used": "memory",
    "power": "power",
    "temperature": "temp",
    "busy": "busy",
    "SM clock": "clock",
}

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
ARM = {"neon": "NEON", "asimddp": "DotProd", "i8mm": "I8MM", "bf16": "BF16", "sve": "SVE"}
MODES = {True: "on", False: "off"}


def warnings(found: Sequence[Warning], titles: Mapping[str, str]) -> list[Fact]:
    """Each warning with its remedy; those with the same remedy about several rows (named by
    `titles`) or devices become one."""
    groups: dict[object, list[Warning]] = {}
    for warning in found:
        about = None if warning.subject in titles else warning.remedy or warning.message
        groups.setdefault((warning.code, about), []).append(warning)
    facts: list[Fact] = []
    for first, *others in groups.values():
        title = titles.get(first.subject or "")
        more = f", and {len(others)} more" if others else ""
        text = first.message + (more if title is None else f" ({title}{more})")
        facts.append(warning_fact(f"{text}; {first.remedy}"))
    return facts


def run_warnings(report: Report) -> list[Fact]:
    """The warnings about no row, since each row shows its own."""
    return warnings([each for each in report.warnings if each.subject not in report.rows], {})


def ceilings(found: Ceilings | None, device: str | None) -> list[Fact]:
    """The measured ceilings of `device`; [] if there are none."""
    if not device or not found or all(each.device != device for each in found.devices):
        return []
    facts = []
    for label, share, cell in ceiling_bars(found, device):
        drawn = glyphs.bar(share, BAR_WIDTH).ljust(BAR_WIDTH + 1) if share else ""
        tone = "gpu" if device != "cpu" else "cpu"
        facts.append(Fact(label, Text.of((drawn, tone if label[0] != " " else "dim"), cell)))
    return [*facts, fact("measured", found.measured_at[:10])]


def facts_of(*readings: tuple[str, str | Text | None]) -> list[Fact]:
    """The known readings; `missing` names the others."""
    return [Fact(label, Text.of(value)) for label, value in readings if value is not None]


def cpu(found: records.Cpu) -> list[Fact]:
    clock = f", up to {found.max_frequency_mhz / 1000:.2f} GHz" if found.max_frequency_mhz else ""
    limited = found.effective_cores < found.logical_cores
    why = f", limited by {found.limited_by}" if limited else ""
    cores = f"{found.effective_cores} of {units.counted(found.logical_cores, 'core')}"
    counts = (
        (found.sockets, "socket" if found.sockets == 1 else "sockets"),
        (found.physical_cores, "physical"),
        (found.logical_cores, "logical"),
        (found.numa_nodes if found.numa_nodes != 1 else None, "NUMA nodes"),
        (found.efficiency_cores or None, "efficiency cores"),
    )
    known = ", ".join(f"{count} {noun}" for count, noun in counts if count is not None)
    caches = ", ".join(unbroken(_cache(each)) for each in found.caches)
    name = Text.of((found.model or units.NOT_AVAILABLE, "strong"))
    return [
        Fact("", Text.of(name, f"  {found.architecture}{clock}")),
        Fact("usable", Text.of((cores, "strong"), why)),
        fact("cores", known),
        fact("limits", ", ".join(unbroken(_limit(each)) for each in found.limits)),
        Fact("instructions", instructions(found.isa, found.architecture)),
        *([fact("caches", caches)] if found.caches else []),
        *missing(found.unavailable),
    ]


def _limit(found: records.CoreLimit) -> str:
    where = f" ({found.source})" if found.source.startswith("/") else ""
    return f"{found.name} {found.cores:g}{where}"


def _cache(cache: records.Cache) -> str:
    kind = {"data": "d", "instruction": "i"}.get(cache.kind, "")
    times = f" x{cache.instances}" if cache.instances > 1 else ""
    return f"L{cache.level}{kind} {units.size(cache.size_bytes)}{times}"


def instructions(isa: records.Isa, architecture: str) -> Text:
    """`AVX2 yes, AVX-512 no`: in words, since colour alone must not show it."""
    names = ARM if architecture in ("aarch64", "arm64") else X86
    chips = []
    for field, name in names.items():
        present: bool | None = getattr(isa, field)
        word = {True: "yes", False: "no", None: "?"}[present]
        chips.append(Text.of((unbroken(f"{name} {word}"), "good" if present else "dim")))
    return join(chips, ", ")


def used_bar(used: float, total: float, tone: str) -> Text:
    drawn = glyphs.gauge(used / total if total else 0.0, BAR_WIDTH)
    return Text.of((drawn, tone), f" {_of_total(used, total)}")


def memory(found: records.Memory) -> list[Fact]:
    usable = found.usable_bytes
    swap = f"{units.size(found.swap_used_bytes)} of {units.size(found.swap_total_bytes)} used"
    limit = found.cgroup_limit_bytes
    return [
        *facts_of(
            ("used", used_bar(usable - found.available_bytes, usable, "cpu")),
            ("available", units.size(found.available_bytes)),
            ("cgroup limit", None if limit is None else units.size(limit)),
            ("swap", swap if found.swap_total_bytes else "none"),
        ),
        *missing(found.unavailable),
    ]


def gpu_title(found: records.Gpu) -> str:
    device = found.device or ("unusable" if found.visible else "hidden")
    number = "" if found.index is None else f" {found.index}"
    mark = "  SIMULATED" if found.simulated else ""
    word = kind_of(device).word
    return f"{word}{number}  {found.name or units.NOT_AVAILABLE}  ({device}){mark}"


def gpu(found: records.Gpu) -> list[Fact]:
    if found.simulated:  # it has no readings
        return [fact("! simulated", "a CPU worker poses as this GPU; it has no sensors", "warning")]
    reasons, hidden = dict(found.unavailable), list[Fact]()
    if not found.visible:
        why = reasons.pop("device", "by CUDA_VISIBLE_DEVICES")
        hidden = [fact("! hidden", why.removeprefix("hidden "), "warning")]
    unproven, cores, links = found.platform, found.worker_cores, found.nvlinks
    modes = (("ECC", found.ecc), ("MIG", found.mig), ("persistence", found.persistence))
    known = [f"{name} {MODES[value]}" for name, value in modes if value is not None]
    return [
        *hidden,
        *facts_of(
            ("platform", unproven and Text.of((f"{unproven}, unproven", "warning"))),
            ("memory used", gpu_memory(found)),
            ("driver", found.driver_version),
            ("compute", found.compute_capability),
            ("PCIe", _pcie(found.pcie)),
            ("power", number_text(found.power_w, "W", found.power_limit_w)),
            ("temperature", number_text(found.temperature_c, "°C")),
            ("busy", number_text(found.utilization_percent, "%")),
            ("SM clock", number_text(found.sm_clock_mhz, "MHz", found.max_sm_clock_mhz)),
            ("clock events", clock_events(found.clock_event_reasons)),
            ("processes", _processes(found.processes)),
            ("modes", ", ".join(known) or None),
            ("NVLink", None if links is None else f"{units.counted(links, 'link')} active"),
            ("workers", cores and f"bound to cores {cores}, its NUMA node's"),
        ),
        *missing(reasons),
    ]


def _each(found: Sequence[records.Gpu], shown: Collection[str]) -> list[Section]:
    """A section for each GPU, without the facts whose labels are in `shown`."""
    facts = ([each for each in gpu(card) if each.label not in shown] for card in found)
    return [
        Section(gpu_title(card), facts=own, tone="strong gpu")
        for card, own in zip(found, facts, strict=True)
    ]


def _many(found: Sequence[records.Gpu]) -> list[Section]:
    """A table of readings with a line for each GPU, the facts that all share, and those of some."""
    rows = []
    for card in found:
        name = card.device or f"{card.index} {'unusable' if card.visible else 'hidden'}"
        used, total = card.memory_used_bytes, card.memory_total_bytes
        held = _of_total(used, total) if total else None
        readings = card.power_w, card.temperature_c, card.utilization_percent, card.sm_clock_mhz
        texts = [held, *map(number_text, readings, ("W", "°C", "%", "MHz"))]
        rows.append((name, *(text or units.NOT_AVAILABLE for text in texts)))
    cards = _each(found, READINGS)
    shared = [each for each in cards[0].facts if all(each in card.facts for card in cards)]
    alone = [replace(card, facts=[f for f in card.facts if f not in shared]) for card in cards]
    title = f"{len(found)} GPUs  {found[0].name or units.NOT_AVAILABLE}"
    table = Section.of(title, (), ("", *READINGS.values()), rows)
    together = replace(table, facts=shared, tone="strong gpu")
    return [together, *(card for card in alone if card.facts)]


def _of_total(used: float | None, total: float) -> str:
    """`1.20 of 140 GiB`, and `512 MiB of 140 GiB`."""
    whole = units.size(total)
    return f"{units.size(used).removesuffix(' ' + whole.split()[-1])} of {whole}"


def gpu_memory(found: records.Gpu) -> Text | str | None:
    total, used = found.memory_total_bytes, found.memory_used_bytes
    if total is None or used is None:
        return None if total is None else f"{units.size(total)} in total"
    return used_bar(used, total, "gpu")


def _pcie(link: records.Pcie) -> str | None:
    if link.generation is None and link.width is None:
        return None
    # Links slow down at idle, so less than the maximum need not be a fault.
    now = f"{link.generation or '?'}.0 x{link.width or '?'}"
    most = f"{link.max_generation or '?'}.0 x{link.max_width or '?'}"
    return now if now == most else f"{now} now, maximum {most}"


def number_text(value: float | None, unit: str, most: float | None = None) -> str | None:
    if value is None:
        return None
    text = f"{value:.0f}" if most is None else f"{value:.0f} of {most:.0f}"
    return f"{text}{unit}" if unit == "%" else f"{text} {unit}"


def clock_events(reasons: Sequence[str] | None) -> Text | None:
    if reasons is None:
        return None
    slowed = [reason for reason in reasons if "idle" not in reason.lower()]
    said = ", ".join(reasons).replace("_", " ")
    return Text.of((said or "none", "warning" if slowed else ""))


def _processes(found: Sequence[records.GpuProcess] | None) -> str | None:
    if not found:
        return None if found is None else "none"
    held = sum(process.used_memory_bytes or 0 for process in found)
    names = sorted({f"{p.name} ({p.user or '?'})" for p in found if p.name})
    listed = f": {', '.join(names)}" if names else ""
    return f"{len(found)}, holding {units.size(held)}{listed}"


def missing(unavailable: Mapping[str, str]) -> list[Fact]:
    """The reasons for missing readings, each with the readings that it explains."""
    by_reason: dict[str, list[str]] = {}
    for field, why in unavailable.items():
        by_reason.setdefault(why, []).append(field)
    named = {why: ", ".join(map(_label, fields)) for why, fields in by_reason.items()}
    return [fact("n/a", f"{fields}: {why}", "dim") for why, fields in named.items()]


def _label(field: str) -> str:
    """`power limit` for `power_limit_w`."""
    bare = re.sub("_(w|c|mhz|percent|bytes)$", "", field)
    return "all" if field == "*" else bare.replace("_", " ")


def no_gpu(machine: records.Machine) -> list[Fact]:
    is_none = not machine.cuda.available and machine.cuda.device_count == 0
    found = [fact("", "No GPU was found." if is_none else "GPUs could not be read.", "strong")]
    nvml, cuda = machine.nvml.reason, machine.cuda.reason
    if nvml is not None and cuda is not None and nvml.hint == cuda.hint:
        nvml = replace(nvml, hint=None)  # the line below gives it
    return found + because("NVML", nvml) + because("CUDA", cuda)


def because(name: str, reason: Reason | None) -> list[Fact]:
    if reason is None:
        return []
    facts = [fact(name, reason.message)]
    return [*facts, fact("  remedy", reason.hint)] if reason.hint else facts


def drivers(machine: records.Machine) -> list[Fact]:
    nvml, cuda = machine.nvml, machine.cuda
    versions = f"driver {nvml.driver_version or '?'}, library {nvml.library_version or '?'}"
    devices = f"{cuda.api_version or '?'}, {units.counted(cuda.device_count, 'device')}"
    facts = []
    for name, driver, text in (("NVML", nvml, versions), ("CUDA", cuda, devices)):
        # Without GPUs, their own section shows the reason.
        reason = driver.reason if machine.gpus and not driver.available else None
        if reason is not None and driver is cuda:
            reason = replace(reason, hint=cuda_remedy(machine))
        state = text if driver.available else "not available"
        facts += because(name, reason) or [fact(name, state)]
    return facts


def stack(machine: records.Machine, installed: records.Software) -> list[Fact]:
    """The layers from the libraries down to the GPUs, and where the chain breaks."""
    facts = drivers(machine)
    if not machine.cuda_gpus:
        return facts
    packages, remedy = installed.packages, onnx_cuda.remedy(machine, installed)
    found = (w for w in hardware_warnings(machine, installed) if w.code in NOT_BY_TORCH)
    warning = next(found, None)
    lacks = (warning.message, warning.remedy) if warning else (None, None)
    facts += _level("torch", packages.get("torch"), *lacks)
    name, why = onnx_cuda.GPU_PACKAGE, onnx_cuda.disagreement(machine, installed)
    if name not in packages or packages[name].version is None:
        name, why = "onnxruntime", "a CPU build: not on the GPU"
    return facts + _level("onnxruntime", packages.get(name), why, remedy)


def _level(
    name: str, package: records.Package | None, why: str | None, remedy: str | None
) -> list[Fact]:
    """A library, and `why` the chain to the GPU breaks at it."""
    if package is None or package.version is None:
        return [fact(name, "not installed", "dim")]
    if not why:
        return [fact(name, _version(package))]
    broken = Fact(name, Text.of(f"{_version(package)}  ", (f"! {why}", "warning")))
    return [broken, *([fact("  remedy", remedy)] if remedy else [])]


def _version(package: records.Package) -> str:
    return "  ".join(filter(None, (package.version or "not installed", package.detail)))


def software(found: records.Software, system: records.Os) -> list[Fact]:
    where = f" in {system.container}" if system.container else ""
    facts = [
        fact("system", f"{system.distribution or system.system} {system.release}{where}"),
        fact("Python", f"{found.python}  {found.executable}"),
    ]
    for name, package in found.packages.items():
        facts.append(fact(name, _version(package), "" if package.version else "dim"))
    return facts + missing(found.unavailable)


def environment(found: records.Software) -> list[Fact]:
    facts = [fact("", f"{name}={value}") for name, value in found.environment.items()]
    return facts or [fact("", "no environment variables affect results", "dim")]


def processor_sections(
    machine: records.Machine,
    installed: records.Software,
    known: Ceilings | None,
    *,
    live: bool = False,
) -> list[Section]:
    """`live`: another section shows the memory in use."""
    reached = ceilings(known, "cpu")
    return [
        Section("CPU", facts=cpu(machine.cpu), tone="strong cpu"),
        *([Section("CPU ceilings", facts=reached, tone="strong cpu")] if reached else []),
        Section("Memory", facts=memory(machine.memory)[1 if live else 0 :]),
        Section("Software", facts=software(installed, machine.os)),
        Section("Environment", facts=environment(installed)),
    ]


def accelerator_sections(
    machine: records.Machine,
    installed: records.Software,
    known: Ceilings | None,
    *,
    live: bool = False,
) -> list[Section]:
    """`live`: another section shows the readings of the GPUs over time."""
    shown = (*READINGS, "clock events") if live else ()
    is_many = len(machine.gpus) >= MANY and len({card.name for card in machine.gpus}) == 1
    cards = _many(machine.gpus) if is_many else _each(machine.gpus, shown)
    for card in machine.gpus:
        if reached := ceilings(known, card.device):
            title = f"{card.device} ceilings"
            cards.append(Section(title, facts=reached, tone="strong gpu"))
    cards = cards or [Section("GPU", facts=no_gpu(machine), tone="strong gpu")]
    is_nvidia = any(card.platform is None for card in machine.gpus)
    has_stack = is_nvidia or machine.nvml.available or machine.cuda.available
    return [*cards, Section("Stack", facts=stack(machine, installed))] if has_stack else cards


def machine_text(
    machine: records.Machine, installed: records.Software, width: int | None = None
) -> str:
    """The output of `workbench detect`."""
    sections = processor_sections(machine, installed, None)
    return section_text([*sections, *accelerator_sections(machine, installed, None)], width)
