"""Memory after the control group's limit, from fake trees."""

from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from trees import written

from workbench.machine.host.memory import read_memory, system_memory
from workbench.machine.host.readings import HostReader

MEMINFO = """MemTotal:       1000 kB
MemFree:         300 kB
MemAvailable:    800 kB
HugePages_Total:   4
SwapTotal:       200 kB
SwapFree:        150 kB
"""
V2 = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
KIB = 1024


def tree(root: Path, **files: str) -> Path:
    return written(root, {"proc/meminfo": MEMINFO, **files})


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    memory = read_memory(tree(tmp_path))
    assert (memory.total_bytes, memory.available_bytes) == (1000 * KIB, 800 * KIB)
    assert (memory.swap_total_bytes, memory.swap_used_bytes) == (200 * KIB, 50 * KIB)
    assert memory.cgroup_limit_bytes is None
    assert memory.unavailable == {}


def test_the_tightest_v2_limit_bounds_what_is_available(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/slice/box\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/slice/memory.max": f"{600 * KIB}\n",
        "sys/fs/cgroup/slice/memory.current": f"{500 * KIB}\n",
        "sys/fs/cgroup/slice/memory.stat": f"anon 1\ninactive_file {150 * KIB}\n",
        "sys/fs/cgroup/slice/box/memory.max": f"{400 * KIB}\n",
        "sys/fs/cgroup/slice/box/memory.current": f"{100 * KIB}\n",
    }
    memory = read_memory(tree(tmp_path, **files))
    assert memory.cgroup_limit_bytes == 400 * KIB
    # 300 KiB are free in the box, but the slice has only 600 - (500 - 150) left.
    assert memory.available_bytes == 250 * KIB
    assert memory.usable_bytes == 400 * KIB
    assert HostReader(root=tmp_path).read().memory_available_bytes == 250 * KIB


V2_HIGH = {  # above memory.high the kernel pauses a process
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": V2,
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/memory.high": f"{500 * KIB}\n",
    "sys/fs/cgroup/memory.current": f"{300 * KIB}\n",
}
V1_JOB = {  # with version 1's number for no limit
    "proc/self/cgroup": "4:memory:/job\n",
    "proc/self/mountinfo": V1,
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{500 * KIB}\n",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{400 * KIB}\n",
    "sys/fs/cgroup/memory/job/memory.stat": f"total_inactive_file {100 * KIB}\n",
}


@pytest.mark.parametrize("files", [V2_HIGH, V1_JOB])
def test_the_limits_of_both_versions_count(tmp_path: Path, files: dict[str, str]) -> None:
    memory = read_memory(tree(tmp_path, **files))
    assert (memory.cgroup_limit_bytes, memory.available_bytes) == (500 * KIB, 200 * KIB)


def test_usage_above_the_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/memory.max": f"{100 * KIB}\n",
        "sys/fs/cgroup/memory.current": f"{120 * KIB}\n",
    }
    assert read_memory(tree(tmp_path, **files)).available_bytes == 0


def test_missing_lines_are_explained(tmp_path: Path) -> None:
    memory = read_memory(tree(tmp_path, **{"proc/meminfo": "MemTotal: 10 kB\nMemFree: 4 kB\n"}))
    assert (memory.total_bytes, memory.available_bytes) == (10 * KIB, 4 * KIB)
    assert set(memory.unavailable) == {"swap_total_bytes", "swap_used_bytes"}


def test_without_proc_psutil_answers_or_else_the_kernel(tmp_path: Path, monkeypatch) -> None:
    assert system_memory(tmp_path) is None
    memory = read_memory(tmp_path)
    assert 0 < memory.available_bytes <= memory.total_bytes
    monkeypatch.setattr(psutil, "virtual_memory", Mock(side_effect=FileNotFoundError("/proc")))
    asked = read_memory(tmp_path)
    assert 0 < asked.available_bytes <= asked.total_bytes
    assert set(asked.unavailable) == {"swap_total_bytes", "swap_used_bytes"}
