"""A candidate beyond a limit of its scenario is measured once and never picked, with the reason."""

import msgspec
import pytest
from builders import case, changed, events, scenario, steady
from fakes import IdleWorkload, standings

from workbench.advisor import elimination
from workbench.advisor.limits import MIB, beyond_limits
from workbench.advisor.verdict import decide
from workbench.engine.workers import worker_key
from workbench.planning.plan import RowPlan
from workbench.planning.scenario import Limits, Scenario
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report

A, B, GPU = case("cpu-a"), case("cpu-b"), case("cuda:0-a")
SLOW = scenario(limits=Limits(latency_ms=1500.0))


def measured(blocks, row: Scenario, *, peaks=None, **options) -> Report:
    """A report in which cases have the given peaks of memory, in MiB."""
    bytes_ = {case: int(mib * MIB) for case, mib in (peaks or {}).items()}
    found = events(blocks, row=row, **options)
    return Report.of(
        changed(found, ev.CasePrepared, memory_peak_bytes=lambda event: bytes_.get(event.case))
    )


def leaving(report: Report, row: Scenario) -> dict[str, Reason]:
    found = elimination.inadmissible(standings(report.candidates.values(), row))
    return {left.candidate.case.id: left.reason for left in found}


def test_a_candidate_that_takes_too_long_leaves_after_a_block_with_the_reason() -> None:
    report = measured({A: steady(1.0, 1), B: [[2.0] * 5]}, SLOW)
    (left,) = leaving(report, SLOW).items()
    assert left[0] == B.id
    assert left[1].code == "limit"
    assert left[1].message == "median step 2.00 s, limit 1.50 s"


def test_a_candidate_that_may_have_been_unlucky_has_a_second_block() -> None:
    unlucky = [1.4, 1.45, 1.6, 1.7, 1.8]
    assert not leaving(measured({A: [unlucky]}, SLOW), SLOW)
    assert leaving(measured({A: [unlucky, unlucky]}, SLOW), SLOW)


def test_the_99th_percentile_counts_where_it_is_the_objective() -> None:
    spiky = [[1.0] * 97 + [9.0] * 3] * 3
    tails = scenario(objective="latency_p99", limits=Limits(latency_ms=1500.0))
    for row, is_beyond in ((SLOW, False), (tails, True)):
        (candidate,) = measured({A: spiky}, row).candidates.values()
        assert bool(beyond_limits(candidate, row)) == is_beyond
    assert "99th percentile 9.00 s" in (beyond_limits(candidate, tails) or "")


@pytest.mark.parametrize(
    ("blocks", "leaves"),
    [
        ([[0.005] * 33 + [0.1], [0.005] * 34], False),
        ([[0.03] * 34, [0.03] * 34], True),  # even its better steps are too slow
        ([[0.005] * 33 + [0.1]] * 3, True),
    ],
)
def test_one_stall_in_few_samples_says_nothing_of_the_99th_percentile(blocks, leaves) -> None:
    row = scenario(objective="latency_p99", limits=Limits(latency_ms=20.0))
    assert bool(leaving(measured({A: blocks}, row), row)) is leaves


def test_memory_is_a_limit_too() -> None:
    row = scenario(limits=Limits(memory_mib=100))
    report = measured({A: steady(1.0), B: steady(0.5)}, row, peaks={A.id: 99, B.id: 1500})
    assert leaving(report, row)[B.id].message == "peak memory 1,500 MiB, limit 100 MiB"
    assert decide(report, row).pick == A.id
    unread = measured({A: steady(1.0)}, row)
    assert "unknown peak memory" in leaving(unread, row)[A.id].message


def test_a_limit_of_memory_gives_each_candidate_a_worker_of_its_own() -> None:
    """In a shared one a library keeps the memory that others needed, and no peak can be read."""
    tight, slow = (
        RowPlan(row, IdleWorkload()) for row in (scenario(limits=Limits(memory_mib=100)), SLOW)
    )
    assert worker_key(A, tight) != worker_key(B, tight)
    assert worker_key(A, slow) == worker_key(B, slow) == worker_key(A)


def test_what_is_just_above_a_limit_does_not_read_like_it() -> None:
    row = scenario(limits=Limits(latency_ms=20.0), max_error=0.02)
    slow = measured({A: [[0.02001] * 5] * 3}, row).candidates[A.id]
    assert beyond_limits(slow, row) == "median step just above the limit of 20.0 ms"
    large = scenario(limits=Limits(memory_mib=1500))
    full = measured({A: steady(1.0)}, large).candidates[A.id]
    full.memory_peak_bytes = (1500 << 20) + 1
    assert beyond_limits(full, large) == "peak memory just above the limit of 1,500 MiB"
    narrow = scenario(limits=Limits(memory_mib=50.25))
    full.memory_peak_bytes = int(50.4 * (1 << 20))
    assert beyond_limits(full, narrow) == "peak memory 50.4 MiB, limit 50.25 MiB"
    wrong = measured({A: steady(0.01), B: steady(0.005)}, row, errors={B: 0.0204})
    found = decide(wrong, row)
    assert "(error just above the limit of 2.0%)" in found.reasons[-1]


def test_a_limit_is_kept_where_it_is_met_exactly() -> None:
    row = scenario(limits=Limits(latency_ms=1000.0, memory_mib=100))
    (candidate,) = measured({A: [[1.0] * 5] * 3}, row, peaks={A.id: 100}).candidates.values()
    assert beyond_limits(candidate, row) is None


def test_no_candidate_within_the_limits_is_unknown_with_that_reason() -> None:
    row = scenario(limits=Limits(latency_ms=1.0))
    why = {A: Reason("limit", "median step 1.00 s, limit 1.00 ms")}
    found = decide(measured({A: steady(1.0), GPU: steady(2.0)}, row, gpus=["cuda:0"]), row)
    assert found.choice == "unknown"
    assert (found.pick, found.best_cpu, found.best_gpu) == (None,) * 3
    built = events({A: steady(1.0, 1)}, row=row, failed=why)
    built = changed(built, ev.CaseFinished, status="ok")
    (reason,) = decide(Report.of(built), row).reasons
    assert "limit 1.00 ms" in reason


@pytest.mark.parametrize(
    ("limit_ms", "choice"), [(1500.0, "cpu"), (500.0, "unknown"), (3000.0, "cpu")]
)
def test_where_one_device_exceeds_the_limits_the_other_is_chosen(limit_ms, choice) -> None:
    row = scenario(limits=Limits(latency_ms=limit_ms))
    found = decide(measured({A: steady(1.0), GPU: steady(2.0)}, row, gpus=["cuda:0"]), row)
    assert found.choice == choice
    assert found.pick == (A.id if choice == "cpu" else None)
    outcome = {
        1500.0: "cuda:0 torch fp32 (median step 2.00 s, limit 1.50 s)",
        500.0: "cpu torch fp32 t8 (median step 999 ms, limit 500 ms)",
        3000.0: "The CPU is 2.00x",
    }[limit_ms]
    assert outcome in found.reasons[0]


def test_a_candidate_beyond_a_limit_is_mentioned_after_the_answer() -> None:
    found = decide(measured({A: steady(1.0), B: steady(2.0)}, SLOW), SLOW)
    assert "cpu torch fp32 t8 (median step 2.00 s, limit 1.50 s)" in found.reasons[-1]


def test_a_device_that_was_not_measured_may_yet_keep_the_limits() -> None:
    row, lost = SLOW, {GPU: Reason("no_memory", "it did not fit")}
    report = measured({A: steady(1.0), GPU: []}, row, gpus=["cuda:0"], failed=lost)
    assert decide(report, row).choice == "unknown"


@pytest.mark.parametrize("objective", ["energy", "memory"])
def test_a_gpu_without_a_value_leaves_and_is_not_picked(objective: str) -> None:
    row = scenario(objective=objective)
    report = measured({GPU: steady(1.0, 1)}, row, gpus=["cuda:0"])
    assert leaving(report, row)[GPU.id].code == "not_counted"
    assert decide(report, row).choice == "unknown"


@pytest.mark.parametrize(("mib", "word"), [(101, "tie"), (105, "likely"), (130, "sure")])
def test_a_peak_of_memory_was_observed_once_however_many_rounds_there_are(mib, word) -> None:
    row = scenario(objective="memory")
    blocks, peaks = {A: steady(1.0, 20), B: steady(1.0, 20)}, {A.id: 100, B.id: mib}
    found = decide(measured(blocks, row, peaks=peaks), row)
    assert (found.pick, found.confidence) == (A.id, word)
    low, high = found.pick_ratio_ci95
    assert high / low == pytest.approx(1.06, abs=0.01)


def test_a_gpu_that_takes_little_of_its_own_memory_is_not_ahead_of_the_host() -> None:
    row = scenario(objective="memory")
    report = measured({A: steady(1.0), GPU: steady(1.0)}, row, gpus=["cuda:0"])
    for candidate, mib in ((A, 310), (GPU, 18)):
        report.candidates[candidate.id].memory_peak_bytes = mib << 20
    found = decide(report, row)
    assert (found.choice, found.pick, found.device_ratio) == ("unknown", A.id, None)
    assert "a GPU's memory is not compared with the host's" in found.reasons[0]


def test_a_row_compared_on_the_cpu_alone_says_so_where_there_is_a_gpu() -> None:
    row = scenario(objective="memory")
    report = measured({A: steady(1.0)}, row, gpus=["cuda:0"], peaks={A.id: 310})
    (first, *_) = decide(report, row).reasons
    assert first.endswith("only the memory of candidates on the CPU is compared.")


def test_the_only_device_within_a_limit_wins_only_where_no_chance_decides() -> None:
    tails = scenario(objective="latency_p99", limits=Limits(latency_ms=60.0))
    stalled, fine = [[0.05] * 20] * 2 + [[0.05] * 19 + [0.2]], [[0.055] * 20] * 3
    verdict = decide(measured({A: stalled, GPU: fine}, tails, gpus=["cuda:0"]), tails)
    assert (verdict.choice, verdict.confidence) == ("unknown", "open"), "one stall of 60 steps"
    median = scenario(objective="latency", limits=Limits(latency_ms=20.0))
    near, fine = [[0.019, 0.0195, 0.0203, 0.0205, 0.0209]] * 2, [[0.018] * 11] * 3
    verdict = decide(measured({A: near, GPU: fine}, median, gpus=["cuda:0"]), median)
    assert verdict.choice == "unknown", "its interval holds the limit"
    far = [[0.030, 0.0301, 0.0302, 0.0303, 0.0304]] * 2
    verdict = decide(measured({A: far, GPU: fine}, median, gpus=["cuda:0"]), median)
    assert (verdict.choice, verdict.confidence) == ("gpu", "sure")


@pytest.mark.parametrize(("objective", "steps"), [("latency", 2), ("latency_p99", 30)])
def test_a_device_all_of_whose_steps_exceed_the_limit_needs_no_interval(objective, steps) -> None:
    row = scenario(objective=objective, limits=Limits(latency_ms=20.0))
    blocks = {A: [[0.061] * steps], GPU: [[0.002] * 50] * 5}
    verdict = decide(measured(blocks, row, gpus=["cuda:0"]), row)
    assert verdict.choice == "gpu"
    assert verdict.reasons[0].startswith("Only the GPU meets the limits.")
    blocks[A] = [[0.061] * (steps - 1) + [0.019]]
    verdict = decide(measured(blocks, row, gpus=["cuda:0"]), row)
    assert verdict.choice == "unknown", "one of them meets it"


def test_a_peak_that_a_library_does_not_report_makes_no_other_device_win() -> None:
    row = scenario(limits=Limits(memory_mib=4096))
    blocks = {A: steady(1.0), GPU: steady(0.1)}
    verdict = decide(measured(blocks, row, peaks={A.id: 500}, gpus=["cuda:0"]), row)
    assert (verdict.choice, verdict.confidence) == ("unknown", "open")
    assert verdict.pick == A.id


def test_a_warm_up_within_the_limit_earns_a_second_block_after_a_disturbed_first() -> None:
    row = scenario(objective="latency", limits=Limits(latency_ms=20.0))
    report = measured({A: [[0.03] * 7]}, row)
    candidate = report.candidates[A.id]
    candidate.warmup = msgspec.structs.replace(candidate.warmup, step_s=0.01)
    assert not leaving(report, row)


def test_a_device_that_died_leaves_the_answer_open_without_usual_advice_too() -> None:
    died = Reason("worker_died", "the worker died", "look at its log")
    blocks = {A: steady(1.0), GPU: steady(0.1)}
    for textbook in ("gpu", ""):
        row = scenario(textbook=textbook)
        verdict = decide(measured(blocks, row, gpus=["cuda:0"], failed={GPU: died}), row)
        assert (verdict.choice, verdict.confidence) == ("unknown", "open")
