"""Every backend is described without importing its library, and finds it where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import catalog
from workbench.contract import Backend, Case, WorkloadError
from workbench.worker.worker import describe

NAMES = ["numpy", "onnxruntime", "torch"]


def test_all_built_in_backends_are_tested_here() -> None:
    assert sorted(catalog.backends()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_complete(name: str) -> None:
    backend = catalog.load_backend(name)
    assert backend.install
    assert backend.version()[0].isdigit()
    assert isinstance(backend.gpus(), list)
    assert backend.lists_gpus == (name == "torch")


def test_describing_them_imports_no_library() -> None:
    code = (
        "import json, sys; from workbench import catalog;"
        "[catalog.load_backend(name) for name in catalog.backends()];"
        f"print(json.dumps([n for n in {NAMES} if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


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
def test_a_broken_file_is_an_error_for_its_workers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "_backends").mkdir()
    (tmp_path / "_backends" / "mine.py").write_text(text)
    monkeypatch.setenv(catalog.ENV, str(tmp_path))
    with pytest.raises(WorkloadError, match=says) as caught:
        catalog.load_backend("mine")
    assert caught.value.code == "broken_backend"
    assert type(catalog.backend("mine")) is Backend


def test_an_unknown_backend_has_the_defaults() -> None:
    with pytest.raises(WorkloadError) as caught:
        catalog.load_backend("jax")
    assert caught.value.code == "unknown_backend"
    assert not catalog.backend("jax").threads_fixed_at_import
