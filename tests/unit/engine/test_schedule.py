"""The time of a row's turns: the length of blocks and lead-ins, and whether further rounds fit."""

from types import SimpleNamespace
from typing import Any

import pytest
from builders import case, scenario
from fakes import CPU_A, CPU_B, IdleWorkload

from workbench.contract import DEVICE_KINDS, Case
from workbench.engine.schedule import (
    BLOCK_S,
    OVERDRAFT,
    SHORTEST_BLOCK_S,
    TAIL_SAMPLES,
    PreparedCase,
    RowTime,
    least_samples,
    timed_s,
)
from workbench.engine.workers import worker_key
from workbench.planning.plan import RowPlan
from workbench.stats.samples import MIN_PAIRS, MIN_SAMPLES_FOR_P99


def prepared(case: Case, step_s: float, iterations: int = 1) -> PreparedCase:
    return PreparedCase(case, worker_key(case), step_s=step_s, iterations=iterations)


def budget(*, until_s: float = 60.0, end_s: float = 60.0, **of_row: Any) -> RowTime:
    plan = RowPlan(scenario(textbook="", **of_row), IdleWorkload(), [CPU_A, CPU_B])
    clock: Any = SimpleNamespace(now=lambda: 10.0)
    return RowTime(plan, clock, until_s, end_s)


def test_a_turn_is_as_long_as_its_bounds_and_the_budget_let_it() -> None:
    field = [prepared(CPU_A, 1e-3), prepared(CPU_B, 1e-3)]
    assert budget().block_s(field) == BLOCK_S
    assert budget(until_s=11.6).block_s(field) == pytest.approx(0.1)
    assert budget(until_s=10.0).block_s(field) == SHORTEST_BLOCK_S


def test_a_long_step_has_no_lead_in() -> None:
    field = [prepared(CPU_A, 1.0), prepared(CPU_B, 0.01, iterations=2)]
    assert [budget().turn_s(each, field) for each in field] == [1.0, pytest.approx(0.24)]
    tails = budget(objective="latency_p99")
    assert tails.turn_s(prepared(CPU_A, 0.005), field) == pytest.approx(0.18)


def test_a_turn_has_time_for_inputs_that_are_made_anew() -> None:
    slow, quick = prepared(CPU_A, 1e-3), prepared(CPU_B, 1e-3)
    slow.restore_s, quick.restore_s = 3.0, 0.05
    turns_s = [budget().turn_s(each, [slow, quick]) for each in (slow, quick)]
    assert turns_s == [pytest.approx(6.001), pytest.approx(BLOCK_S + 3 * 0.05 + 2e-3)]
    slow.lead_in_s = 0.0
    assert budget().turn_s(slow, [slow]) == pytest.approx(6.001)


def test_a_block_of_tails_has_samples_for_one_but_takes_no_longer_than_a_second() -> None:
    tails = scenario(objective="latency_p99")
    assert [least_samples(tails, sample_s) for sample_s in (1.0, 0.05, 0.001)] == [1, 20, 34]
    assert least_samples(scenario(), 0.001) == 1
    assert timed_s(tails, 0.02) == pytest.approx(TAIL_SAMPLES * 0.02)
    assert timed_s(scenario(), 0.001) == SHORTEST_BLOCK_S


def test_tails_have_more_and_shorter_blocks() -> None:
    field = [prepared(CPU_A, 1e-3), prepared(CPU_B, 1e-3)]
    assert budget(objective="latency_p99").block_s(field) == BLOCK_S / 2
    assert budget(objective="latency_p99", until_s=11.6).block_s(field) == pytest.approx(0.05)
    assert MIN_PAIRS * TAIL_SAMPLES >= MIN_SAMPLES_FOR_P99


def test_a_gpu_has_the_longest_lead_in_until_its_own_is_known() -> None:
    on_gpu = prepared(case("cuda:0-a"), 0.01)
    settle_s = DEVICE_KINDS["cuda"].settle_s
    assert budget().turn_s(on_gpu, [on_gpu]) == pytest.approx(BLOCK_S + settle_s)
    on_gpu.lead_in_s = 0.06
    assert budget().turn_s(on_gpu, [on_gpu]) == pytest.approx(BLOCK_S + 0.06)


def test_the_rounds_for_an_interval_may_borrow_time() -> None:
    field = [prepared(CPU_A, 0.5), prepared(CPU_B, 0.5)]
    late = budget(until_s=10.0, end_s=60.0)
    assert late.usable_s(field, after=2) == OVERDRAFT * 50
    assert late.fits(field, after=1, rounds=2)
    assert not late.fits(field, after=3)
    assert late.fits(field[:1], after=1)  # a single round shows no spread
    assert not late.fits(field[:1], after=2)  # alone, it has no ratio
    assert not budget(until_s=10.0, end_s=20.0).fits(field, after=1)
