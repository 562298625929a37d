"""GPUs and TPUs that are not NVIDIA's: a library that can use them lists them, in a child process.

Only libraries built for such devices are asked, since the child has to import them.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ..process.children import command
from ..process.line_process import Ended, QueryProcess
from ..records.machine import Gpu, Software
from ..text.sanitize import printable_json
from .host.sysfs import read_text
from .nvidia.gpus import on_the_bus
from .nvidia.probe_client import start_probe

_AMD_CARDS = "0x1002", ("0x1200",)  # processing accelerators; other classes are in processors, too


def other_gpus(
    software: Software, known: list[Gpu], root: Path, python: str | None, deadline_s: float
) -> list[Gpu]:
    """The devices that libraries find in addition to the `known` ones, and AMD's other cards."""
    amd = start_probe("cards", vendor="amd") if find_spec("amdsmi") else None
    asked = {
        name: QueryProcess(command("workbench.worker.gpus", name, python=python))
        for name in _to_ask(software, root)
    }
    found: dict[str | None, Gpu | None] = {gpu.device: None for gpu in known}
    for name, process in asked.items():
        for gpu in _answer(name, process, deadline_s):
            found.setdefault(gpu.device, gpu)
    cards = _answer("AMD SMI", amd, deadline_s) if amd else []
    others = joined([gpu for gpu in found.values() if gpu is not None], cards)
    is_known = any((gpu.platform or "").startswith("ROCm") for gpu in others)
    return others if is_known else others + _unused(root)


def _unused(root: Path) -> list[Gpu]:
    """AMD's accelerators, if no library here can use them."""
    if not (found := on_the_bus(root, *_AMD_CARDS)):
        return []
    from .amd.probe import NO_BUILD  # few machines need it

    why = {"device": NO_BUILD, "*": "only the bus shows it"}
    return [Gpu(None, None, None, at, "AMD GPU", platform="ROCm", unavailable=why) for at in found]


def _to_ask(software: Software, root: Path) -> list[str]:
    installed = {name for name, package in software.packages.items() if package.version}
    torch = software.packages.get("torch")
    vendors = map(read_text, (root / "sys/class/drm").glob("renderD*/device/vendor"))
    conditions = {
        "torch": torch is not None and (torch.detail or "").startswith(("ROCm ", "XPU ", "macOS ")),
        "openvino": "openvino" in installed and any("0x8086" in vendor for vendor in vendors),
        "jax": {"jax", "libtpu"} <= installed,
    }
    return [name for name, is_met in conditions.items() if is_met]


def _answer(name: str, process: QueryProcess, deadline_s: float) -> list[Gpu]:
    """The devices that the child lists; [] if the library fails, since its cases report why."""
    about = {"*": f"only {name} describes this device"}
    least = {"index": None, "uuid": None, "pci_bus_id": None, "unavailable": about}

    def decode(line: bytes) -> list[Gpu]:
        found = msgspec.json.decode(printable_json(line), type=list[dict[str, Any]])
        return msgspec.convert([{**least, **gpu} for gpu in found], list[Gpu])

    answer = process.answer(decode, deadline_s, since_start=True)  # all children started at once
    return [] if isinstance(answer, Ended) else answer


def joined(found: list[Gpu], cards: list[Gpu]) -> list[Gpu]:
    """The GPUs of libraries, merged with AMD SMI's cards by their place on the bus, then the other
    cards."""
    left, result = list(cards), []
    for gpu in found:
        same = (card for card in left if gpu.pci_bus_id and card.pci_bus_id == gpu.pci_bus_id)
        card = next(same, None)
        if card is not None:
            left.remove(card)
            own = {n: getattr(gpu, n) for n in ("device", "name", "memory_total_bytes", "platform")}
            why = {name: text for name, text in card.unavailable.items() if name != "device"}
            gpu = msgspec.structs.replace(card, **own, unavailable=why)
        result.append(gpu)
    by_torch = [gpu for gpu in found if (gpu.platform or "").startswith("ROCm")]
    if not by_torch:
        return [*result, *left]
    if not any(gpu.pci_bus_id for gpu in by_torch):  # torch before 2.8 does not give the bus id
        return result
    hidden = {"device": "torch does not list it; see HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES"}
    return result + [
        msgspec.structs.replace(card, unavailable=card.unavailable | hidden) for card in left
    ]
