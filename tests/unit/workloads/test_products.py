"""Products of any shape, batched products, and the parts of FP8 that a CPU can test."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from checking import checked, fails_with
from tasks import prepared

from workbench import catalog
from workbench.contract import Case, Setup, Task
from workloads._shared import product
from workloads._shared.torch_task import device_of

GEMM = catalog.load("gemm")
SHAPES = [(1, 1, 1, 1), (1, 1, 300, 200), (1, 40, 1, 30), (3, 5, 7, 9), (20, 32, 16, 64)]


def gemm(precision: str, batch: int, m: int, n: int, k: int, device: str = "cpu") -> Case:
    params = {"m": m, "n": n, "k": k}
    threads = 1 if device == "cpu" else None
    return Case("gemm", device, "torch", precision, threads=threads, batch=batch, params=params)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_any_shape_are_right_and_a_wrong_one_is_found(shape, backend) -> None:
    task = prepared(replace(gemm("fp32", *shape), backend=backend))
    assert checked(task).passed
    product = np.asarray(task.product)
    a, b = np.asarray(task.a, np.float64), np.asarray(task.b, np.float64)
    assert np.allclose(product, a @ b, rtol=1e-4, atol=1e-4)
    assert product.shape[-2:] == shape[1:3]
    product += 0.01 * np.abs(product).max() + 1e-3
    assert not task.probe.check(task.case, product).passed


def test_a_product_of_zeros_is_right_and_any_other_answer_wrong() -> None:
    zeros = np.zeros((1, 1), np.float32)
    probe, case = product.Probe(zeros, zeros, 0), gemm("int8", 1, 1, 1, 1)
    assert probe.check(case, zeros).passed
    assert not probe.check(case, zeros + 1).passed


def test_a_wrong_product_of_a_batch_is_found_though_all_others_are_right() -> None:
    task = prepared(gemm("fp32", 20, 8, 8, 8))
    task.step()
    task.product[13] = task.product[12]
    assert not task.probe.check(task.case, task.product.numpy()).passed


@pytest.mark.parametrize("shape", [(4096, 8), (8, 4096)], ids=["row", "column"])
def test_one_wrong_row_or_column_is_found_among_thousands_of_right_ones(shape) -> None:
    task = prepared(gemm("bf16", 1, *shape, 16))
    found = checked(task)
    assert found.passed and 1e-3 < found.value < product.LIMITS["bf16"] / 4
    lost = (1234, slice(None)) if shape[0] > shape[1] else (slice(None), 1234)
    task.product[lost] = 0
    assert not task.probe.check(task.case, task.product).passed


@pytest.mark.parametrize("seed", range(30))
def test_a_single_sum_that_nearly_cancels_is_not_an_error(seed: int) -> None:
    assert checked(prepared(gemm("bf16", 1, 1, 1, 64), seed)).passed


def test_blocks_of_the_check_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    one, several = rng.standard_normal((50, 7)), rng.standard_normal((9, 5, 7))
    shared, own = rng.standard_normal((7, 4)), rng.standard_normal((9, 7, 4))
    monkeypatch.setattr(product, "BLOCK_BYTES", 8 * 7 * 12)
    assert np.allclose(product.project(one, shared), one @ shared)
    assert np.allclose(product.project(several, shared), several @ shared)
    assert np.allclose(product.project(several, own), several @ own)


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_eight_bit_products_come_in_no_batches(precision: str) -> None:
    with fails_with("unsupported", precision, hint="--batch 1"):
        prepared(gemm(precision, 2, 16, 16, 16, "fake:0"))


def test_the_small_probe_of_a_thin_product_is_thin() -> None:
    small = GEMM.small_probe(gemm("fp16", 64, 1, 4096, 300))
    assert (small.batch, dict(small.params)) == (64, {"m": 1, "n": 128, "k": 150})
    assert GEMM.small_probe(small) is None
    many = GEMM.small_probe(gemm("fp16", 1_000_000, 8, 8, 8))
    assert (many.batch, dict(many.params)) == (3_906, {"m": 8, "n": 8, "k": 8})
    assert GEMM.small_probe(gemm("bf16", 1, 1, 1024, 2048)) is None, "its steps are short as it is"


def test_costs_of_a_batch_are_those_of_its_products() -> None:
    one, three = (GEMM.work(gemm("fp32", batch, 2, 3, 5)) for batch in (1, 3))
    assert one.flops == 2 * 2 * 3 * 5
    assert one.bytes_moved == 4 * (2 * 5 + 5 * 3 + 2 * 3)
    assert (three.flops, three.items) == (3 * one.flops, 3)
    assert three.bytes_moved == 3 * one.bytes_moved


@pytest.mark.parametrize(("workload", "name"), [("gemm", "k"), ("matmul", "n")])
def test_int8_sums_cannot_overflow_at_any_inner_size_offered(workload: str, name: str) -> None:
    inner = next(p for p in catalog.load(workload).parameters if p.name == name)
    assert inner.maximum * product.LARGEST_INT8**2 < 2**31


def fp8(m: int = 64, n: int = 48, k: int = 256, device: str = "cpu") -> Task:
    """An FP8 product by torch on the CPU, which computes it although no variant offers it."""
    try:
        return prepared(gemm("fp8", 1, m, n, k, device))
    except RuntimeError:
        pytest.skip("this torch multiplies no FP8 on a CPU")


@pytest.mark.parametrize("shape", [(64, 48, 256), (1, 16, 4096), (128, 48, 512)])
def test_fp8_rounds_to_three_bits_and_is_far_from_its_limit(shape: tuple[int, int, int]) -> None:
    found = checked(fp8(*shape))
    assert 0.01 < found.value < product.LIMITS["fp8"] / 2
    assert found.passed


def test_a_wrong_fp8_product_is_found() -> None:
    task = fp8()
    right = task.multiply
    for wrong in (lambda a, b, out: out.zero_(), lambda a, b, out: right(a, b, out=out).mul_(1.3)):
        task.multiply = wrong
        assert not checked(task).passed


def test_fp8_takes_its_right_operand_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cuBLASLt requires; the copy to the device keeps the order."""
    monkeypatch.setattr(product, "arithmetic", lambda case: case.precision)
    task = fp8(32, 48, 64, "fake:0")
    assert task.a.stride() == (64, 1)
    assert task.b.stride() == (1, 64)
    assert str(task.product.dtype) == "torch.bfloat16"
    assert checked(task).passed


def test_sizes_that_torch_refuses_are_a_reason_with_a_remedy() -> None:
    task = fp8()
    task.multiply = Mock(side_effect=RuntimeError("mat2 shape (17x20) must be divisible by 16"))
    with fails_with("unsupported_precision", "divisible by 16", hint="16"):
        task._try()


@pytest.mark.parametrize(
    ("precision", "capability", "offered"),
    [
        ("fp8", (8, 6), False),
        ("fp8", (8, 9), True),
        ("fp8", (9, 0), True),
        ("bf16", (7, 5), False),
        ("tf32", (8, 0), True),
        ("fp16", (6, 1), True),
    ],
)
def test_a_gpu_offers_a_precision_from_its_generation_on(
    monkeypatch: pytest.MonkeyPatch, precision: str, capability: tuple[int, int], offered: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    case = gemm(precision, 1, 16, 16, 16, "cuda:0")
    if offered:
        assert device_of(case).type == "cuda"
        return
    with fails_with("unsupported_precision", precision):
        device_of(case)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp8", "int8", "bf16"])
def test_products_on_a_real_gpu(precision: str) -> None:
    for batch, m, n, k in ((1, 64, 512, 1024), (8 if precision == "bf16" else 1, 32, 64, 128)):
        assert checked(prepared(gemm(precision, batch, m, n, k, "cuda:0"))).passed


def drawn_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Every array of operands that is drawn from now on: its kind and shape."""
    drawn, draw = [], product.draw

    def counted(shape: tuple[int, ...], precision: str, rng: object) -> object:
        drawn.append((precision, shape))
        return draw(shape, precision, rng)

    monkeypatch.setattr(product, "draw", counted)
    monkeypatch.setattr(product, "_latest", {})
    return drawn


def test_the_precisions_of_a_row_share_operands_and_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawn_shapes(monkeypatch)
    first, second = (prepared(gemm(kind, 1, 48, 32, 64)) for kind in ("fp32", "bf16"))
    assert sorted(drawn) == [("fp32", (48, 64)), ("fp32", (64, 32))]
    assert first.probe is second.probe
    assert checked(first).passed and checked(second).passed
    prepared(gemm("fp32", 1, 48, 32, 64), seed=1)
    prepared(gemm("fp64", 1, 48, 32, 64))
    assert len(drawn) == 6, "other numbers are drawn anew"
    assert len(product._latest) == 1


def test_shared_operands_count_in_the_set_up_of_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_shapes(monkeypatch)
    setups = Setup(), Setup()
    for setup in setups:
        GEMM.draw(gemm("fp32", 1, 64, 64, 64), setup)
    assert setups[0].seconds["build"] == setups[1].seconds["build"] > 0


def test_large_operands_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawn_shapes(monkeypatch)
    monkeypatch.setattr(product, "MOST_KEPT_BYTES", 2 * 4 * 64 * 64 - 1)
    for _ in range(2):
        GEMM.draw(gemm("fp32", 1, 64, 64, 64), Setup())
    assert len(drawn) == 4
    assert not product._latest


def test_a_thin_product_of_a_gpu_never_finds_its_weights_in_cache() -> None:
    thin = gemm("fp32", 1, 4, 64, 64, "fake:0")
    cache = 1 << 18
    task = GEMM.prepare(thin, Setup(cache_bytes=cache))
    task.activate()
    weights = set()
    for _ in range(len(task.sets)):
        task.step()
        weights.add(task.b.data_ptr())
    assert len(weights) * 64 * 64 * 4 >= 1.5 * cache
    assert checked(task).passed
    hot = GEMM.prepare(replace(thin, mode="hot"), Setup(cache_bytes=cache))
    hot.step()
    before = hot.b.data_ptr()
    hot.step()
    assert hot.b.data_ptr() == before
    assert GEMM.work(thin).memory_bytes > 2**28 > GEMM.work(replace(thin, mode="hot")).memory_bytes
    assert GEMM.work(thin).bytes_moved == GEMM.work(replace(thin, mode="hot")).bytes_moved


def test_copies_are_few_where_a_product_is_tiny_or_larger_than_any_cache() -> None:
    tiny = GEMM.prepare(gemm("fp32", 1, 1, 1, 1, "fake:0"), Setup(cache_bytes=1 << 20))
    assert len(tiny.sets) == 4096
    large = gemm("fp32", 1, 16384, 16384, 16384, "fake:0")
    assert GEMM.work(large).memory_bytes == GEMM.work(replace(large, mode="hot")).memory_bytes


def test_both_modes_are_offered_on_a_gpu_only() -> None:
    hot = [variant for variant in GEMM.variants if variant.mode == "hot"]
    assert {variant.device_kind for variant in hot} == {"gpu"}
    assert {"fp32", "bf16"} <= {variant.precision for variant in hot}
