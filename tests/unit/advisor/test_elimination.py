"""Who leaves, and when it is over."""

from __future__ import annotations

import msgspec
from builders import block, case, machine, report, scenario, steady

from workbench.advisor import elimination
from workbench.records.document import SetupTimes, WarmUp
from workbench.records.machine import Isa

ROW = scenario()
A, B, C = case("cpu-a"), case("cpu-b"), case("cpu-c")
GPU = case("cuda:0-a")


def field(blocks, **options):
    return list(report(blocks, **options).candidates.values())


def leaving(found) -> list[str]:
    return [left.candidate.case.id for left in found]


def test_cpu_and_gpu_do_not_drop_each_other() -> None:
    candidates = field({A: steady(1.0), B: steady(3.0), GPU: steady(0.01)}, gpus=["cuda:0"])
    (left,) = elimination.beaten(candidates, ROW, rounds=8, entrants=3)
    assert left.candidate.case == B
    assert left.reason.message == "3x slower than cpu torch fp32 t8"


def test_precisions_apart_race_apart() -> None:
    fp64 = case("cpu-a", "fp64")
    candidates = field({A: steady(1.0), fp64: steady(9.0)})
    assert leaving(elimination.beaten(candidates, ROW, rounds=8, entrants=2)) == []


def test_nobody_leaves_before_the_third_round() -> None:
    candidates = field({A: steady(1.0, 2), B: steady(9.0, 2)})
    assert leaving(elimination.beaten(candidates, ROW, rounds=2, entrants=2)) == []


def test_an_error_above_the_limit_ends_it() -> None:
    candidates = field({A: steady(1.0), B: steady(1.0)}, errors={B: 0.02})
    assert leaving(elimination.inadmissible(candidates, ROW)) == [B.id]
    left, *_ = elimination.inadmissible(candidates, scenario(max_error=1e-12))
    assert left.reason.message == "its error is above the limit of 1e-12"


def test_the_far_slower_go_only_where_the_budget_is_tight() -> None:
    candidates = field({A: [[1.0]], B: [[2.0]], C: [[8.0]]})
    turn_s = {A.id: 1.0, B.id: 2.0, C.id: 8.0}
    loose = elimination.hopeless(candidates, ROW, turn_s=turn_s, left_s=100)
    tight = elimination.hopeless(candidates, ROW, turn_s=turn_s, left_s=7)
    assert leaving(loose) == []
    assert leaving(tight) == [C.id]


def test_whose_short_set_up_makes_up_for_slow_steps_is_not_hopeless() -> None:
    candidates = field({A: steady(0.1), B: steady(1.0)})
    for each, import_s in zip(candidates, (3.0, 0.5), strict=True):
        each.objective, each.setup = "time_to_result", SetupTimes(import_s=import_s)
    turn_s = {candidate.case.id: 1.0 for candidate in candidates}
    assert leaving(elimination.hopeless(candidates, ROW, turn_s=turn_s, left_s=1)) == []


def test_a_race_is_decided_by_ties_or_by_one_left() -> None:
    assert elimination.is_decided(field({A: steady(1.0)}), ROW)
    assert elimination.is_decided(field({A: steady(1.0), B: steady(1.001)}), ROW)
    assert not elimination.is_decided(field({A: steady(1.0, 3), B: steady(1.5, 3)}), ROW)


def test_once_nobody_can_be_ahead_by_more_than_the_tolerance_it_is_decided() -> None:
    slower, level = steady(1.06, 6, spread=0.02), steady(1.01, 6, spread=0.2)[::-1]
    assert elimination.is_decided(field({A: steady(1.0, 6), B: slower}), ROW)
    assert not elimination.is_decided(field({A: steady(1.0, 4), B: slower[:4]}), ROW)
    assert not elimination.is_decided(field({A: steady(1.0, 6), B: level}), ROW)


def test_those_apart_are_decided_among_themselves_and_nobody_decides_nothing() -> None:
    assert elimination.is_decided(field({case("cpu-a", "fp64"): steady(1.0)}), ROW)
    assert not elimination.is_decided([], ROW)


def test_a_tie_of_devices_need_not_be_known_better_for_ever() -> None:
    # Five percent apart, give or take as much: the words are `either` now and hardly another later.
    level = {A: steady(1.0, 20, spread=0.2), GPU: steady(1.03, 20, spread=0.2)[::-1]}
    assert elimination.is_decided(field(level, gpus=["cuda:0"]), ROW)
    short = {name: blocks[:10] for name, blocks in level.items()}
    assert not elimination.is_decided(field(short, gpus=["cuda:0"]), ROW)


def test_pick_and_runner_up_are_the_two_that_are_best_by_what_is_known() -> None:
    blocks = {A: [[3.0]], B: [[1.0]], C: [[2.0]], case("cpu-a", "fp64"): [[0.1]]}
    candidates = field(blocks, errors={B: 0.5})
    assert elimination.front(candidates, ROW) == [C.id, A.id]


def test_the_devices_must_be_told_apart_too() -> None:
    apart = field({A: steady(1.0), GPU: steady(0.5)}, gpus=["cuda:0"])
    level = field({A: steady(1.0, spread=0.4), GPU: steady(1.0, spread=0.5)[::-1]}, gpus=["cuda:0"])
    assert elimination.is_decided(apart, ROW)
    assert not elimination.is_decided(level, ROW)


def test_steady_is_narrow_or_as_narrow_as_it_gets() -> None:
    (narrow,) = field({A: steady(1.0, 4, spread=0.001)})
    (few,) = field({A: [[1.0], [1.0]]})
    (wild_but_short,) = field({A: [[1.0, 2.0, 3.0, 9.0]] * 4})
    # Alternating levels stay as wide as they are, however long one measures.
    (plateau,) = field({A: [[1.0] * 5, [2.0] * 5] * 10})
    assert elimination.is_steady(narrow)
    assert not elimination.is_steady(few)
    assert not elimination.is_steady(wild_but_short)
    assert elimination.is_steady(plateau)


def test_a_figure_repeats_when_both_halves_of_the_time_agree_on_it() -> None:
    (level,) = field({A: steady(1.0, 10)})
    (wandering,) = field({A: [[1.0] * 5] * 5 + [[1.03] * 5] * 5})
    (single,) = field({A: [[1.0] * 5]})
    assert elimination.repeats(level)
    assert not elimination.repeats(wandering)
    assert not elimination.repeats(single)


def test_a_single_long_step_condemns_only_what_the_processor_lacks() -> None:
    reduced = case("cpu-a", "fp16")
    candidates = field({A: [[1.0]], reduced: [[200.0]]})
    here = machine().cpu
    lacking = msgspec.structs.replace(here, isa=Isa(avx512_fp16=False))
    assert leaving(elimination.slower_precisions(candidates, here)) == []
    assert leaving(elimination.slower_precisions(candidates, lacking)) == [reduced.id]


def test_a_reduced_precision_far_behind_fp32_goes_after_one_block() -> None:
    emulated, native = case("cpu-a", "fp16"), case("cpu-a", "bf16")
    candidates = field({A: [[1.0]], emulated: [[200.0] * 3], native: [[0.5]]})
    (left,) = elimination.slower_precisions(candidates, machine().cpu)
    assert left.candidate.case == emulated
    assert left.reason.code == "slower_precision"
    assert "200x slower than fp32 in its first block" in left.reason.message


def test_who_has_no_sample_yet_is_compared_with_nobody() -> None:
    emulated = case("cpu-a", "fp16")
    for blocks in ({A: [], emulated: [[200.0] * 3]}, {A: [[1.0] * 3], emulated: []}):
        candidates = field({**blocks, GPU: [[1.0] * 3]}, gpus=["cuda:0"])
        turn_s = {c.case.id: 9.0 for c in candidates}
        assert leaving(elimination.slower_precisions(candidates, machine().cpu)) == []
        assert leaving(elimination.far_slower(candidates, ROW)) == []
        assert leaving(elimination.hopeless(candidates, ROW, turn_s=turn_s, left_s=1)) == []
        assert leaving(elimination.beaten(candidates, ROW, rounds=8, entrants=3)) == []
        assert len(elimination.front(candidates, ROW)) == 2


def test_without_fp32_beside_it_no_precision_is_called_slow() -> None:
    candidates = field({B: [[1.0]], case("cpu-a", "fp16"): [[200.0]]})
    assert leaving(elimination.slower_precisions(candidates[1:], machine().cpu)) == []


# ---------------------------------------------------------- the far slower


def test_the_far_slower_go_after_their_first_block() -> None:
    candidates = field({A: [[1.0] * 3], B: [[1.9] * 3], C: [[2.1] * 3]})
    (left,) = elimination.far_slower(candidates, ROW)
    assert left.candidate.case == C
    assert left.reason.code == "far_slower"
    assert left.reason.message.startswith("2.1x slower than cpu torch fp32 t8")


def test_few_samples_or_one_fast_one_condemn_nobody() -> None:
    candidates = field({A: [[1.0] * 3], B: [[9.0] * 2], C: [[9.0, 9.0, 1.5]]})
    assert leaving(elimination.far_slower(candidates, ROW)) == []


def test_a_first_block_that_its_warm_up_contradicts_is_not_believed() -> None:
    slow = case("cpu-b", "bf16")
    like = case("cpu-b")
    candidates = field({like: [[1.0] * 3], slow: [[50.0] * 3]})
    candidates[1].warmup = WarmUp(step_s=1.1)
    assert leaving(elimination.far_slower(candidates, ROW)) == []
    assert leaving(elimination.slower_precisions(candidates, None)) == []
    candidates[1].warmup = WarmUp(step_s=40.0)
    assert leaving(elimination.far_slower(candidates, ROW)) == [slow.id]
    assert leaving(elimination.slower_precisions(candidates, None)) == [slow.id]
    again = field({like: [[1.0] * 3] * 2, slow: [[50.0] * 3, [49.0] * 3]})
    again[1].warmup = WarmUp(step_s=1.1)
    (left,) = elimination.far_slower(again, ROW)
    assert left.reason.message.endswith("in its best of two blocks")


def test_with_two_blocks_the_rounds_decide() -> None:
    candidates = field({A: [[1.0] * 3] * 2, B: [[9.0] * 3] * 2})
    assert leaving(elimination.far_slower(candidates, ROW)) == []


def test_a_newcomer_is_compared_with_the_round_it_joined_in() -> None:
    candidates = field({A: [[1.0] * 3, [1.0] * 3, [5.0] * 3], B: [[6.0] * 3]})
    candidates[1].blocks = [block(B, 2, [6.0] * 3)]  # when everything was slow
    assert leaving(elimination.far_slower(candidates, ROW)) == []
    candidates[1].blocks = [block(B, 1, [6.0] * 3)]
    assert leaving(elimination.far_slower(candidates, ROW)) == [B.id]


def test_a_newcomer_whom_nobody_ran_beside_stays() -> None:
    candidates = field({A: [[1.0] * 3], B: [[9.0] * 3]})
    candidates[1].blocks = [block(B, 5, [9.0] * 3)]
    assert leaving(elimination.far_slower(candidates, ROW)) == []


def test_far_slower_is_judged_among_its_like() -> None:
    fp64 = case("cpu-a", "fp64")
    candidates = field({A: [[1.0] * 3], fp64: [[9.0] * 3], GPU: [[0.01] * 3]}, gpus=["cuda:0"])
    assert leaving(elimination.far_slower(candidates, ROW)) == []


def test_memory_and_energy_are_no_reason_to_go_early() -> None:
    for objective in ("memory", "energy", "time_to_result"):
        candidates = field({A: [[1.0] * 3], B: [[9.0] * 3]}, row=scenario(objective=objective))
        assert leaving(elimination.far_slower(candidates, ROW)) == []


def test_where_nothing_that_counts_is_known_nothing_is_decided() -> None:
    candidates = field({A: steady(1.0), B: steady(2.0)}, row=scenario(objective="memory"))
    assert not elimination.is_decided(candidates, scenario(objective="memory"))
    candidates[0].memory_peak_bytes = candidates[1].memory_peak_bytes = 1 << 20
    assert elimination.is_decided(candidates, scenario(objective="memory"))
