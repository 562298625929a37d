"""Completion by the protocol of click: a shell sets the words and gets the values."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import completion
from workbench.cli.main import cli, main
from workbench.report.journal import runs_folder

IDS = ["20261120-080000-aaaa", "20261121-080000-bbbb", "20261122-080000-cccc"]
NEWEST_FIRST = ["last", *reversed(IDS)]


@pytest.fixture(autouse=True)
def state() -> Path:
    """A state folder with three runs, and a file that is not called as runs are."""
    runs = runs_folder()
    runs.mkdir(parents=True)
    for name in (*IDS, "x$(reboot) *", "\x1b[2J"):
        (runs / f"{name}.jsonl").touch()
    return runs


def completed(line: str, shell: str = "bash") -> list[str]:
    """The lines that a shell gets for a command line, whose last word is incomplete."""
    words = line.split(" ")
    env = {
        "_WORKBENCH_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    done = CliRunner().invoke(cli, prog_name="workbench", env=env)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def values(line: str) -> list[str]:
    return [each.removeprefix("plain,") for each in completed(line) if each.startswith("plain,")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("workbench open ", NEWEST_FIRST),
        ("workbench open 20261121", [IDS[1]]),
        ("workbench export ", NEWEST_FIRST),
        ("workbench resume ", NEWEST_FIRST),
        ("workbench compare last 20261120", [IDS[0]]),
        ("workbench run matm", ["matmul", "matmul_cold"]),
        ("workbench run matmul band", ["bandwidth"]),
        ("workbench advise real", ["realtime"]),
        ("workbench ab real", ["realtime"]),
        ("workbench ab gem", ["gemm"]),
        ("workbench run matmul --backend o", ["onnxruntime", "openvino"]),
        ("workbench run matmul --precision fp32,bf", ["fp32,bf16"]),
        ("workbench --precision fp1", ["fp16"]),
        ("workbench ceilings --device c", ["cpu"]),
        ("workbench schema comp", ["compare"]),
        ("workbench comp", ["compare"]),
        ("workbench ab --fail", ["--fail-on"]),
        ("workbench runs --status fa", ["failed"]),
        ("workbench advise --what-if c", []),  # recorded devices have other names
        ("workbench run 'matmul_", ["matmul_cold"]),  # no shell has closed the quotation yet
    ],
)
def test_values_fit_the_place(line: str, expected: list[str], monkeypatch) -> None:
    monkeypatch.setattr(completion, "Path", lambda _: Path("/nowhere"))  # no GPU of this machine
    found = values(line)
    assert found == expected


@pytest.mark.parametrize(
    "line",
    [
        "workbench open re",
        "workbench compare a.json b",
        "workbench export last --html re",
        "workbench --json --output re",
        "workbench advise --model re",
        "workbench ab --python ol",
        "workbench list --scenarios re",
    ],
)
def test_files_are_left_to_the_shell(line: str) -> None:
    assert completed(line) == [f"file,{line.split(' ')[-1]}"]


def test_a_run_to_resume_is_no_file() -> None:
    assert not any(each.startswith("file,") for each in completed("workbench resume "))


def test_each_gpu_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl"):
        (tmp_path / name).touch()
    monkeypatch.setattr(completion, "Path", lambda _: tmp_path)
    assert values("workbench --device ") == ["cpu", "gpu", "cuda:0", "cuda:1", "fake:0"]
    assert values("workbench --device cpu,cuda") == ["cpu,cuda:0", "cpu,cuda:1"]


def test_a_file_of_scenarios_is_completed_too(tmp_path: Path) -> None:
    shipped = (Path(__file__).parents[3] / "assets" / "scenarios.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(shipped.replace('id = "realtime"', 'id = "mine"'))
    assert values(f"workbench advise --scenarios {mine} min") == ["mine"]
    mine.write_text("[[")
    assert values(f"workbench advise --scenarios {mine} min") == []


def test_what_cannot_be_read_completes_nothing(state: Path, monkeypatch) -> None:
    monkeypatch.setenv("WORKBENCH_WORKLOADS", "/nowhere")
    assert values("workbench run ") == []
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert values("workbench open ") in ([], ["last"])


def test_thousands_of_runs_are_cut(state: Path) -> None:
    for number in range(3 * completion.MOST):
        (state / f"20261119-{number:06}-aaaa.jsonl").touch()
    found = values("workbench open ")
    assert found[: len(NEWEST_FIRST)] == NEWEST_FIRST
    assert len(found) == completion.MOST


@pytest.mark.parametrize(
    ("shell", "expected"), [("zsh", f"plain\n{IDS[1]}\n_"), ("fish", f"plain,{IDS[1]}")]
)
def test_other_shells_get_the_same(shell: str, expected: str) -> None:
    assert expected in "\n".join(completed("workbench open 20261121", shell))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    env = {"_WORKBENCH_COMPLETE": f"{shell}_source"}
    done = CliRunner().invoke(cli, prog_name="workbench", env=env)
    assert done.exit_code == 0
    assert f"_WORKBENCH_COMPLETE={shell}_complete" in done.stdout
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=done.stdout, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_itself_completes_a_run(tmp_path: Path, state: Path) -> None:
    program = tmp_path / "bin" / "workbench"
    program.parent.mkdir()
    start = f"import sys; sys.argv[0] = {str(program)!r}; import workbench.__main__ as m; m.main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    program.chmod(0o755)
    script = f"""PATH={program.parent}:$PATH
        eval "$(_WORKBENCH_COMPLETE=bash_source workbench)"
        COMP_WORDS=(workbench resume 2026112); COMP_CWORD=2
        _workbench_completion workbench; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (NEWEST_FIRST[1:], "")


def test_python_m_completes_too() -> None:
    """It would otherwise start a run, since click derives another variable from its name."""
    asked = {
        "_WORKBENCH_COMPLETE": "bash_complete",
        "COMP_WORDS": "workbench ope",
        "COMP_CWORD": "1",
    }
    call = [sys.executable, "-m", "workbench"]
    done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, **asked})
    assert (done.stdout, done.stderr, done.returncode) == ("plain,open\n", "", 0)


# bash_complete lacks the words of a command line, which the shell sets.
@pytest.mark.parametrize("wrong", ["bogus", "bash_sorce", "source", "bash_complete"])
def test_a_wrong_value_is_one_line(wrong: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("_WORKBENCH_COMPLETE", wrong)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "workbench: _WORKBENCH_COMPLETE is bash_source, zsh_source or fish_source\n"
    )
