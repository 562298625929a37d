"""The cores near each GPU, to which its workers are bound.

From a core of another memory node every copy to the GPU crosses the link between the processors.
Source: kernel docs, ABI/testing/sysfs-bus-pci (local_cpulist).
"""

import os
from itertools import groupby
from pathlib import Path

import msgspec

from ...process.cores import affinity_mask, cpulist
from ...records.machine import Gpu
from ..host.cgroup import cpuset
from ..host.sysfs import read_text
from ..host.topology import online_cpus

# Variables by which a user places OpenMP's threads.
_USERS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")


def placed(gpus: list[Gpu], root: Path = Path("/")) -> list[Gpu]:
    """The GPUs with their `worker_cores`; None where there is no choice between cores, or the user
    has made it."""
    allowed = affinity_mask()
    by_user = allowed not in (online_cpus(root), cpuset(root)) or any(map(os.environ.get, _USERS))
    if not allowed or by_user:
        return gpus
    return [msgspec.structs.replace(g, worker_cores=_near(g, allowed, root)) for g in gpus]


def _near(gpu: Gpu, allowed: set[int], root: Path) -> str | None:
    if gpu.device is None or gpu.pci_bus_id is None:
        return None
    file = root / "sys/bus/pci/devices" / gpu.pci_bus_id / "local_cpulist"
    near = cpulist(read_text(file)) & allowed
    return as_cpulist(near) if near and near < allowed else None


def as_cpulist(cpus: set[int]) -> str:
    """`0-3,8`, as the kernel writes it."""
    runs = groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(pairs) for _, pairs in runs)]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)
