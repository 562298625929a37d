"""Copies in every direction and mode, and directions that are impossible."""

from __future__ import annotations

from typing import Any

import pytest

from workbench import catalog
from workbench.contract import Case, Setup, Task, WorkloadError
from workbench.engine import ceilings
from workloads.transfer import MODES, WAYS

TRANSFER = catalog.load("transfer")
FROM_ONE_DEVICE = [way for way in WAYS if way != "peer"]


def case_of(device: str = "fake:0", mode: str | None = None, mib: float = 0.1, **params) -> Case:
    threads = 1 if device == "cpu" else None
    values = TRANSFER.values({"mib": mib, **params})
    return Case("transfer", device, "torch", "fp32", threads=threads, mode=mode, params=values)


def prepared(case: Case) -> Task:
    task = TRANSFER.prepare(case, Setup(seed=0))
    task.activate()
    return task


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
@pytest.mark.parametrize("direction", FROM_ONE_DEVICE)
def test_a_transfer_that_lost_something_is_found(direction: str, device: str) -> None:
    task: Any = prepared(case_of(device, direction=direction))
    assert task.check().passed
    for target, source in task.copies:
        assert target.data_ptr() != source.data_ptr()
        assert source.count_nonzero() == len(source)
    step = task.step

    def lose() -> None:
        step()
        task.copies[-1][0][7] = 1e9

    task.step = lose
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


@pytest.mark.parametrize("direction", ["within", "peer"])
def test_without_host_memory_there_is_only_one_mode(direction: str) -> None:
    with pytest.raises(WorkloadError, match="no host memory") as caught:
        prepared(case_of(direction=direction, mode="pinned"))
    assert caught.value.hint


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_a_missing_peer_is_a_reason(device: str) -> None:
    with pytest.raises(WorkloadError, match="no second GPU") as caught:
        prepared(case_of(device, direction="peer"))
    assert caught.value.code == "no_device"
    assert caught.value.hint


def test_bytes_over_the_link_count_once_and_bytes_in_memory_twice() -> None:
    mib = 4 * 2**20
    moved = {
        way: TRANSFER.work(case_of("cuda:0", mib=4.0, direction=way)).bytes_moved for way in WAYS
    }
    assert moved == {
        "to_device": mib,
        "to_host": mib,
        "both": 2 * mib,
        "within": 2 * mib,
        "peer": mib,
    }
    on_cpu = TRANSFER.work(case_of("cpu", mib=4.0))
    assert (on_cpu.bytes_moved, on_cpu.items) == (2 * mib, mib)


@pytest.mark.parametrize("size", ["0.00390625", "1024", "16384"])
def test_sizes_start_at_4_kib(size: str) -> None:
    mib = next(p for p in TRANSFER.parameters if p.name == "mib")
    assert mib.parse(size) == float(size)
    for absurd in ("0", "-1", "0.003", "1e9", "nan"):
        with pytest.raises(ValueError, match="mib must be between"):
            mib.parse(absurd)


# -------------------------------------------------------------- ceilings


def test_ceilings_take_pageable_and_pinned_copies_of_gpus_only() -> None:
    row = ceilings._row(
        "transfer",
        [{"direction": way, "mib": 1.0} for way in ("to_device", "to_host", "both")],
        ["cpu", "cuda:0"],
        cores=2,
        brief=False,
    )
    found = [(case.device, case.params["direction"], case.mode) for case in row.cases]
    assert sorted(found, key=str) == sorted(
        (("cuda:0", *transfer) for transfer in ceilings.TRANSFERS), key=str
    )


@pytest.mark.cuda
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["to_device", "to_host", "both"])
def test_transfers_on_a_real_gpu(direction: str, mode: str | None) -> None:
    assert prepared(case_of("cuda:0", mode, 8.0, direction=direction)).check().passed
