"""`advise --torch`, `--function` and `--command` from the command line to the document."""

import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Cli, budget, printed

from workbench.records import events as ev

HERE = Path(__file__).resolve().parents[1]
SHOP = """
import os
from pathlib import Path

with Path("importers").open("a") as file:
    file.write(f"{os.getpid()}\\n")


def work(n):
    return sum(range(n))


def raises():
    raise ValueError("no such shelf")
"""
SCRIPT = """
import pathlib
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x)

runs = pathlib.Path("runs")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
net = Net()
for _ in range(20):
    net(torch.randn(4, 64))
print("a line of the script")
"""
HANGS = "import threading\nthreading.Event().wait()\n"
PYTHON = shlex.quote(sys.executable)

Advise = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def advise(tmp_path: Path, environment: dict[str, str]) -> Advise:
    fixtures = HERE / "fixtures" / "own"
    (tmp_path / "modules.py").write_text((fixtures / "modules.py").read_text() + SHOP)
    (tmp_path / "trained.py").write_text((fixtures / "trained.py").read_text())
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "hangs.py").write_text(HANGS)
    run = Cli(environment, cwd=tmp_path)
    return lambda *options: run("advise", *options, "--json")


def importers(folder: Path) -> set[str]:
    """The names of the workers that imported the user's file; other processes are numbers."""
    (journal,) = (folder / "state").rglob("*.jsonl")
    events = map(ev.decode, journal.read_bytes().splitlines())
    workers = {str(e.pid): e.worker for e in events if isinstance(e, ev.WorkerStarted)}
    return {workers.get(pid, pid) for pid in (folder / "importers").read_text().split()}


def test_a_module_races_in_torch_and_onnx_runtime(advise: Advise, tmp_path: Path) -> None:
    options = ("--batch", "4", "--threads", "1", "--save-best", "best", *budget(16))
    found = printed(advise("--torch", "modules:picture", *options))
    facts, (verdict,) = found["code"]["facts"], found["verdicts"]
    assert (facts["name"], facts["batch"], facts["convolves"]) == ("modules:picture", 4, True)
    measured = {m["id"]: m for m in found["measurements"]}
    pick = measured[verdict["pick"]]
    assert pick["accuracy"]["value"] <= pick["accuracy"]["limit"]
    assert {m["case"]["backend"] for m in measured.values()} >= {"torch", "onnxruntime"}
    saved = found["code"]["advice"]["saved"]
    assert saved["reason"] is None
    assert sorted(each.name for each in (tmp_path / "best").iterdir()) == saved["files"]
    assert "reproduce.py" in saved["files"]
    # Neither the engine nor the workers of ONNX Runtime and of the model lab see it.
    assert importers(tmp_path) == {"cpu/torch", "cpu/torch for export"}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_a_candidate_that_keeps_freed_memory_races(advise: Advise, tmp_path: Path) -> None:
    filters = ("--backend", "torch", "--threads", "1", "--precision", "fp32")
    modes = ("--mode", "plain", "--mode", "keep")
    found = printed(advise("--torch", "modules:wasteful", *filters, *modes, *budget(10)))
    by_mode = {m["case"]["mode"]: m for m in found["measurements"]}
    if "faulting_fraction" not in by_mode[None].get("figures", {}):
        pytest.skip("this system faults in huge pages")
    assert by_mode["keep"]["n"] > 0
    assert "faulting_fraction" not in by_mode["keep"].get("figures", {})


def test_a_script_runs_once(advise: Advise, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = advise("--torch", "script.py", "--batch", "4", "--threads", "1", *budget(8))
    found = printed(done)
    assert (tmp_path / "runs").read_text() == "x"
    (module,) = found["code"]["facts"]["modules"]
    assert module["name"] == "Net" and module["chosen"] and 0 < module["share"] <= 1
    assert "a line of the script" not in done.stdout + done.stderr
    notes = found["code"]["facts"]["notes"]
    assert not any("training mode" in note for note in notes), "its mode changes nothing"


def test_a_script_that_does_not_end_is_cut_and_its_modules_race(advise: Advise, tmp_path) -> None:
    (tmp_path / "script.py").write_text(f"{SCRIPT}\nwhile True:\n    net(torch.randn(4, 64))\n")
    options = ("--batch", "4", "--threads", "1", *budget(12))
    found = printed(advise("--torch", "script.py", *options))
    (module,) = found["code"]["facts"]["modules"]
    assert module["name"] == "Net" and module["calls"] > 20
    assert found["verdicts"][0]["pick"] is not None


def test_a_training_races(advise: Advise) -> None:
    filters = ("--threads", "1", "--batch", "8", "--precision", "fp32")
    modes = ("--mode", "plain", "--mode", "fused")
    found = printed(advise("--torch", "trained:build", "--train", *filters, *modes, *budget(8)))
    assert found["code"]["facts"]["data"] == "dataset"
    assert {m["case"]["mode"] for m in found["measurements"]} == {None, "fused"}
    assert found["verdicts"][0]["pick"] is not None


def test_a_function_races_in_workers_alone(advise: Advise, tmp_path: Path) -> None:
    options = ("--function", "shop:work", "--batch", "20000", "--threads", "1", *budget(4))
    found = printed(advise(*options))
    assert found["code"]["facts"]["name"] == "shop:work"
    assert found["verdicts"][0]["pick"] == "own[batch=20000,code=shop:work]/cpu/python/t1"
    assert importers(tmp_path) == {"cpu/python/t1"}


def test_a_command_races_with_each_value(advise: Advise) -> None:
    command = f"{PYTHON} -c 'print(sum(range({{n}})))'"
    found = printed(advise("--command", command, "--over", "n=1,20000000", *budget(3)))
    assert found["verdicts"][0]["pick"] == "own[]/cpu/command/n=1"


@pytest.mark.parametrize(
    ("options", "exit_code", "says"),
    [
        (("--function", "shop:nothing_here"), 2, "nothing_here"),
        (("--function", "shop:raises"), 1, "no such shelf"),
        (("--function", "hangs:work"), 1, "hangs:work: no answer within"),
        (("--command", f"{PYTHON} -c 'print(1)'", "--until", "never"), 1, "never"),
        (("--torch", "modules:nothing_here"), 2, "nothing_here"),
        (("--torch", "modules:fails"), 1, "KeyError"),
        (("--torch", "modules:hangs"), 1, "no answer within"),
    ],
    ids=[
        *("a wrong name", "an error", "a hang at import", "a missing line"),
        *("no such builder", "an error in forward", "a hang in forward"),
    ],
)
def test_what_fails_is_one_line(advise: Advise, options, exit_code: int, says: str) -> None:
    done = advise(*options, *budget(4))
    if exit_code == 2:
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = [each for each in done.stderr.splitlines() if each.startswith("workbench:")]
        assert says in line
        return
    found = printed(done, exit_code)
    reasons = [m["reason"]["message"] for m in found["measurements"] if m["reason"]]
    assert any(says in reason for reason in reasons), reasons
