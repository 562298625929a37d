"""Cores, caches and clock of the CPU, as sysfs shows them.

Sources: kernel docs admin-guide/cputopology.rst, ABI/testing/sysfs-devices-system-cpu.
"""

from collections import Counter
from pathlib import Path

from ...process.cores import cpulist
from ...records.machine import Cache
from .sysfs import parse_int, read_int, read_text

_CPUS = "sys/devices/system/cpu"
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def online_cpus(root: Path) -> set[int]:
    """The logical CPUs that are online; empty if unknown."""
    return cpulist(read_text(root / _CPUS / "online"))


def sockets_and_cores(root: Path, cpus: set[int]) -> tuple[int | None, int | None]:
    """Sockets and physical cores, each None if unknown."""
    folders = [root / _CPUS / f"cpu{cpu}/topology" for cpu in cpus]
    siblings = [cpulist(read_text(folder / "thread_siblings_list")) for folder in folders]
    if not all(siblings):
        return None, None
    packages = {read_int(folder / "physical_package_id") for folder in folders}
    packages -= {None, -1}  # -1: the firmware does not say
    return len(packages) or None, len({min(each) for each in siblings}) or None


def caches(root: Path, cpus: set[int]) -> list[Cache]:
    """Every kind of cache with its number of instances, by level; [] if hidden."""
    counts: Counter[tuple[int, str, int]] = Counter()
    covered: dict[str, set[int]] = {}
    for cpu in sorted(cpus):
        for folder in (root / _CPUS / f"cpu{cpu}/cache").glob("index*"):
            if cpu in covered.get(folder.name, ()):
                continue  # an earlier CPU shares it
            level = read_int(folder / "level")
            kind = read_text(folder / "type").strip().lower()
            size = parse_size(read_text(folder / "size"))
            if level is not None and kind and size:
                counts[level, kind, size] += 1
            sharing = cpulist(read_text(folder / "shared_cpu_list"))
            covered.setdefault(folder.name, set()).update(sharing or {cpu})
    return [Cache(*key, instances=count) for key, count in sorted(counts.items())]


def parse_size(text: str) -> int | None:
    """Bytes from sysfs's `1024K`."""
    text = text.strip()
    unit = _UNITS.get(text[-1:], 1)
    value = parse_int(text.rstrip("KMG"))
    return value * unit if value is not None and value > 0 else None


def numa_nodes(root: Path) -> int | None:
    """Number of memory nodes with cores, unlike a GPU's memory on Grace; None if unknown."""
    return len(cpulist(read_text(root / "sys/devices/system/node/has_cpu"))) or None


def smt(root: Path) -> bool | None:
    """Whether cores run more than one thread."""
    active = read_int(root / _CPUS / "smt/active")
    return None if active is None else active == 1


def efficiency_cores(root: Path) -> int | None:
    """Number of logical CPUs of the slower kind: on Intel by their own PMU, on arm64 by capacity.
    Sources: kernel docs ABI/testing/sysfs-devices-system-cpu (cpu_capacity), and the event sources
    cpu_core and cpu_atom of Intel's hybrid processors."""
    if atoms := cpulist(read_text(root / "sys/devices/cpu_atom/cpus")):
        return len(atoms)
    online = online_cpus(root)
    if not online:
        return None
    read = [read_int(root / _CPUS / f"cpu{cpu}/cpu_capacity") for cpu in online]
    capacities = [capacity for capacity in read if capacity is not None]
    # The kernel's scheduler, too, takes those within 5% for equal (capacity_greater in fair.c):
    # cores of one kind may differ by a little in their highest clock.
    return sum(1024 * max(capacities) > 1078 * capacity for capacity in capacities)


def max_frequency_mhz(root: Path) -> float | None:
    """The highest clock that the kernel reports for any core; few virtual machines report one.
    acpi-cpufreq often leaves the boost out: an EPYC 7451 with "CPU max MHz: 2300" ran at 2894
    (github.com/util-linux/util-linux/issues/755)."""
    files = (root / _CPUS / "cpufreq").glob("policy*/cpuinfo_max_freq")
    highest_khz = max((read_int(file) or 0 for file in files), default=0)
    return highest_khz / 1000 if highest_khz > 0 else None
