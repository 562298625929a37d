"""Main memory and swap, with the control group's limit applied.

On Linux /proc/meminfo (proc(5)) is read directly, since importing psutil takes 20 ms, a tenth of
`workbench detect`.
"""

import os
import re
from pathlib import Path

from ...records.machine import Memory
from .cgroup import memory_limits
from .sysfs import read_text

_KIB = 1024  # "kB" in /proc/meminfo means KiB
_SWAP = ("swap_total_bytes", "swap_used_bytes")


def parse_meminfo(text: str) -> dict[str, int]:
    """Name -> bytes, for the lines that carry a size."""
    lines = re.findall(r"^(\w+): *([0-9]{1,19}) kB$", text, re.MULTILINE)
    return {name: int(size) * _KIB for name, size in lines}


def system_memory(root: Path = Path("/")) -> tuple[int, int] | None:
    """Total and available bytes of the whole machine; None if unknown."""
    sizes = parse_meminfo(read_text(root / "proc/meminfo"))
    if "MemTotal" not in sizes:
        return None
    # Kernels before 3.14 and some sandboxes have no MemAvailable.
    available = sizes.get("MemAvailable", sizes.get("MemFree", sizes["MemTotal"]))
    return sizes["MemTotal"], min(available, sizes["MemTotal"])


def read_memory(root: Path) -> Memory:
    """The memory that this process may use."""
    system = system_memory(root)
    if system is None:
        return _portable_memory()
    total, available = system
    sizes = parse_meminfo(read_text(root / "proc/meminfo"))
    limits = memory_limits(root, total)
    swap_total = sizes.get("SwapTotal", 0)
    unread = () if "SwapTotal" in sizes else _SWAP
    return Memory(
        total_bytes=total,
        available_bytes=min([available, *(left for _, left in limits)]),
        cgroup_limit_bytes=min((limit for limit, _ in limits), default=None),
        swap_total_bytes=swap_total,
        swap_used_bytes=max(0, swap_total - sizes.get("SwapFree", swap_total)),
        unavailable=dict.fromkeys(unread, "/proc/meminfo does not say"),
    )


def _portable_memory() -> Memory:
    """The same from psutil: for macOS and sandboxes that hide a part of /proc."""
    import psutil  # takes 20 ms, and Linux does not need it

    try:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    except (OSError, RuntimeError) as error:  # Linux without /proc: glibc asks by sysinfo(2)
        names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES", "SC_AVPHYS_PAGES")
        page, total, free = (max(0, os.sysconf(name)) for name in names)
        why = dict.fromkeys(_SWAP, f"psutil: {error}")
        return Memory(page * total, page * free, None, 0, 0, why)
    return Memory(memory.total, memory.available, None, swap.total, swap.used)
