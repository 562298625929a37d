"""Cores, caches and clock of the CPU, as sysfs shows them.

Sources: kernel docs admin-guide/cputopology.rst, ABI/testing/sysfs-devices-system-cpu.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ...records.machine import Cache
from .sysfs import parse_cpulist, parse_int, read_int, read_text

_CPUS = "sys/devices/system/cpu"
_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_KHZ_PER_MHZ = 1000


def online_cpus(root: Path) -> set[int] | None:
    """The logical CPUs that are switched on."""
    return parse_cpulist(read_text(root / _CPUS / "online"))


def sockets_and_cores(root: Path, cpus: set[int]) -> tuple[int | None, int | None]:
    """Sockets and physical cores; None each where the kernel does not say."""
    packages: set[int] = set()
    cores = 0
    covered: set[int] = set()
    for cpu in sorted(cpus):
        if cpu in covered:
            continue
        folder = root / _CPUS / f"cpu{cpu}/topology"
        siblings = parse_cpulist(read_text(folder / "thread_siblings_list"))
        if siblings is None:
            return None, None
        covered |= siblings
        cores += 1
        package = read_int(folder / "physical_package_id")
        if package is not None and package >= 0:  # -1: the firmware does not say
            packages.add(package)
    return len(packages) or None, cores or None


def caches(root: Path, cpus: set[int]) -> list[Cache]:
    """Every kind of cache with its number of instances, level by level; [] where hidden."""
    counts: Counter[tuple[int, str, int]] = Counter()
    covered: dict[str, set[int]] = {}
    for cpu in sorted(cpus):
        for index in _cache_indices(root, cpu, covered):
            folder = root / _CPUS / f"cpu{cpu}/cache" / index
            level = read_int(folder / "level")
            kind = _KINDS.get((read_text(folder / "type") or "").strip())
            size = parse_size(read_text(folder / "size"))
            if level is not None and kind is not None and size:
                counts[level, kind, size] += 1
            sharing = parse_cpulist(read_text(folder / "shared_cpu_list"))
            covered.setdefault(index, set()).update(sharing or {cpu})
    return [
        Cache(level=level, kind=kind, size_bytes=size, instances=count)
        for (level, kind, size), count in sorted(counts.items())
    ]


def _cache_indices(root: Path, cpu: int, covered: dict[str, set[int]]) -> list[str]:
    """The caches of `cpu` that no earlier CPU shares and that are not counted yet."""
    try:
        entries = [path.name for path in (root / _CPUS / f"cpu{cpu}/cache").iterdir()]
    except OSError:
        return []
    return [n for n in entries if n.startswith("index") and cpu not in covered.get(n, ())]


def parse_size(text: str | None) -> int | None:
    """Bytes from sysfs's `1024K`."""
    text = (text or "").strip()
    unit = _UNITS.get(text[-1:], 1)
    value = parse_int(text.rstrip("KMG"))
    return value * unit if value is not None and value > 0 else None


def numa_nodes(root: Path) -> int | None:
    """Memory nodes; None where the kernel does not say."""
    nodes = parse_cpulist(read_text(root / "sys/devices/system/node/online"))
    return len(nodes) if nodes else None


def smt(root: Path) -> bool | None:
    """Whether cores run more than one thread."""
    active = read_int(root / _CPUS / "smt/active")
    return None if active is None else active == 1


def efficiency_cores(root: Path) -> int | None:
    """Number of logical CPUs of the slower kind: Intel's by their own PMU, arm64's by capacity.

    Sources: kernel docs ABI/testing/sysfs-devices-system-cpu (cpu_capacity), and the event
    sources cpu_core and cpu_atom of Intel's hybrid processors.
    """
    atoms = parse_cpulist(read_text(root / "sys/devices/cpu_atom/cpus"))
    if atoms is not None:
        return len(atoms)
    online = online_cpus(root)
    if online is None:
        return None
    read = [read_int(root / _CPUS / f"cpu{cpu}/cpu_capacity") for cpu in online]
    capacities = [capacity for capacity in read if capacity is not None]
    return sum(capacity < max(capacities) for capacity in capacities)


def max_frequency_mhz(root: Path) -> float | None:
    """The highest clock that the kernel reports for any core; few virtual machines report one.

    acpi-cpufreq often leaves the boost out: an EPYC 7451 with "CPU max MHz: 2300" ran at 2894
    (github.com/util-linux/util-linux/issues/755).
    """
    try:
        policies = list((root / _CPUS / "cpufreq").glob("policy*"))
    except OSError:
        return None
    clocks = [read_int(policy / "cpuinfo_max_freq") for policy in policies]
    highest = max((clock for clock in clocks if clock and clock > 0), default=None)
    return None if highest is None else highest / _KHZ_PER_MHZ
