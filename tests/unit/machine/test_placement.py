"""Which cores a GPU's workers are bound to, on machines with one memory node and with two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import machine
from hypothesis import given, strategies as st
from msgspec.structs import replace
from trees import written

from workbench.engine.opening import settings_of
from workbench.export.view.machine import gpu
from workbench.machine.nvidia import gpus
from workbench.machine.nvidia.gpus import as_cpulist, placed
from workbench.planning.request import Request
from workbench.pool import worker_process
from workbench.pool.worker_process import WorkerKey
from workbench.process import cores
from workbench.records.comparison import Side
from workbench.records.machine import Gpu
from workloads._ranks import rank

MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
NODES = ("0-15,32-47", "16-31,48-63")


@pytest.fixture(autouse=True)
def _nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in gpus._USERS:
        monkeypatch.delenv(name, raising=False)


def bus(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00.0"


def server(root: Path, *near: str, cpuset: str = "") -> Path:
    """A sysfs with 64 cores and a GPU near each of these lists of cores."""
    files = {f"sys/bus/pci/devices/{bus(i)}/local_cpulist": f"{n}\n" for i, n in enumerate(near)}
    files |= {
        "sys/devices/system/cpu/online": "0-63\n",
        "proc/self/cgroup": "0::/job\n",
        "proc/self/mountinfo": MOUNT,
        "sys/fs/cgroup/job/cpuset.cpus.effective": cpuset + "\n",
    }
    return written(root, files)


def cards(count: int) -> list[Gpu]:
    found = machine(*(f"cuda:{i}" for i in range(count))).gpus
    return [replace(g, pci_bus_id=bus(i)) for i, g in enumerate(found)]


def bound(
    monkeypatch: pytest.MonkeyPatch, root: Path, allowed: str = "0-63", count: int = 2
) -> list[str | None]:
    monkeypatch.setattr(gpus, "affinity_mask", lambda: cores.cpulist(allowed))
    return [card.worker_cores for card in placed(cards(count), root)]


def test_each_gpu_has_the_cores_of_its_node(tmp_path, monkeypatch) -> None:
    assert bound(monkeypatch, server(tmp_path, *NODES)) == [*NODES]


@pytest.mark.parametrize(
    "near",
    [
        "0-63",  # one node
        "64-95",  # none of them is online
        "",  # the firmware does not say
        "garbage",
    ],
)
def test_without_a_choice_nothing_is_bound(tmp_path, monkeypatch, near: str) -> None:
    assert bound(monkeypatch, server(tmp_path, near), count=2) == [None, None]


def test_of_a_containers_cores_those_near_the_gpu_remain(tmp_path, monkeypatch) -> None:
    root = server(tmp_path, *NODES, cpuset="8-15,20-23")
    assert bound(monkeypatch, root, "8-15,20-23") == ["8-15", "20-23"]
    (tmp_path / "sys/fs/cgroup/job/cpuset.cpus.effective").write_text("8-15\n")
    assert bound(monkeypatch, root, "8-15") == [None, None], "all are near one, none the other"


@pytest.mark.parametrize("variable", gpus._USERS)
def test_where_the_user_has_placed_the_work_it_stays(tmp_path, monkeypatch, variable: str) -> None:
    root = server(tmp_path, *NODES, cpuset="0-63")
    assert bound(monkeypatch, root, "0-19") == [None, None], "taskset"
    assert bound(monkeypatch, root) == [*NODES]
    monkeypatch.setenv(variable, "0-3")
    assert bound(monkeypatch, root) == [None, None]


def test_a_gpu_that_cannot_compute_or_has_no_address_has_no_cores(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(gpus, "affinity_mask", lambda: cores.cpulist("0-63"))
    hidden, lost = cards(2)
    hidden = replace(hidden, device=None)
    lost = replace(lost, pci_bus_id=None)
    found = placed([hidden, lost], server(tmp_path, *NODES))
    assert [card.worker_cores for card in found] == [None, None]


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cores_is_read_back(cpus: set[int]) -> None:
    assert cores.cpulist(as_cpulist(cpus)) == cpus


def test_the_workers_of_a_gpu_know_its_cores_and_start_no_more_threads(tmp_path: Path) -> None:
    found = machine("cuda:0", "cuda:1")
    near = [replace(found.gpus[0], worker_cores="0-1,4"), found.gpus[1]]
    settings = settings_of(Request(), replace(found, gpus=near), "run")
    expected = {"cuda:0": ("3", {"cuda:0": "0-1,4"}), "cuda:1": ("8", {}), "cpu": ("8", {})}
    for device, (threads, listed) in expected.items():
        key = WorkerKey(device, "torch")
        environment = worker_process._environment(key, device, settings, Side("", ""), tmp_path)
        assert environment["OMP_NUM_THREADS"] == threads
        assert json.loads(environment[cores.GPU_CORES]) == listed


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_a_worker_binds_itself_and_only_to_the_cores_of_its_gpu() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    code = (
        "import os; from workbench.process.cores import bind_near;"
        "bind_near({!r}); print(sorted(os.sched_getaffinity(0)))"
    )
    lists = {"cuda:0": str(allowed[-1]), "cuda:1": "100000"}
    for device, expected in (("cuda:0", [allowed[-1]]), ("cuda:1", allowed), ("cpu", allowed)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(device)],
            env={**os.environ, cores.GPU_CORES: json.dumps(lists)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == expected


LOADERS = """
import json, os
from torch.utils.data import DataLoader

class Cores:
    def __getitem__(self, place):
        return sorted(os.sched_getaffinity(0))

def own(workers, method):
    settings = {"num_workers": workers, "multiprocessing_context": method if workers else None}
    return _named("loader", DataLoader(Cores(), None, sampler=[0], **settings))

if __name__ == "__main__":  # which a spawned loader imports again
    from workbench.process.cores import bind_near
    from workloads._shared.training import loader
    from workloads.own.training_parts import _named

    bind_near("cuda:0")
    made = {"ours": lambda n: loader(Cores(), [0], n, pin=False), "default": lambda n: own(n, None)}
    for method in ("fork", "spawn", "forkserver"):
        made[method] = lambda n, method=method: own(n, method)
    seen = {name: [list(make(n)) for n in (0, 1)] for name, make in made.items()}
    print(json.dumps({"here": sorted(os.sched_getaffinity(0)), **seen}))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_loaders_of_a_bound_worker_may_use_every_core_as_without_workbench(tmp_path) -> None:
    written(tmp_path, {"loads.py": LOADERS})
    allowed = sorted(os.sched_getaffinity(0))
    near = [allowed[-1]]
    done = subprocess.run(
        [sys.executable, tmp_path / "loads.py"],
        env={**os.environ, cores.GPU_CORES: json.dumps({"cuda:0": str(near[0])})}
        | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found.pop("here") == near
    methods = ("ours", "default", "fork", "spawn", "forkserver")
    assert found == {name: [[near], [allowed]] for name in methods}


class Bound(Exception):
    pass


def test_a_rank_is_bound_to_the_cores_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(device: str) -> None:
        raise Bound(device)

    monkeypatch.setattr(rank, "bind_near", bind)
    monkeypatch.setattr(rank.signal, "signal", lambda *_: None)
    monkeypatch.setenv("LOCAL_RANK", "3")
    with pytest.raises(Bound, match="cuda:3"):
        rank.main(["0"])


def test_the_hardware_view_says_so() -> None:
    [card] = machine("cuda:0").gpus
    assert "workers" not in {fact.label for fact in gpu(card)}
    card = replace(card, worker_cores=NODES[0])
    assert NODES[0] in {fact.label: str(fact.text) for fact in gpu(card)}["workers"]
