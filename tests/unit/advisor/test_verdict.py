"""Verdicts follow from the report, and say `unknown` rather than guess."""

import math

import pytest
from builders import case, changed, events, report, scenario, steady
from hypothesis import assume, given, strategies as st
from verdict_gallery import GALLERY

from workbench.advisor.evidence import choose
from workbench.advisor.verdict import decide
from workbench.contract import Accuracy, Case
from workbench.records.events import CaseFinished, CasePrepared, WarningRaised
from workbench.records.reason import Reason, Warning
from workbench.report.from_document import report_of
from workbench.report.report import Report
from workbench.stats.paired import Ratio

CPU, CPU_B, GPU = case("cpu-a"), case("cpu-b"), case("cuda:0-a")
ROW = scenario()


def verdict(blocks, **options):
    row = options.get("row", ROW)
    return decide(report(blocks, **options), row)


@pytest.mark.parametrize(
    ("gpu_time", "choice"), [(0.5, "gpu"), (2.0, "cpu"), (1.01, "either"), (0.97, "either")]
)
def test_the_choice_follows_the_ratio(gpu_time: float, choice: str) -> None:
    found = verdict({CPU: steady(1.0), GPU: steady(gpu_time)}, gpus=["cuda:0"])
    assert found.choice == choice
    assert found.device_ratio == pytest.approx(1 / gpu_time, rel=0.02)
    assert found.device_ratio_ci95[0] <= found.device_ratio <= found.device_ratio_ci95[1]
    assert not found.no_gpu
    assert found.pick == (CPU.id if gpu_time > 1 else GPU.id)


def test_without_a_gpu_the_choice_is_cpu_and_says_so() -> None:
    found = verdict({CPU: steady(1.0), CPU_B: steady(2.0)})
    assert (found.choice, found.no_gpu, found.device_ratio) == ("cpu", True, None)
    assert (found.pick, found.runner_up) == (CPU.id, CPU_B.id)
    assert found.pick_ratio == pytest.approx(2.0, rel=0.02)
    assert "No GPU found" in found.reasons[0]


def test_a_gpu_that_could_not_be_measured_leaves_it_unknown() -> None:
    lost = {GPU: Reason("no_memory", "it did not fit")}
    found = verdict({CPU: steady(1.0), GPU: []}, gpus=["cuda:0"], failed=lost)
    assert found.choice == "unknown"
    assert found.pick == CPU.id
    assert "it did not fit" in found.reasons[0]


def test_nothing_measured_is_unknown_with_the_reason() -> None:
    found = verdict({CPU: []}, failed={CPU: Reason("worker_died", "the worker died")})
    assert (found.choice, found.pick, found.best_cpu) == ("unknown", None, None)
    assert "the worker died" in found.reasons[0]


def test_a_candidate_over_the_error_limit_is_never_picked() -> None:
    found = verdict({CPU: steady(1.0), CPU_B: steady(0.2)}, errors={CPU_B: 0.05})
    assert found.pick == CPU.id
    assert any("limit 1.0%" in reason for reason in found.reasons)


def test_a_failed_candidate_is_never_picked_even_with_samples() -> None:
    broken = {CPU_B: Reason("wrong_result", "wrong")}
    assert verdict({CPU: steady(1.0), CPU_B: steady(0.2)}, failed=broken).pick == CPU.id


def test_reference_only_precisions_are_shown_but_never_picked() -> None:
    cpu64, gpu64 = case("cpu-a", "fp64"), case("cuda:0-a", "fp64")
    blocks = {CPU: steady(1.0), cpu64: steady(0.5), GPU: steady(1.2), gpu64: steady(0.1)}
    found = verdict(blocks, gpus=["cuda:0"])
    assert found.pick == CPU.id
    reference = next(e for e in found.equal_precision if e.precision == "fp64")
    assert (reference.best_cpu, reference.best_gpu) == (cpu64.id, gpu64.id)
    assert reference.device_ratio == pytest.approx(5.0, rel=0.02)


def test_equal_precisions_compare_like_with_like() -> None:
    fast = case("cuda:0-a", "bf16")
    blocks = {CPU: steady(1.0), GPU: steady(0.5), fast: steady(0.1), case("cpu-a", "fp16"): []}
    found = verdict(blocks, gpus=["cuda:0"], row=scenario(precisions=("fp32", "bf16", "fp16")))
    assert found.device_ratio == pytest.approx(10.0, rel=0.02)
    ratios = {e.precision: e.device_ratio for e in found.equal_precision}
    assert ratios == {"fp32": pytest.approx(2.0, rel=0.02), "bf16": None}  # none on the CPU


def test_one_disturbed_round_does_not_name_the_best_of_a_precision() -> None:
    good, fair, gone, broken = (case(f"cpu-{name}") for name in ("good", "fair", "gone", "broken"))
    blocks = {good: [[1.3], *[[1.0]] * 19], fair: [[1.03]] * 20, gone: [[1.05]]}
    failed = {broken: Reason("crash", "it ended with signal 11")}
    found = verdict({**blocks, broken: [[0.5]] * 20}, gpus=[], failed=failed)
    assert [each.best_cpu for each in found.equal_precision] == [good.id]


def test_a_simulated_device_marks_the_verdict() -> None:
    found = verdict({CPU: steady(1.0), case("fake:0-a"): steady(0.1)}, gpus=["fake:0"])
    assert (found.choice, found.basis) == ("gpu", "simulated")


def test_close_candidates_are_a_tie() -> None:
    assert verdict({CPU: steady(1.0), CPU_B: steady(1.01)}).tie
    assert not verdict({CPU: steady(1.0), CPU_B: steady(1.3)}).tie


def test_warnings_of_the_row_and_of_its_best_are_carried() -> None:
    busy = Warning("busy_machine", "others were busy", "stop them", "row")
    built = events({CPU: [[1.0], [1.0], [1.0]], CPU_B: steady(3.0)})
    built.insert(4, WarningRaised(at_s=0.4, warning=busy))
    found = decide(Report.of(built), ROW)
    assert [w.code for w in found.warnings] == ["busy_machine", "few_samples"]


def test_time_to_result_counts_what_comes_first() -> None:
    row = scenario(objective="time_to_result")
    found = verdict({CPU: steady(0.5), CPU_B: steady(1.5)}, row=row)
    # 1.5 s of import and set-up on both sides: (1.5 + 1.5) / (1.5 + 0.5)
    assert found.pick_ratio == pytest.approx(1.5, rel=0.02)
    assert any("75%" in reason for reason in found.reasons)


def test_latency_ranks_by_the_99th_percentile() -> None:
    row = scenario(objective="latency_p99")
    calm, spiky = [[1.0] * 100] * 5, [[0.5] * 97 + [9.0] * 3] * 5
    assert verdict({CPU: calm, CPU_B: spiky}, row=row).pick == CPU.id


@pytest.mark.parametrize("fast", [CPU, CPU_B])
def test_the_median_decides_where_the_99th_percentiles_are_level(fast: Case) -> None:
    row = scenario(objective="latency_p99")
    stalled = {case: [[1.0] * 97 + [9.0] * 3] * 5 for case in (CPU, CPU_B)}
    stalled[fast] = [[0.5] * 97 + [9.1] * 3] * 5
    found = verdict(stalled, row=row)
    assert (found.pick, found.tie, found.confidence) == (fast.id, True, "tie")
    assert "The median decides: that of" in found.reasons[0]
    level = verdict({case: [[1.0] * 97 + [9.0] * 3] * 5 for case in (CPU, CPU_B)}, row=row)
    assert "The median decides" not in level.reasons[0]


def stalling(step: float, stall: float) -> list[list[float]]:
    """Stalls in 7 of 600 steps, in every other block: the 99th percentile is an edge."""
    return [[step] * (100 - many) + [stall] * many for many in (2, 0, 2, 0, 3, 0)]


@pytest.mark.parametrize(
    ("gpu_stall", "choice", "confidence"), [(9.0, "cpu", "likely"), (3.0, "unknown", "open")]
)
def test_medians_decide_between_devices_whose_99th_percentiles_are_open_but_agree(
    gpu_stall: float, choice: str, confidence: str
) -> None:
    blocks = {CPU: stalling(1.0, 6.0), GPU: stalling(2.0, gpu_stall)}
    found = verdict(blocks, row=scenario(objective="latency_p99"), gpus=["cuda:0"])
    low, high = found.device_ratio_ci95
    assert low < 1 < high
    assert (found.choice, found.confidence) == (choice, confidence)
    said = "The CPU looks " in found.reasons[0], "The median decides: that of" in found.reasons[0]
    assert said == (choice == "cpu",) * 2
    near = {CPU: stalling(1.0, 6.0), GPU: stalling(1.03, gpu_stall)}
    near = verdict(near, row=scenario(objective="latency_p99"), gpus=["cuda:0"])
    assert near.choice not in ("cpu", "gpu"), "a tie of the medians"


def test_medians_decide_no_device_where_another_candidate_of_it_has_a_lower_one() -> None:
    blocks = {CPU: stalling(1.0, 6.0), GPU: stalling(2.0, 9.0)}
    blocks[case("cuda:0-b")] = stalling(0.7, 12.0)
    found = verdict(blocks, row=scenario(objective="latency_p99"), gpus=["cuda:0"])
    assert (found.choice, found.confidence, found.pick) == ("unknown", "open", CPU.id)


def test_medians_of_one_device_decide_nothing_about_another() -> None:
    blocks = {CPU: stalling(1.0, 6.0), CPU_B: stalling(2.0, 9.0), GPU: []}
    found = verdict(blocks, row=scenario(objective="latency_p99"), gpus=["cuda:0"])
    assert (found.choice, found.pick) == ("unknown", CPU.id)


def test_the_median_does_not_decide_for_a_candidate_that_the_race_eliminated() -> None:
    row = scenario(objective="latency_p99")
    blocks = {CPU: [[1.0] * 97 + [9.0] * 3] * 5, CPU_B: [[0.5] * 97 + [9.1] * 3] * 5}
    built = report(blocks, row=row)
    built.candidates[CPU_B.id].beaten_by = CPU.id
    assert decide(built, row).pick == CPU.id


positive = st.floats(1e-3, 1e3)


@given(positive, st.floats(1, 50))
def test_a_device_is_named_only_where_one_lies_outside_the_interval(value, reach) -> None:
    ratio = Ratio(value, value / reach, value * reach, 5)
    choice = choose(ratio)
    if choice in ("cpu", "gpu"):
        assert (ratio.low > 1) if choice == "gpu" else (ratio.high < 1)
    if ratio.low <= 1 <= ratio.high:
        assert choice in ("either", "unknown")
    if choice == "either":
        assert ratio.low >= 0.8
        assert ratio.high <= 1.25


@given(positive, st.floats(1, 50))
def test_swapping_the_devices_swaps_the_choice(value, reach) -> None:
    ratio = Ratio(value, value / reach, value * reach, 5)
    turned = {"cpu": "gpu", "gpu": "cpu", "either": "either", "unknown": "unknown"}
    there = choose(ratio)
    back = choose(ratio.inverse())
    edges = (0.8, 1 / 1.05, 1.0, 1.05, 1.25)  # where rounding may tip the scales
    sides = (ratio.value, ratio.low, ratio.high)
    assume(not any(math.isclose(side, edge) for side in sides for edge in edges))
    assert back == turned[there]


def test_a_gpu_hidden_from_cuda_is_not_the_absence_of_one() -> None:
    found = GALLERY["a hidden GPU"]()
    assert (found.choice, found.no_gpu) == ("unknown", False)
    assert "hidden by CUDA_VISIBLE_DEVICES" in found.reasons[0]
    assert found.pick == CPU.id


def test_a_failed_search_for_gpus_is_not_the_absence_of_one() -> None:
    found = GALLERY["an unclear GPU"]()
    assert (found.choice, found.no_gpu) == ("unknown", False)
    assert found.reasons[0].startswith("It is unknown whether there is a GPU")
    assert found.next_best == "Update the driver."


def test_a_report_cut_short_before_detection_decides_nothing_about_gpus() -> None:
    built = report({CPU: steady(1.0)})
    built.machine = None
    found = decide(built, ROW)
    assert (found.choice, found.no_gpu, found.pick) == ("unknown", False, CPU.id)


def test_a_row_that_was_not_reached_says_so() -> None:
    found = decide(report({}, gpus=["cuda:0"]), ROW)
    assert (found.choice, found.pick, found.equal_precision) == ("unknown", None, [])
    assert len(found.reasons) == 1


def test_without_a_limit_no_error_is_too_large() -> None:
    row = scenario(max_error=None)
    found = verdict({CPU: steady(1.0), CPU_B: steady(0.2)}, row=row, errors={CPU_B: 0.9})
    assert found.pick == CPU_B.id


def test_an_error_at_the_limit_is_admissible_and_one_above_is_not() -> None:
    blocks = {CPU: steady(1.0), CPU_B: steady(0.2)}
    assert verdict(blocks, errors={CPU_B: 0.01}).pick == CPU_B.id
    assert verdict(blocks, errors={CPU_B: 0.010001}).pick == CPU.id


def test_an_error_that_unseen_inputs_may_exceed_is_not_admissible() -> None:
    for bound, pick in ((0.009, CPU_B), (0.02, CPU)):
        few = Accuracy("relative_error", 0.005, "10 inputs", 0.01, True, error_bound=bound)
        built = events({CPU: steady(1.0), CPU_B: steady(0.2)})
        assert (
            decide(Report.of(changed(built, CasePrepared, CPU_B, accuracy=few)), ROW).pick
            == pick.id
        )


def test_an_accuracy_in_which_more_is_better_is_no_error() -> None:
    share = Accuracy("test_accuracy", 0.97, "held-out digits", 0.9, True)
    built = changed(events({CPU: steady(1.0)}), CasePrepared, accuracy=share)
    assert decide(Report.of(built), ROW).pick == CPU.id


def test_a_candidate_cut_short_is_judged_by_what_it_measured() -> None:
    built = events({CPU: steady(1.0), GPU: steady(0.5)}, gpus=["cuda:0"])
    built = changed(built, CaseFinished, status="cancelled")
    assert decide(Report.of(built), ROW).choice == "gpu"


def test_one_candidate_has_no_runner_up() -> None:
    found = verdict({CPU: steady(1.0)})
    assert (found.pick, found.runner_up, found.pick_ratio, found.tie) == (CPU.id, None, None, False)


def test_the_runner_up_may_be_of_either_device() -> None:
    blocks = {CPU: steady(1.0), CPU_B: steady(3.0), GPU: steady(2.0)}
    found = verdict(blocks, gpus=["cuda:0"])
    assert (found.pick, found.runner_up) == (CPU.id, GPU.id)
    assert found.pick_ratio == pytest.approx(2.0, rel=0.02)


def test_an_error_above_the_limit_still_shows_at_equal_precision() -> None:
    fast = case("cuda:0-a", "bf16")
    found = verdict({CPU: steady(1.0), fast: steady(0.1)}, gpus=["cuda:0"], errors={fast: 0.5})
    assert found.best_gpu is None
    assert {e.precision: e.best_gpu for e in found.equal_precision}["bf16"] == fast.id


def test_reference_only_precisions_are_marked_as_such() -> None:
    found = verdict({CPU: steady(1.0), case("cpu-a", "fp64"): steady(2.0)})
    marks = {each.precision: each.reference_only for each in found.equal_precision}
    assert marks == {"fp32": False, "fp64": True}


def test_a_document_says_what_is_never_picked_even_if_it_had_no_turn() -> None:
    apart = case("cpu-a", "fp64")
    built = report({CPU: steady(1.0), apart: []}, failed={apart: Reason("no_memory", "it is full")})
    built.rows["row"].verdict = decide(built, ROW)
    again = report_of(built.document()).rows["row"]
    assert [c.case.id for c in again.candidates if again.is_reference_only(c)] == [apart.id]


def test_a_warning_about_another_row_or_the_whole_run_stays_where_it_is() -> None:
    built = report({CPU: steady(1.0)})
    built.warnings += [Warning("a", "m", "r", "elsewhere"), Warning("b", "m", "r", None)]
    assert decide(built, ROW).warnings == []


def test_a_candidate_that_is_best_twice_over_is_warned_of_once() -> None:
    found = verdict({CPU: [[1.0]] * 4})
    assert (found.pick, found.best_cpu) == (CPU.id, CPU.id)
    assert [w.code for w in found.warnings] == ["few_samples"]


def test_no_ratio_and_no_proof_of_absence_is_unknown() -> None:
    assert choose(None) == "unknown"
    assert choose(Ratio(1.0, 0.5, 2.0, 3)) == "unknown"


def test_case_ids_are_readable() -> None:
    full = Case("m", "cpu", "torch", "bf16", threads=16, batch=8, params={"n": 4096})
    assert full.id == "m[batch=8,n=4096]/cpu/torch/bf16/t16"
    int8 = Case("m", "cpu", "onnxruntime", "int8", quantization="static", threads=2)
    assert int8.id == "m[]/cpu/onnxruntime/int8-static/t2"


def test_a_pick_that_cannot_be_distinguished_from_the_next_says_so() -> None:
    first, second = [[1.0], [1.0], [9.0], [1.0]], [[1.2], [9.0], [1.2], [1.2]]
    found = verdict({CPU: first, CPU_B: second})
    assert not found.tie
    assert "pick_unsettled" in [w.code for w in found.warnings]
    clear = verdict({CPU: steady(1.0), CPU_B: steady(2.0)})
    assert "pick_unsettled" not in [w.code for w in clear.warnings]
    level = verdict({CPU: steady(1.0), CPU_B: steady(1.0)})
    assert "pick_unsettled" not in [w.code for w in level.warnings]
