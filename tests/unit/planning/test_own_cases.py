"""The candidates of functions and commands."""

from __future__ import annotations

import pytest
from builders import machine
from hypothesis import given
from hypothesis import strategies as st

from workbench.planning.own_cases import command_cases, function_cases
from workbench.planning.own_question import OwnQuestion, parse_over
from workbench.planning.request import Request
from workbench.records.code import CodeFacts

FACTS = CodeFacts("function", "mod:work", "", "", precision="", batch=1)
FUNCTION = OwnQuestion("function", "pkg/mod.py:work")
TRAIN = "python train.py --device {device} --workers {workers}"


def _function(facts: CodeFacts = FACTS, request: Request | None = None) -> list[str]:
    request = request or Request()
    found = function_cases(FUNCTION, facts, machine("cuda:0"), request, ["cuda:0"])
    return [case.id for case in found]


def _command(*over: str, command: str = TRAIN, request: Request | None = None):
    return command_cases(OwnQuestion("command", command, over=over), request or Request())


def test_a_function_runs_on_all_half_and_one_of_the_cores() -> None:
    name = "own[batch=1,code=mod.py:work]"
    assert _function() == [f"{name}/cpu/python/t{threads}" for threads in (8, 4, 1)]


def test_a_function_that_takes_a_device_runs_on_gpus() -> None:
    facts = CodeFacts("function", "mod:work", "", "", takes_device=True)
    assert _function(facts)[-1] == "own[code=mod.py:work]/cuda:0/python"
    assert len(_function(facts, Request(devices=("gpu",)))) == 1
    assert len(_function(facts, Request(threads=(2, 2)))) == 2


def test_a_size_is_the_requests_where_the_function_has_one() -> None:
    asked = Request(batch=(64,))
    assert "batch=64" in _function(FACTS, asked)[0]
    assert "batch" not in _function(CodeFacts("function", "mod:work", "", ""), asked)[0]


def test_a_command_runs_with_every_combination() -> None:
    found = _command("device=cpu,cuda", "workers=0,2")
    assert [case.id for case in found] == [
        "own[]/cpu/command/device=cpu,workers=0",
        "own[]/cpu/command/device=cpu,workers=2",
        "own[]/cuda:0/command/device=cuda,workers=0",
        "own[]/cuda:0/command/device=cuda,workers=2",
    ]
    assert found[0].tuning == {"device": "cpu", "workers": "0"}
    assert {case.threads for case in found} == {None}
    only = _command("device=cpu,cuda", "workers=0", request=Request(devices=("gpu",)))
    assert [case.device for case in only] == ["cuda:0"]


def test_a_command_without_placeholders_is_one_case() -> None:
    assert [case.label for case in _command(command="make bench")] == ["cpu/command"]


@pytest.mark.parametrize(
    ("value", "device"),
    [("cpu", "cpu"), ("gpu", "cuda:0"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3"), ("tpu", "cpu")],
)
def test_the_axis_called_device_decides_the_device(value: str, device: str) -> None:
    (found,) = _command(f"device={value}", command="run {device}")
    assert (found.device, found.tuning) == (device, {"device": value})


@pytest.mark.parametrize(
    ("over", "command", "says"),
    [
        (["workers"], "run {workers}", "takes NAME=VALUE,VALUE, not 'workers'"),
        (["batch=1"], "run {workers}", "--over batch: the command has no placeholder {batch}"),
        ([], "run {workers}", "the command has {workers}: add --over workers="),
        (["x="], "run {x}", "a value is empty"),
        (["x=1,,2"], "run {x}", "a value is empty"),
        (["x=1,1"], "run {x}", "a value is empty or named twice"),
        (["x=a/c.yaml,b/c.yaml"], "run {x}", "a value is empty or named twice"),
        (["x=1", "x=2"], "run {x}", "--over x is given twice"),
        (["x=" + ",".join(map(str, range(65)))], "run {x}", "at most 64 combinations"),
        ([], "run 'x", "--command: No closing quotation"),
        ([], "  ", "--command is empty"),
    ],
)
def test_a_wrong_over_is_one_sentence(over: list[str], command: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"--") as caught:
        parse_over(over, command)
    assert says in str(caught.value)


@given(st.lists(st.text("ab=,/0.5 {}", max_size=9), max_size=3), st.text("ab {}'", max_size=9))
def test_any_text_gives_distinct_cases_or_one_sentence(over: list[str], command: str) -> None:
    question = OwnQuestion("command", command, over=tuple(over))
    try:
        found = command_cases(question, Request())
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert 1 <= len(found) == len({case.id for case in found}) <= 64


def test_values_come_back_as_they_were_given() -> None:
    assert parse_over(["x=2,02,1e3,text, 7 "], "run {x}") == {"x": ["2", "02", "1e3", "text", "7"]}
