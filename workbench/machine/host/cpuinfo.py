"""Reads /proc/cpuinfo: model, vendor and instruction sets on x86-64, arm64 and the rest.

Sources: kernel arch/x86/kernel/cpu/proc.c, arch/arm64/kernel/cpuinfo.c and its elf_hwcaps.rst.
"""

from collections import Counter
from functools import cache

import msgspec

from ... import assets
from ...records.machine import Isa

Block = dict[str, str]

# `Isa` field -> its word in the "flags" line (x86) or "Features" line (Arm).
ISA_WORDS = {name: name for name in Isa.__struct_fields__} | {"neon": "asimd"}


class _Maker(msgspec.Struct, frozen=True):
    name: str
    cores: dict[str, str] = {}  # by part number in hexadecimal


@cache
def _makers() -> dict[str, _Maker]:
    """The makers of Arm cores by implementer in hexadecimal."""
    return msgspec.toml.decode(assets.path("arm_cores.toml").read_bytes(), type=dict[str, _Maker])


def _maker(implementer: str) -> _Maker:
    return _makers().get(implementer) or _Maker(f"implementer {implementer}")


def parse_cpuinfo(text: str) -> list[Block]:
    """One block of `name : value` lines per logical CPU, without the block of the board itself."""
    blocks: list[Block] = []
    for part in text.split("\n\n"):
        lines = [line.partition(":") for line in part.splitlines()]
        blocks.append({name.strip(): value.strip() for name, _, value in lines})
    return [block for block in blocks if "processor" in block]


def isa(blocks: list[Block]) -> Isa | None:
    """The instruction sets that all CPUs have; None if the kernel lists none."""
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
        if implementer := block.get("CPU implementer"):
            return _maker(implementer).name
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
    implementer, part = block.get("CPU implementer"), block.get("CPU part")
    if not implementer or not part:
        return None
    maker = _maker(implementer)
    return maker.cores.get(part, f"{maker.name} part {part}")


def sockets_and_cores(blocks: list[Block]) -> tuple[int | None, int | None]:
    """Counts from "physical id" and "core id" (x86); None if the kernel does not list them."""
    pairs = {(b.get("physical id"), b.get("core id")) for b in blocks}
    if not pairs or any(None in pair for pair in pairs):
        return None, None
    return len({package for package, _ in pairs}), len(pairs)
