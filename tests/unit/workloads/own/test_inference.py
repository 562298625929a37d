"""Compiled calls of a user's module, and the context that each call gets."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from checking import fails_with

from workbench.contract import Case, Setup, WorkloadError
from workbench.worker.code import Code, guard_for
from workloads.own import inference
from workloads.own.workload import WORKLOAD

ROOT = Path(__file__).parents[4]
FIXTURES = ROOT / "tests" / "fixtures" / "own"
EAGER = Case("own", "cpu", "torch", "fp32", threads=1, batch=4)


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Code]:
    """The picture module, examined; torch's state is put back."""
    threads = torch.get_num_threads()
    inference._shared.clear()
    found = Code("torch", "modules:picture", str(tmp_path), str(FIXTURES))
    WORKLOAD.consult("examine", code=found.as_text())
    yield found
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def test_a_compiled_module_answers_as_eager_does(code: Code, monkeypatch) -> None:
    # The compiler itself takes many seconds; this captures and lowers the graph as it does.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    setup = Setup(files={"code": code.as_text()})
    task: Any = WORKLOAD.prepare(replace(EAGER, mode="compile"), setup)
    eager = inference.ModuleTask(EAGER, setup, code)
    assert task.model is not eager.model
    assert (task.within, eager.within) == ("no_grad", "inference_mode")
    assert task.check().value <= task.check().limit < 2e-4
    assert not torch.is_inference(task._answer()["logits"])
    assert setup.seconds["compile"] > 0 and "transfer" not in setup.seconds


def test_a_call_that_fails_late_is_named(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = WORKLOAD.prepare(EAGER, Setup(files={"code": code.as_text()}))
    monkeypatch.setattr(task, "model", Mock(side_effect=RuntimeError("worn out")))
    with fails_with("user_code", "modules:picture: RuntimeError: worn out"):
        task.step()


def test_an_error_of_the_check_is_named_as_its_own(code: Code, monkeypatch) -> None:
    task: Any = WORKLOAD.prepare(EAGER, Setup(files={"code": code.as_text()}))
    monkeypatch.setattr(task, "check_output", lambda output: output["logits"] > 0)
    with pytest.raises(WorkloadError, match=r"^check of modules:picture: RuntimeError: Boolean"):
        task.check()


@pytest.mark.parametrize(
    ("found", "mode", "within"),
    [
        ("inference_mode", "", "inference_mode"),
        ("inference_mode", "nhwc", "inference_mode"),
        ("inference_mode", "graph", "inference_mode"),
        ("inference_mode", "nhwc+compile", "no_grad"),
        ("inference_mode", "compile+reduce-overhead", "no_grad"),
        ("no_grad", "compile", "no_grad"),
        ("enable_grad", "compile", "enable_grad"),
    ],
)
def test_what_is_compiled_never_runs_in_inference_mode(found: str, mode: str, within: str) -> None:
    case = Case("own", "cpu", "torch", "fp32", mode=mode or None)
    assert guard_for(found, compiles=case.compile_mode is not None) == within


WITHOUT_TORCH = """
import sys
from workbench.contract import Case, Setup
from workloads.own.workload import WORKLOAD

case = Case("own", "cpu", "onnxruntime", "fp32", threads=1, batch=4)
code, model, folder = sys.argv[1:]
setup = Setup(files={"code": code, "model": model, "folder": folder})
assert WORKLOAD.prepare(case, setup).check().value < 1e-6
print("torch" in sys.modules)
"""


def test_a_worker_of_onnx_runtime_needs_no_torch(code: Code) -> None:
    made = WORKLOAD.consult("export", code=code.as_text(), batches=[4])
    given = [code.as_text(), made["model"], str(Path(code.folder, "b4"))]
    command = [sys.executable, "-c", WITHOUT_TORCH, *given]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
