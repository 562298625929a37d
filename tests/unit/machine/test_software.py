"""Versions and builds read from metadata and text, here and in a foreign interpreter."""

import json
import sys
from pathlib import Path

import pytest
from trees import written

from workbench.machine.packages import stack_query
from workbench.machine.packages.software import StackQuery, environment, shorten_home
from workbench.machine.packages.stack_query import onnxruntime_build, torch_build

TORCH = "from typing import Optional\n__version__ = '{}'\ncuda: Optional[str] = {}\nhip{}\nxpu{}\n"


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        (TORCH.format("2.13.0+cpu", "None", " = None", " = None"), "2.13.0+cpu", "CPU build"),
        (TORCH.format("2.13.0+cu130", "'13.0'", " = None", " = None"), None, "CUDA 13.0"),
        (TORCH.format("2.6.0", "'12.4'", ": Optional[str] = None", ""), None, "CUDA 12.4"),
        (TORCH.format("2.9", "None", " = '7.0.51831-a3e'", ""), None, "ROCm 7.0"),
        (TORCH.format("2.9", "None", "", ": Optional[str] = '20250101'"), None, "XPU 20250101"),
        ("", "2.13.0+cu126", "CUDA 12.6"),
        ("", "2.13.0+cpu", "CPU build"),
    ],
)
def test_the_build_of_torch(text: str, version: str | None, expected: str) -> None:
    assert torch_build(text, version) == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("package_name = 'onnxruntime'\n", "onnxruntime", "CPU build"),
        (
            "package_name = 'onnxruntime-gpu'\ncuda_version = '13.0'\n",
            "onnxruntime-gpu",
            "CUDA 13.0",
        ),
        (
            "package_name = 'onnxruntime'\n",
            "onnxruntime-gpu",
            "installed, but the import finds onnxruntime",
        ),
        ("", "onnxruntime-directml", "directml build"),
    ],
)
def test_the_build_of_onnxruntime(text: str, name: str, expected: str) -> None:
    assert onnxruntime_build(text, name) == expected


def install(folder: Path, name: str, version: str, **files: str) -> None:
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    written(folder, {f"{name.replace('-', '_')}-{version}.dist-info/METADATA": about, **files})


def test_a_stack_is_read_without_importing_it(tmp_path, monkeypatch) -> None:
    bomb = "raise SystemExit('imported')"
    torch = {"torch/__init__.py": bomb, "torch/version.py": "__version__ = '2.7'\ncuda = '12.6'\n"}
    install(tmp_path, "torch", "2.7", **torch)
    info = "onnxruntime/capi/build_and_package_info.py"
    gpu = {"onnxruntime/__init__.py": bomb, info: "package_name = 'onnxruntime-gpu'\n"}
    install(tmp_path, "onnxruntime-gpu", "1.31", **gpu)
    install(tmp_path, "onnxruntime", "1.30")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("torch", "onnxruntime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    packages = stack_query.query()["packages"]
    assert packages["torch"] == {"version": "2.7", "detail": "CUDA 12.6"}
    assert packages["onnxruntime-gpu"]["version"] == "1.31"
    assert packages["onnxruntime"]["detail"] == "installed, but the import finds onnxruntime-gpu"
    assert packages["numpy"] == {"version": None, "detail": "not installed"}
    assert "onnxruntime-rocm" not in packages


def test_our_own_interpreter() -> None:
    software = StackQuery(None).collect()
    assert software.python == ".".join(map(str, sys.version_info[:3]))
    assert software.packages["textual"].version
    assert software.unavailable == {}


@pytest.mark.parametrize("greeting", ["", "echo Loading modules; echo\n"])
def test_a_foreign_interpreter_is_asked_in_a_process_of_its_own(tmp_path, greeting: str) -> None:
    """A second interpreter: the same binary, kept from this environment's packages."""
    foreign = tmp_path / "python"
    foreign.write_text(f'#!/bin/sh\n{greeting}exec {sys.executable} -I -S "$@"\n')
    foreign.chmod(0o755)
    software = StackQuery(str(foreign)).collect()
    assert software.python == ".".join(map(str, sys.version_info[:3]))
    assert software.packages["torch"].version is None
    assert software.packages["textual"].version  # the front end's, not the workers'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "could not be started: No such file or directory"),
        ("print('no interpreter is named')\n", "could not be started: Exec format error"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho hello\n", "exit code 0"),
        ("#!/bin/sh\nyes\n", "does not answer like a Python interpreter"),
    ],
)
def test_a_foreign_interpreter_that_fails_is_a_reason(tmp_path, text, words) -> None:
    path = tmp_path / "python"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    software = StackQuery(str(path)).collect()
    assert set(software.unavailable) == {"python", "packages"}
    assert words in software.unavailable["python"]
    assert software.packages["torch"].version is None
    assert "did not answer" in str(software.packages["torch"].detail)


def test_what_a_foreign_interpreter_says_cannot_steer_a_terminal(tmp_path: Path) -> None:
    answer = json.dumps(
        {"python": "3.11\x1b[31m", "executable": "x", "packages": {}, "environment": {}}
    )
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    path.chmod(0o755)
    assert StackQuery(str(path)).collect().python == r"3.11\x1b[31m"


def test_only_the_variables_that_matter_and_no_paths() -> None:
    given = {
        "OMP_NUM_THREADS": "4",
        "LD_PRELOAD": "/home/alice/lib/libjemalloc.so.2:/opt/x.so",
        "XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_dump_to=/home/alice/dump",
        "TF_NUM_INTRAOP_THREADS": "2",
        "AWS_SECRET": "x",
        "HOME": "/home/alice",
    }
    assert environment(given) == {
        "OMP_NUM_THREADS": "4",
        "LD_PRELOAD": "libjemalloc.so.2:x.so",
        "XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_dump_to=dump",
        "TF_NUM_INTRAOP_THREADS": "2",
    }


def test_the_home_folder_becomes_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert shorten_home("/home/alice/venv/bin/python") == "~/venv/bin/python"
    assert shorten_home("/home/alicia/bin/python") == "/home/alicia/bin/python"
    monkeypatch.setenv("HOME", "/")
    assert shorten_home("/usr/bin/python") == "/usr/bin/python"
