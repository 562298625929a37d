"""The workloads that measure the machine itself: cold products, bandwidth, launches."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from checking import checked
from tasks import prepared, spoil

from workbench import catalog
from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.block import time_sample
from workloads import matmul_cold


def case_of(name: str, device: str = "cpu", precision: str = "fp32", **params) -> Case:
    workload = catalog.load(name)
    threads = 1 if device == "cpu" else None
    values = workload.values(params)
    return Case(name, device, "torch", precision, threads=threads, params=values)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_cold_products_walk_through_more_memory_than_the_cache(backend: str) -> None:
    cold, cache = case_of("matmul_cold", n=64), 1 << 20
    task = prepared(replace(cold, backend=backend), setup=Setup(cache_bytes=cache))
    seen = set()
    for _ in range(len(task.sets)):
        task.step()
        operands = (task.a, task.b, task.product)
        data = [x if backend == "numpy" else x.numpy() for x in operands]
        seen |= {array.ctypes.data for array in data}
    assert len(seen) == 3 * len(task.sets)
    assert len(seen) * 64 * 64 * 4 >= 2 * cache
    task.step()  # and round again
    assert checked(task).passed


def test_there_are_at_least_two_sets() -> None:
    assert len(prepared(case_of("matmul_cold", n=64), setup=Setup(cache_bytes=1)).sets) == 2


def test_a_gpu_whose_cache_is_unknown_gets_copies_beyond_the_largest(monkeypatch) -> None:
    monkeypatch.setattr(matmul_cold, "MOST_CACHE_BYTES", 30_000)
    part = np.zeros(250, np.float32)
    case = case_of("matmul_cold", "mps:0")
    product = SimpleNamespace(a=part, b=part, product=part, step=None, case=case)
    product.device = SimpleNamespace(type="mps")
    found = matmul_cold.cold(product, Setup(cache_bytes=1))
    assert len(found.sets) * 3000 == matmul_cold.OVERFLOW * 30_000


def test_int8_products_are_exact_and_a_wrong_one_is_found() -> None:
    task = prepared(case_of("matmul", precision="int8", n=64))
    task.step()
    a, b = (x.numpy().astype(np.int64) for x in (task.a, task.b))
    assert np.array_equal(task.product.numpy(), a @ b)
    assert abs(a).max() > 100
    assert checked(task).passed
    task.multiply = lambda a, b, out: out.zero_()
    assert not checked(task).passed


@pytest.mark.parametrize(
    ("at", "error", "refused"),
    [
        ("multiply", RuntimeError("its size needs to be greater than 16"), True),
        ("multiply", torch.OutOfMemoryError("CUDA out of memory"), False),
        ("finish", RuntimeError("CUDA error: an illegal memory access"), False),
    ],
)
def test_only_a_product_that_torch_refuses_is_a_reason_with_a_remedy(at, error, refused) -> None:
    task = prepared(case_of("matmul", precision="int8", n=64))
    setattr(task, at, Mock(side_effect=error))
    with pytest.raises(WorkloadError if refused else type(error), match=str(error)) as caught:
        task._try()
    assert bool(getattr(caught.value, "hint", None)) is refused


@pytest.mark.parametrize("precision", ["bf16", "fp16", "int8"])
def test_a_large_product_has_a_small_probe_and_a_small_one_has_none(precision: str) -> None:
    matmul = catalog.load("matmul")
    small = matmul.small_probe(case_of("matmul", precision=precision, n=4096))
    assert (small.params["n"], small.precision) == (128, precision)
    assert matmul.small_probe(small) is None


@pytest.mark.parametrize(("kernel", "arrays"), [("copy", 2), ("triad", 3)])
def test_bandwidth_counts_each_array_once(kernel: str, arrays: int) -> None:
    case = case_of("bandwidth", kernel=kernel, mib=2.0)
    work = catalog.load("bandwidth").work(case)
    assert work.bytes_moved == work.items == arrays * 2 * 2**20
    assert work.item == "bytes"
    on_gpu = catalog.load("bandwidth").work(replace(case, device="cuda:0", threads=None))
    assert (work.host_bytes, on_gpu.host_bytes) == (0.0, work.bytes_moved), "drawn on the host"


class Far:
    """A tensor on a device without FP64."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getitem__(self, part: slice) -> Far:
        return Far(self.tensor[part])

    def __len__(self) -> int:
        return len(self.tensor)

    def to(self, place: str) -> Any:
        assert place == "cpu"
        return self.tensor


def test_bandwidth_is_checked_on_the_host_where_a_gpu_lacks_fp64() -> None:
    task = prepared(case_of("bandwidth", mib=0.1))
    task.step()
    task.step = lambda: None
    task.target, *task.sources = map(Far, (task.target, *task.sources))
    assert checked(task).passed


@pytest.mark.parametrize("kernel", ["copy", "triad"])
def test_a_kernel_that_skipped_an_element_is_found(kernel: str) -> None:
    task = prepared(case_of("bandwidth", kernel=kernel, mib=0.1))
    assert checked(task).passed
    spoil(task, task.target, -1, lambda right: right + 1e-3)
    assert not checked(task).passed


def test_a_nan_late_in_a_long_array_is_found() -> None:
    task = prepared(case_of("bandwidth", mib=20.0))
    spoil(task, task.target, -1, lambda _: float("nan"))
    assert not checked(task).passed


def test_arrays_longer_than_the_drawn_ones_hold_no_zeros() -> None:
    task = prepared(case_of("bandwidth", mib=20.0))
    assert all(int((source == 0).sum()) < 10 for source in task.sources)
    assert len(task.target) == 20 * 2**20 // 4


def test_a_launch_that_did_nothing_is_found() -> None:
    task = prepared(case_of("launch"))
    assert checked(task).passed
    task.step = lambda: None
    assert not checked(task).passed


@pytest.mark.parametrize("wait", ["no", "yes"])
def test_a_launch_declares_whether_it_is_waited_for(wait: str) -> None:
    assert prepared(case_of("launch", wait=wait)).waits == (wait == "yes")


@pytest.mark.cuda
def test_events_and_the_hosts_clock_agree_on_a_real_gpu() -> None:
    task = prepared(case_of("matmul", "cuda:0", n=4096))
    time_sample(task, 10, task.device_timer())
    sample = time_sample(task, 50, task.device_timer())
    assert 0.5 * sample.host_s < sample.device_s <= 1.01 * sample.host_s
    # The stub computes while it queues, which a sample may not show.
    assert (sample.issue_s or 0.0) < sample.host_s
