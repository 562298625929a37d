"""When a race is over."""

from dataclasses import replace

import pytest
from builders import case, scenario, steady
from fakes import CPU_A, CPU_B, CPU_C, field, standings

from workbench.advisor import stopping
from workbench.advisor.crossover import MOST_POINTS
from workbench.contract import Accuracy, Case
from workbench.records.document import SetupTimes
from workbench.report.measurements import measurement_warnings

ROW = scenario()
GPU = case("cuda:0-a")


def test_a_race_is_decided_by_ties_or_by_one_left() -> None:
    assert stopping.is_decided(field({CPU_A: steady(1.0)}), ROW)
    assert stopping.is_decided(field({CPU_A: steady(1.0), CPU_B: steady(1.001)}), ROW)
    assert not stopping.is_decided(field({CPU_A: steady(1.0, 3), CPU_B: steady(1.5, 3)}), ROW)


def test_a_race_is_decided_once_no_rival_can_lead_by_more_than_the_tolerance() -> None:
    slower, level = steady(1.06, 6, spread=0.02), steady(1.01, 6, spread=0.2)[::-1]
    assert stopping.is_decided(field({CPU_A: steady(1.0, 6), CPU_B: slower}), ROW)
    assert not stopping.is_decided(field({CPU_A: steady(1.0, 4), CPU_B: slower[:4]}), ROW)
    assert not stopping.is_decided(field({CPU_A: steady(1.0, 6), CPU_B: level}), ROW)


def test_reference_only_precisions_are_decided_among_themselves() -> None:
    assert stopping.is_decided(field({case("cpu-a", "fp64"): steady(1.0)}), ROW)
    assert not stopping.is_decided([], ROW)


def test_a_tie_of_devices_is_settled_after_enough_rounds() -> None:
    # Five percent apart, give or take as much: the words are `either` now and hardly another later.
    level = {CPU_A: steady(1.0, 20, spread=0.2), GPU: steady(1.03, 20, spread=0.2)[::-1]}
    assert stopping.is_decided(field(level, gpus=["cuda:0"]), ROW)
    short = {name: blocks[:10] for name, blocks in level.items()}
    assert not stopping.is_decided(field(short, gpus=["cuda:0"]), ROW)


def test_the_devices_must_be_distinguished_too() -> None:
    distinct = field({CPU_A: steady(1.0), GPU: steady(0.5)}, gpus=["cuda:0"])
    level = field(
        {CPU_A: steady(1.0, spread=0.4), GPU: steady(1.0, spread=0.5)[::-1]}, gpus=["cuda:0"]
    )
    assert stopping.is_decided(distinct, ROW)
    assert not stopping.is_decided(level, ROW)


def test_steady_is_narrow_or_as_narrow_as_it_gets() -> None:
    (narrow,) = field({CPU_A: steady(1.0, 4, spread=0.001)})
    (few,) = field({CPU_A: [[1.0], [1.0]]})
    (wild_but_short,) = field({CPU_A: [[1.0, 2.0, 3.0, 9.0]] * 4})
    # Alternating levels stay as wide as they are, however long one measures.
    (plateau,) = field({CPU_A: [[1.0] * 5, [2.0] * 5] * 10})
    assert stopping.is_steady(narrow)
    assert not stopping.is_steady(few)
    assert not stopping.is_steady(wild_but_short)
    assert stopping.is_steady(plateau)


def test_where_start_up_counts_a_step_is_a_part_of_what_must_be_steady() -> None:
    (found,) = field({CPU_A: [[1.0], [1.2], [0.9], [1.1], [0.8], [1.0]]})
    assert not stopping.is_steady(found, stopping.WIDE)
    found.objective, found.setup = "time_to_result", SetupTimes(import_s=9.0)
    assert found.step_share == pytest.approx(0.1)
    assert stopping.is_steady(found, stopping.WIDE)
    assert not [w.code for w in measurement_warnings(found)]
    found.blocks = found.blocks[:4]  # too few for an interval
    assert not stopping.is_steady(found, stopping.WIDE)
    assert [w.code for w in measurement_warnings(found)] == ["few_samples"]


def test_a_figure_repeats_when_both_halves_of_the_time_agree_on_it() -> None:
    (level,) = field({CPU_A: steady(1.0, 10)})
    (wandering,) = field({CPU_A: [[1.0] * 5] * 5 + [[1.03] * 5] * 5})
    (single,) = field({CPU_A: [[1.0] * 5]})
    assert stopping.repeats(level)
    assert not stopping.repeats(wandering)
    assert not stopping.repeats(single)


def test_a_plain_run_goes_on_while_a_figure_does_not_repeat() -> None:
    plain, halves = scenario(textbook=None), ([[1.0] * 5] * 8, [[1.03] * 5] * 8)
    for blocks, is_over in ((halves[0] * 2, True), (halves[0] + halves[1], False)):
        candidates = field({CPU_A: blocks, CPU_B: steady(2.0, 16)}, row=plain)
        assert all(map(stopping.is_steady, candidates))
        assert stopping.is_over(standings(candidates, plain, rounds=16)) is is_over


def test_a_lead_at_one_point_shares_its_error_with_the_other_points() -> None:
    slower = [[1.02], [1.1], [1.03], [1.08], [1.04], [1.12]]
    candidates = field({CPU_A: steady(1.0, 6), CPU_B: slower})
    assert [stopping.is_proven(candidates, claims) for claims in (1, MOST_POINTS)] == [True, False]


def test_without_a_value_of_the_objective_nothing_is_decided() -> None:
    candidates = field({CPU_A: steady(1.0), CPU_B: steady(2.0)}, row=scenario(objective="memory"))
    assert not stopping.is_decided(candidates, scenario(objective="memory"))
    candidates[0].memory_peak_bytes = candidates[1].memory_peak_bytes = 1 << 20
    assert stopping.is_decided(candidates, scenario(objective="memory"))


def test_a_point_of_a_crossover_does_not_wait_for_what_may_not_be_picked() -> None:
    first, second, wrong = field({CPU_A: steady(1.0), CPU_B: steady(1.6), CPU_C: steady(0.5, 1)})
    found = standings([first, second], rounds=8)
    at_a_point = replace(found.plan, of="row")
    found = replace(found, plan=at_a_point, measured=[wrong, first, second])
    assert not stopping.is_over(found)
    wrong.accuracy = Accuracy("relative_error", 0.5, "", 0.01, False)
    assert stopping.is_over(found)


def test_a_race_ends_while_only_the_time_of_a_third_is_uncertain() -> None:
    loser = steady(3.0, spread=0.5)
    third = field({CPU_A: steady(1.0), CPU_B: steady(1.6), CPU_C: loser})
    assert not stopping.is_steady(third[2], stopping.WIDE)
    assert stopping.is_over(standings(third, rounds=8))
    second = field({CPU_A: steady(1.0), CPU_C: loser})
    assert not stopping.is_over(standings(second, rounds=8))


@pytest.mark.parametrize(("rounds", "ended"), [(15, [CPU_A]), (30, [CPU_A, GPU])])
def test_one_candidate_on_a_gpu_is_measured_until_its_energy_counter_can_count(
    rounds: int, ended: list[Case]
) -> None:
    plain = scenario(textbook=None)
    for one in (CPU_A, GPU):
        alone = field({one: steady(1.0, rounds)}, gpus=["cuda:0"], row=plain)
        assert stopping.is_over(standings(alone, plain, rounds=rounds)) == (one in ended)
