"""Main memory and swap, after the control group's limit.  Source: proc(5), /proc/meminfo."""

from __future__ import annotations

from pathlib import Path

from ...records.machine import Memory
from .cgroup import memory_limits
from .sysfs import parse_int, read_text

_KIB = 1024  # /proc/meminfo says "kB" and means KiB


def parse_meminfo(text: str | None) -> dict[str, int]:
    """Name -> bytes, for the lines that carry a size."""
    sizes: dict[str, int] = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(":")
        value = parse_int(rest.removesuffix(" kB"))
        if value is not None and value >= 0 and rest.endswith(" kB"):
            sizes.setdefault(name.strip(), value * _KIB)
    return sizes


def system_memory(root: Path = Path("/")) -> tuple[int, int] | None:
    """Total and available bytes of the whole machine, or None where the kernel does not say."""
    sizes = parse_meminfo(read_text(root / "proc/meminfo"))
    if "MemTotal" not in sizes:
        return None
    # Kernels before 3.14 and some sandboxes have no MemAvailable.
    available = sizes.get("MemAvailable", sizes.get("MemFree", sizes["MemTotal"]))
    return sizes["MemTotal"], min(available, sizes["MemTotal"])


def read_memory(root: Path = Path("/")) -> Memory:
    """Memory that this process may use; falls back to psutil where there is no /proc/meminfo."""
    system = system_memory(root)
    if system is None:
        return _portable_memory()
    total, available = system
    limits = memory_limits(root, total)
    sizes = parse_meminfo(read_text(root / "proc/meminfo"))
    swap_total = sizes.get("SwapTotal", 0)
    unavailable = {}
    if "SwapTotal" not in sizes:
        for field in ("swap_total_bytes", "swap_used_bytes"):
            unavailable[field] = "/proc/meminfo does not say"
    return Memory(
        total_bytes=total,
        available_bytes=min([available, *(limit.available_bytes for limit in limits)]),
        cgroup_limit_bytes=min((limit.limit_bytes for limit in limits), default=None),
        swap_total_bytes=swap_total,
        swap_used_bytes=max(0, swap_total - sizes.get("SwapFree", swap_total)),
        unavailable=unavailable,
    )


def _portable_memory() -> Memory:
    """What psutil knows, on macOS, Windows and in sandboxes that hide /proc."""
    import psutil  # 20 ms, and Linux does without it

    unavailable = {}
    total = available = swap_total = swap_used = 0
    try:
        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    except (OSError, RuntimeError) as error:
        unavailable["total_bytes"] = unavailable["available_bytes"] = f"psutil: {error}"
    try:
        swap = psutil.swap_memory()
        swap_total, swap_used = swap.total, swap.used
    except (OSError, RuntimeError) as error:
        unavailable["swap_total_bytes"] = unavailable["swap_used_bytes"] = f"psutil: {error}"
    return Memory(
        total_bytes=total,
        available_bytes=available,
        cgroup_limit_bytes=None,
        swap_total_bytes=swap_total,
        swap_used_bytes=swap_used,
        unavailable=unavailable,
    )
