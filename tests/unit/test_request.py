"""Requests are checked before anything runs, and can be written down again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
from builders import machine
from hypothesis import given
from hypothesis import strategies as st

from workbench import catalog, cli
from workbench.advisor import scenarios
from workbench.contract import Parameter
from workbench.request import (
    Request,
    UsageError,
    check_device,
    fake_devices,
    fill_cases,
    parse_settings,
    resolve,
)

SHIPPED = scenarios.load()


def plan(request: Request, *gpus: str):
    rows = resolve(request, SHIPPED)
    fill_cases(rows, request, machine(*gpus))
    return rows


def test_by_default_all_scenarios_are_raced_in_their_order() -> None:
    rows = plan(Request())
    assert [row.scenario.id for row in rows] == list(SHIPPED)
    assert all(row.cases for row in rows)


def test_no_two_rows_share_workload_and_parameters() -> None:
    for request in (Request(), Request(quick=True)):
        ids = [case.id for row in plan(request, "cuda:0") for case in row.cases]
        assert len(ids) == len(set(ids))


def test_one_gpu_of_each_kind_is_raced() -> None:
    (row,) = plan(Request(scenarios=("floating_point",)), "cuda:0", "cuda:1")
    assert {case.device for case in row.cases} == {"cpu", "cuda:0"}
    precisions = [case.precision for case in row.cases if case.device == "cuda:0"]
    assert sorted(precisions) == ["bf16", "fp16", "fp32", "fp64", "tf32"]


def test_filters_narrow_the_field() -> None:
    (row,) = plan(Request(scenarios=("floating_point",), precisions=("bf16",), devices=("cpu",)))
    assert [case.label for case in row.cases] == ["cpu/torch/bf16/t8"]
    with pytest.raises(UsageError, match="no contender left"):
        plan(Request(scenarios=("floating_point",), precisions=("int8",)))


def test_thread_counts_never_exceed_the_effective_cores() -> None:
    (row,) = plan(Request(scenarios=("realtime",)))
    assert {case.threads for case in row.cases} == {2}
    (row,) = plan(Request(scenarios=("prototyping",)))
    assert {case.threads for case in row.cases} == {1, 8}


def test_settings_replace_parameters() -> None:
    (row,) = plan(Request(scenarios=("floating_point",), settings=("n=128",)))
    assert {case.params["n"] for case in row.cases} == {128}


def test_a_quick_row_is_smaller() -> None:
    (full,), (quick,) = (
        plan(Request(scenarios=("floating_point",), quick=fast)) for fast in (False, True)
    )
    assert quick.cases[0].params["n"] < full.cases[0].params["n"] == 4096


@pytest.mark.parametrize("device", ["cpu", "gpu", "cuda:0", "cuda:12", "fake:0", "fake:1@0.5"])
def test_devices_that_have_a_right_form(device: str) -> None:
    check_device(device)


@pytest.mark.parametrize(
    "device",
    ["", "cuda", "cuda:", "cuda:x", "cuda:0@2", "fake:0@0", "fake:0@nan", "tpu"],
)
def test_devices_that_have_a_wrong_form(device: str) -> None:
    with pytest.raises(UsageError, match="Choices"):
        check_device(device)


def test_a_fake_device_has_a_speed() -> None:
    assert fake_devices(Request(devices=("cpu", "fake:0@8", "fake:1"))) == {
        "fake:0": 8.0,
        "fake:1": 4.0,
    }


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_setting_is_parsed_or_refused_in_one_line(name: str, value: str) -> None:
    workload = catalog.load("matmul")
    try:
        found = parse_settings(workload, [f"{name}={value}"])
    except UsageError as error:
        assert str(error)
    else:
        assert 1 <= found["n"] <= 65536


@given(st.floats() | st.integers(-(10**6), 10**6))
def test_a_number_out_of_range_is_refused(number: float) -> None:
    parameter = Parameter("x", 1.0, "a number", 0.5, 2.0)
    if 0.5 <= number <= 2.0:
        assert parameter.parse(str(number)) == number
    else:
        with pytest.raises(ValueError, match=r"between 0\.5 and 2"):
            parameter.parse(str(number))


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(quick=True, strict=True, seed=3),
        Request(scenarios=("realtime", "training"), budget_s=12.5, devices=("cpu", "fake:0@8")),
        Request(workloads=("matmul",), settings=("n=256",), precisions=("fp32",), threads=1),
        Request(workloads=("digits",), batch=32, backends=("torch",), thorough=True),
    ],
)
def test_a_request_survives_its_own_command_line(request_: Request, monkeypatch) -> None:
    seen: list[Request] = []

    def record(options, scenarios=(), workloads=()):
        given = {n: v for n, v in options.items() if n in Request.__dataclass_fields__}
        seen.append(Request(scenarios=scenarios, workloads=workloads, **given))

    monkeypatch.setattr(cli, "start", record)
    cli.cli.main(request_.arguments(), standalone_mode=False)
    assert seen == [request_]


def test_a_group_option_before_a_command_is_refused() -> None:
    with pytest.raises(UsageError, match="behind the command"):
        cli.cli.main(["--quick", "advise"], standalone_mode=False)
    with pytest.raises(click.UsageError):
        cli.cli.main(["run"], standalone_mode=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "scenario"),
        ("[[scenario]]\nid = 3", "str"),
        ("[[scenario]\n", "line 1"),
        ("[[scenario]]\nid = 'x'\ncolour = 'red'", "scenario"),
    ],
)
def test_a_broken_scenario_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(scenarios.ScenarioError, match=told) as caught:
        scenarios.load(file)
    assert "\n" not in str(caught.value)


def test_the_seed_and_python_travel_too() -> None:
    request = replace(Request(), python="/usr/bin/python3", seed=9)
    assert request.arguments() == ["--python", "/usr/bin/python3", "--seed", "9"]
