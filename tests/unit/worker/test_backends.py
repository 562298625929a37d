"""Every backend is described without importing its library, and finds it where it is installed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from checking import fails_with

from workbench import catalog
from workbench.contract import Backend, Case
from workbench.planning.request import Request, check
from workbench.planning.usage import UsageError
from workbench.worker.serve import answer, describe
from workbench.worker.worker import Worker

NAMES = sorted(catalog.backends())


def test_those_of_the_base_installation_are_not_optional() -> None:
    base = [name for name in NAMES if not catalog.load_backend(name).optional]
    assert base == ["numpy", "onnxruntime", "torch"]


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_complete(name: str) -> None:
    backend = catalog.load_backend(name)
    assert backend.install
    if backend.optional:
        pytest.importorskip(name, reason="make test-backends installs it")
    assert backend.version()[0].isdigit()
    assert isinstance(backend.gpus(), list)
    assert ("CUDA" in backend.platforms) == (name != "openvino")


def test_describing_them_and_the_workloads_imports_no_library() -> None:
    code = (
        "import json, sys; from workbench import catalog; catalog.load_all();"
        "[catalog.load_backend(name) for name in catalog.backends()];"
        f"print(json.dumps([n for n in {[*NAMES, 'onnx', 'PIL']} if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_backends_of_the_users_own_code_are_there_without_a_name_on_the_command_line() -> None:
    assert catalog.load_backend("python").version() == sys.version.split()[0]
    assert catalog.load_backend("command").own_environment
    assert not any(catalog.load_backend(name).own_environment for name in (*NAMES, "python"))
    assert describe(ModuleNotFoundError(name="command"))["hint"] == "`pip install command`"
    with pytest.raises(UsageError, match="unknown backend 'python'"):
        check(Request(backends=("python",)))


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_library_is_answered_with_how_to_install_it(name: str) -> None:
    answered = describe(ModuleNotFoundError(name=name))
    assert answered["code"] == "missing_package"
    assert answered["hint"] == catalog.load_backend(name).install


@pytest.mark.parametrize(("module", "package"), [("PIL", "pillow"), ("onnx", "onnx")])
def test_any_other_missing_package_is_named(module: str, package: str) -> None:
    assert describe(ModuleNotFoundError(name=module))["hint"] == f"`pip install {package}`"


@pytest.mark.parametrize(
    ("backend", "shared"), [("numpy", False), ("torch", True), ("onnxruntime", True)]
)
def test_only_numpy_needs_a_worker_for_each_number_of_threads(backend: str, shared: bool) -> None:
    one, two = (
        catalog.process_of(Case("matmul", "cpu", backend, "fp32", threads=threads))
        for threads in (1, 2)
    )
    assert (one == two) is shared


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("BACKEND = 3", "must bind BACKEND"),
        ("from workbench.contract import Backend\nclass B(Backend):\n  name = 'x'\nBACKEND = B()",
         "named 'mine'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_an_error_for_its_workers_only(tmp_path, monkeypatch, text, says) -> None:
    (tmp_path / "_backends").mkdir()
    (tmp_path / "_backends" / "mine.py").write_text(text)
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    with fails_with("broken_backend", says):
        catalog.load_backend("mine")
    assert type(catalog.backend("mine")) is Backend


@pytest.mark.parametrize("name", ["openvino", "jax", "sklearn", "xgboost", "lightgbm"])
def test_a_library_that_cannot_be_imported_says_why_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text("raise ImportError('libx.so.1: undefined symbol\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = answer(Worker(name, "cpu"), {"op": "hello"})["error"]
    assert found["message"] == "ImportError: libx.so.1: undefined symbol"
    assert (found["code"], found["fatal"]) == ("failed", False)


def test_an_unknown_backend_has_the_defaults() -> None:
    with fails_with("unknown_backend"):
        catalog.load_backend("theano")
    assert not catalog.backend("theano").threads_fixed_at_import


def test_torchs_peak_on_a_gpu_leaves_out_what_other_cases_hold(monkeypatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 300)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000)
    backend = catalog.load_backend("torch")
    backend.reset_memory_peak("cuda:0")
    assert backend.memory_peak_bytes("cuda:0") == 700


@pytest.mark.cuda
def test_torch_serves_a_worker_on_a_real_gpu() -> None:
    worker = Worker("torch", "cuda:0")
    assert "torch" in worker.hello()["versions"]
    assert catalog.load_backend("torch").gpus()[0]["device"] == "cuda:0"
    case = Case("matmul", "cuda:0", "torch", "fp32", params={"n": 256})
    prepared = worker.prepare(asdict(case), False, 0.1, False)
    assert prepared["memory_peak_bytes"] >= 3 * 4 * 256**2
    bounds = {"seconds": 0.05, "min_samples": 1, "settle_s": 0.0}
    assert worker.block(case.id, **bounds)["samples_s"]
    assert worker.release([case.id]) == {}


class StubTorch:
    """A torch whose GPU fails at one of its calls."""

    __version__ = "2.13.0"

    def __init__(self, fails_at: str = "", words: str = "") -> None:
        self.fails_at, self.words = fails_at, words
        self.calls: list[str] = []
        self.cuda = self.nn = self.functional = self

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            self.calls.append(name)
            if name == self.fails_at:
                raise RuntimeError(self.words)
            return self

        return call

    def __matmul__(self, _: Any) -> StubTorch:
        return self


def start(torch: StubTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("workloads._backends.torch"), "torch", torch)
    catalog.load_backend("torch").start("cuda:0")


def test_cudnn_is_loaded_after_the_start_of_torch_which_does_without_it(monkeypatch) -> None:
    for torch in (StubTorch(), StubTorch("conv2d", "libcudnn.so.9: cannot open")):
        start(torch, monkeypatch)
        assert torch.calls[0] == "init" and torch.calls[-1] == "synchronize"
        assert "conv2d" not in torch.calls
        catalog.load_backend("torch").load_rest("cuda:0")
        assert "conv2d" in torch.calls


def test_a_build_without_code_for_the_gpu_is_led_to_the_one_with_it(monkeypatch) -> None:
    torch = StubTorch("ones", "CUDA error: no kernel image is available for execution")
    with pytest.raises(RuntimeError) as why:
        start(torch, monkeypatch)
    described = describe(why.value)
    assert described["code"] == "unsupported_device" and "workbench doctor" in described["hint"]


def test_any_other_error_of_the_start_keeps_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("init", "ones", "synchronize"):
        with pytest.raises(RuntimeError, match="CUDA error: unknown"):
            start(StubTorch(call, "CUDA error: unknown error"), monkeypatch)
