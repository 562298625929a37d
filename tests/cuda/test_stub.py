"""The CUDA code from end to end, on a stub of CUDA that computes on the CPU.

These tests cover plans, calls, checks of results and failures.  They cannot show how fast a GPU is
or what overlaps on it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small import BATCH, SMALL
from support import Cli, budget, printed

from workbench import catalog

pytestmark = pytest.mark.timeout(300)  # the first of them builds the stub
ROOT = Path(__file__).parents[2]
ON_GPU = sorted(
    workload.name
    for workload in catalog.load_all()[0].values()
    if any((v.device_kind, v.backend) == ("gpu", "torch") for v in workload.variants)
)
MODULE = """
import torch

def build():
    layers = torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)
    return torch.nn.Sequential(*layers), (torch.randn(4, 64),)

def on_gpu():
    module, (given,) = build()
    return module.cuda(), (given.cuda(),)

def loss(output):
    return output.square().mean()

def dataset():
    return [torch.randn(64) for _ in range(64)]
"""


def measured(cli: Cli, *arguments: str, **extra: str) -> list[dict[str, Any]]:
    done = cli(*arguments, "--json", **extra)
    found = printed(done)["measurements"]
    assert not [m for m in found if m["status"] == "failed"]
    assert any(m["n"] for m in found)
    assert all(m["accuracy"]["passed"] for m in found if m["n"] and m["accuracy"])
    return found


@pytest.fixture
def module(tmp_path: Path, cli: Cli) -> Path:
    (tmp_path / "mod.py").write_text(MODULE)
    cli.cwd = tmp_path
    return tmp_path


def test_tests_for_a_gpu_pass(environment: dict[str, str]) -> None:
    folders = ("tests/unit/workloads", "tests/unit/worker", "tests/runs")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "cuda", *folders]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ON_GPU)
def test_every_workload_runs(cli: Cli, name: str) -> None:
    sizes = [part for pair in SMALL[name].items() for part in ("--set", "{}={}".format(*pair))]
    sizes += ["--batch", str(BATCH[name])] if name in BATCH else []
    asked = ("--device", "gpu", "--backend", "torch", "--quick", *budget(15), *sizes)
    found = measured(cli, "run", name, *asked)
    assert {m["case"]["device"] for m in found} == {"cuda:0"}


def test_two_gpus_share_a_training(cli: Cli) -> None:
    two = {"NVML_STUB_GPUS": "2", "CUDA_STUB_DEVICES": "0,1"}
    sizes = ("--set", "width=64", "--set", "world=2")
    measured(cli, "run", "scaling", "--device", "gpu", "--quick", "--budget", "30", *sizes, **two)


@pytest.mark.parametrize(
    "given",
    [
        ("mod:build", "--device", "gpu"),
        ("mod:on_gpu",),
        ("mod:build", "--train", "--device", "gpu"),
    ],
    ids=["module", "module of a GPU", "training"],
)
def test_own_code_is_raced_saved_and_reproduced(cli: Cli, module: Path, given: Any) -> None:
    found = measured(cli, "advise", "--torch", *given, "--budget", "20", "--save-best", "best")
    assert any(m["case"]["device"] == "cuda:0" and m["n"] for m in found)
    command = [sys.executable, "best/reproduce.py"]
    done = subprocess.run(
        command, cwd=module, env=cli.environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "median of 50" in done.stdout


def test_a_full_gpu_ends_the_search_for_the_largest_batch(cli: Cli) -> None:
    small = {"CUDA_STUB_BYTES": str(2**25)}
    search = ("--largest-batch", "--device", "cuda:0", "--budget", "40", "--force")
    one = ("--backend", "torch", "--precision", "fp32", "--mode", "plain")
    done = cli("run", "infer_mlp", *search, *one, "--json", **small)
    found = printed(done)["largest_batches"]
    ended = [each for each in found if "out of memory" in str(each["attempts"])]
    assert ended and all(each["batch"] for each in ended)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("CUDA_STUB_LOST_FILE", "unspecified launch failure"),
        ("CUDA_STUB_NO_KERNEL", "no kernel image is available"),
    ],
)
def test_a_gpu_that_fails_leaves_the_cpu(cli, tmp_path, fault: str, message: str) -> None:
    (tmp_path / "lost").write_text("error")
    failing = {fault: str(tmp_path / "lost")}
    asked = ("matmul", "--set", "n=48", "--backend", "torch", "--quick", "--budget", "10")
    done = cli("run", *asked, "--json", **failing)
    found = json.loads(done.stdout)["measurements"]
    on_gpu = [m for m in found if m["case"]["device"] == "cuda:0"]
    assert on_gpu and not any(m["n"] for m in on_gpu)
    assert any(m["n"] for m in found if m["case"]["device"] == "cpu")
    assert any(message in str(m["reason"]) for m in on_gpu)
