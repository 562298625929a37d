"""`advise --torch`, `--function` and `--command` from the command line to the document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import Cli, budget

from workbench.records.document import Document

HERE = Path(__file__).resolve().parents[1]
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
HANGS = "import time\ntime.sleep(1000)\n"


@pytest.fixture
def advise(tmp_path: Path):
    (tmp_path / "modules.py").write_text((HERE / "fixtures" / "own" / "modules.py").read_text())
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": str(HERE.parent),
    }
    run = Cli(environment, cwd=tmp_path)
    return lambda *options: run("advise", *options)


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    msgspec.convert(found, Document)
    return found


def test_a_module_races_in_torch_and_onnx_runtime(advise, tmp_path: Path) -> None:
    done = advise("--torch", "modules:picture", "--json", "--save-best", "best", *budget(20))
    assert done.returncode == 0, done.stderr
    found = document(done)
    facts, verdicts = found["code"]["facts"], found["verdicts"]
    assert (facts["name"], facts["batch"], facts["convolves"]) == ("modules:picture", 4, True)
    assert [verdict["scenario"] for verdict in verdicts] == ["own", "own[batch=1]"]
    measured = {m["id"]: m for m in found["measurements"]}
    pick = measured[verdicts[0]["pick"]]
    assert pick["accuracy"]["value"] <= pick["accuracy"]["limit"]
    assert {m["case"]["backend"] for m in measured.values()} == {"torch", "onnxruntime"}
    saved = found["code"]["advice"]["saved"]
    assert saved["reason"] is None and "reproduce.py" in saved["files"]
    again = subprocess.run(
        [sys.executable, "best/reproduce.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert "median" in again.stdout


def test_a_script_runs_once(advise, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = advise("--torch", "script.py", "--json", *budget(15), "--batch", "4")
    found = document(done)
    assert (tmp_path / "runs").read_text() == "x"
    (module,) = found["code"]["facts"]["modules"]
    assert module["name"] == "Net" and module["chosen"] and 0 < module["share"] <= 1
    assert "of the script's time" in found["code"]["advice"]["share"]
    assert "a line of the script" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--torch", "modules:nothing_here"), 2, "nothing_here"),
        (("--torch", "modules:raises"), 1, "no such weights"),
        (("--torch", "modules:asks_for_cuda"), 1, "cannot run on the CPU"),
        (("--torch", "hangs:build"), 1, "no answer within"),
        (("--command", "python -c 'print(1)'", "--until", "never"), 1, "never"),
    ],
)
def test_what_fails_is_one_line(advise, tmp_path: Path, options, code: int, says: str) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    done = advise(*options, "--json", "--budget", "12")
    assert done.returncode == code, done.stderr
    if code == 2:
        assert done.stdout == ""
        (line,) = [each for each in done.stderr.splitlines() if each.startswith("workbench:")]
        assert says in line
        return
    found = document(done)
    reasons = [m["reason"]["message"] for m in found["measurements"] if m["reason"]]
    assert any(says in reason for reason in reasons), reasons
