"""Helpers for filling a `Gpu`: bus ids, processes, missing fields and their reasons."""

import pwd
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from ...records.machine import Gpu, GpuProcess
from ...text.sanitize import shown
from ..host.sysfs import read_text

_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.I)
# Fields that are not read from the driver, or only by CUDA.
_NOT_READ = {"index", "device", "pcie", "visible", "simulated", "worker_cores", "unavailable"}
_NOT_READ |= {"l2_cache_bytes", "platform"}
_FIELDS = tuple(name for name in Gpu.__struct_fields__ if name not in _NOT_READ)


def normalise_bus_id(text: str) -> str | None:
    """`0000:18:00.0`, as Linux writes it, from NVML's `00000000:18:00.0` or CUDA's form."""
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def with_reasons(gpu: Gpu, reason: str) -> Gpu:
    """`gpu` with `reason` for every field that is None, such as `pcie.width`, and has none yet."""
    fields = {name: getattr(gpu, name) for name in _FIELDS}
    fields |= {f"pcie.{name}": value for name, value in msgspec.structs.asdict(gpu.pcie).items()}
    reasons = {name: reason for name, value in fields.items() if value is None}
    return msgspec.structs.replace(gpu, unavailable={**reasons, **gpu.unavailable})


def gpu_process(pid: int, used_memory_bytes: int | None, root: Path = Path("/")) -> GpuProcess:
    """The process with its name and user; without them if `pid` is in another pid namespace."""
    folder = root / "proc" / str(pid)
    # A program chooses its name freely, and the name is shown on a terminal.
    name, user = shown(read_text(folder / "comm").strip()) or None, None
    with suppress(KeyError, OSError):  # KeyError: the user id has no name
        user = pwd.getpwuid(folder.stat().st_uid).pw_name if name else None
    return GpuProcess(pid, used_memory_bytes, name, user)
