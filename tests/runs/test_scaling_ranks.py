"""Data-parallel training in real processes over gloo: correct, in turns, frozen, killed, closed."""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import psutil
import pytest
from checking import fails_with
from support import go_on, stop

from workbench import catalog
from workbench.contract import Case, Host, Setup, WorkloadError
from workbench.worker.block import time_sample
from workloads._ranks import groups
from workloads._ranks.mirrored import logical_devices
from workloads._ranks.rank import Follower
from workloads._ranks.replica import Replica, judge
from workloads.scaling import DataParallel, RanksTimer

SCALING = catalog.load("scaling")


def case_of(world: int, *, batch: int = 12, device: str = "cpu") -> Case:
    return Case(
        workload="scaling",
        device=device,
        backend="torch",
        precision="fp32",
        threads=2 if device == "cpu" else None,
        batch=batch,
        params=SCALING.values({"width": 32}),
        tuning={"world": world},
    )


def children() -> list[psutil.Process]:
    """The ranks that live: other tests of this process may have left children of another kind."""
    return [child for child in psutil.Process().children(recursive=True) if is_rank(child)]


def is_rank(process: psutil.Process) -> bool:
    try:
        return "workloads._ranks.rank" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie, too
        return False


@pytest.fixture
def own_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a test that may break its ranks: it shares none, and must leave none."""
    before = children()
    monkeypatch.setattr(groups, "_groups", [])
    yield
    assert children() == before
    assert groups._groups == []


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[DataParallel, DataParallel]]:
    """A group of three ranks, and a group of two of them, both prepared."""
    made = []
    for world in (3, 2):
        task = SCALING.prepare(case_of(world), Setup(seed=1))
        assert isinstance(task, DataParallel)
        made.append(task)
    assert len(children()) == 3
    yield made[0], made[1]
    made[0].close()
    assert len(children()) == 3  # the other still needs its two
    made[1].close()
    assert children() == []
    assert groups._groups == []


def test_the_time_to_send_the_ranks_a_line_is_not_that_of_queueing_a_step(pair) -> None:
    task = pair[0]
    sample = time_sample(task, 2, Mock(elapsed_s=lambda: 1.0))
    assert sample.host_s > 0 and sample.issue_s is None
    task.ask("reset")


def test_the_slowest_ranks_own_timer_counts() -> None:
    timers = [Mock(elapsed_s=Mock(return_value=seconds)) for seconds in (1.0, 3.0, 2.0)]
    ranks = [Follower(None, rank, 3) for rank in range(3)]
    for rank, timer in zip(ranks, timers, strict=True):
        rank.parts["case"] = SimpleNamespace(timer=timer)
    task = Mock(
        queue=lambda name: [rank.queue("case", name) for rank in ranks],
        ask=lambda name: [rank.do("case", name) for rank in ranks],
    )
    timer = RanksTimer(task)
    timer.start()
    timer.stop()
    assert timer.elapsed_s() == 3.0
    assert all(
        each.method_calls == [call.start(), call.stop(), call.elapsed_s()] for each in timers
    )


def test_a_ranks_memory_is_its_own_and_not_that_of_the_worker_it_came_from(monkeypatch) -> None:
    def inherited(_: int) -> Any:
        return SimpleNamespace(ru_maxrss=2**30)  # KiB: a peak survives exec

    monkeypatch.setattr(resource, "getrusage", inherited)
    assert 1e6 < Replica(case_of(1), Setup()).memory_peak() < 1e11


def test_a_training_goes_on_from_sample_to_sample(pair) -> None:
    for task in (pair[0], Replica(case_of(1), Setup())):
        losses = []
        for _ in range(3):
            time_sample(task, 4, None)
            losses.append(task.loss())
        assert losses[0] > losses[1] > losses[2], "the weights do not return to the start"
    pair[0].ask("reset")


def test_every_world_trains_like_one_process(pair) -> None:
    alone = Replica(case_of(1), Setup(seed=1))
    tasks = [*pair, alone]
    for _ in range(3):  # in turns
        for task in tasks:
            task.activate()
            for _ in range(4):
                task.step()
            task.finish()
    losses = [task.loss() for task in tasks]
    assert losses == pytest.approx([losses[-1]] * 3, rel=1e-5)
    for task in pair:
        task.ask("reset")


def test_the_check_passes_and_leaves_the_start(pair) -> None:
    for task in pair:
        first, second = task.check(), task.check()
        assert first.passed
        assert first.value == second.value


def test_ranks_with_different_weights_fail_the_check(pair) -> None:
    task = pair[0]
    task.ask("step_alone")
    assert not task.check().passed
    task.ask("reset")
    assert task.check().passed


def test_the_gradient_of_one_share_alone_is_wrong() -> None:
    case = case_of(1)
    task = Replica(case, Setup(seed=1))
    whole = judge(case, 1, [task.trial(12)])
    half = judge(case, 1, [task.trial(6)])
    assert whole.passed
    assert not half.passed


def test_metrics_and_costs(pair) -> None:
    for task, world in zip(pair, (3, 2), strict=True):
        found = task.metrics()
        assert found["allreduce_bytes_per_s"] > 0
        assert 0 <= found["sync_fraction"] < 1
        assert found["threads_per_rank"] == 1
        work, alone = SCALING.work(case_of(world)), SCALING.work(case_of(1))
        assert (work.flops, work.items) == (alone.flops, alone.items)
        assert work.memory_bytes > alone.memory_bytes


def test_a_profile_is_that_of_rank_0_and_holds_no_other_up(pair) -> None:
    task = pair[0]
    found = task.profile(2)
    calls = {operator.name: operator.calls for operator in found.operators}
    assert calls["aten::addmm"] == 2 * 3, "two steps through three layers"
    assert found.events and found.total_s > 0
    task.ask("reset")
    assert task.check().passed


def test_a_training_frozen_during_a_step_goes_on(pair) -> None:
    task = pair[0]
    ranks = [rank.channel.process.pid for rank in task.group.ranks]
    stop(ranks)
    for _ in range(5):
        task.step()
    go_on(ranks)
    task.finish()
    assert task.loss() is not None


@pytest.mark.usefixtures("own_ranks")
def test_a_rank_that_dies_is_named_with_its_log_and_takes_the_others_along() -> None:
    task = SCALING.prepare(case_of(2), Setup(seed=1))
    child = task.group.ranks[1].channel
    child._log.write(b"the last words\n")
    child._log.flush()
    os.kill(child.process.pid, signal.SIGKILL)
    with pytest.raises(WorkloadError) as caught:
        for _ in range(10):
            task.step()
        task.finish()
    assert caught.value.code == "rank_died"
    assert "rank 1 of 2 died (killed by SIGKILL)" in str(caught.value)
    assert str(caught.value).endswith("the last words")
    with pytest.raises(WorkloadError, match="rank 1 of 2 died"):
        task.step()
    task.close()


@pytest.mark.campaign
@pytest.mark.usefixtures("own_ranks")
def test_ranks_that_fail_at_the_start_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(WorkloadError) as caught:
        SCALING.prepare(case_of(2), Setup(seed=1))
    assert "no-such-interface" in str(caught.value)


def test_a_batch_that_does_not_divide_among_ranks_is_refused() -> None:
    with fails_with("bad_input", "12 does not divide into 5"):
        SCALING.prepare(case_of(5), Setup())


def test_more_ranks_than_gpus() -> None:
    with fails_with("no_device"):
        SCALING.prepare(case_of(512, batch=512, device="cuda:0"), Setup())


@pytest.mark.parametrize(
    ("host", "kind", "expected"),
    [
        (Host(cores=2, gpus=0), "cpu", [2, 1]),
        (Host(cores=6, gpus=0), "cpu", [6, 4, 2, 1]),
        (Host(cores=7, gpus=0), "cpu", [6, 4, 2, 1]),
        (Host(cores=64, gpus=8), "cpu", [8, 4, 2, 1]),
        (Host(cores=64, gpus=4), "gpu", [4, 2, 1]),
        (Host(cores=64, gpus=14), "gpu", [12, 8, 4, 2, 1]),
        (Host(cores=1, gpus=0), "cpu", [1]),
    ],
)
def test_worlds_are_proposed(host: Host, kind: str, expected: list[int]) -> None:
    assert SCALING.tuning_values("world", host, kind) == expected


def test_under_a_launcher_its_ranks_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert SCALING.tuning_values("world", Host(cores=64, gpus=0), "cpu") == [3, 2, 1]


def test_ranks_share_the_cores_that_all_may_use() -> None:
    group = groups.RankGroup("cpu")
    places = [("a", {0, 1}), ("a", {1, 2}), ("a", {3}), ("b", {0, 1})]
    for number, (host, cpus) in enumerate(places):
        rank = groups.Rank(None, number)
        rank.host, rank.cpus = host, frozenset(cpus)
        group.ranks.append(rank)
    assert [group.sharers(number, 4) for number in range(4)] == [2, 2, 1, 1]
    assert group.sharers(0, 1) == 1


def test_a_rank_beyond_the_last_gpu_has_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    group, given = groups.RankGroup("cuda:1"), []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(group, "_child", lambda environ: given.append(environ["LOCAL_RANK"]))
    group._start_children(2)
    assert given == ["1", "0"]


def test_the_log_names_a_way_out_where_nccl_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    task = object.__new__(DataParallel)
    task.case, task.world = case_of(2, device="cuda:0"), 2
    waiting = Mock(side_effect=TimeoutError)
    task.group = Mock(failure=None, ranks=[], sharers=lambda *_: 1, ask=waiting)
    with pytest.raises(TimeoutError):
        task._prepare(Setup())
    assert "try NCCL_P2P_DISABLE=1" in capfd.readouterr().err


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_one_gpu_as_a_group_of_one_over_nccl(precision: str) -> None:
    task = DataParallel(replace(case_of(1, device="cuda:0"), precision=precision), Setup(seed=1))
    with closing(task):
        task.activate()
        assert task.check().passed
        timer = task.device_timer()
        timer.start()
        task.step()
        timer.stop()
        task.finish()
        assert timer.elapsed_s() > 0
        assert task.metrics()["sync_fraction"] < 1


@pytest.mark.parametrize(
    "hello",
    [b"", b"no JSON", b"[1]", b"3", b'{"token": 3}', b'{"token": "\xff"}', b"[" * 100_000],
    ids=lambda hello: repr(hello[:20]),
)
def test_a_stranger_who_connects_costs_nothing(hello: bytes) -> None:
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=lambda: (theirs.sendall(hello + b"\n"), theirs.close()))
    sender.start()
    group = object.__new__(groups.RankGroup)
    group.ranks = []
    group._admit(ours, None, "token")
    sender.join(30)
    assert ours.fileno() == -1


def test_two_ranks_of_one_number_are_counted_once() -> None:
    group = object.__new__(groups.RankGroup)
    group.ranks = []
    hello = b'{"token": "token", "rank": 1, "host": "h", "cpus": [0]}\n'
    with ExitStack() as open_ones, socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(2):
            theirs = open_ones.enter_context(socket.create_connection(server.getsockname()))
            theirs.sendall(hello)
            ours = open_ones.enter_context(server.accept()[0])
            group._admit(ours, None, "token")
        assert [rank.number for rank in group.ranks] == [1]
        assert ours.fileno() == -1


class OpenedTensorFlow:
    """TensorFlow that computed before on `opened` devices, which it keeps."""

    def __init__(self, opened: int) -> None:
        self.config, self.opened = self, opened
        self.LogicalDeviceConfiguration = object

    def list_physical_devices(self, kind: str) -> list[str]:
        return [f"/physical_device:{kind}:{n}" for n in range(1 if kind == "CPU" else 4)]

    def set_logical_device_configuration(self, device: str, parts: list[object]) -> None:
        raise RuntimeError("Virtual devices cannot be modified after being initialized")

    def set_visible_devices(self, devices: list[str], kind: str) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    def list_logical_devices(self, kind: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=f"/device:{kind}:{n}") for n in range(self.opened)]


@pytest.mark.parametrize(
    ("device", "kind", "numbers"),
    [("cpu", "CPU", (0, 1)), ("cuda:0", "GPU", (0, 1)), ("cuda:3", "GPU", (3, 0))],
)
def test_replicas_get_a_device_each_or_the_reason(monkeypatch, device, kind, numbers) -> None:
    case = replace(case_of(2, device=device), backend="tensorflow")
    monkeypatch.setitem(sys.modules, "tensorflow", OpenedTensorFlow(4))
    assert logical_devices(case, 8) == [f"/device:{kind}:{number}" for number in numbers]
    monkeypatch.setitem(sys.modules, "tensorflow", OpenedTensorFlow(1))
    alone = replace(case_of(1, device=device), backend="tensorflow")
    assert logical_devices(alone, 8) == [f"/device:{kind}:0"], "other GPUs are hidden from it"
    with pytest.raises(WorkloadError, match=f"2 replicas need a {kind} each, but .* opened 1"):
        logical_devices(case, 8)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(WorkloadError, match="runs in one process"):
        logical_devices(case, 8)
