"""The options of `workbench ab`: two sides or one line that says what is missing."""

import os
import sys

import click
import pytest

from workbench.cli.ab import ab, side_of
from workbench.cli.main import cli
from workbench.planning.usage import UsageError

TWICE = "give one of --python, --env, --path, --command twice, once for each side"
NOTHING: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("--python", "--env", "--path", "--command"), ()
)
TWO = ("--env", "A=1", "--env", "A=2")


def refused(*arguments: str) -> str:
    with pytest.raises((UsageError, click.UsageError)) as error:
        cli.main(["ab", *arguments], standalone_mode=False)
    return str(error.value)


@pytest.mark.parametrize("given", [0, 1, 3])
def test_a_side_too_few_or_too_many_is_refused(given: int) -> None:
    assert refused("matmul", *(["--python", sys.executable] * given)) == TWICE


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (TWO, "name a workload, or your own code"),
        (("matmull", *TWO), "unknown workload or scenario 'matmull'; did you mean matmul?"),
        (("matmul", "--env", "A", "--env", "B=1"), "--env takes NAME=VALUE, not A"),
        (
            ("matmul", "--env", "OMP_NUM_THREADS=1", "--env", "OMP_NUM_THREADS=2"),
            "--env takes no OMP_NUM_THREADS: the threads of a case are part of it",
        ),
        (("matmul", "--python", "/nowhere", "--python", "x"), "/nowhere is not an executable file"),
        (("matmul", "--path", "/nowhere", "--path", "/"), "Directory '/nowhere' does not exist"),
        (("matmul", *TWO, "--fail-on", "2"), "--fail-on takes a percentage such as 2%, not '2'"),
        (("matmul", *TWO, "--fail-on", "0%"), "--fail-on takes a percentage"),
        (("matmul", *TWO, "--fail-on", "nan%"), "--fail-on takes a percentage"),
        (("matmul", *TWO, "--fail-on", "9" * 400 + "%"), "--fail-on takes a percentage"),
        (("matmul", *TWO, "--jsonl"), "No such option"),
        (("matmul", *TWO, "--function", "a:b"), "--function replaces scenarios"),
        (("--function", "nothing", *TWO), "--function takes package.module:work"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], text: str) -> None:
    assert text in refused(*arguments)


def test_an_option_given_once_holds_for_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    given = {**NOTHING, "--python": ("p",), "--env": ("A=1 B=x=y", "A=2"), "--path": ("/code",)}
    first, other = side_of("A", 0, given), side_of("B", -1, given)
    assert (first.python, other.python) == ("p", "p")
    assert first.label == "--env A=1 B=x=y"
    assert first.variables == {"A": "1", "B": "x=y", "PYTHONPATH": f"/code{os.pathsep}/mine"}
    assert other.variables["A"] == "2"
    assert (first.path, first.command) == ("/code", None)


def test_it_takes_120_seconds_by_default() -> None:
    assert ab.make_context("ab", ["matmul", *TWO]).params["budget_s"] == 120.0
    assert ab.make_context("ab", ["matmul", *TWO, "--budget", "5"]).params["budget_s"] == 5.0


def test_the_path_of_a_side_comes_before_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    given = {**NOTHING, "--env": ("PYTHONPATH=/old", "PYTHONPATH=/new"), "--path": ("/code",) * 2}
    found = [side_of(name, place, given).variables["PYTHONPATH"] for place, name in enumerate("AB")]
    assert found == [f"/code{os.pathsep}/old", f"/code{os.pathsep}/new"]
