"""Every workload prepares, steps, checks its own result, and notices a wrong one."""

import math
import multiprocessing
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import torch
from checking import checked, fails_with
from small import BATCH, SMALL, tuning_of
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.flop_counter import FlopCounterMode

from workbench import catalog
from workbench.contract import Case, Setup, Task, Variant, WorkloadError
from workbench.engine.workers import CANNOT_HERE
from workloads import digits
from workloads._shared.torch_task import ON_CUDA_ONLY

BUILT_IN = {name: catalog.load(name) for name in SMALL}
ON_CPU = [
    (name, variant)
    for name, workload in BUILT_IN.items()
    for variant in workload.variants
    if variant.device_kind == "cpu" and (name, variant.mode) != ("numa", "far")  # needs two nodes
]
ON_GPU = [
    (name, variant)
    for name, workload in BUILT_IN.items()
    for variant in workload.variants
    if variant.device_kind == "gpu"
]
SIMULATED, ON_CUDA = (
    [pair for pair in ON_GPU if (pair[1].mode in ON_CUDA_ONLY) is needs_cuda]
    for needs_cuda in (False, True)
)


@pytest.fixture(autouse=True)
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch.compile trace only: compiling C++ takes ten seconds for each case."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


def case_of(name: str, variant: Variant, device: str = "cpu") -> Case:
    return Case(
        workload=name,
        device=device,
        backend=variant.backend,
        precision=variant.precision,
        quantization=variant.quantization,
        mode=variant.mode,
        threads=1 if device == "cpu" else None,
        batch=BATCH.get(name),
        params=BUILT_IN[name].values(SMALL[name]),
        tuning=tuning_of(BUILT_IN[name], SMALL[name]),
    )


def prepared(case: Case) -> Task:
    if case.backend in ("keras", "tensorflow"):
        pytest.skip("a process has one Keras: make test-tensorflow races them")
    if catalog.backend(case.backend).optional:
        pytest.importorskip(case.backend, reason="make test-backends installs it")
    setup = Setup(seed=0)
    task = BUILT_IN[case.workload].prepare(case, setup)
    assert case.device != "cpu" or "transfer" not in setup.seconds, "a CPU's memory is the host's"
    task.activate()
    return task


def ident(value: object) -> str:
    if isinstance(value, Variant):
        parts = (value.backend, value.precision, value.quantization, value.mode)
        return "-".join(part for part in parts if part)
    return str(value)


def test_every_file_in_the_folder_is_tested_here() -> None:
    built_in = {name for name, file in catalog.files().items() if file.parent == catalog.BUILT_IN}
    assert built_in == set(SMALL)


@pytest.mark.parametrize(("name", "variant"), ON_CPU, ids=ident)
def test_every_cpu_variant_is_right_and_steps(name: str, variant: Variant) -> None:
    with closing(prepared(case_of(name, variant))) as task:
        found = checked(task)
        assert found.passed, found
        assert math.isfinite(found.value)
        for _ in range(3):
            task.step()
        task.finish()
        loss = task.loss()
        assert loss is None or math.isfinite(loss)
        assert task.transfer_out_s() is None
    assert multiprocessing.active_children() == []


READ_BACK = {"infer_mlp", "infer_cnn", "infer_encoder", "train_mlp", "digits_to_accuracy"}
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls so far that wait on a GPU: the host reads a result, or fetches a batch.

    An optimiser's own reads do not count: they read its step count, which is on the host.
    """
    called: list[str] = []

    def noted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if not sys._getframe(1).f_globals["__name__"].startswith("torch.optim"):
                called.append(name)
            return original(*arguments, **settings)

        return call

    for name in READS:
        monkeypatch.setattr(torch.Tensor, name, noted(name, getattr(torch.Tensor, name)))
    fetch = noted("fetch", _BaseDataLoaderIter.__next__)
    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", fetch)
    return called


@pytest.mark.parametrize(("name", "variant"), SIMULATED, ids=ident)
def test_the_simulated_gpu_runs_every_gpu_variant(name, variant, awaited) -> None:
    with closing(prepared(case_of(name, variant, "fake:0"))) as task:
        assert checked(task).passed
        awaited.clear()
        task.step()
        # Copies of `transfer` wait by their arguments (see there), and XGBoost is not torch.
        if variant.backend == "torch" and name != "transfer":
            assert task.waits == bool(awaited), awaited
            # A batch or a sign that was waited for leaves work in the queue.
            assert task.finishes == (name in READ_BACK), awaited
            assert not task.finishes or awaited
        task.finish()


@pytest.mark.parametrize(("name", "variant"), ON_CUDA, ids=ident)
def test_what_only_cuda_has_is_skipped_elsewhere_with_the_reason(name, variant) -> None:
    with pytest.raises(WorkloadError, match=f"mode {variant.mode} needs a CUDA device") as caught:
        prepared(case_of(name, variant, "fake:0"))
    assert caught.value.code in CANNOT_HERE
    assert caught.value.hint


def test_a_loss_scale_is_waited_for(awaited: list[str]) -> None:
    task = prepared(case_of("train_gpt", Variant("cpu", "torch", "fp16")))
    awaited.clear()
    task.step()
    assert task.waits
    assert "item" in awaited


@pytest.mark.parametrize(
    ("name", "variant"), [pair for pair in ON_GPU if pair[0] == "matmul"], ids=ident
)
def test_a_missing_gpu_is_a_reason_with_a_remedy(name: str, variant: Variant) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with fails_with("no_device", hint=True):
        prepared(case_of(name, variant, "cuda:0"))


def test_a_wrong_product_is_found() -> None:
    task = prepared(case_of("matmul", Variant("cpu", "numpy", "fp32")))
    task.step()
    good = task.probe.check(task.case, task.product)
    task.product[3, 5] *= 1.01
    bad = task.probe.check(task.case, task.product)
    assert good.passed
    assert not bad.passed


def test_a_product_that_was_never_computed_is_found() -> None:
    task = prepared(case_of("matmul", Variant("cpu", "numpy", "fp32")))
    assert not task.probe.check(task.case, task.product).passed


def test_an_answer_of_another_network_is_found() -> None:
    task = prepared(case_of("infer_cnn", Variant("cpu", "onnxruntime", "fp32")))
    infer = task.infer
    task.infer = lambda batch: infer(batch) * 1.001
    assert not checked(task).passed


def test_a_training_with_other_losses_is_found() -> None:
    task = prepared(case_of("train_mlp", Variant("cpu", "torch", "fp32")))
    train = task.train
    task.train = lambda steps: [loss * 1.05 for loss in train(steps)]
    assert not checked(task).passed


def test_digits_that_are_not_learnt_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "EPOCHS", 0)
    found = prepared(case_of("digits", Variant("cpu", "torch", "fp32"))).check()
    assert found.metric == "test_accuracy"
    assert not found.passed


@pytest.mark.parametrize(
    "name", ["digits", "train_cnn", "train_resnet", "train_gpt", "train_mlp_deep"]
)
def test_training_lowers_the_loss(name: str) -> None:
    with closing(prepared(case_of(name, Variant("cpu", "torch", "fp32")))) as task:
        task.step()
        first = task.loss()
        steps = 2 if name == "train_mlp_deep" else 120
        for _ in range(steps):
            task.step()
        assert task.loss() < first


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    variant = Variant("cpu", "torch", "fp32")
    losses = []
    for seed in (1, 1, 2):
        task = BUILT_IN["train_mlp"].prepare(case_of("train_mlp", variant), Setup(seed=seed))
        task.activate()
        task.step()
        losses.append(task.loss())
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    "name",
    ["matmul", "gemm", "infer_mlp", "infer_encoder", "conv_layers", "train_mlp_deep", "scaling"],
)
def test_counted_operations_agree_with_torchs_own_counter(name: str) -> None:
    case = case_of(name, Variant("cpu", "torch", "fp32"))
    task = prepared(case)
    with FlopCounterMode(display=False) as counter:
        task.step()
    expected = BUILT_IN[name].work(case).flops
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", SMALL)
def test_costs_are_positive_and_grow_with_the_batch(name: str) -> None:
    workload = BUILT_IN[name]
    case = case_of(name, workload.variants[0])
    work = workload.work(case)
    assert work.items > 0
    assert work.memory_bytes > 0
    assert work.flops is None or work.flops > 0
    if case.batch is not None:
        double = Case(**{**case.__dict__, "batch": 2 * case.batch})
        expected = work.items if work.item == "runs" else 2 * work.items
        assert workload.work(double).items == expected
