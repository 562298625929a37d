"""The break-even points of a verdict: where two totals are level, and how firmly that is said."""

import math
from dataclasses import replace

import pytest
from builders import case, scenario, steady
from hypothesis import given, strategies as st
from money import priced_report

from workbench.advisor.break_even import break_even, plain, sentence, sentences
from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.records.document import SetupTimes
from workbench.records.verdict import Payoff, Verdict

CPU, GPU = case("cpu-a"), case("cuda:0-a")
COMPILED = replace(CPU, mode="compile")
SOON, LATE = SetupTimes(import_s=1.0), SetupTimes(import_s=1.0, build_s=0.5, compile_s=2.5)
seconds = st.floats(1e-6, 1e4)


def verdict(blocks, row=None, **options) -> Verdict:
    row = row or scenario()
    return decide(priced_report(blocks, row=row, **options), row)


# --------------------------------------------------------------- break-even


@given(seconds, seconds, seconds, seconds)
def test_at_the_break_even_point_both_totals_are_equal(f_a, s_a, f_b, s_b) -> None:
    steps = break_even(f_a, s_a, f_b, s_b)
    if steps:
        assert f_a + steps * s_a == pytest.approx(f_b + steps * s_b, rel=1e-9)
        assert f_a > f_b
        assert s_a < s_b


@given(seconds, seconds, seconds, seconds)
def test_never_means_never_ahead_and_zero_means_always_ahead(f_a, s_a, f_b, s_b) -> None:
    steps = break_even(f_a, s_a, f_b, s_b)
    for n in (1, 1000):
        if steps is None:
            assert s_a >= s_b
        elif steps == 0:
            assert f_a + n * s_a <= f_b + n * s_b


@given(seconds, seconds, seconds, seconds, st.floats(0.1, 10))
def test_another_unit_of_time_changes_no_number_of_steps(f_a, s_a, f_b, s_b, unit) -> None:
    steps = break_even(f_a, s_a, f_b, s_b)
    again = break_even(f_a * unit, s_a * unit, f_b * unit, s_b * unit)
    if steps and again and abs(s_a / s_b - 1) > 1e-3 and abs(f_a / f_b - 1) > 1e-3:
        assert again == pytest.approx(steps, rel=1e-6)


# ---------------------------------------------------------------- a verdict


def test_compilation_pays_off_after_as_many_steps_as_it_saves() -> None:
    found = verdict(
        {CPU: steady(0.010), COMPILED: steady(0.005)}, setups={CPU: SOON, COMPILED: LATE}
    )
    (one,) = found.payoffs  # the pick over who starts soonest is the same pair
    assert (one.id, one.over) == (COMPILED.id, CPU.id)
    assert (one.fixed_s, one.over_fixed_s) == (4.0, 1.0)
    assert one.steps == pytest.approx(3.0 / 0.005, rel=0.02)
    assert one.items == pytest.approx(one.steps * 64)
    low, high = one.steps_ci95
    assert low < one.steps < high
    total = one.fixed_s + one.steps * one.step_s
    assert total == pytest.approx(one.over_fixed_s + one.steps * one.over_step_s)
    (text,) = sentences(found)
    ci = f"95% CI {math.ceil(low)}-{math.ceil(high)}"
    assert f"601 steps ({ci}; 7.00 s with start-up)" in text


@pytest.mark.parametrize(
    ("mode", "without"),
    [
        ("compile", None),
        ("max-autotune", None),
        ("tensorrt", None),
        ("compile+reduce-overhead", None),
        ("nhwc+compile", "nhwc"),
        (None, None),
    ],
)
def test_what_a_compiled_candidate_is_set_against(mode: str | None, without: str | None) -> None:
    assert plain(replace(case("cpu"), mode=mode)).mode == without


def test_a_gpu_that_is_faster_and_ready_sooner_is_ahead_from_the_first() -> None:
    found = verdict({CPU: steady(0.01), GPU: steady(0.001)}, setups={CPU: LATE, GPU: SOON})
    (one,) = found.payoffs
    assert (one.id, one.steps, one.steps_ci95, one.items) == (GPU.id, 0.0, None, 0.0)
    assert "from the first step" in sentences(found)[0]


def test_a_gpu_that_is_slower_and_ready_later_never_pays() -> None:
    found = verdict({CPU: steady(0.01), GPU: steady(0.02)}, setups={CPU: SOON, GPU: LATE})
    (one,) = found.payoffs
    assert (one.id, one.steps, one.items) == (GPU.id, None, None)
    assert "never breaks even: a step takes 2.00x as long" in sentences(found)[0]


def test_the_one_with_the_larger_fixed_cost_is_the_one_that_catches_up() -> None:
    other = case("cpu-b")
    blocks = {CPU: steady(0.01), GPU: steady(0.02), other: steady(0.03)}
    _, one = verdict(blocks, setups={CPU: LATE, GPU: SOON, other: SetupTimes()}).payoffs
    assert (one.id, one.over) == (CPU.id, GPU.id)
    assert one.steps == pytest.approx(300, rel=0.02)
    assert one.steps_ci95 == pytest.approx((one.steps, one.steps), rel=0.1)


def test_fixed_costs_that_differ_as_observations_do_are_no_pair() -> None:
    near = {CPU: SetupTimes(import_s=2.0), GPU: SetupTimes(import_s=2.1)}
    assert verdict({CPU: steady(0.01), GPU: steady(0.001)}, setups=near).payoffs == []
    brief = {CPU: SetupTimes(build_s=0.001), GPU: SetupTimes(build_s=0.006)}
    assert verdict({CPU: steady(0.01), GPU: steady(0.001)}, setups=brief).payoffs == []


@pytest.mark.parametrize(("import_s", "choice"), [(0.1, "gpu"), (4.0, "cpu")])
def test_the_device_named_for_one_run_is_the_one_that_has_paid_off_by_then(
    import_s: float, choice: str
) -> None:
    report = priced_report(
        {CPU: steady(0.9), GPU: steady(0.1)},
        setups={CPU: SetupTimes(import_s=0.05), GPU: SetupTimes(import_s=import_s)},
        row=scenario(objective="time_to_result"),
    )
    found = decide(report, scenario(objective="time_to_result"))
    assert found.choice == choice
    assert all(payoff.steps > 1 for payoff in found.payoffs) == (choice == "cpu")


def test_what_two_share_does_not_hide_what_sets_them_apart() -> None:
    setups = {CPU: SetupTimes(import_s=9.0), COMPILED: SetupTimes(import_s=9.0, compile_s=0.3)}
    found = verdict({CPU: steady(0.02), COMPILED: steady(0.01)}, setups=setups)
    assert found.payoffs[0].steps == pytest.approx(30, rel=0.05)


def test_the_first_call_counts_beyond_a_steady_one() -> None:
    report = priced_report({CPU: steady(0.01), GPU: steady(0.001)}, first_s={CPU: 0.01, GPU: 0.901})
    cpu, gpu = report.rows["row"].candidates
    assert cpu.fixed_s == pytest.approx(1.0, abs=1e-3)
    assert gpu.fixed_s == pytest.approx(1.9, abs=1e-3)
    assert decide(report, scenario()).payoffs[0].steps == pytest.approx(100, rel=0.05)


def test_steps_that_cannot_be_distinguished_have_no_interval_and_no_promise() -> None:
    setups = {CPU: SOON, COMPILED: LATE}
    found = verdict({CPU: steady(0.01), COMPILED: steady(0.00999)}, setups=setups)
    (one,) = found.payoffs
    assert one.steps is not None
    assert one.steps_ci95 is None
    assert "steps cannot be distinguished: 1.00x" in sentences(found)[0]


def test_steps_whose_ratio_says_nothing_have_no_number_after_which_they_break_even() -> None:
    wild = [[0.001], [0.3], [0.002], [0.2]]
    found = verdict({CPU: steady(0.02, 4), COMPILED: wild}, setups={CPU: SOON, COMPILED: LATE})
    (text,) = sentences(found)
    assert "cannot be distinguished: the ratio varies (95% CI" in text
    assert "break even" not in text


@pytest.mark.parametrize("step", [0.00999, 0.010001])
def test_nothing_firm_is_said_of_steps_that_cannot_be_distinguished(step: float) -> None:
    for late in (CPU, COMPILED):
        setups = {CPU: SOON, COMPILED: SOON, late: LATE}
        found = verdict({CPU: steady(0.01), COMPILED: steady(step)}, setups=setups)
        (one,) = found.payoffs
        low, high = one.step_ratio_ci95
        assert low < 1 < high
        assert low < one.over_step_s / one.step_s < high
        (text,) = sentences(found)
        assert "never" not in text
        assert "leads" not in text
        assert "1.00x (95% CI 0.99-1.01)" in text
        assert "may break even" in text or "breaks even" not in text


def test_a_lead_of_too_few_rounds_is_no_promise_either() -> None:
    found = verdict({CPU: [[0.01]], GPU: [[0.001]]}, setups={CPU: LATE, GPU: SOON})
    (one,) = found.payoffs
    assert (one.steps, one.step_ratio_ci95) == (0.0, None)
    assert "Too few rounds" in sentences(found)[0]


def test_steps_are_those_of_the_rounds_both_took_part_in() -> None:
    # After the eight rounds they share everything gets three times as slow.
    blocks = {CPU: steady(0.010), COMPILED: steady(0.005) + steady(0.015, 20)}
    (one,) = verdict(blocks, setups={CPU: SOON, COMPILED: LATE}).payoffs
    assert (one.id, one.over) == (COMPILED.id, CPU.id)
    assert one.step_s == pytest.approx(0.015, rel=0.02)
    assert one.over_step_s == pytest.approx(0.030, rel=0.02)
    low, high = one.steps_ci95
    assert low < one.steps < high
    assert one.steps == pytest.approx(3.0 / (one.over_step_s - one.step_s))


def test_int8_is_set_against_fp32_of_its_device_and_backend() -> None:
    int8 = Case("work", "cpu", "torch", "int8", "dynamic", threads=8, params={"of": "a"})
    row = scenario(precisions=("fp32", "int8"))
    setups = {CPU: SOON, int8: LATE, GPU: SOON}
    found = verdict(
        {CPU: steady(0.02), int8: steady(0.01), GPU: steady(0.001)}, row=row, setups=setups
    )
    pairs = [(p.id, p.over) for p in found.payoffs]
    assert pairs == [(GPU.id, int8.id), (int8.id, CPU.id)]


def test_a_candidate_that_may_not_be_picked_has_no_break_even_point() -> None:
    double = case("cpu-a", "fp64")
    found = verdict({CPU: steady(0.01), double: steady(0.001)}, setups={CPU: SOON, double: LATE})
    assert found.payoffs == []


def test_whole_runs_are_called_runs() -> None:
    row = scenario(objective="time_to_result")
    found = verdict({CPU: steady(1.0), GPU: steady(0.45)}, row=row, setups={CPU: SOON, GPU: LATE})
    assert "breaks even after about 6 runs (" in sentences(found)[0]


@given(
    st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-9, 1e4), st.floats(1e-9, 1e4), st.booleans()
)
def test_every_payoff_can_be_said(fixed, over_fixed, step, over_step, known: bool) -> None:
    steps = break_even(fixed, step, over_fixed, over_step)
    ci95 = (steps * 0.9, steps * 1.1) if steps and known else None
    ids = "work[]/cuda:0/torch/fp32", "work[]/cpu/torch/fp32/t8"
    ratio = (0.9 * over_step / step, 1.1 * over_step / step) if known else None
    text = sentence(Payoff(*ids, fixed, over_fixed, step, over_step, steps, ci95, None, ratio))
    assert text.startswith("cuda:0 torch fp32 ")
    assert text.endswith(".")
    assert "nan" not in text
    assert "inf" not in text


def test_more_time_is_not_advised_where_start_ups_leave_it_open() -> None:
    row = scenario(objective="time_to_result")
    setups = {CPU: SetupTimes(import_s=2.0), GPU: SetupTimes(import_s=2.6)}
    report = priced_report({CPU: steady(0.01), GPU: steady(0.01)}, setups=setups, row=row)
    found = decide(report, row)
    assert found.choice in ("either", "unknown")
    assert "--budget" not in found.next_best.partition("`")[0]
    assert "time" not in found.next_best
    assert all("--budget" not in w.remedy for w in found.warnings if w.code == "pick_unsettled")
