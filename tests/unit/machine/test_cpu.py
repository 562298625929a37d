"""The CPU as fake /proc and /sys trees show it, and how many cores may be used."""

import os
from pathlib import Path

import pytest
from trees import written

from workbench.machine.host import cpu as cpu_module, topology
from workbench.machine.host.cgroup import cpu_quota
from workbench.machine.host.cpu import read_cpu
from workbench.machine.host.system import container
from workbench.records.machine import Cpu, Isa

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def x86(cpus: int, *, per_core: int = 2, sockets: int = 1) -> dict[str, str]:
    """A regular x86 machine: numbering goes core by core, socket by socket."""
    cores = cpus // per_core
    files = {"sys/devices/system/cpu/online": f"0-{cpus - 1}\n"}
    blocks = []
    for cpu in range(cpus):
        core = cpu % cores
        package = core * sockets // cores
        siblings = ",".join(str(core + cores * thread) for thread in range(per_core))
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {
            f"{folder}/topology/thread_siblings_list": siblings + "\n",
            f"{folder}/topology/physical_package_id": f"{package}\n",
            f"{folder}/cache/index0/level": "1\n",
            f"{folder}/cache/index0/type": "Data\n",
            f"{folder}/cache/index0/size": "48K\n",
            f"{folder}/cache/index0/shared_cpu_list": siblings + "\n",
            f"{folder}/cache/index3/level": "3\n",
            f"{folder}/cache/index3/type": "Unified\n",
            f"{folder}/cache/index3/size": "32768K\n",
            f"{folder}/cache/index3/shared_cpu_list": f"0-{cpus - 1}\n",
        }
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R)  Xeon(R) 8480\n"
            f"physical id\t: {package}\ncore id\t: {core}\n"
            "flags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16\n"
        )
    files["proc/cpuinfo"] = "\n".join(blocks) + "\n"
    files["sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq"] = "3800000\n"
    files["sys/devices/system/cpu/smt/active"] = f"{int(per_core > 1)}\n"
    files["sys/devices/system/node/has_cpu"] = f"0-{sockets - 1}\n" if sockets > 1 else "0\n"
    return files


def read(root: Path, *, affinity: int | None = None, **environ: str) -> Cpu:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
            patch.delenv(name, raising=False)
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(cpu_module, "affinity_mask", lambda: set(range(affinity or 0)) or None)
        return read_cpu(root)


def test_a_regular_server_is_read_completely(tmp_path: Path) -> None:
    cpu = read(written(tmp_path, x86(8, sockets=2)), affinity=8)
    assert (cpu.model, cpu.vendor) == ("Intel(R) Xeon(R) 8480", "GenuineIntel")
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cores) == (2, 4, 8)
    assert (cpu.effective_cores, cpu.limited_by) == (8, "logical")
    assert cpu.isa.avx512_vnni and cpu.isa.amx_bf16
    assert cpu.isa.avx_vnni is False and cpu.isa.sve is False
    assert [(c.level, c.kind, c.size_bytes, c.instances) for c in cpu.caches] == [
        (1, "data", 48 * 1024, 4),
        (3, "unified", 32 * 1024**2, 1),
    ]
    assert cpu.max_frequency_mhz == 3800
    assert (cpu.numa_nodes, cpu.smt, cpu.efficiency_cores) == (2, True, 0)
    assert cpu.usable_physical_cores == 4
    assert cpu.unavailable == {}


def test_a_job_may_use_the_physical_cores_in_its_mask(tmp_path: Path) -> None:
    root = written(tmp_path, x86(8, sockets=2))
    found = [read(root, affinity=count) for count in (3, 6)]
    assert [(cpu.effective_cores, cpu.usable_physical_cores) for cpu in found] == [(3, 3), (6, 4)]
    assert {(cpu.physical_cores, cpu.limited_by) for cpu in found} == {(4, "affinity")}


def test_the_tightest_of_nested_quotas_wins_and_is_floored(tmp_path: Path) -> None:
    files = x86(16) | {
        "proc/self/cgroup": "0::/kubepods/pod1/box\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/kubepods/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/kubepods/pod1/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000\n",
    }
    cpu = read(written(tmp_path, files), affinity=16)
    assert cpu.cgroup_quota_cores == 2.5
    assert (cpu.effective_cores, cpu.limited_by) == (2, "cgroup")
    source = next(limit.source for limit in cpu.limits if limit.name == "cgroup")
    assert source == "/sys/fs/cgroup/kubepods/pod1/cpu.max"


def test_a_v1_quota_is_found_below_the_mounted_group(tmp_path: Path) -> None:
    """A container without a cgroup namespace: the mount shows its own group as root."""
    mount = "40 31 0:34 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
    files = x86(8) | {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc/inner\n",
        "proc/self/mountinfo": mount,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us": "100000\n",
    }
    cpu = read(written(tmp_path, files))
    assert (cpu.cgroup_quota_cores, cpu.effective_cores) == (3.0, 3)


def test_hybrid_hierarchies_are_both_read(tmp_path: Path) -> None:
    mounts = (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    files = {
        "proc/self/cgroup": "1:cpu:/a\n0::/b\n",
        "proc/self/mountinfo": mounts,
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "500000\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/unified/b/cpu.max": "400000 100000\n",
    }
    limit = cpu_quota(written(tmp_path, files))
    assert limit.cores == 4


@pytest.mark.parametrize("group", ["/../../outside", "/somewhere/else"])
def test_a_group_outside_the_mount_falls_back_to_the_mount_point(tmp_path, group: str) -> None:
    files = {
        "proc/self/cgroup": f"0::{group}\n",
        "proc/self/mountinfo": V2_MOUNT.replace(" / ", " /pod ", 1),
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
    }
    limit = cpu_quota(written(tmp_path, files))
    assert limit.cores == 1.5


def test_schedulers_limit_inside_a_job_only(tmp_path: Path) -> None:
    root = written(tmp_path, x86(16))
    inside = read(root, affinity=16, SLURM_JOB_ID="7", SLURM_CPUS_ON_NODE="8")
    assert (inside.effective_cores, inside.limited_by) == (8, "slurm")
    task = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2"}
    assert read(root, affinity=16, **task).effective_cores == 2
    assert read(root, affinity=16, SLURM_CPUS_PER_TASK="2").limited_by == "logical"
    assert read(root, affinity=16, SLURM_JOB_ID="7", SLURM_CPUS_PER_TASK="x").effective_cores == 16
    for name, job in {
        "pbs": {"PBS_JOBID": "7.host", "NCPUS": "4"},
        "lsf": {"LSB_JOBID": "7", "LSB_DJOB_NUMPROC": "4"},
        "sge": {"SGE_TASK_ID": "undefined", "NSLOTS": "4"},
    }.items():
        found = read(root, affinity=16, **job)
        assert (found.effective_cores, found.limited_by) == (4, name)


def test_hybrid_cores_are_counted_by_their_siblings(tmp_path: Path) -> None:
    """Two performance cores with two threads each, then four efficient cores with one."""
    files = {"sys/devices/system/cpu/online": "0-7\n"}
    siblings = ["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]
    for cpu, listed in enumerate(siblings):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = listed
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = "0"
    for cpu, size, shared in [(0, "2048K", "0-1"), (2, "2048K", "2-3"), (4, "4096K", "4-7")]:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index2"
        files |= {
            f"{folder}/level": "2",
            f"{folder}/type": "Unified",
            f"{folder}/size": size,
            f"{folder}/shared_cpu_list": shared,
        }
    for policy, clock in [(0, 5_800_000), (4, 4_300_000)]:
        name = f"sys/devices/system/cpu/cpufreq/policy{policy}/cpuinfo_max_freq"
        files[name] = str(clock)
    files["proc/cpuinfo"] = "processor : 0\nflags : avx2 avx_vnni\n\nprocessor : 4\nflags : avx2\n"
    cpu = read(written(tmp_path, files))
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cores) == (1, 6, 8)
    assert [(c.size_bytes, c.instances) for c in cpu.caches] == [(2 << 20, 2), (4 << 20, 1)]
    assert cpu.max_frequency_mhz == 5800
    assert cpu.isa.avx2 and cpu.isa.avx_vnni is False  # only what all cores share


def test_arm64_with_two_kinds_of_cores(tmp_path: Path) -> None:
    features = "Features : fp asimd asimddp sve i8mm bf16\nCPU implementer : 0x41\n"
    blocks = [
        f"processor : {cpu}\n{features}CPU part : {'0xd85' if cpu < 2 else '0xd87'}\n"
        for cpu in range(3)
    ]
    root = written(tmp_path, {"proc/cpuinfo": "\n".join([*blocks, "Hardware : board\n"])})
    cpu = read(root)
    assert cpu.model == "2x Cortex-X925 + 1x Cortex-A725"
    assert (cpu.vendor, cpu.logical_cores) == ("ARM", 3)
    assert cpu.isa.neon and cpu.isa.sve and cpu.isa.i8mm and cpu.isa.bf16 and cpu.isa.asimddp
    assert cpu.isa.avx2 is False
    assert {"sockets", "physical_cores", "caches", "max_frequency_mhz"} <= set(cpu.unavailable)


def test_an_unknown_arm_part_shows_its_numbers(tmp_path: Path) -> None:
    text = "processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n"
    cpu = read(written(tmp_path, {"proc/cpuinfo": text}))
    assert cpu.model == "implementer 0x99 part 0x123"
    assert cpu.vendor == "implementer 0x99"


def test_nothing_readable_leaves_reasons_and_at_least_one_core(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    cpu = read(tmp_path)
    assert cpu.effective_cores >= 1
    assert cpu.isa == Isa() and cpu.caches == []
    absent = {"model", "vendor", "sockets", "physical_cores", "isa", "caches", "affinity_cores"}
    assert absent <= set(cpu.unavailable)
    assert "/proc/cpuinfo" in cpu.unavailable["model"]


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/self/cgroup": "0::/lxc/box\n"}, {}, "lxc"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
    ],
)
def test_containers(tmp_path, monkeypatch, files, environ, expected) -> None:
    monkeypatch.setattr(os, "environ", environ)
    assert container(written(tmp_path, files)) == expected


def test_memory_nodes_threads_and_slower_cores_are_counted(tmp_path: Path) -> None:
    files = {
        "sys/devices/system/node/online": "0-11\n",  # eight are those of a GPU
        "sys/devices/system/node/has_cpu": "0-3\n",
        "sys/devices/system/cpu/smt/active": "1\n",
        "sys/devices/cpu_atom/cpus": "16-23\n",
    }
    written(tmp_path, files)
    assert topology.numa_nodes(tmp_path) == 4
    assert topology.smt(tmp_path) is True
    assert topology.efficiency_cores(tmp_path) == 8


def test_an_arm_with_two_kinds_of_cores_tells_them_by_capacity(tmp_path: Path) -> None:
    found = [("online", "0-4\n")]
    for cpu, capacity in enumerate([446, 460, 1024, 1017, 997]):
        found.append((f"cpu{cpu}/cpu_capacity", f"{capacity}\n"))
    written(tmp_path / "sys/devices/system/cpu", dict(found))
    assert topology.efficiency_cores(tmp_path) == 2


def test_what_the_kernel_does_not_say_is_not_counted(tmp_path: Path) -> None:
    assert topology.numa_nodes(tmp_path) is topology.smt(tmp_path) is None
    assert topology.efficiency_cores(tmp_path) is None
