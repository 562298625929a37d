"""Copies in every direction and mode, their overlap, and directions that are impossible."""

from typing import Any

import pytest
from checking import fails_with
from tasks import prepared, spoil
from torch.utils.flop_counter import FlopCounterMode

from workbench import catalog
from workbench.contract import Case, WorkloadError
from workbench.planning import ceiling_rows
from workloads.transfer import MODES, WAYS, side_of

TRANSFER = catalog.load("transfer")
FROM_ONE_DEVICE = [way for way in WAYS if way != "peer"]


def case_of(device: str = "fake:0", mode: str | None = None, mib: float = 0.1, **params) -> Case:
    threads = 1 if device == "cpu" else None
    values = TRANSFER.values({"mib": mib, **params})
    return Case("transfer", device, "torch", "fp32", threads=threads, mode=mode, params=values)


@pytest.mark.parametrize("compute", ["no", "yes"])
@pytest.mark.parametrize("device", ["cpu", "fake:0"])
@pytest.mark.parametrize("direction", FROM_ONE_DEVICE)
def test_a_transfer_that_lost_something_is_found(direction: str, device: str, compute: str) -> None:
    task: Any = prepared(case_of(device, direction=direction, compute=compute))
    assert task.check().passed
    for target, source in task.copies:
        assert target.data_ptr() != source.data_ptr()
        assert source.count_nonzero() == len(source)
    spoil(task, task.copies[-1][0], 7, lambda _: 1e9)
    assert not task.check().passed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["to_device", "to_host", "both"])
def test_every_mode_carries_host_memory(direction: str, mode: str | None) -> None:
    assert prepared(case_of(direction=direction, mode=mode)).check().passed


@pytest.mark.parametrize("direction", ["to_device", "to_host", "both"])
def test_only_pinned_non_blocking_copies_do_not_wait(direction: str) -> None:
    free = [mode for mode in MODES if not prepared(case_of(direction=direction, mode=mode)).waits]
    assert free == ["pinned"]
    assert not prepared(case_of(direction="within")).waits


@pytest.mark.parametrize("direction", ["to_device", "to_host"])
def test_a_latency_includes_the_end_of_a_non_blocking_copy(direction: str) -> None:
    done = [mode for mode in MODES if prepared(case_of(direction=direction, mode=mode)).finishes]
    assert done == [None, "pinned-blocking"]


@pytest.mark.parametrize("direction", ["within", "peer"])
def test_without_host_memory_there_is_only_one_mode(direction: str) -> None:
    with pytest.raises(WorkloadError, match="no host memory") as caught:
        prepared(case_of(direction=direction, mode="pinned"))
    assert caught.value.hint


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_a_missing_peer_is_a_reason(device: str) -> None:
    with fails_with("no_device", "no second GPU", hint=True):
        prepared(case_of(device, direction="peer"))


def test_bytes_over_the_link_count_once_and_bytes_in_memory_twice() -> None:
    mib = 4 * 2**20
    times = {"to_device": 1, "to_host": 1, "both": 2, "within": 2, "peer": 1}
    assert {*times} == {*WAYS}
    for way, count in times.items():
        work = TRANSFER.work(case_of("cuda:0", mib=4.0, direction=way))
        assert work.bytes_moved == count * mib, way
    on_cpu = TRANSFER.work(case_of("cpu", mib=4.0))
    assert (on_cpu.bytes_moved, on_cpu.items) == (2 * mib, mib)


@pytest.mark.parametrize("size", ["0.00390625", "1024", "16384"])
def test_sizes_start_at_4_kib(size: str) -> None:
    mib = next(p for p in TRANSFER.parameters if p.name == "mib")
    assert mib.parse(size) == float(size)
    for absurd in ("0", "-1", "0.003", "1e9", "nan"):
        with pytest.raises(ValueError, match="mib must be between"):
            mib.parse(absurd)


def test_a_product_runs_during_the_copy_and_is_counted() -> None:
    case = case_of(compute="yes")
    task: Any = prepared(case)
    with FlopCounterMode(display=False) as counter:
        task.step()
    assert counter.get_total_flops() == TRANSFER.work(case).flops == 2 * side_of(case) ** 3
    assert TRANSFER.work(case_of()).flops is None


def test_a_wrong_product_with_a_right_copy_is_found() -> None:
    task: Any = prepared(case_of(compute="yes"))
    spoil(task, task.product, 3, lambda right: right * 1.1)
    assert not task.check().passed


@pytest.mark.parametrize(
    ("copy_s", "product_s", "both_s", "hidden"),
    [(2.0, 1.0, 2.0, 1.0), (1.0, 4.0, 5.0, 0.0), (2.0, 2.0, 3.0, 0.5), (1.0, 1.0, 2.2, 0.0)],
)
def test_the_overlap_is_the_share_of_the_shorter_part_that_was_hidden(
    copy_s: float, product_s: float, both_s: float, hidden: float
) -> None:
    task: Any = prepared(case_of(compute="yes"))
    wait_s = 0.25
    known = {(False, False): 0.0, (True, False): copy_s}
    known |= {(False, True): product_s, (True, True): both_s}
    task._fastest = lambda *, copy, multiply: known[copy, multiply] + wait_s
    assert task.metrics() == {
        "overlap_fraction": hidden,
        "copy_alone_s": copy_s,
        "product_alone_s": product_s,
    }


def test_the_overlap_is_measured_from_each_part_alone() -> None:
    task: Any = prepared(case_of(compute="yes"))
    target, source = task.copies[0]
    target.zero_()
    task.product.zero_()
    task._fastest(copy=False, multiply=True)
    assert target.count_nonzero() == 0
    assert task.product.count_nonzero() > 0
    task.product.zero_()
    task._fastest(copy=True, multiply=False)
    assert target.equal(source)
    assert task.product.count_nonzero() == 0
    assert 0 <= task.metrics()["overlap_fraction"] <= 1


def test_without_a_product_there_is_no_overlap() -> None:
    assert prepared(case_of()).metrics() == {}


def test_ceilings_take_pageable_and_pinned_copies_of_gpus_only() -> None:
    row = ceiling_rows._row(
        "transfer",
        [{"direction": way, "mib": 1.0} for way in ("to_device", "to_host", "both")],
        ["cpu", "cuda:0"],
        cores=2,
        brief=False,
    )
    found = [(case.device, case.params["direction"], case.mode) for case in row.cases]
    assert sorted(found, key=str) == sorted(
        (("cuda:0", *transfer) for transfer in ceiling_rows.TRANSFERS), key=str
    )


@pytest.mark.cuda
@pytest.mark.parametrize("compute", ["no", "yes"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["to_device", "to_host", "both"])
def test_transfers_on_a_real_gpu(direction: str, mode: str | None, compute: str) -> None:
    task = prepared(case_of("cuda:0", mode, 8.0, direction=direction, compute=compute))
    assert task.check().passed
    assert all(0 <= value < 10 for value in task.metrics().values())
