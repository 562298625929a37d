"""The choice among the modules of a script, and the words for how it ended, without running one."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checking import fails_with

from workbench.worker.code import Code
from workloads.own import calls, handing_over, script
from workloads.own.calls import Called, Run, _shapes
from workloads.own.circumstances import circumstances, modal_parts
from workloads.own.tree import Example


def test_a_module_with_weights_comes_before_a_slow_metric() -> None:
    inputs = Example((torch.ones(1, 3),), {})
    metric = Called("Metric", torch.nn.Softmax(), seconds=5.0, example=inputs)
    net = Called("Net", torch.nn.Linear(3, 2), seconds=0.1, example=inputs)
    assert script.choose(Run(modules=[metric, net])) is net
    assert script.choose(Run(modules=[metric])) is metric
    assert script.choose(Run(modules=[net, metric]), "Metric") is metric


def test_a_cache_by_module_is_of_no_use_to_copies_of_the_module() -> None:
    net = torch.nn.Linear(3, 2)
    inputs = Example((torch.ones(1, 3),), {"cache": {net: torch.ones(1)}})
    with fails_with("bad_input") as refused:
        script.choose(Run(modules=[Called("Net", net, example=inputs)]))
    assert str(refused.value).startswith("Net gets a dictionary by module")


@torch.jit.script
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_scripted_function_goes_along(tmp_path: Path) -> None:
    class Doubles(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return doubled(x)

    ran, code = Run(), Code("torch", "train.py", str(tmp_path), str(tmp_path))
    with ran.watched(60.0):
        Doubles()(torch.ones(1, 3))
    assert handing_over.hand_over(script.choose(ran), ran, code) is None
    module, example, _ = handing_over.received(code)
    assert module(*example.args).tolist() == [[2.0] * 3]


def test_a_slower_module_than_the_trained_one_is_named() -> None:
    inputs = Example((torch.ones(1, 3),), {})
    teacher = Called("Teacher", torch.nn.Linear(3, 2), seconds=5.0, example=inputs)
    student = Called("Student", torch.nn.Linear(3, 2), seconds=0.5, example=inputs)
    student.has_gradients = True
    ran, code = Run(modules=[teacher, student]), Code("torch", "train.py", "", "")
    assert script.choose(ran) is student
    note = "Teacher takes 10x as long in the script as Student; train.py::Teacher races it"
    assert script._others(student, ran, code) == [note]
    left_out = "calls of Teacher without gradients take 10x as long as those of Student"
    found = script._others(student, ran, replace(code, train=True))
    assert found == [f"{left_out}; a raced step leaves them out"]
    teacher.has_gradients = True
    *_, last = script._others(student, ran, replace(code, train=True))
    assert last == f"{note} without --train"
    assert script._others(student, ran, replace(code, target="train.py::Student")) == []
    student.seconds = 3.0
    assert script._others(student, ran, code) == []


def test_the_wait_for_work_that_a_script_has_queued_on_a_gpu_is_part_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queued, ran = [0.0], [4.0], Run()
    monkeypatch.setattr(calls.time, "perf_counter", lambda: clock[0])

    def wait() -> None:
        clock[0] += queued.pop() if queued else 0.0

    monkeypatch.setattr(calls, "_synchronize", wait)
    with ran.watched(60.0):
        torch.nn.Linear(3, 2)(torch.ones(1, 3))
    assert (ran.seconds, ran.modules[0].seconds) == (4.0, 0.0)


class Hides(torch.nn.Module):
    """It has its module in another object, as the predictor of YOLO does."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.around = [torch.nn.Linear(3, 2)], torch.nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.around(self.held[0](x))


@pytest.mark.parametrize(("follows", "seen"), [(False, ["Hides", "Linear"]), (True, ["Hides"])])
def test_a_module_that_another_hides_is_seen(follows: bool, seen: list[str]) -> None:
    ran, hides = Run(follows=follows), Hides()
    with ran.watched(60.0):
        for _ in range(2):
            hides(torch.ones(1, 3))
    assert [(each.name, each.calls) for each in ran.modules] == [(name, 2) for name in seen]
    assert script.choose(ran).name == seen[-1]


class Linear(torch.nn.Linear):
    """A class that is not torch's."""


@pytest.mark.parametrize("copied", [False, True])
def test_a_module_comes_before_its_parts_unless_they_are_called_more_often(copied: bool) -> None:
    ran, net = Run(), torch.nn.Sequential(Linear(3, 2))
    part = copy.deepcopy(net[0]) if copied else net[0]
    with ran.watched(60.0):
        part(torch.ones(1, 3))
        net(torch.ones(1, 3))
        ran.modules[0].seconds = 1e3
        assert script.choose(ran).name == "Sequential"
        part(torch.ones(1, 3))
    assert script.choose(ran).name == "Linear"


def test_a_module_of_torchs_classes_is_no_part_of_one_that_has_others() -> None:
    ran, net, head = Run(), torch.nn.Sequential(torch.nn.Linear(3, 3)), torch.nn.Linear(3, 2)
    with ran.watched(60.0):
        head(net(torch.ones(1, 3)))
    ran.modules[1].seconds = 1e3
    assert script.choose(ran).name == "Linear"


class Drops(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5, self.training)


class Plain(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1

    def training_step(self, batch: Any) -> Any:
        return self(batch).mean()


@pytest.mark.parametrize(
    ("module", "noted"),
    [
        (Drops(), True),
        (torch.nn.LSTM(2, 2, num_layers=2, dropout=0.1), True),
        (torch.nn.BatchNorm2d(2), True),
        (torch.nn.Dropout(), True),
        (torch.nn.LSTM(2, 2), False),
        (Plain(), False),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), False),
    ],
)
def test_training_mode_counts_where_it_changes_something(module: Any, noted: bool) -> None:
    parts = modal_parts(module)
    assert ("in training mode" in circumstances(module, parts)) == noted
    assert "in training mode" not in circumstances(module.eval(), parts)


def test_the_source_of_a_class_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(torch.nn.Module):
        pass

    read: list[Any] = []
    monkeypatch.setattr("inspect.getsource", lambda kind: read.append(kind) or "self.training")
    parts = [Many() for _ in range(3)]
    assert modal_parts(torch.nn.ModuleList(parts)) == parts
    assert read == [Many]


def test_sizes_are_numbers_while_a_module_is_traced() -> None:
    seen = set()

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            seen.add(_shapes(Example((x,), {})))
            return x + 1

    torch.jit.trace(Net(), torch.ones(2, 3))
    assert seen == {"2x3"}


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("RuntimeError: Cannot access accelerator device when none is available.", "use the CPU"),
        ("AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'", "use the CPU"),
        ("AssertionError: assert torch.cuda.is_available()", "use the CPU"),
        ("OSError: [Errno 25] Inappropriate ioctl for device", "no terminal"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "gloo"),
        ("ValueError: environment variable RANK expected, but not set", "torchrun sets it"),
    ],
)
def test_what_fails_without_a_gpu_torchrun_or_a_terminal_has_a_remedy(
    message: str, remedy: str
) -> None:
    assert remedy in str(script._failed(f"raised {message}").hint)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr",
            "train.py: error: unrecognized arguments: --lrr",
        ),
        (
            "ERROR: The function received no value for: ckpt\nUsage: train.py CKPT",  # Fire
            "ERROR: The function received no value for: ckpt | Usage: train.py CKPT",
        ),
        (
            "╭─ Error ─────╮\n│ Missing argument 'NAME'. │\n╰─────────────╯",  # Typer
            "Error | Missing argument 'NAME'.",
        ),
        ("Loading\r\nrun download.sh first", "Loading | run download.sh first"),
    ],
)
def test_the_end_of_the_log_says_why_a_script_exited(tmp_path, monkeypatch, printed, words) -> None:
    with (tmp_path / "log").open("w+") as log:
        monkeypatch.setattr(script, "LOG", log.fileno())
        print(printed, file=log, flush=True)
        assert script._last_words() == f" ({words})"
