"""Profiles of a few steps, by torch and by ONNX Runtime."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checking import fails_with
from inference_cases import case_of, encoder_case
from tasks import prepared
from torch.autograd import DeviceType

from workbench.contract import Case, Profile, Task
from workloads._shared import profiling, torch_task
from workloads._shared.profiling import _operators


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, without that of torch's compiler, which a first profile
    may import."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path.parent / "inductor"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profiled(task: Task, steps: int, scratch: Path) -> Profile:
    """Check that a profile is consistent and left no files."""
    found = task.profile(steps)
    assert list(scratch.iterdir()) == []
    json.dumps(found.events, allow_nan=False)
    complete = [event for event in found.events if event["ph"] == "X"]
    assert complete
    for event in complete:
        assert event["name"]
        assert event["dur"] >= 0
        assert {type(event["pid"]), type(event["tid"])} == {int}
        assert isinstance(event["ts"], (int, float))
    spent = [operator.self_s for operator in found.operators]
    assert spent == sorted(spent, reverse=True)
    assert 0 < len(spent) <= 20
    assert found.device == "cpu"
    return found


def calls(profile: Profile) -> dict[str, int]:
    return {operator.name: operator.calls for operator in profile.operators}


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_torch_profiles_as_a_range_of_the_cases_name(device: str, scratch: Path) -> None:
    case = case_of("infer_mlp", device=device, width=16)
    found = profiled(prepared(case), 3, scratch)
    assert calls(found)["aten::addmm"] == 3 * 4
    assert case.id not in calls(found)
    (whole,) = [event for event in found.events if event["name"] == case.id]
    inside = [event for event in found.events if event["name"] == "aten::addmm"]
    assert len(inside) == 12
    assert all(whole["ts"] <= event["ts"] <= whole["ts"] + whole["dur"] for event in inside)
    assert sum(operator.self_s for operator in found.operators) <= whole["dur"] * 1e-6


def test_a_training_is_profiled_forwards_and_backwards(scratch: Path) -> None:
    task = prepared(case_of("train_mlp", samples=50, steps=2))
    names = {event["name"] for event in profiled(task, 1, scratch).events}
    assert {"aten::addmm", "AddmmBackward0"} <= names


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (case_of("infer_cnn", "onnxruntime", image=16), {"Conv": 12}),
        (case_of("infer_mlp", "onnxruntime", width=16), {"Gemm": 2, "FusedGemm": 6}),
        (encoder_case("onnxruntime"), {"Softmax": 8, "Gelu": 8}),
        (case_of("forest", "onnxruntime", trees=4, depth=3), {"TreeEnsembleRegressor": 2}),
        (case_of("preprocessing", "onnxruntime", width=60, height=40, image=24), {"Resize": 2}),
    ],
    ids=lambda value: value.workload if isinstance(value, Case) else "",
)
def test_onnx_runtime_profiles_its_kernels(case, expected, scratch) -> None:
    task = prepared(case)
    found = profiled(task, 2, scratch)
    assert expected.items() <= calls(found).items()
    runs = [event["dur"] for event in found.events if event["name"] == "model_run"]
    assert len(runs) == 2, "the first run, and the opening of the session, are left out"
    assert sum(operator.self_s for operator in found.operators) <= sum(runs) * 1e-6
    task.step()  # the task's own session goes on


def test_launches_on_a_gpu_are_not_called_its_kernels(monkeypatch, scratch: Path) -> None:
    opened = profiling.open_session

    def without_gpu(model: Any, case: Case, *rest: Any, **more: Any) -> Any:
        return opened(model, replace(case, device="cpu"), *rest, **more)

    monkeypatch.setattr(profiling, "open_session", without_gpu)
    task = prepared(case_of("infer_mlp", "onnxruntime", width=16))
    task.case = replace(task.case, device="cuda:0", threads=None)
    found = task.profile(2)
    assert found.events, "the timeline stays"
    assert found.operators == []
    runs_us = [event["dur"] for event in found.events if event["name"] == "model_run"]
    assert found.total_s == pytest.approx(sum(runs_us) * 1e-6)
    assert 0 < found.fallback_s <= found.total_s, "all ran on the CPU, whose times are real"


def test_a_gpus_operators_are_its_kernels_and_nothing_counts_twice() -> None:
    def row(key: str, kind: Any, device_us: float, annotation: bool = False) -> SimpleNamespace:
        return SimpleNamespace(
            key=key,
            count=2,
            device_type=kind,
            self_cpu_time_total=7.0,
            self_device_time_total=device_us,
            is_user_annotation=annotation,
        )

    rows = [
        row("aten::mm", DeviceType.CPU, 30.0),
        row("copy", DeviceType.CUDA, 10.0),
        row("gemm", DeviceType.CUDA, 30.0),
        row("Optimizer.step#SGD.step", DeviceType.CUDA, 40.0, annotation=True),
        row("case", DeviceType.CUDA, 80.0, annotation=True),
        row("case", DeviceType.CPU, 0.0, annotation=True),
    ]
    found = _operators(rows, "case", on_gpu=True)
    assert [(op.name, op.calls, round(op.self_s * 1e6)) for op in found] == [
        ("copy", 2, 10),
        ("gemm", 2, 30),
    ]
    assert [op.name for op in _operators(rows, "case", on_gpu=False)] == ["aten::mm"]


def test_a_profiler_that_saw_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_operators", lambda *_: [])
    with fails_with("no_profiler", hint=True):
        prepared(case_of("infer_mlp", width=8)).profile(1)


def test_a_task_without_a_profiler_says_so() -> None:
    with fails_with("no_profiler"):
        prepared(case_of("forest", "numpy", batch=2, trees=2, depth=2)).profile(1)


def test_every_torch_task_has_the_profiler() -> None:
    assert torch_task.TorchTask.profile is not Task.profile
