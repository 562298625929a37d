"""Near and far memory: reading the nodes, binding to one, and the placement of pages."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks import prepared, spoil
from trees import written

from workbench.contract import Case, WorkloadError
from workloads import numa
from workloads.numa import Node

HERE = sorted(os.sched_getaffinity(0))
TWO = [Node(0, frozenset({HERE[0]}), {0: 10, 1: 21}), Node(1, frozenset({HERE[-1]}))]


def case_of(mode: str, kernel: str = "triad", mib: float = 1.5) -> Case:
    params = {"kernel": kernel, "mib": mib}
    return Case("numa", "cpu", "numpy", "fp32", threads=1, mode=mode, params=params)


def machine(root: Path, *found: tuple[int, str, str, int]) -> Path:
    """A sysfs with nodes of (number, cores, distances, kB of memory)."""
    for number, cpus, distances, memory in found:
        total = f"Node {number} MemTotal:   {memory} kB\n"
        files = {"cpulist": f"{cpus}\n", "distance": f"{distances}\n", "meminfo": total}
        written(root / numa.NODES / f"node{number}", files)
    return root


def test_nodes_are_read_with_their_cores_and_distances(tmp_path: Path) -> None:
    machine(tmp_path, (0, "0-3,8-11", "10 21", 1000), (10, "4-7", "21 10", 1000))
    near, far = numa.nodes(tmp_path)
    assert (near.number, far.number) == (0, 10)
    assert near.cpus == {0, 1, 2, 3, 8, 9, 10, 11}
    assert near.distances == {0: 10, 10: 21}


def test_nodes_without_cores_or_memory_are_not_used(tmp_path: Path) -> None:
    machine(
        tmp_path,
        (0, "0-1", "10 14 40", 1000),
        (1, "", "14 10 40", 1000),  # memory expansion
        (2, "2-3", "40 40 10", 0),
    )
    assert [node.number for node in numa.nodes(tmp_path)] == [0]


@pytest.mark.parametrize("text", ["x", "0-", "10 y"])
def test_a_node_that_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    machine(tmp_path, (0, "0", "10", 1000))
    for name in ("cpulist", "distance"):
        file = tmp_path / numa.NODES / "node0" / name
        file.write_text(text)
    assert numa.nodes(tmp_path) == []


def test_without_sysfs_there_are_no_nodes(tmp_path: Path) -> None:
    assert numa.nodes(tmp_path) == []


def test_only_usable_cores_count() -> None:
    none_of_ours = Node(1, frozenset({9999}))
    assert numa.usable([TWO[0], none_of_ours]) == [TWO[0]]


def test_the_far_node_is_the_one_at_the_largest_distance(tmp_path: Path) -> None:
    machine(
        tmp_path,
        *((n, str(n), d, 9) for n, d in enumerate(("10 12 32 30", "12 10 1 1", "1 1 1 1", "2 2"))),
    )
    assert numa.farthest(numa.nodes(tmp_path)).number == 2


def test_a_thread_comes_back_from_a_node_whatever_happens() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ValueError, match="inside"), numa.bound(TWO[0]):
        assert os.sched_getaffinity(0) == {HERE[0]}
        raise ValueError("inside")
    assert os.sched_getaffinity(0) == before


def test_pages_are_counted_in_the_mapping_of_the_address(tmp_path: Path) -> None:
    maps = tmp_path / "numa_maps"
    maps.write_text(
        "1000 default file=/bin/x mapped=3 N0=3\n"
        "7f0000000000 default anon=20 dirty=20 active=0 N0=2 N1=18 kernelpagesize_kB=4\n"
        "7fff00000000 default stack anon=1 N0=1\n"
    )
    assert numa.pages_by_node(0x7F0000001000, maps) == {0: 2, 1: 18}
    assert numa.pages_by_node(0x7FFF00000000, maps) == {0: 1}
    assert numa.pages_by_node(0x10, maps) == {}
    assert numa.pages_by_node(0x1000, tmp_path / "none") == {}


@pytest.mark.parametrize("kernel", ["copy", "triad"])
def test_a_kernel_that_skipped_an_element_is_found(kernel: str) -> None:
    task: Any = prepared(case_of("near", kernel))
    assert task.check().passed
    assert all(np.count_nonzero(array) == array.size for array in (task.target, *task.sources))
    spoil(task, task.target, -1, lambda right: right + 1)
    assert not task.check().passed


def test_far_memory_of_one_node_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ([], TWO[:1]):
        monkeypatch.setattr(numa, "nodes", lambda found=found: found)
        assert prepared(case_of("near")).check().passed
        with pytest.raises(WorkloadError, match="one memory node") as caught:
            prepared(case_of("far"))
        assert caught.value.hint


def test_far_pages_are_written_far_and_worked_on_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "nodes", lambda: TWO)
    monkeypatch.setattr(numa, "pages_by_node", lambda address: {1: 9, 0: 1})
    filled: list[set[int]] = []
    pages = numa.pages
    monkeypatch.setattr(
        numa, "pages", lambda *given: (filled.append(os.sched_getaffinity(0)), pages(*given))[1]
    )
    task: Any = prepared(case_of("far"))
    assert filled == [{HERE[-1]}] * 3
    worked: list[set[int]] = []
    work = task._work
    task._work = lambda: (worked.append(os.sched_getaffinity(0)), work())
    before = os.sched_getaffinity(0)
    assert task.check().passed
    assert worked == [{HERE[0]}]
    assert os.sched_getaffinity(0) == before


def test_pages_that_a_memory_policy_put_elsewhere_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(numa, "nodes", lambda: TWO)
    monkeypatch.setattr(numa, "pages_by_node", lambda address: {0: 9, 1: 1})
    with pytest.raises(WorkloadError, match="not on memory node 1") as caught:
        prepared(case_of("far"))
    assert "numactl" in (caught.value.hint or "")


def test_the_same_seed_gives_the_same_arrays() -> None:
    first, same, other = (prepared(case_of("near"), seed) for seed in (1, 1, 2))
    assert np.array_equal(first.sources[0], same.sources[0])
    assert not np.array_equal(first.sources[0], other.sources[0])
