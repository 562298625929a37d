"""--save-best: the folder appears in one piece, and its script runs in a process of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from own_subject import Subject

from workbench.advisor.own.snippet import lines
from workbench.contract import Case, WorkloadError
from workbench.planning.own_question import OwnQuestion
from workbench.records.code import CodeFacts, CodeInput
from workbench.worker.code import Code
from workloads.own import export
from workloads.own.reference import Reference, arrays, call
from workloads.own.save import save

USER = Path(__file__).parents[1] / "fixtures" / "own"
PORTS = [CodeInput("0", "float32", [2, 3, 8, 8]), CodeInput("scale", "float32", [2, 1])]


def built(name: str, file: str = "small_net") -> Subject:
    spec = importlib.util.spec_from_file_location(file, USER / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)()
    net, args, *named = made if isinstance(made, tuple) else (made, ())
    found = Subject(net, *args, name=f"{file}:{name}", **dict(*named))
    found.namespace = module
    return found


class Saved:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "best"
        self.scratch = str(folder / "scratch")

    def code(self, kind: str = "torch", target: str = "small_net:build", **more: Any) -> Code:
        return Code(kind, target, self.scratch, str(USER), **more)

    def save(self, code: Code, net: Any, file: str = "", **fields: Any) -> list[str]:
        fields = {"device": "cpu", "backend": "torch", "precision": "fp32", **fields}
        case = Case("own", **{"threads": 1, "batch": 2, **fields})
        question = OwnQuestion(code.kind, code.target, train=code.train)
        inputs = PORTS if code.target == "small_net:build" else PORTS[:1]
        loss = {"small_net:train": "output", "trained:build": "output, batch"}.get(code.target)
        facts = CodeFacts(code.kind, code.name, "", "", inputs=inputs, loss=loss)
        made = lines(facts, case, question)
        where = str(self.folder)
        found = save(code, net, asdict(case), where, file, made.setup, made.call)
        return list(found["files"])

    def run(self, directory: Path = USER) -> str:
        done = subprocess.run(
            [sys.executable, str(self.folder / "reproduce.py")],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path)


MEDIAN = re.compile(r"median of 50 calls: \d+\.\d{3} ms\n")


@pytest.mark.parametrize(("precision", "mode"), [("fp32", None), ("bf16", "nhwc")])
def test_a_module_that_exports(saved: Saved, precision: str, mode: str | None) -> None:
    files = saved.save(saved.code(), built("build"), precision=precision, mode=mode)
    assert files == ["inputs.pt", "model.pt2", "reproduce.py"]
    assert MEDIAN.fullmatch(saved.run())
    text = (saved.folder / "reproduce.py").read_text()
    assert "workbench" not in text
    assert ("channels_last" in text, "autocast" in text) == (mode is not None, precision == "bf16")


def test_a_module_of_a_script_needs_its_artefact_only(saved: Saved, tmp_path: Path) -> None:
    saved.save(saved.code(target="train.py::Net"), built("build"))
    assert MEDIAN.fullmatch(saved.run(tmp_path).replace("'", ""))


def test_a_module_that_does_not_export(saved: Saved) -> None:
    files = saved.save(saved.code(target="small_net:loop"), built("loop"))
    assert files == ["inputs.pt", "reproduce.py", "weights.pt"]
    assert MEDIAN.fullmatch(saved.run())
    saved.folder = saved.folder.with_name("other")
    with pytest.raises(WorkloadError, match="depend on the values of its inputs"):
        saved.save(saved.code(target="train.py::Loop"), built("loop"))
    assert [each.name for each in saved.folder.parent.iterdir()] == ["best"]


def test_an_exported_model(saved: Saved, tmp_path: Path) -> None:
    net = built("build")
    found = arrays(call(net.copy(), net.example(2)))
    right = Reference(list(found), list(found.values()), [0.0], "eager")
    Path(saved.scratch).mkdir()
    made = export.export(saved.code(), net, 2, right, resizes=False)
    files = saved.save(saved.code(), net, made["model"], backend="onnxruntime")
    assert files == ["inputs.pt", "model.onnx", "reproduce.py"]
    assert MEDIAN.fullmatch(saved.run(tmp_path))


def test_a_training_step(saved: Saved) -> None:
    net = built("build")
    code = saved.code(target="small_net:train", train=True)
    assert saved.save(code, net, mode="fused") == ["inputs.pt", "reproduce.py", "weights.pt"]
    assert MEDIAN.fullmatch(saved.run())


def test_a_training_with_data_and_a_loss_of_the_batch(saved: Saved) -> None:
    code = saved.code(target="trained:build", train=True)
    saved.save(code, built("build", "trained"), tuning={"workers": 2, "pin": 0})
    _, _, batch = torch.load(saved.folder / "inputs.pt")
    assert [len(each) for each in batch] == [2, 2]
    assert MEDIAN.fullmatch(saved.run())


def test_a_function_and_a_command(saved: Saved, tmp_path: Path) -> None:
    assert saved.save(saved.code("function", "small_net:work"), None) == ["reproduce.py"]
    assert MEDIAN.fullmatch(saved.run())
    saved.folder = tmp_path / "command"
    command = saved.code("command", "echo {device}")
    assert saved.save(command, None, tuning={"device": "x"}) == ["reproduce.sh"]
    script = str(saved.folder / "reproduce.sh")
    assert subprocess.run([script], capture_output=True, text=True).stdout == "x\n"


def test_a_folder_with_files_is_left_alone(saved: Saved, tmp_path: Path) -> None:
    saved.folder.mkdir()
    assert saved.save(saved.code(), built("build"))  # an empty one is filled
    for place in (saved.folder, saved.folder / "reproduce.py"):
        saved.folder = place
        with pytest.raises(WorkloadError, match="cannot write"):
            saved.save(saved.code(), built("build"))


def test_weights_are_the_measured_ones(saved: Saved) -> None:
    net = built("build")
    saved.save(saved.code(), net)
    program = torch.export.load(saved.folder / "model.pt2")
    assert torch.equal(program.state_dict["head.weight"], net.module.head.weight)
