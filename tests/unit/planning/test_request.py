"""Requests are checked before anything runs, and can be written down again."""

from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st
from plans import parsed

from workbench.cli import main, measure
from workbench.contract import Parameter
from workbench.planning.number_lists import whole_numbers, words as apart
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request, check, check_device, fake_devices
from workbench.planning.usage import UsageError

MODEL = ModelQuestion("m.onnx")


@pytest.mark.parametrize("device", ["cpu", "gpu", "cuda:0", "cuda:12", "fake:0", "fake:1@0.5"])
def test_devices_that_have_a_right_form(device: str) -> None:
    check_device(device)


@pytest.mark.parametrize(
    "device", ["", "cuda", "cuda:", "cuda:x", "cuda:0@2", "fake:0@", "fake:0@x", "tpu"]
)
def test_devices_that_have_a_wrong_form(device: str) -> None:
    with pytest.raises(UsageError, match="Choices"):
        check_device(device)


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "1e300", "1e-300"])
def test_a_speed_that_no_device_could_have_is_refused(speed: str) -> None:
    with pytest.raises(UsageError, match=r"between 0\.001 and 10000"):
        check_device(f"fake:0@{speed}")


def test_a_fake_device_has_a_speed() -> None:
    assert fake_devices(Request(devices=("cpu", "fake:0@8", "fake:1"))) == {
        "fake:0": 8.0,
        "fake:1": 4.0,
    }


@given(st.floats() | st.integers(-(10**6), 10**6))
def test_a_number_out_of_range_is_refused(number: float) -> None:
    parameter = Parameter("x", 1.0, "a number", 0.5, 2.0)
    if 0.5 <= number <= 2.0:
        assert parameter.parse(str(number)) == number
    else:
        with pytest.raises(ValueError, match=r"between 0\.5 and 2"):
            parameter.parse(str(number))


OF_ADVISE = (
    "strict", "scenario_file", "all_scenarios", "crossover", "prices", "price_file", "what_if"
)  # fmt: skip
words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
some_numbers = st.lists(st.integers(1, 10**7), max_size=3, unique=True).map(tuple)
some_words = st.lists(words, max_size=3).map(tuple)


@given(
    st.builds(
        Request,
        scenarios=some_words,
        budget_s=st.none() | st.floats(1, 86_400),
        quick=st.booleans(),
        thorough=st.booleans(),
        devices=some_words,
        backends=some_words,
        precisions=some_words,
        modes=some_words,
        threads=some_numbers,
        batch=some_numbers,
        settings=st.lists(st.text(max_size=8).map("a=".__add__), max_size=3).map(tuple),
        python=st.none() | words,
        seed=st.integers(0, 2**31 - 1),
        strict=st.booleans(),
        strict_samples=st.booleans(),
        scenario_file=st.none() | words,
        all_scenarios=st.booleans(),
        crossover=st.booleans(),
        prices=some_words,
        price_file=st.none() | words,
        what_if=some_words,
    ),
    st.booleans(),
)
@example(Request(every=True, quick=True), False)
@example(Request(scenario_file="my own.toml"), False)
@example(Request(workloads=("digits",), batch=(1, 2, 4), settings=("a=1..8",)), False)
def test_any_request_survives_its_own_command_line(request_: Request, turned: bool) -> None:
    if turned:
        defaults = {name: getattr(Request(), name) for name in OF_ADVISE}
        request_ = replace(request_, workloads=request_.scenarios, scenarios=(), **defaults)
    assert parsed(request_.arguments()) == request_


def test_lists_with_commas_are_taken_apart() -> None:
    seen: list[Request] = []

    def record(request, *_):
        seen.append(request)
        raise UsageError("far enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.planning.rows.resolve", record)
        with pytest.raises(UsageError, match="far enough"):
            words = "advise --device cpu,fake:0@8 --precision fp32 --precision bf16,"
            main.cli.main(words.split(), standalone_mode=False)
    assert seen[0].devices == ("cpu", "fake:0@8")
    assert seen[0].precisions == ("fp32", "bf16")


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        (Request(), 45),
        (Request(quick=True), 17),
        (Request(crossover=True), 60),
        (Request(workloads=("matmul",), quick=True), 20),
        (Request(thorough=True), 300),
        (Request(quick=True, budget_s=7), 7),
        (Request(all_scenarios=True), 300),
        (Request(all_scenarios=True, quick=True), 60),
    ],
)
def test_the_budget_is_the_one_given_or_that_of_the_pace(given: Request, budget: float) -> None:
    assert given.budget == budget


def test_without_a_command_it_is_advise_with_all_its_options(monkeypatch) -> None:
    asked: list[dict] = []
    monkeypatch.setattr(measure, "start", lambda options, **rest: asked.append({**options, **rest}))
    given = ["--quick", "--price=cpu=0.1", "--what-if=h200", "--crossover", "--all", "--model=m"]
    for command in (given, ["advise", *given]):
        main.cli.main(command, standalone_mode=False)
    plain, advise = asked
    assert plain == advise
    found = plain["prices"], plain["all_scenarios"], plain["question"].target
    assert found == (("cpu=0.1",), True, "m")


@pytest.mark.parametrize("option", ["--quick", "--price=cpu=1", "--set=n=1", "--json"])
def test_a_group_option_before_a_command_is_refused_by_its_name(option: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(UsageError, match=f"put {name} after workbench advise, if"):
        main.cli.main([option, "advise"], standalone_mode=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Request(all_scenarios=True, scenarios=("a", "b")), "leave out --all or a b"),
        (
            Request(question=MODEL, all_scenarios=True),
            "these options do not apply to --model: --all",
        ),
        (
            Request(question=MODEL, scenario_file="x", crossover=True, what_if=("H100",)),
            "do not apply to --model: --scenarios, --crossover, --what-if",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(given: Request, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(given)


def test_a_run_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="name a workload, or --all: bandwidth, "):
        main.cli.main(["run"], standalone_mode=False)


def test_words_are_given_between_commas_one_by_one_or_both() -> None:
    assert apart(["fp32, bf16", "fp64,", ""]) == ("fp32", "bf16", "fp64")


def test_whole_numbers_name_the_option_that_is_wrong() -> None:
    assert whole_numbers("--batch", "1..8,64") == (1, 2, 4, 8, 64)
    with pytest.raises(UsageError, match="--batch takes whole numbers"):
        whole_numbers("--batch", "many")
