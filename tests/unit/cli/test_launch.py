"""The command line writes results when the screens have closed."""

import json
from pathlib import Path

import pytest
import scenes
from builders import machine
from click.testing import CliRunner
from kept_runs import keep

from workbench import machine as this_machine
from workbench.cli.launch import _finish, take_part
from workbench.cli.main import cli
from workbench.planning.request import Request
from workbench.planning.usage import UsageError, check_apart, target
from workbench.report.report import Report
from workbench.report.run_files import open_run


@pytest.mark.parametrize("begun", [True, False])
def test_output_is_written_if_the_run_that_was_asked_for_began(tmp_path: Path, begun: bool) -> None:
    file = tmp_path / "r.json"
    asked = Report.of(scenes.cpu_only()) if begun else None
    output = target("--output", file, opened=True)
    assert _finish(Report(), asked, 1, output, samples=True) == 1
    if begun:
        assert json.loads(file.read_text())["run"]["id"] == scenes.cpu_only()[0].id
    else:
        assert not file.exists() or not file.read_text()


def test_a_run_that_was_stopped_on_the_screens_says_how_to_get_the_rest(capsys) -> None:
    keep("20261121-110000-cccc", scenes.cancelled())
    last = open_run("20261121-110000-cccc").report
    assert _finish(last, None, 130) == 130
    assert capsys.readouterr().out == (
        "kept: workbench open 20261121-110000-cccc;"
        " `workbench resume 20261121-110000-cccc` measures the rest\n"
    )


@pytest.mark.parametrize("other", ["--trace", "--save-best"])
def test_two_results_that_lead_to_one_file_are_refused(tmp_path, monkeypatch, other: str) -> None:
    (tmp_path / "link.onnx").symlink_to("x.onnx")
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").touch()
    own = ["--model", "model.onnx"] if other == "--save-best" else []
    words = ["advise", *own, other, "link.onnx", "--output", "./x.onnx", "--json"]
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, UsageError)
    assert str(refused) == f"{other} and --output lead to one file: ./x.onnx; name two files"
    assert not Path("x.onnx").exists()


@pytest.mark.parametrize("option", ["--model", "--inputs", "--torch", "--prices"])
def test_no_result_replaces_what_the_run_reads(tmp_path, monkeypatch, option: str) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"--model": "m.onnx", "--inputs": "d.npz", "--torch": "s.py", "--prices": "p.toml"}
    for name in files.values():
        Path(name).write_text("[per_hour]\ncpu = 1.0\n")
    Path("link").symlink_to(files[option])
    if option == "--torch":
        files[option] += "::Net"  # a module in it
    asked = ["--model", "m.onnx"] if option == "--inputs" else []
    for output in ["--output", "--save-best"][: 2 if option in ("--model", "--inputs") else 1]:
        words = ["advise", *asked, option, files[option], output, "link", "--json"]
        refused = CliRunner().invoke(cli, words).exception
        assert str(refused).startswith(f"{option} and {output} lead to one file: ")


def test_results_that_nobody_keeps_may_go_to_one_place() -> None:
    check_apart({"--trace": "/dev/null", "--save-best": None, "--output": "/dev/null"})


@pytest.mark.parametrize(("gpu", "expected"), [("xpu:0", "cpu"), ("cuda:0", "cuda:0")])
def test_ranks_of_a_launcher_use_a_gpu_only_if_it_is_cudas(monkeypatch, gpu, expected) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "29511")
    monkeypatch.setattr(this_machine, "detect", lambda *_: (machine(gpu), None))
    assert take_part(Request(workloads=("scaling",))).devices == (expected,)
