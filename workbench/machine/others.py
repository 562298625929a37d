"""GPUs and TPUs that are not NVIDIA's: a library that can use them names them, in a child process.

They are asked for only where a library was built for them, since the child imports it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ..process.children import command
from ..process.line_process import Ended, QueryProcess
from ..records.machine import Gpu, Software
from ..text.sanitize import printable_json
from .host.sysfs import read_text
from .nvidia.probe_client import start_probe

_BUILDS = ("ROCm ", "XPU ", "macOS ")  # how the builds of torch for such GPUs are described
_INTEL = "0x8086"  # PCI vendor


def other_gpus(
    software: Software, known: list[Gpu], root: Path, python: str | None, deadline_s: float
) -> list[Gpu]:
    """The devices that libraries find besides those that are `known`, and AMD's other cards."""
    amd = start_probe("cards", environ=None, vendor="amd") if find_spec("amdsmi") else None
    asked = {
        name: QueryProcess(command("workbench.worker.gpus", name, python=python), environ=None)
        for name in _to_ask(software, root)
    }
    found: dict[str | None, Gpu] = {}
    for name, process in asked.items():
        for gpu in _answer(name, process, deadline_s):
            found.setdefault(gpu.device, gpu)
    taken = {gpu.device for gpu in known}
    cards = _answer("AMD SMI", amd, deadline_s) if amd else []
    return joined([gpu for gpu in found.values() if gpu.device not in taken], cards)


def _to_ask(software: Software, root: Path) -> list[str]:
    installed = {name for name, package in software.packages.items() if package.version}
    torch = software.packages.get("torch")
    conditions = {
        "torch": torch is not None and (torch.detail or "").startswith(_BUILDS),
        "openvino": "openvino" in installed and _has_intel_gpu(root),
        "jax": {"jax", "libtpu"} <= installed,
    }
    return [name for name, is_met in conditions.items() if is_met]


def _has_intel_gpu(root: Path) -> bool:
    vendors = (root / "sys/class/drm").glob("renderD*/device/vendor")
    return any((read_text(vendor) or "").strip() == _INTEL for vendor in vendors)


def _answer(name: str, process: QueryProcess, deadline_s: float) -> list[Gpu]:
    """What the child lists; a library that fails lists nothing, and its cases say why."""
    about = {"*": f"only {name} describes this device"}
    least = {"index": None, "uuid": None, "pci_bus_id": None, "unavailable": about}

    def decode(line: bytes) -> list[Gpu]:
        found = msgspec.json.decode(printable_json(line), type=list[dict[str, Any]])
        return msgspec.convert([{**least, **gpu} for gpu in found], list[Gpu])

    answer = process.parse(process.line(deadline_s), decode)
    process.close()
    return [] if isinstance(answer, Ended) else answer


def joined(found: list[Gpu], cards: list[Gpu]) -> list[Gpu]:
    """The GPUs of libraries, each with what AMD SMI says about the card in its place on the bus,
    then the `cards` that no library can use."""
    left = {card.pci_bus_id: card for card in cards}
    result = []
    for gpu in found:
        card = left.pop(gpu.pci_bus_id, None) if gpu.pci_bus_id else None
        if card is not None:
            own = {n: getattr(gpu, n) for n in ("device", "name", "memory_total_bytes", "platform")}
            why = {name: text for name, text in card.unavailable.items() if name != "device"}
            gpu = msgspec.structs.replace(card, **own, unavailable=why)
        result.append(gpu)
    return [*result, *left.values()]
