"""Workers under another interpreter, which has its backend and none of our packages."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy
import pytest
import torch
from support import Cli, budget, printed


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with NumPy only, linked in to avoid a download."""
    home = tmp_path_factory.mktemp("other")
    venv.create(home, with_pip=False)
    (site_packages,) = home.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs"):
        source = Path(numpy.__file__).parent.parent / name
        if source.exists():
            (site_packages / name).symlink_to(source)
    python = home / "bin" / "python"
    for absent in ("msgspec", "torch", "textual", "workbench"):
        missing = subprocess.run([python, "-I", "-c", f"import {absent}"], capture_output=True)
        assert missing.returncode != 0
    return python


def test_a_worker_needs_nothing_but_its_backend_and_numpy(cli, other_python: Path) -> None:
    done = cli(
        "run", "matmul", "--set", "n=128", "--backend", "numpy", "--precision", "fp32", *budget(5),
        "--python", str(other_python), "--jsonl", PYTHONPATH="",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    finished = [json.loads(line) for line in done.stdout.splitlines()]
    assert {e["status"] for e in finished if e["event"] == "CaseFinished"} == {"ok"}
    started = next(e for e in finished if e["event"] == "WorkerStarted")
    assert started["versions"]["numpy"] == numpy.__version__


@pytest.fixture
def python_with_torch(tmp_path: Path) -> Path:
    """A virtual environment with torch and what it imports, without ONNX and our own packages."""
    home = tmp_path / "with_torch"
    venv.create(home, with_pip=False)
    (site_packages,) = home.glob("lib/python*/site-packages")
    absent = ("onnx", "msgspec", "textual", "click", "_editable", "__editable", "cpu_gpu")
    for source in Path(torch.__file__).parent.parent.iterdir():
        if not source.name.startswith(absent) and source.suffix != ".pth":
            (site_packages / source.name).symlink_to(source)
    return home / "bin" / "python"


def test_a_users_module_races_in_the_users_own_environment(
    cli, python_with_torch: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(
        "import sys\nfrom torch import nn, randn\nprint(sys.prefix, file=open('where', 'a'))\n"
        "def build():\n    return nn.Linear(64, 64), randn(4, 64)\n"
    )
    run = Cli(cli.environment, cwd=tmp_path)
    asked = ("--torch", "net:build", "--threads", "1", *budget(8), "--json")
    done = run("advise", *asked, "--python", str(python_with_torch))
    found = printed(done)
    assert {*(tmp_path / "where").read_text().split()} == {str(python_with_torch.parents[1])}
    measured = {m["case"]["backend"]: m for m in found["measurements"]}
    assert measured["torch"]["status"] == "ok"
    said = json.dumps(found["code"])
    assert "onnx" in said, "what ONNX would need is named"


def test_the_report_names_the_other_interpreters_packages(cli, other_python: Path) -> None:
    found = json.loads(cli("detect", "--json", "--python", str(other_python)).stdout)
    packages = found["software"]["packages"]
    assert packages.get("torch", {}).get("version") is None
    assert "other" in found["software"]["executable"]


def test_a_backend_the_interpreter_lacks_is_skipped_with_the_remedy(cli, other_python) -> None:
    done = cli(
        "run", "matmul", "--set", "n=128", "--backend", "torch", "--precision", "fp32",
        "--budget", "8", "--python", str(other_python), "--json", PYTHONPATH="",
    )  # fmt: skip
    (measured,) = printed(done, 1)["measurements"]
    assert (measured["status"], measured["reason"]["code"]) == ("skipped", "missing_package")
    assert "--python" in measured["reason"]["hint"]


def test_a_side_of_ab_that_lacks_the_backend_is_named(cli, other_python: Path) -> None:
    pythons = ("--python", str(other_python), "--python", sys.executable)
    done = cli("ab", "matmul", "--set", "n=64", "--backend", "torch", *pythons, "--budget", "8")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert f"side A (--python {other_python}): torch is not installed" in text


def test_the_worker_modules_are_importable_without_this_environment() -> None:
    code = "sys.argv=['x']; import workbench.worker.worker; print(sorted(sys.modules))"
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-ISc", f"import sys; sys.path.insert(0, {root!r}); {code}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "msgspec" not in shown.stdout
    assert "workbench.worker.worker" in shown.stdout
