"""Reads /proc/cpuinfo: model, vendor and instruction sets on x86-64, arm64 and the rest.

Sources: kernel arch/x86/kernel/cpu/proc.c, arch/arm64/kernel/cpuinfo.c and its elf_hwcaps.rst;
the Arm identifiers from the kernel's arch/arm64/include/asm/cputype.h.
"""

from __future__ import annotations

from collections import Counter

from ...records.machine import Isa

Block = dict[str, str]

# `Isa` field -> its word in the "flags" line (x86) or "Features" line (Arm).
ISA_WORDS = {name: name for name in Isa.__struct_fields__} | {"neon": "asimd"}

_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}

_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng-920",
    (0x4E, 0x004): "Carmel",
    (0x61, 0x022): "Icestorm (M1)",
    (0x61, 0x023): "Firestorm (M1)",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}


def parse_cpuinfo(text: str | None) -> list[Block]:
    """One block of `name : value` lines per logical CPU, without the block of the board itself."""
    blocks: list[Block] = []
    block: Block = {}
    for line in [*(text or "").splitlines(), ""]:
        name, separator, value = line.partition(":")
        if separator:
            block.setdefault(name.strip(), value.strip())
        elif not line.strip() and block:
            blocks.append(block)
            block = {}
    return [block for block in blocks if "processor" in block]


def isa(blocks: list[Block]) -> Isa | None:
    """The instruction sets that all CPUs have; None where the kernel lists none."""
    listed = [block.get("flags", block.get("Features")) for block in blocks]
    lists = {words for words in listed if words}
    if not lists:
        return None
    # A thread may run on any core, so only extensions that all kinds of core share count.
    common = set.intersection(*(set(words.split()) for words in lists))
    return Isa(**{field: word in common for field, word in ISA_WORDS.items()})


def vendor(blocks: list[Block]) -> str | None:
    for block in blocks:
        if "vendor_id" in block:
            return block["vendor_id"]
        implementer = _identifier(block.get("CPU implementer"))
        if implementer is not None:
            return _IMPLEMENTERS.get(implementer, f"implementer {implementer:#04x}")
    return None


def model(blocks: list[Block]) -> str | None:
    """The model's name; for mixed cores every kind with its count, in the kernel's order."""
    counts = Counter(name for name in map(_model, blocks) if name)
    if len(counts) < 2:
        return next(iter(counts), None)
    return " + ".join(f"{count}x {name}" for name, count in counts.items())


def _model(block: Block) -> str | None:
    for key in ("model name", "cpu", "uarch"):  # x86, POWER, RISC-V
        if block.get(key):
            return " ".join(block[key].split())
    implementer = _identifier(block.get("CPU implementer"))
    part = _identifier(block.get("CPU part"))
    if implementer is None or part is None:
        return None
    maker = _IMPLEMENTERS.get(implementer, f"implementer {implementer:#04x}")
    return _PARTS.get((implementer, part), f"{maker} part {part:#05x}")


def _identifier(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None


def sockets_and_cores(blocks: list[Block]) -> tuple[int | None, int | None]:
    """Counted from "physical id" and "core id" (x86); None where the kernel leaves them out."""
    pairs = {(b.get("physical id"), b.get("core id")) for b in blocks}
    if not pairs or any(None in pair for pair in pairs):
        return None, None
    return len({package for package, _ in pairs}), len(pairs)
