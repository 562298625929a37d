"""Values that say nothing are refused before anything starts, for every option by one rule."""

import os
import sys
from pathlib import Path

import click
import pytest

from workbench.cli.launch import check_control
from workbench.cli.main import cli
from workbench.cli.measure import advise
from workbench.planning.questions import ModelQuestion
from workbench.planning.usage import UsageError

TEXTS = [
    option.opts[0]
    for option in advise.params
    if isinstance(option, click.Option)
    and isinstance(option.type, click.types.StringParamType)
    and option.opts[0] not in ("--threads", "--batch")  # these take numbers, and say so
]
FLOATS = ["--budget", "--max-error", "--min-agreement"]


def refused(*arguments: str) -> str:
    with pytest.raises(UsageError) as error:
        cli.main(arguments, standalone_mode=False)
    return str(error.value)


@pytest.mark.parametrize("option", TEXTS)
@pytest.mark.parametrize("value", ["", " ", ","])
def test_an_empty_value_is_refused(option: str, value: str) -> None:
    assert refused("advise", option, value) == (f"{option} is empty: name a value, or leave it out")


def test_the_rule_knows_the_options_with_texts() -> None:
    assert {"--device", "--output", "--model", "--what-if", "--price"} <= set(TEXTS)


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("option", FLOATS)
def test_numbers_are_finite(option: str, value: str) -> None:
    assert refused("advise", option, value).startswith(f"{option} must be a finite number")


@pytest.mark.parametrize(
    ("text", "budget_s"),
    [("30", 30), ("1.5", 1.5), ("30s", 30), ("2m", 120), ("2min", 120), ("1.5m", 90)],
)
def test_seconds_may_have_a_unit(text: str, budget_s: float) -> None:
    assert advise.make_context("advise", ["--budget", text]).params["budget_s"] == budget_s


@pytest.mark.parametrize("text", ["half an hour", "30 s", "1e400x", "5x"])
def test_other_words_are_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a valid time in seconds such as 30, or 2m"):
        advise.make_context("advise", ["--budget", text])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["advise", ""], "SCENARIO"),
        (["run", "matmul", ""], "WORKLOAD"),
        (["open", ""], "RUN"),
        (["export", ""], "RUN"),
        (["compare", "", "last"], "A B C"),
        (["model", ""], "M.onnx"),
        (["--device", "", "--json"], "--device"),
        (["detect", "--python", ""], "--python"),
        (["doctor", "--python", ""], "--python"),
        (["list", "--scenarios", ""], "--scenarios"),
        (["ceilings", "--device", ""], "--device"),
    ],
)
def test_names_and_the_other_commands_too(arguments: list[str], name: str) -> None:
    rest = "" if arguments[0] in ("export", "model") else ", or leave it out"
    assert refused(*arguments) == f"{name} is empty: name a value{rest}"


@pytest.mark.parametrize(
    "arguments", [["watch", "--every", "nan"], ["ceilings", "--budget", "inf"]]
)
def test_the_other_commands_take_finite_numbers(arguments: list[str]) -> None:
    assert "must be a" in refused(*arguments)


@pytest.mark.parametrize("command", ["runs --last", "runs --prune --keep", "watch --count"])
def test_a_count_is_no_larger_than_python_counts(command: str) -> None:
    with pytest.raises(click.BadParameter, match="is not in the range"):
        cli.main([*command.split(), str(10**20)], standalone_mode=False)


@pytest.mark.parametrize("words", ["--every 0", "--every soon", "--count 0"])
def test_watch_refuses_nonsense(words: str) -> None:
    with pytest.raises(click.BadParameter):
        cli.main(["watch", *words.split()], standalone_mode=False)


def test_control_lines_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lines").touch()
    for path in (tmp_path / "lines", Path(os.devnull)):
        with path.open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(UsageError, match="--control reads lines from a pipe"):
                check_control()
    read, write = os.pipe()
    with os.fdopen(read) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        check_control()
    os.close(write)


@pytest.mark.parametrize("option", ["target", "save_best"])
def test_a_model_has_a_name_that_onnx_runtime_takes(option: str) -> None:
    question = ModelQuestion(**{"target": "m.onnx", option: os.fsdecode(b"\xff.onnx")})
    with pytest.raises(ValueError, match="is not UTF-8") as error:
        question.check()
    assert not isinstance(error.value, UnicodeError)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["realtime"], "realtime is no command: use `workbench advise realtime`"),
        (["matmul"], "matmul is no command: use `workbench run matmul`"),
        (["M.onnx"], "M.onnx is no command: use `workbench model M.onnx`"),
        (["run", "realtime"], "realtime is no workload: use `workbench advise realtime`"),
        (["advise", "a b.py"], "a b.py is no scenario: use `workbench advise --torch 'a b.py'`"),
    ],
)
def test_a_name_that_another_command_takes(arguments: list[str], says: str) -> None:
    assert refused(*arguments) == says
