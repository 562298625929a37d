"""--save-best: the folder appears in one piece, and its script runs without the workbench."""

import importlib.util
import io
import os
import re
import resource
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from own_subject import Subject

from workbench.advisor.own.snippet import lines
from workbench.catalog import backend
from workbench.contract import THREAD_VARIABLES, Case, WorkloadError
from workbench.planning.questions import OwnQuestion
from workbench.records.code import CodeFacts, CodeInput
from workbench.worker.code import Code
from workloads.own import export
from workloads.own.reference import Reference, arrays, call
from workloads.own.save import save
from workloads.own.tree import is_compiled

USER = Path(__file__).parents[3] / "fixtures" / "own"
PORTS = [
    CodeInput("0", "float32", [2, 3, 8, 8], "inputs[0]"),
    CodeInput("scale", "float32", [2, 1], "named['scale']"),
]
MEDIAN = re.compile(r"median of 50 (calls|steps on one batch, without loading it): \d+\.\d{3} ms\n")
ALONE = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
print(sorted({"workbench", "workloads"} & set(sys.modules)))
"""


def built(name: str, file: str = "small_net") -> Subject:
    spec = importlib.util.spec_from_file_location(file, USER / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)()
    net, args, *named = made if isinstance(made, tuple) else (made, ())
    found = Subject(net, *args, name=f"{file}:{name}", **dict(*named))
    found.namespace = module
    return found


class Saved:
    renews = False

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
        takes = {"small_net:train": "output", "outer_net:build": "output"}
        loss = {**takes, "trained:build": "output, batch"}.get(code.target)
        facts = CodeFacts(code.kind, code.name, "", "", inputs=inputs, loss=loss)
        made = lines(facts, case, question)
        where = str(self.folder)
        more = {"onnx_file": file, "setup": made.setup, "call": made.call, "renews": self.renews}
        hidden = self.folder.with_name(".hidden")
        try:
            found = save(code, net, asdict(case), where, str(hidden), **more)
        finally:  # as the guardian does
            shutil.rmtree(hidden, ignore_errors=True)
        return list(found["files"])

    @property
    def text(self) -> str:
        return (self.folder / "reproduce.py").read_text()

    def runs(self, directory: Path = USER) -> bool:
        """Whether the script runs in this process, with `directory` as the current one."""
        return bool(self.run(directory))

    def run(self, directory: Path) -> dict[str, Any]:
        """The names that the script leaves behind; empty if it prints no median."""
        with chdir(directory), redirect_stdout(io.StringIO()) as printed:
            left = runpy.run_path(str(self.folder / "reproduce.py"), run_name="__main__")
        return left if MEDIAN.fullmatch(printed.getvalue()) else {}


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Saved]:
    """The folder of --save-best; threads, which scripts set, are put back."""
    for name in (*THREAD_VARIABLES, *backend("python").thread_variables):
        monkeypatch.setenv(name, "1")
    before = torch.get_num_threads()
    yield Saved(tmp_path)
    torch.set_num_threads(before)


def test_inputs_that_a_call_changes_are_those_of_each_call(saved: Saved) -> None:
    saved.renews = True
    saved.save(saved.code(), built("build"))
    assert "inputs, named = renewed()" in saved.text
    left = saved.run(USER)
    assert left["inputs"][0] is not left["kept"][0][0]
    assert torch.equal(left["inputs"][0], left["kept"][0][0])


def test_a_graph_that_runs_on_a_gpu_is_moved_with_the_devices_that_it_names(saved: Saved) -> None:
    saved.save(Code("torch", "net.pt2", saved.scratch, str(USER)), built("build"), device="cuda:0")
    assert "program = move_to_device_pass(program, 'cuda:0')\n" in saved.text
    assert "50 calls with inputs on cuda:0" in saved.text


@pytest.mark.parametrize(
    ("device", "waits"),
    [("cuda:1", "torch.cuda.synchronize('cuda:1')"), ("mps", "torch.mps.synchronize()")],
)
def test_a_script_waits_for_the_gpu_that_it_uses(saved: Saved, device: str, waits: str) -> None:
    saved.save(Code("torch", "net.pt2", saved.scratch, str(USER)), built("build"), device=device)
    assert f"wait = lambda: {waits}\n" in saved.text


def test_a_module_that_exports(saved: Saved) -> None:
    net = built("build")
    files = saved.save(saved.code(), net, precision="bf16", mode="nhwc")
    assert files == ["inputs.pt", "model.pt2", "reproduce.py"]
    program = torch.export.load(saved.folder / "model.pt2")
    assert torch.equal(program.state_dict["head.weight"], net.module.head.weight)
    assert saved.runs()
    assert "channels_last" in saved.text
    assert "autocast" in saved.text


def test_a_module_of_a_script_needs_its_artefact_and_no_workbench(saved: Saved, tmp_path) -> None:
    saved.save(saved.code(target="train.py::Net"), built("build"))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(saved.folder / "reproduce.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    printed, imported = done.stdout.splitlines(keepends=True)
    assert MEDIAN.fullmatch(printed)
    assert imported == "[]\n"
    assert "channels_last" not in saved.text
    assert "autocast" not in saved.text


def test_an_archive_is_loaded_after_what_it_needs(saved: Saved) -> None:
    with patch.object(export, "archive", lambda *_: ["library.outputs"]):
        saved.save(saved.code(target="train.py::Net"), built("build"))
    before, _, _ = saved.text.partition("program = torch.export.load")
    assert before.rstrip().endswith("\nimport library.outputs")


@pytest.mark.parametrize("name", ["loop", "labelled"])
def test_a_module_that_does_not_export_or_whose_archive_cannot_be_loaded(saved, name: str) -> None:
    files = saved.save(saved.code(target=f"small_net:{name}"), built(name))
    assert files == ["inputs.pt", "reproduce.py", "weights.pt"]
    assert saved.runs()


def test_a_module_of_a_script_that_does_not_export_is_not_saved(saved: Saved) -> None:
    with pytest.raises(WorkloadError, match="depend on the values of its inputs"):
        saved.save(saved.code(target="train.py::Loop"), built("loop"))
    assert not list(saved.folder.parent.iterdir())


def test_an_exported_model(saved: Saved, tmp_path: Path) -> None:
    net = built("build")
    found = arrays(call(net.copy(), net.example(2)))
    right = Reference(list(found), list(found.values()), [0.0], "eager")
    Path(saved.scratch).mkdir()
    made = export.export(saved.code(), net, 2, right, resizes=False)
    files = saved.save(saved.code(), net, made["model"], backend="onnxruntime")
    assert files == ["inputs.pt", "model.onnx", "reproduce.py"]
    assert saved.runs(tmp_path)


def test_a_training_step(saved: Saved) -> None:
    code = saved.code(target="small_net:train", train=True)
    files = saved.save(code, built("build"), mode="fused")
    assert files == ["inputs.pt", "reproduce.py", "weights.pt"]
    assert saved.runs()


def test_a_training_step_on_a_gpu_says_where_its_batch_is(saved: Saved) -> None:
    code = saved.code(target="small_net:train", train=True)
    saved.save(code, built("build"), device="cuda:0")
    assert "50 steps on one batch with inputs on cuda:0, without loading it" in saved.text


def test_a_training_with_data_and_a_loss_of_the_batch(saved: Saved) -> None:
    code = saved.code(target="trained:build", train=True)
    saved.save(code, built("build", "trained"), tuning={"workers": 2, "pin": 0})
    _, _, batch = torch.load(saved.folder / "inputs.pt")
    assert [len(each) for each in batch] == [2, 2]
    assert saved.runs()


REEXPORTED = """
import torch
class Net(torch.nn.Linear):
    def loss(self, output): raise AssertionError("a method")
def build():
    net = Net(4, 3)
    net.bias.requires_grad_(False)
    return net
def loss(output): return output.sum()
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.25)
"""


def test_parts_of_a_training_are_found_where_the_race_finds_them(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner_net.py").write_text(REEXPORTED)
    (tmp_path / "outer_net.py").write_text("from inner_net import build\n")
    monkeypatch.syspath_prepend(tmp_path)
    net = torch.nn.Linear(4, 3)
    net.bias.requires_grad_(False)
    one = Subject(net, torch.ones(2, 4), name="outer_net:build")
    one.namespace = importlib.import_module("inner_net")
    saved.save(saved.code(target="outer_net:build", train=True), one)
    left = saved.run(tmp_path)
    assert type(left["optimizer"]) is torch.optim.SGD and left["optimizer"].defaults["lr"] == 0.25
    assert len(left["optimizer"].param_groups[0]["params"]) == 1


COMPILED = """
import torch
def build():
    net = torch.nn.Linear(4, 3)
    net.forward = torch.compile(net.forward)
    net.compile()
    return net, torch.ones(2, 4)
"""


def test_a_module_that_its_builder_compiles_runs_eager_where_that_is_the_pick(
    saved: Saved, tmp_path: Path
) -> None:
    (tmp_path / "compiled_net.py").write_text(COMPILED)
    one = Subject(torch.nn.Linear(4, 3), torch.ones(2, 4), name="compiled_net:build")
    saved.save(saved.code(target="compiled_net:build"), one)
    model = saved.run(tmp_path)["model"]
    assert not is_compiled(model)


def test_a_function(saved: Saved, tmp_path: Path) -> None:
    assert saved.save(saved.code("function", "works:sized"), None) == ["reproduce.py"]
    assert "import torch" not in saved.text
    assert saved.runs()
    assert saved.runs(tmp_path), "it finds the code from any folder"


def test_a_command(saved: Saved) -> None:
    command = saved.code("command", "echo {device}")
    assert saved.save(command, None, tuning={"device": "x"}) == ["reproduce.sh"]
    script = str(saved.folder / "reproduce.sh")
    assert subprocess.run([script], capture_output=True, text=True).stdout == "x\n"


def test_a_command_runs_where_it_was_measured(saved: Saved, monkeypatch, tmp_path) -> None:
    there = tmp_path / "a folder"
    there.mkdir()
    env = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{env}{os.pathsep}{os.environ['PATH']}")
    words = """sh -c 'pwd; command -v python; echo $PYTHONUNBUFFERED'"""
    saved.save(Code("command", words, saved.scratch, str(there), until="x y"), None)
    script, elsewhere = saved.folder / "reproduce.sh", {"PATH": os.defpath}
    assert "# timed until it printed a line that matches x y\n" in script.read_text()
    done = subprocess.run([script], capture_output=True, text=True, env=elsewhere, cwd="/")
    printed = done.stdout
    assert printed.split("\n") == [str(there), str(env / "python"), "1", ""]


def test_a_folder_with_files_is_left_alone(saved: Saved) -> None:
    code = saved.code("function", "works:sized")
    saved.folder.mkdir()
    assert saved.save(code, None)  # an empty one is filled
    before = saved.text
    for place in (saved.folder, saved.folder / "reproduce.py"):
        saved.folder = place
        with pytest.raises(WorkloadError, match="cannot write"):
            saved.save(code, None, batch=9)
    assert place.read_text() == before


@pytest.mark.parametrize("large", ["model", "inputs"])
def test_a_full_disk_is_one_line(saved: Saved, large: str) -> None:
    size = 256 if large == "model" else 2
    net, batch = torch.nn.Linear(size, size), 2 if large == "model" else 1 << 14
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(WorkloadError, match=r"cannot write .*best: File too large"):
            saved.save(saved.code(), Subject(net, torch.ones(batch, size)), batch=batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(saved.folder.parent.iterdir())
