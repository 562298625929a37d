"""Which candidates leave a race."""

from dataclasses import replace

import msgspec
import pytest
from builders import block, case, machine, scenario, steady
from fakes import CPU_A, CPU_B, CPU_C, field, standings

from workbench.advisor import elimination
from workbench.advisor.crossover import MOST_POINTS
from workbench.records.document import SetupTimes, WarmUp
from workbench.records.machine import Isa

GPU, FP64 = case("cuda:0-a"), case("cpu-a", "fp64")


def leaving(eliminated) -> list[str]:
    """Ids of the cases that a rule eliminates."""
    return [left.candidate.case.id for left in eliminated]


def gone_by(rule, candidates, *given, **options) -> list[str]:
    """Ids of the cases that a rule eliminates among these candidates."""
    return leaving(rule(standings(candidates, *given, **options)))


def due(race) -> list[str]:
    """Names of the rules that apply."""
    return [rule.find.__name__ for rule in elimination.RULES if rule.applies(race)]


def test_a_plain_run_eliminates_for_time_only_after_its_first_round() -> None:
    candidates, plain = field({CPU_A: [[1.0]], CPU_B: [[8.0] * 3]}), scenario(textbook=None)
    race = standings(candidates, plain, usable_s=1)
    assert due(race) == ["slower_precisions", "too_slow_for_budget"]
    assert leaving(elimination.too_slow_for_budget(race)) == [CPU_B.id]
    assert leaving(elimination.too_slow_for_budget(replace(race, rounds=3))) == []


def test_few_samples_eliminate_in_a_second_round_or_far_behind() -> None:
    def gone(blocks: list[list[float]], rounds: int) -> list[str]:
        candidates = field({CPU_A: [[1.0]] * rounds, CPU_B: blocks})
        race = standings(candidates, rounds=rounds, usable_s=1)
        return leaving(elimination.too_slow_for_budget(race))

    assert gone([[8.0, 9.0]], 1) == []
    assert gone([[8.0, 8.5, 9.0]], 1) == gone([[10.0]], 1) == [CPU_B.id]
    assert gone([[8.0], [8.0]], 2) == [CPU_B.id]
    assert gone([[8.0], [1.2]], 2) == []


def test_where_there_is_a_pick_the_inadmissible_leave_first() -> None:
    first, *_ = due(standings(field({CPU_A: steady(1.0)})))
    assert first == "inadmissible"


def test_a_point_of_a_crossover_shares_its_error_with_the_other_points() -> None:
    race = standings(field({CPU_A: steady(1.0), CPU_B: steady(2.0)}))
    assert race.pairs == 1
    assert replace(race, plan=replace(race.plan, of="row")).pairs >= MOST_POINTS


def test_cpu_and_gpu_do_not_eliminate_each_other() -> None:
    candidates = field({CPU_A: steady(1.0), CPU_B: steady(3.0), GPU: steady(0.01)}, gpus=["cuda:0"])
    (left,) = elimination.proven_slower(standings(candidates, rounds=8))
    assert left.candidate.case == CPU_B
    assert left.reason.message == "3.00x slower than cpu torch fp32 t8"


def test_reference_only_precisions_race_among_themselves() -> None:
    candidates = field({CPU_A: steady(1.0), FP64: steady(9.0)})
    assert gone_by(elimination.proven_slower, candidates, rounds=8) == []


def test_no_candidate_is_proven_slower_before_the_third_round() -> None:
    candidates = field({CPU_A: steady(1.0, 2), CPU_B: steady(9.0, 2)})
    assert gone_by(elimination.proven_slower, candidates, rounds=2) == []


def test_an_error_above_the_limit_ends_it() -> None:
    candidates = field({CPU_A: steady(1.0), CPU_B: steady(1.0)}, errors={CPU_B: 0.02})
    assert gone_by(elimination.inadmissible, candidates) == [CPU_B.id]
    left, *_ = elimination.inadmissible(standings(candidates, scenario(max_error=1e-12)))
    assert left.reason.message == "its error is above the limit of 1e-12"


def test_the_far_slower_go_only_where_the_budget_is_tight() -> None:
    candidates = field({CPU_A: [[1.0]], CPU_B: [[4.0] * 3], CPU_C: [[8.0] * 3]})
    turn_s = {CPU_A.id: 1.0, CPU_B.id: 4.0, CPU_C.id: 8.0}
    race = standings(candidates, turn_s=turn_s, usable_s=26)
    assert leaving(elimination.too_slow_for_budget(race)) == []
    (left,) = elimination.too_slow_for_budget(replace(race, usable_s=10))  # the slowest first
    assert left.candidate.case == CPU_C
    assert left.reason.message.startswith("at least 8.00x slower than cpu torch fp32 t8 in its")
    tight = replace(race, usable_s=9)
    assert leaving(elimination.too_slow_for_budget(tight)) == [CPU_C.id, CPU_B.id]
    candidates[2].warmup = WarmUp(step_s=3.9)  # its first turn was disturbed
    assert leaving(elimination.too_slow_for_budget(tight)) == [CPU_B.id]


def test_a_factor_is_a_lower_bound_only_where_a_fastest_sample_stands_in() -> None:
    candidates = field({CPU_A: steady(0.1), CPU_B: steady(1.0)}, row=scenario(objective="memory"))
    for each, peak in zip(candidates, (2**20, 2**22), strict=True):
        each.memory_peak_bytes = peak
    turn_s = dict.fromkeys((CPU_A.id, CPU_B.id), 1.0)
    race = standings(candidates, scenario(objective="memory"), turn_s=turn_s, usable_s=1)
    (left,) = elimination.too_slow_for_budget(race)
    assert left.reason.message.startswith("4.00x higher in peak memory than")


def test_a_short_set_up_can_make_up_for_slow_steps() -> None:
    candidates = field({CPU_A: steady(0.1), CPU_B: steady(1.0)})
    for each, import_s in zip(candidates, (3.0, 0.5), strict=True):
        each.objective, each.setup = "time_to_result", SetupTimes(import_s=import_s)
    turn_s = {candidate.case.id: 1.0 for candidate in candidates}
    assert gone_by(elimination.too_slow_for_budget, candidates, turn_s=turn_s, usable_s=1) == []


def test_a_slow_second_run_does_not_eliminate_what_was_level_in_the_first() -> None:
    def gone(*seconds: float) -> list[str]:
        candidates = field({CPU_A: [[0.5], [0.5]], CPU_B: [[s] for s in seconds]})
        for each in candidates:
            each.objective, each.setup = "time_to_result", SetupTimes(import_s=0.1)
        options = {"rounds": 2, "usable_s": 0.1}
        return gone_by(elimination.too_slow_for_budget, candidates, **options)

    assert gone(1.0, 9.0) == []
    assert gone(8.0, 9.0) == [CPU_B.id]


def test_the_best_two_so_far_are_protected() -> None:
    blocks = {CPU_A: [[3.0]], CPU_B: [[1.0]], CPU_C: [[2.0]], FP64: [[0.1]]}
    candidates = field(blocks, errors={CPU_B: 0.5})
    assert elimination.protected(standings(candidates)) == {CPU_C.id, CPU_A.id}


def test_cases_that_the_plan_protects_are_protected_too() -> None:
    race = standings(field({CPU_A: [[1.0]], CPU_B: [[2.0]], CPU_C: [[3.0]]}))
    plan = replace(race.plan, protected=frozenset({CPU_C.id}))
    assert elimination.protected(replace(race, plan=plan)) == {CPU_A.id, CPU_B.id, CPU_C.id}


def test_a_single_long_step_eliminates_only_emulated_precisions() -> None:
    reduced = case("cpu-a", "fp16")
    candidates = field({CPU_A: [[1.0]], reduced: [[200.0]]})
    here = machine().cpu
    lacking = msgspec.structs.replace(here, isa=Isa(avx512_fp16=False))
    assert gone_by(elimination.slower_precisions, candidates, cpu=here) == []
    assert gone_by(elimination.slower_precisions, candidates, cpu=lacking) == [reduced.id]


def test_a_reduced_precision_far_behind_fp32_goes_after_one_block() -> None:
    emulated, native = case("cpu-a", "fp16"), case("cpu-a", "bf16")
    candidates = field({CPU_A: [[1.0]], emulated: [[200.0] * 3], native: [[0.5]]})
    (left,) = elimination.slower_precisions(standings(candidates, cpu=machine().cpu))
    assert left.candidate.case == emulated
    assert left.reason.code == "slower_precision"
    assert "200x slower than fp32 in its first turn" in left.reason.message
    weighed = standings(candidates, scenario(objective="memory"), cpu=machine().cpu)
    assert leaving(elimination.slower_precisions(weighed)) == []


def test_a_reduced_precision_is_behind_by_the_factor_that_tables_show() -> None:
    emulated = case("cpu-a", "fp16")
    candidates = field({CPU_A: [[1.0] * 3], emulated: [[3.2, 3.9, 4.0]]})
    (left,) = elimination.slower_precisions(standings(candidates))
    assert left.reason.message == "fp16 is 3.90x slower than fp32 in its first turn"


def test_a_reduced_precision_stays_where_its_fastest_or_median_step_alone_is_behind() -> None:
    for fp32, fp16 in (([1.0, 9.0, 9.0], [4.0, 8.0, 8.0]), ([1.0] * 3, [2.0, 8.0, 8.0])):
        candidates = field({CPU_A: [fp32], case("cpu-a", "fp16"): [fp16]})
        assert gone_by(elimination.slower_precisions, candidates) == []


def test_a_reduced_precision_that_comes_late_is_judged_by_its_own_first_turn() -> None:
    late = case("cpu-a", "fp16")
    for blocks, gone in (([[10.0] * 3], [late.id]), ([[10.0] * 3] * 2, [])):
        race = standings(field({CPU_A: [[1.0]] * 4, late: blocks}), rounds=5)
        assert leaving(elimination.slower_precisions(race)) == gone


def test_a_candidate_without_samples_is_not_compared() -> None:
    emulated = case("cpu-a", "fp16")
    for blocks in ({CPU_A: [], emulated: [[200.0] * 3]}, {CPU_A: [[1.0] * 3], emulated: []}):
        candidates = field({**blocks, GPU: [[1.0] * 3]}, gpus=["cuda:0"])
        race = standings(candidates, cpu=machine().cpu, usable_s=1)
        for rule in elimination.RULES:
            assert leaving(rule.find(race)) == leaving(rule.find(replace(race, rounds=8))) == []
        assert len(elimination.protected(race)) == 2


def test_without_an_fp32_counterpart_no_precision_is_called_slow() -> None:
    candidates = field({CPU_B: [[1.0]], case("cpu-a", "fp16"): [[200.0]]})
    assert gone_by(elimination.slower_precisions, candidates[1:], cpu=machine().cpu) == []


# ---------------------------------------------------------- the far slower


def test_the_far_slower_go_after_their_first_block() -> None:
    candidates = field({CPU_A: [[1.0] * 3], CPU_B: [[1.9] * 3], CPU_C: [[2.1] * 3]})
    (left,) = elimination.far_slower(standings(candidates))
    assert left.candidate.case == CPU_C
    assert left.reason.code == "far_slower"
    assert left.reason.message == "at least 2.10x slower than cpu torch fp32 t8 in its first turn"


@pytest.mark.parametrize(
    ("blocks", "objective"),
    [
        ({CPU_A: [[1.0] * 3], CPU_B: [[9.0] * 2], CPU_C: [[9.0, 9.0, 1.5]]}, "throughput"),  # few
        ({CPU_A: [[1.0] * 3] * 2, CPU_B: [[9.0] * 3] * 2}, "throughput"),  # the rounds decide
        ({CPU_A: [[1.0] * 3], FP64: [[9.0] * 3], GPU: [[0.01] * 3]}, "throughput"),  # other groups
        ({CPU_A: [[1.0] * 3], CPU_B: [[9.0] * 3]}, "memory"),
        ({CPU_A: [[1.0] * 3], CPU_B: [[9.0] * 3]}, "energy"),
        ({CPU_A: [[1.0] * 3], CPU_B: [[9.0] * 3]}, "time_to_result"),
    ],
)
def test_what_a_first_block_proves_nothing_about_stays(blocks, objective: str) -> None:
    candidates = field(blocks, row=scenario(objective=objective), gpus=["cuda:0"])
    assert gone_by(elimination.far_slower, candidates) == []


def test_a_first_block_that_its_warm_up_contradicts_is_not_believed() -> None:
    slow = case("cpu-b", "bf16")
    like = case("cpu-b")
    candidates = field({like: [[1.0] * 3], slow: [[50.0] * 3]})
    candidates[1].warmup = WarmUp(step_s=1.1)
    assert gone_by(elimination.far_slower, candidates) == []
    assert gone_by(elimination.slower_precisions, candidates) == []
    candidates[1].warmup = WarmUp(step_s=40.0)
    assert gone_by(elimination.far_slower, candidates) == [slow.id]
    assert gone_by(elimination.slower_precisions, candidates) == [slow.id]
    again = field({like: [[1.0] * 3] * 2, slow: [[50.0] * 3, [49.0] * 3]})
    again[1].warmup = WarmUp(step_s=1.1)
    (left,) = elimination.far_slower(standings(again))
    assert left.reason.message.endswith("in its best of two turns")


def test_a_newcomer_is_compared_with_the_round_it_joined_in() -> None:
    candidates = field({CPU_A: [[1.0] * 3, [1.0] * 3, [5.0] * 3], CPU_B: [[6.0] * 3]})
    candidates[1].blocks = [block(CPU_B, 2, [6.0] * 3)]  # when everything was slow
    assert gone_by(elimination.far_slower, candidates) == []
    candidates[1].blocks = [block(CPU_B, 1, [6.0] * 3)]
    assert gone_by(elimination.far_slower, candidates) == [CPU_B.id]


def test_a_newcomer_that_ran_alone_stays() -> None:
    candidates = field({CPU_A: [[1.0] * 3], CPU_B: [[9.0] * 3]})
    candidates[1].blocks = [block(CPU_B, 5, [9.0] * 3)]
    assert gone_by(elimination.far_slower, candidates) == []
