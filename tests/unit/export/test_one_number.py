"""One pair of candidates has one number in every table and sentence; candidates have an order."""

import math
from dataclasses import replace

import msgspec
import pytest
import scenes
from builders import case, events, report, scenario, steady

from workbench.advisor.verdict import decide
from workbench.contract import Accuracy
from workbench.export.view.answers import answer_facts, result_facts
from workbench.export.view.derived import RunView
from workbench.export.view.details import telemetry_text
from workbench.export.view.events import narrate
from workbench.export.view.tables import (
    APART,
    accuracy_text,
    advisor_line,
    candidate_line,
    raced_lines,
)
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.candidate import Row
from workbench.report.report import Report

RUNS = {
    "gpu": RunView(Report.of(scenes.h200())),
    "no_gpu": RunView(Report.of(scenes.cpu_only())),
    "simulated": RunView(Report.of(scenes.simulated())),
}
ROWS = [(name, row) for name, run in RUNS.items() for row in run.report.rows.values()]
IDS = [f"{name}-{row.plan.scenario}" for name, row in ROWS]


@pytest.mark.parametrize(("name", "row"), ROWS, ids=IDS)
def test_table_sentence_and_details_have_the_same_lead(name: str, row: Row) -> None:
    run, verdict = RUNS[name], row.verdict
    line = advisor_line(row, run)
    lead = line.cells["ratio"].plain.split()[-1]
    answer = answer_facts(row, run)[0].text.plain
    assert float(lead.removesuffix("x")) >= 1
    assert lead in answer
    assert f"({verdict.confidence}" in answer
    assert line.cells["confidence"].plain == verdict.confidence
    rival = verdict.runner_up
    if verdict.device_ratio is not None:
        rival = verdict.best_cpu if verdict.pick == verdict.best_gpu else verdict.best_gpu
    drawn = candidate_line(run.report.candidates[rival], row, run).cells["speed"]
    assert callable(drawn)
    assert drawn(20).plain.split()[0] == lead


@pytest.mark.parametrize(("name", "row"), ROWS, ids=IDS)
def test_the_pick_is_first_and_references_stand_below_their_heading(name: str, row: Row) -> None:
    run = RUNS[name]
    keys = [line.key for line in raced_lines(row, run)]
    by_id = {candidate.case.id: candidate for candidate in row.candidates}
    assert keys[0] == row.verdict.pick
    place = keys.index(APART) if APART in keys else len(keys)
    assert not any(row.is_reference_only(by_id[key]) for key in keys[:place])
    assert all(row.is_reference_only(by_id[key]) for key in keys[place + 1 :])
    for group in (keys[1:place], keys[place + 1 :]):
        behind = run.behind(row)
        times = [behind[key].value if key in behind else math.inf for key in group]
        assert times == sorted(times)


def test_some_row_has_references() -> None:
    assert any(line.key == APART for name, row in ROWS for line in raced_lines(row, RUNS[name]))


def test_a_faster_candidate_that_may_not_be_picked_does_not_hide_the_lead() -> None:
    report = Report.of(scenes.h200())
    row = report.rows["branching"]
    before = RunView(report).lead(row)
    assert before.course
    able = (c for c in row.candidates if not row.is_reference_only(c))
    other = next(c for c in able if c is not before.best and c is not before.other)
    blocks = [
        msgspec.structs.replace(block, samples_s=[1e-9 * n for n in range(1, 9)])
        for block in before.best.blocks[:1]
    ]
    for state, reason in (("ok", Reason("limit", "too large")), ("failed", None)):
        faster = replace(other, blocks=blocks, state=state, reason=reason)
        row.candidates[row.candidates.index(other)] = other = faster
        after = RunView(report).lead(row)
        assert after.other is before.other and after.course


@pytest.mark.parametrize(
    ("metric", "limit", "text"),
    [
        ("relative_error", 0.05, "0.97 / 0.05"),
        ("test_accuracy", 0.95, "0.97 / >= 0.95"),
        ("test_accuracy", 1.0, "0.97 / >= 1"),
        ("none", 0.0, ""),
    ],
)
def test_a_limit_that_is_a_minimum_says_so(metric: str, limit: float, text: str) -> None:
    (candidate,) = report({case("cpu"): []}).candidates.values()
    candidate.accuracy = Accuracy(metric, 0.97, "labels", limit, passed=True)
    assert accuracy_text(candidate) == text


def test_an_accuracy_that_is_too_low_is_below_its_limit() -> None:
    run = RunView(report({case("cpu"): [[1.0]]}))
    (prepared,) = (e for e in events({case("cpu"): [[1.0]]}) if isinstance(e, ev.CasePrepared))
    failed = Accuracy("test_accuracy", 0.5, "labels", 0.95, passed=False)
    line = narrate(msgspec.structs.replace(prepared, accuracy=failed), run)
    assert line.text.endswith("test accuracy 0.5 is below 0.95")


def test_what_is_for_reference_only_is_not_the_fastest_of_a_row_that_was_cut() -> None:
    blocks = {case("cpu-a"): steady(1.0), case("cpu-b"): steady(2.0)}
    apart = case("cpu-c", "fp64")
    cut = report({**blocks, apart: steady(0.5)}, row=scenario(reference_only=("fp64",)))
    (fastest,) = result_facts(cut.rows["row"], RunView(cut))
    assert fastest.text.plain.startswith("cpu torch fp32 t8 of=a is 2.00x faster than")


def lead_of(found: Report, planned: Scenario) -> str:
    row = found.rows[planned.id]
    row.verdict = decide(found, planned)
    return advisor_line(row, RunView(found)).cells["ratio"].plain


def test_the_lead_of_a_tpu_is_not_that_of_a_gpu() -> None:
    row, tpu = scenario(), case("tpu:0-a")
    found = report({case("cpu-a"): steady(1.0), tpu: steady(0.97)}, gpus=["tpu:0"], row=row)
    assert lead_of(found, row).startswith("TPU 1.03x")


def test_the_lead_of_a_pick_whose_tail_is_level_may_lie_below_one() -> None:
    row = scenario(objective="latency_p99")
    slow, fast = [[1.0] * 97 + [9.0] * 3] * 5, [[0.5] * 97 + [9.1] * 3] * 5
    found = report({case("cpu-a"): slow, case("cpu-b"): fast}, row=row)
    assert lead_of(found, row) == "1/1.01x"


def test_times_that_vary_too_much_have_no_ratio_on_any_screen() -> None:
    given, made = (replace(case(name), workload="own") for name in ("cpu-a", "cpu-b"))
    slowed = [*[[0.4] * 5] * 4, *[[0.002] * 50] * 6]  # 400x by rounds, 2x by medians
    row = scenario(workload="own", textbook="")
    found = report({given: slowed, made: steady(0.001, 4)}, row=row)
    loser, run = found.candidates[given.id], RunView(found)
    loser.reason, loser.beaten_by, loser.ratio = Reason("beaten", "400x slower"), made.id, 400.0
    assert lead_of(found, row) == "varies"
    assert candidate_line(loser, found.rows[row.id], run).cells["speed"].plain.strip() == "varies"
    assert run.elimination_text(loser) == "slower than cpu torch fp32 t8"
    assert run.lead(found.rows[row.id]) is None


def test_devices_whose_times_vary_too_much_have_no_ratio_in_a_sentence() -> None:
    cpu, gpu = (replace(case(name), workload="own") for name in ("cpu-a", "cuda:0-a"))
    slowed = [*[[0.4] * 5] * 4, *[[0.002] * 50] * 6]  # 400x by rounds, 2x by medians
    row = scenario(workload="own", textbook="")
    found = report({cpu: slowed, gpu: steady(0.001, 4)}, gpus=["cuda:0"], row=row)
    assert lead_of(found, row) == "varies"
    said = "The GPU is faster than the CPU, but their times vary too much for a figure."
    assert found.rows[row.id].verdict.reasons[0].startswith(said)


def test_a_lead_that_may_as_well_be_a_lag_has_no_value_in_table_and_sentence() -> None:
    wild = [[1.0] * 5, [8.0] * 5, [1.0] * 5, [6.0] * 5]
    row = scenario(textbook="")
    found = report(
        {case("cpu-a"): wild, case("cuda:0-a"): steady(2.0, 4)}, gpus=["cuda:0"], row=row
    )
    assert lead_of(found, row) == "varies"
    said = "Undecided: the times of both vary too much for a figure."
    assert found.rows[row.id].verdict.reasons[0].startswith(said)


def test_where_no_gpu_may_be_picked_the_lead_is_that_of_the_pick_over_the_next() -> None:
    blocks = {case("cpu-a"): steady(1.0), case("cpu-b"): steady(3.0), case("cuda:0-a"): steady(0.5)}
    row = scenario(textbook="", max_error=0.1)  # a model's
    found = report(blocks, gpus=["cuda:0"], row=row)
    gpu = found.candidates[case("cuda:0-a").id]
    gpu.accuracy = Accuracy("relative_error", 0.5, "float64", 0.1, True)
    assert lead_of(found, row) == "3.00x"
    verdict = found.rows[row.id].verdict
    assert (verdict.best_gpu, verdict.no_gpu) == (None, False)


def test_a_clock_that_did_not_move_is_given_once() -> None:
    run = RUNS["gpu"]
    candidate = run.report.rows["training"].picked
    telemetry = run.measured(candidate).telemetry
    assert telemetry_text(telemetry).startswith("1965 MHz, 612 W")
    moved = msgspec.structs.replace(telemetry, clock_after_mhz=1700.0)
    assert telemetry_text(moved).startswith("1965 MHz, 1965 MHz before, 1700 MHz after, 612 W")
