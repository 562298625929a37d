"""This process's place in the control groups, v1, v2 and both at once (hybrid), and their limits.

Sources: kernel docs admin-guide/cgroup-v1, admin-guide/cgroup-v2.rst, proc(5) mountinfo.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ...process.cores import cpulist
from ...records.machine import CoreLimit
from .sysfs import parse_int, read_int, read_text

UNIFIED = ""  # the name of the v2 hierarchy in /proc/self/cgroup: "0::/path"
# The group, the folder, the kind and the options of a mount.
_MOUNT = re.compile(r"^(?:\S+ ){3}(\S+) (\S+) .*- (cgroup2?) \S+ (\S+)$", re.MULTILINE)
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    version: int
    controllers: frozenset[str]
    root: str  # the group that the mount point shows
    point: str


def parse_membership(text: str) -> dict[str, str]:
    """Controller name -> group path, from the `id:controllers:path` lines of /proc/self/cgroup."""
    lines = re.findall(r"^\d+:([^:\n]*):(/.*)$", text, re.MULTILINE)
    return {controller: path for names, path in lines for controller in names.split(",")}


def parse_mounts(text: str) -> list[Mount]:
    """The cgroup mounts among the lines of /proc/self/mountinfo."""
    mounts = []
    for group, point, kind, options in _MOUNT.findall(text):
        version = 2 if kind == "cgroup2" else 1
        controllers = frozenset(options.split(",") if version == 1 else (UNIFIED,))
        mounts.append(Mount(version, controllers, _unescape(group), _unescape(point)))
    return mounts


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


def groups(root: Path, controller: str) -> list[tuple[int, Path]]:
    """Version (1 or 2) and folder of this process's group for `controller` and of all its
    ancestors, nearest first.  The kernel enforces the tightest limit of all of them."""
    membership = parse_membership(read_text(root / "proc/self/cgroup"))
    governing: list[tuple[int, Path]] = []
    for mount in parse_mounts(read_text(root / "proc/self/mountinfo")):
        name = controller if mount.version == 1 else UNIFIED
        if name in mount.controllers:
            inner = _below(membership.get(name, "/"), mount.root)
            point = root / mount.point.lstrip("/")
            folders = [point.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
            governing += [(mount.version, folder) for folder in folders]
    return governing


def _below(path: str, mounted: str) -> list[str]:
    """The parts of `path` below the mounted group; [] if it lies outside the mount.  A container
    may see its host's path, or one that starts with `/..`; limits are then at the mount point."""
    parts = [part for part in path.split("/") if part]
    top = [part for part in mounted.split("/") if part]
    if ".." in parts or parts[: len(top)] != top:
        return []
    return parts[len(top) :]


# Version -> the files with the microseconds of run time and of the period.
_QUOTA_NAMES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


def parse_quota(text: str) -> float | None:
    """CPU bandwidth in cores, from run time and period; None without a limit."""
    quota, _, period = text.strip().partition(" ")
    run_us, period_us = parse_int(quota) or 0, parse_int(period) or 0
    # "max" in v2 and -1 in v1 mean no limit.
    return run_us / period_us if run_us > 0 and period_us > 0 else None


def cpu_quota(root: Path) -> CoreLimit | None:
    """The tightest CPU quota from this process's group up to the root, unrounded."""
    limits = []
    for version, folder in groups(root, "cpu"):
        files = [folder / name for name in _QUOTA_NAMES[version]]
        cores = parse_quota(" ".join(map(read_text, files)))
        if cores is not None:
            limits.append(CoreLimit("cgroup", cores, f"/{files[0].relative_to(root).as_posix()}"))
    return min(limits, key=lambda limit: limit.cores, default=None)


def cpuset(root: Path) -> set[int] | None:
    """The logical CPUs that the nearest control group allows this process."""
    for version, folder in groups(root, "cpuset"):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        if cpus := cpulist(read_text(folder / name)):
            return cpus
    return None


# Version -> the files with limits, the one with usage, and the line of memory.stat with the cache.
# Above memory.high the kernel pauses each allocation, so more memory is of no use.
_MEMORY_NAMES = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}


def memory_limits(root: Path, total_bytes: int) -> list[tuple[int, int]]:
    """The memory limits of this group and its ancestors, each with the bytes left before the group
    swaps or is killed.  Limits above `total_bytes` do not count, since v1 expresses "no limit" as a
    number near 2**63.  Page cache that the kernel drops first (`inactive_file`) counts as left."""
    limits = []
    for version, folder in groups(root, "memory"):
        limit_files, usage_file, cache_line = _MEMORY_NAMES[version]
        read = (read_int(folder / name) for name in limit_files)
        known = [limit for limit in read if limit is not None and 0 <= limit < total_bytes]
        if not known:
            continue
        limit = min(known)
        usage = read_int(folder / usage_file) or 0
        cache = stat_value(read_text(folder / "memory.stat"), cache_line)
        limits.append((limit, max(0, limit - max(0, usage - cache))))
    return limits


def stat_value(text: str, name: str) -> int:
    """The number after `name` in the `name number` lines of memory.stat, cpu.stat and vmstat."""
    found = re.search(rf"^{name} (.*)", text, re.MULTILINE)
    return parse_int(found[1]) or 0 if found else 0
