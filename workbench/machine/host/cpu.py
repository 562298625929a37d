"""The CPU, and how many of its cores this process can really use.

OpenMP, OpenBLAS and oneTBB before 2022.3 (oneTBB#190) respect affinity but not a cgroup quota, so
thread settings must come from `Cpu.effective_cores`, which respects both and a job's limit.
"""

import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...process.cores import affinity_mask
from ...records.machine import CoreLimit, Cpu, Isa
from . import cpuinfo, topology
from .cgroup import cpu_quota
from .sysfs import NOT_LINUX, parse_int, read_text

# Scheduler -> the variable that every job has, and those with its CPUs here, the first of which
# counts: sbatch(1) and srun(1), the PBS and LSF references, qsub(1) of Grid Engine.
_SCHEDULERS = {
    "slurm": ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"),  # the first on request
    "pbs": ("PBS_JOBID", "NCPUS"),
    "lsf": ("LSB_JOBID", "LSB_DJOB_NUMPROC"),
    "sge": ("SGE_TASK_ID", "NSLOTS"),
}


def job_limit(environ: Mapping[str, str]) -> CoreLimit | None:
    """The CPUs that a scheduler gave this job, which it may not enforce by affinity."""
    for scheduler, (of_job, *names) in _SCHEDULERS.items():
        for name in names if of_job in environ else ():  # else inherited from outside of the job
            cores = parse_int(environ.get(name, ""))
            if cores is not None and cores > 0:
                return CoreLimit(name=scheduler, cores=float(cores), source=name)
    return None


def core_limits(root: Path) -> list[CoreLimit]:
    """All limits on the usable cores, first the machine's own number."""
    mask = affinity_mask()  # taskset or a cpuset
    affinity = CoreLimit("affinity", float(len(mask)), "sched_getaffinity") if mask else None
    limits = (_logical_cores(root), affinity, cpu_quota(root), job_limit(os.environ))
    return [limit for limit in limits if limit is not None]


def _logical_cores(root: Path) -> CoreLimit:
    if online := topology.online_cpus(root):
        return CoreLimit("logical", float(len(online)), "/sys/devices/system/cpu/online")
    if blocks := cpuinfo.parse_cpuinfo(read_text(root / "proc/cpuinfo")):
        return CoreLimit("logical", float(len(blocks)), "/proc/cpuinfo")
    return CoreLimit("logical", float(os.cpu_count() or 1), "os.cpu_count()")


def tightest(limits: list[CoreLimit]) -> tuple[int, str]:
    """Usable cores, and the name of the limit that sets them.  Rounded down, since a quota of 2.5
    cores would throttle 3 threads."""
    whole = [(max(1, math.floor(limit.cores)), limit.name) for limit in limits]
    return min(whole, key=lambda pair: pair[0])  # the first of equals


def read_cpu(root: Path) -> Cpu:
    """All facts about the CPU; a field that the system hides is None, with a reason."""
    limits = core_limits(root)
    effective, limited_by = tightest(limits)
    cores = {limit.name: limit.cores for limit in limits}
    logical = int(cores["logical"])
    cpus = topology.online_cpus(root) or set(range(logical))
    usable = affinity_mask() or cpus
    blocks = cpuinfo.parse_cpuinfo(read_text(root / "proc/cpuinfo"))
    sockets, physical = topology.sockets_and_cores(root, cpus)
    if physical is None:
        sockets, physical = cpuinfo.sockets_and_cores(blocks)
    cpu = Cpu(
        model=cpuinfo.model(blocks),
        vendor=cpuinfo.vendor(blocks),
        architecture=platform.machine(),
        sockets=sockets,
        physical_cores=physical,
        logical_cores=logical,
        affinity_cores=int(cores["affinity"]) if "affinity" in cores else None,
        cgroup_quota_cores=cores.get("cgroup"),
        effective_cores=effective,
        limited_by=limited_by,
        limits=limits,
        isa=cpuinfo.isa(blocks) or Isa(),
        caches=topology.caches(root, cpus),
        max_frequency_mhz=topology.max_frequency_mhz(root),
        numa_nodes=topology.numa_nodes(root),
        smt=topology.smt(root),
        efficiency_cores=topology.efficiency_cores(root),
        usable_physical_cores=topology.sockets_and_cores(root, usable)[1],
    )
    if not (root / "proc").is_dir():
        cpu = _ask_psutil(cpu)
    return msgspec.structs.replace(cpu, unavailable=_absences(cpu, has_cpuinfo=bool(blocks)))


def _ask_psutil(cpu: Cpu) -> Cpu:
    """Fill in the fields that psutil knows on macOS."""
    import psutil  # takes 20 ms, and Linux does not need it

    try:
        clock = psutil.cpu_freq()
    except (OSError, RuntimeError, AttributeError):
        clock = None  # psutil raises, or lacks the function, if the system does not report it
    return msgspec.structs.replace(
        cpu,
        model=platform.processor() or None,
        physical_cores=psutil.cpu_count(logical=False),
        max_frequency_mhz=float(clock.max) if clock is not None and clock.max else None,
    )


def _absences(cpu: Cpu, *, has_cpuinfo: bool) -> dict[str, str]:
    linux = platform.system() == "Linux"
    unread = "/proc/cpuinfo cannot be read" if linux else NOT_LINUX
    unsaid = "/proc/cpuinfo does not say" if has_cpuinfo else unread
    hidden = "sysfs does not show it, as in many virtual machines" if linux else NOT_LINUX
    of_sysfs = "sockets physical_cores caches max_frequency_mhz numa_nodes smt efficiency_cores"
    reasons = {
        **dict.fromkeys(("model", "vendor", "isa"), unsaid),
        **dict.fromkeys(of_sysfs.split(), hidden),
        "affinity_cores": "this system has no affinity mask to read",
    }
    return {n: why for n, why in reasons.items() if getattr(cpu, n) in (None, [], Isa())}
