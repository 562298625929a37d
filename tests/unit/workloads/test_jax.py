"""JAX's device, precision and placement, through a module that stands in for it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checking import fails_with

from workbench import catalog
from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.failures import is_out_of_memory
from workloads.matmul import WORKLOAD


class Array(np.ndarray[Any, Any]):
    """An array on `device`."""

    device: Any = None
    committed = True

    def devices(self) -> set[Any]:
        return {self.device}

    def block_until_ready(self) -> Array:
        return self


class Device(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.fixture
def jax(monkeypatch) -> Any:
    """A module `jax`: `gpus` are there, `ran_on` overrides where a jitted function runs."""
    module: Any = ModuleType("jax")
    module.__version__ = "0.10.2"
    module.cpu = Device(platform="cpu", local_hardware_id=0)
    module.gpus = [Device(platform="gpu", local_hardware_id=n) for n in (0, 1)]
    module.ran_on, module.commits, module.settings = None, True, {}
    module.config = SimpleNamespace(update=module.settings.__setitem__)
    module.tree = SimpleNamespace(leaves=lambda tree: [tree])
    module.block_until_ready = lambda tree: tree

    def devices(kind: str) -> list[Any]:
        found = {"cpu": [module.cpu], "gpu": module.gpus}[kind]
        if not found:
            raise RuntimeError(f"Unknown backend {kind}")
        return found

    def placed(array: Any, device: Any) -> Array:
        result = np.asarray(array).view(Array)
        result.device, result.committed = device, module.commits
        return result

    def jit(function: Any, in_shardings: Any) -> Any:
        return lambda *args: placed(function(*args), module.ran_on or in_shardings)

    module.devices, module.jit = devices, jit
    module.device_put = lambda arrays, device: tuple(placed(each, device) for each in arrays)
    monkeypatch.setitem(sys.modules, "jax", module)
    sharding = SimpleNamespace(SingleDeviceSharding=lambda device: device)
    monkeypatch.setitem(sys.modules, "jax.sharding", sharding)
    return module


def prepared(device: str, precision: str = "fp32") -> tuple[Any, Setup]:
    setup = Setup(seed=0)
    threads = 2 if device == "cpu" else None
    case = Case("matmul", device, "jax", precision, threads=threads, params={"n": 16})
    return WORKLOAD.prepare(case, setup), setup


def test_a_case_runs_on_the_gpu_that_it_names(jax) -> None:
    task, setup = prepared("cuda:1")
    assert {operand.device for operand in task.operands} == {jax.gpus[1]}
    assert jax.settings["jax_cuda_visible_devices"] == "1", "no memory is taken on the other"
    assert {*setup.seconds} == {"build", "transfer", "compile"}
    task.step()
    assert task.check().passed
    assert task.waits and task.finishes


def test_a_tpu_has_a_kind_of_its_own(jax) -> None:
    tpus = [Device(platform="tpu", id=n, device_kind="TPU v5e") for n in (0, 1)]
    jax.local_devices = lambda backend=None: tpus if backend == "tpu" else [jax.cpu, *tpus]
    found = catalog.load_backend("jax").gpus()
    assert [gpu["device"] for gpu in found] == ["tpu:0", "tpu:1"]
    task, _ = prepared("tpu:1")
    assert {operand.device for operand in task.operands} == {tpus[1]}
    jax.ran_on = jax.cpu
    with pytest.raises(WorkloadError, match="in place of tpu:0"):
        prepared("tpu:0")


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_on_the_cpu_it_opens_no_other_device(jax, device: str) -> None:
    task, _ = prepared(device)
    assert task.device is jax.cpu
    assert jax.settings["jax_platforms"] == "cpu"


def test_a_product_that_ran_on_the_host_is_no_result_of_a_gpu(jax) -> None:
    jax.ran_on = jax.cpu
    with fails_with("provider_fallback", r"in place of cuda:0"):
        prepared("cuda:0")
    jax.ran_on, jax.commits = None, False
    with pytest.raises(WorkloadError, match="in place of cuda:0"):
        prepared("cuda:0")


@pytest.mark.parametrize("device", ["cuda:0", "cuda:2"])
def test_a_gpu_that_it_lacks_is_named_with_what_brings_it(jax, device: str) -> None:
    jax.gpus = [] if device == "cuda:0" else jax.gpus
    with fails_with("no_device", f"0.10.2 finds no device {device}", hint="jax[cuda13]"):
        prepared(device)


def test_each_case_sets_its_precision_before_it_runs(jax) -> None:
    double, _ = prepared("cpu", "fp64")
    assert jax.settings["jax_enable_x64"]
    single, _ = prepared("cpu")
    assert not jax.settings["jax_enable_x64"]
    double.activate()
    assert jax.settings["jax_enable_x64"]
    single.activate()
    assert not jax.settings["jax_enable_x64"]
    assert jax.settings["jax_default_matmul_precision"] == "highest", "no TF32 under FP32's name"


def test_each_number_of_threads_has_a_worker_of_its_own() -> None:
    cases = [Case("matmul", "cpu", "jax", "fp32", threads=n) for n in (1, 2)]
    assert len({catalog.process_of(case) for case in cases}) == 2
    assert "PJRT_NPROC" in catalog.backend("jax").thread_variables


def test_xlas_words_for_full_memory_are_understood() -> None:
    assert is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"))
