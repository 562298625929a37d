"""Kinds of devices, and torch on GPUs that are not NVIDIA's, with stand-ins for its parts."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from builders import machine as build_machine

from workbench import catalog
from workbench.contract import COLUMNS, DEVICE_KINDS, Case, Setup, WorkloadError, kind_of
from workbench.export.view.words import choice_word
from workbench.planning import scenarios
from workbench.planning.cases import fill_cases
from workbench.planning.request import Request, check_device
from workbench.planning.rows import resolve
from workbench.records.machine import Gpu
from workloads._shared import waiting
from workloads._shared.torch_task import StreamTimer, TorchTask, device_of, synchronize


class Part:
    """`torch.cuda`, `torch.xpu` or `torch.mps`: each call is noted."""

    def __init__(self, *, one: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.one = one

    def device_count(self) -> int:
        return 1

    def max_memory_allocated(self, device: str) -> int:
        return 500

    memory_allocated = max_memory_allocated

    def __getattr__(self, name: str) -> Any:
        if self.one and name in ("init", "set_device", "current_stream"):
            raise AttributeError(name)

        def call(*arguments: Any, **_: Any) -> Any:
            self.calls.append((name, *arguments))
            return SimpleNamespace(record=lambda *_: None, synchronize=name, elapsed_time=None)

        return call


class Task(TorchTask):
    def step(self) -> None: ...

    def check(self) -> Any: ...


def case(device: str, precision: str = "fp32", mode: str | None = None) -> Case:
    return Case("matmul", device, "torch", precision, mode=mode)


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> Part:
    part = Part()
    monkeypatch.setattr(torch, "xpu", part)
    return part


def test_an_xpu_is_driven_by_its_own_part_of_torch(xpu: Part, monkeypatch) -> None:
    monkeypatch.setattr(torch, "cuda", SimpleNamespace())  # any use of it fails
    task = Task(case("xpu:0"))
    task.activate()
    task.finish()
    assert task.waiter() == "current_stream"
    assert isinstance(task.device_timer(), StreamTimer)
    assert not task.device_timer().hold(1.0), "there is no kernel that only waits"
    waiting.mark(task.device)
    asked = [call[0] for call in xpu.calls]
    assert asked[0] == "synchronize" and asked.count("Event") == 5
    with pytest.raises(WorkloadError, match="needs a CUDA device, and xpu:0 computes on the XPU"):
        Task(case("xpu:0", mode="graph"))


def test_mps_has_one_device_and_no_streams(monkeypatch) -> None:
    part = Part(one=True)
    monkeypatch.setattr(torch, "mps", part)
    task = Task(case("mps:0"))
    assert task.waiter() == task.finish and task.device_timer() is None
    synchronize(task.device)
    assert part.calls == [("synchronize",)]
    with pytest.raises(WorkloadError, match="finds no device mps:1"):
        device_of(case("mps:1"))


@pytest.mark.parametrize("device", ["xpu:0", "mps:0"])
def test_only_cuda_has_tf32(xpu: Part, monkeypatch, device: str) -> None:
    monkeypatch.setattr(torch, "mps", Part(one=True))
    with pytest.raises(WorkloadError, match="has no tf32"):
        device_of(case(device, "tf32"))
    assert device_of(case(device, "bf16")).type == device[:3]


def test_hip_is_cuda_to_torch_without_what_only_nvidia_has(monkeypatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.version, "cuda", None)  # the tests may run with a CUDA build
    monkeypatch.setattr(torch, "cuda", part := Part())
    with pytest.raises(WorkloadError, match="has no tf32"):
        device_of(case("cuda:0", "tf32"))
    assert device_of(case("cuda:0", "fp8")).type == "cuda"
    timer = Task(case("cuda:0")).device_timer()
    assert not timer.hold(1.0), "its clock is another one"
    assert "get_device_capability" not in [call[0] for call in part.calls]
    named = catalog.load_backend("torch").named_range("cuda:0", "case")
    assert isinstance(named, nullcontext), "NVTX is NVIDIA's"


def test_the_name_of_a_range_may_hold_braces(monkeypatch) -> None:
    pushed: list[str] = []
    ranges = SimpleNamespace(
        range=lambda text, *values: nullcontext(pushed.append(text.format(*values)))
    )
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    with catalog.load_backend("torch").named_range("cuda:0", "images={train}"):
        assert pushed == ["images={train}"]


@pytest.mark.parametrize("device", ["xpu:0", "mps:0"])
def test_a_worker_starts_and_tidies_them(monkeypatch, device: str) -> None:
    kind = device.partition(":")[0]
    monkeypatch.setattr(torch, kind, part := Part(one=kind == "mps"))
    real = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, device="cpu": real(*size))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: self)
    backend = catalog.load_backend("torch")
    backend.start(device)
    assert part.calls[-1] == (("synchronize",) if kind == "mps" else ("synchronize", device))
    backend.reset_memory_peak(device)
    assert backend.memory_peak_bytes(device) == (None if kind == "mps" else 0)
    monkeypatch.setattr(torch, "accelerator", None)
    backend.release(device)
    assert part.calls[-1] == ("empty_cache",)


def small(workload: str, device: str, mode: str | None = None, **params: Any) -> Any:
    """A task of few bytes on a device whose memory is the host's."""
    loaded = catalog.load(workload)
    made = Case(workload, device, "torch", "fp32", mode=mode, params=loaded.values(params))
    if workload == "scaling":
        made = replace(made, batch=8, tuning={"world": 1})
    return loaded.prepare(made, Setup(seed=0))


def test_transfers_and_trainings_need_no_cuda(monkeypatch) -> None:
    assert torch._dynamo, "an optimiser would import it amid stand-ins"
    monkeypatch.setattr(torch, "xpu", xpu := Part())
    monkeypatch.setattr(torch, "mps", Part(one=True))
    stream = SimpleNamespace(wait_stream=lambda _: None)
    xpu.Stream = xpu.current_stream = lambda _: stream
    xpu.stream = nullcontext
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, _: self)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self.clone())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    for device, streams in (("xpu:0", 2), ("mps:0", 0)):
        both = small("transfer", device, "pinned", mib=0.1, direction="both")
        assert both.check().passed and len(both.streams) == streams
        with pytest.raises(WorkloadError, match="no second GPU"):
            small("transfer", device, mib=0.1, direction="peer")
    xpu.device_count = lambda: 2
    assert small("transfer", "xpu:0", mib=0.1, direction="peer").check().passed
    assert small("scaling", "xpu:0", width=16).check().passed


@pytest.mark.parametrize("device", ["mps:0", "xpu:0"])
def test_photographs_wait_in_pageable_memory(device, monkeypatch) -> None:
    monkeypatch.setattr(torch, "xpu", Part())
    monkeypatch.setattr(torch, "mps", Part(one=True))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    monkeypatch.setattr(torch.Tensor, "pin_memory", None)
    task = small("preprocessing", device, width=60, height=40, image=24)
    assert task.sources[0].data_ptr() == task.photos[0].ctypes.data


def test_inputs_of_a_network_wait_in_pageable_memory_for_every_library(monkeypatch) -> None:
    monkeypatch.setattr(torch, "xpu", Part())
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *_, **__: self)
    monkeypatch.setattr(torch.Tensor, "pin_memory", None)  # ONNX Runtime and JAX have none
    task = small("infer_mlp", "xpu:0", width=8)
    assert task.hosted[0].data_ptr() == task.inputs[0].ctypes.data


def test_cases_are_planned_where_their_library_works() -> None:
    request = Request(workloads=("infer_cnn",), devices=("gpu",))
    for platform, device, expected in (
        ("ROCm 7.0", "cuda:0", {"torch", "jax"}),
        ("XPU", "xpu:0", {"torch", "openvino"}),
        ("MPS", "mps:0", {"torch"}),
        ("TPU", "tpu:0", {"jax"}),
        (None, "cuda:0", {"torch", "onnxruntime", "jax"}),
    ):
        gpu = Gpu(None, device, None, None, "some GPU", platform=platform)
        rows = resolve(request, scenarios.load())
        fill_cases(rows, request, msgspec.structs.replace(build_machine(), gpus=[gpu]), None)
        assert {c.backend for row in rows for c in (*row.cases, *row.refining)} == expected
        check_device(device)


def test_a_tpu_has_its_own_word() -> None:
    assert choice_word("gpu", "matmul[n=64]/tpu:0/jax/bf16") == "TPU"
    assert choice_word("gpu", "matmul[n=64]/xpu:0/torch/bf16") == choice_word("gpu") == "GPU"


def test_every_device_belongs_to_its_kind() -> None:
    assert [kind_of(d).name for d in ("cpu", "cuda:0", "cuda:12", "fake:0", "fake:0@8")] == [
        *("cpu", "cuda", "cuda", "fake", "fake")
    ]
    assert COLUMNS == ("cpu", "gpu")


@pytest.mark.parametrize("name", DEVICE_KINDS)
def test_a_row_is_consistent(name: str) -> None:
    kind = DEVICE_KINDS[name]
    assert kind.name == name
    assert kind.column in COLUMNS
    assert not (kind.simulated and not kind.on_host), "a simulated device computes on the CPU"
    assert not (kind.on_host and (kind.settle_s or kind.hidden_by or kind.nsight))


def test_a_kind_of_another_version_is_shown_as_a_gpu() -> None:
    assert Case("matmul", "npu:0", "torch", "fp32").device_kind == "gpu"
