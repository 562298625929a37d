"""Devices that are not here answer from recorded runs, and from nothing else."""

from pathlib import Path

import msgspec
import pytest
from builders import changed, events, report, scenario, steady
from recorded_devices import H200, ROWS, ask, document, matmul, put, rows

from workbench.advisor import whatif_devices
from workbench.advisor.recordings import load
from workbench.advisor.verdict import decide
from workbench.advisor.whatif import sentence
from workbench.assets import path
from workbench.contract import Case
from workbench.export.json import dump
from workbench.export.text import run_text
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.records import events as ev
from workbench.records.document import Document
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import WhatIf
from workbench.report.from_document import report_of
from workbench.report.report import Report

pytestmark = pytest.mark.usefixtures("recordings_folder")


# ----------------------------------------------------------------- recorded


def test_the_fastest_admissible_candidate_of_the_same_size_is_the_answer(recordings_folder) -> None:
    cases = {
        matmul(4096): 4e-3,
        matmul(4096, "bf16"): 1e-3,
        matmul(4096, "fp8"): 1e-5,  # no precision of this row
        matmul(4096, "fp64"): 1e-5,  # raced apart
        matmul(4096, "fp16"): 1e-5,  # too inaccurate
        matmul(2048, "bf16"): 1e-5,  # another size
        matmul(4096, device="cpu"): 1e-5,  # another device
    }
    put(recordings_folder, document(cases, errors={matmul(4096, "fp16"): 0.05}))
    found = ask()
    assert (found.basis, found.name, found.missing) == ("recorded", H200, None)
    assert found.id == matmul(4096, "bf16").id
    assert found.step_s == pytest.approx(1e-3, rel=0.01)
    assert found.step_ci95_s[0] <= found.step_s <= found.step_ci95_s[1]
    assert (found.source, found.recorded_at) == ("h200.json", "2026-11-21T00:00:00.000Z")
    assert (found.ratio, found.error) == (None, None)
    assert ask(precisions=("fp32",)).id == matmul(4096).id


def test_a_library_that_is_not_installed_here_may_have_been_there(recordings_folder: Path) -> None:
    sizes = {"rows": 50_000, "columns": 28, "trees": 50}
    trees = Case("train_trees", "cuda:0", "xgboost", "fp32", params=sizes)
    put(recordings_folder, document({trees: 0.1}))
    request = Request(scenarios=("tabular",), what_if=("h200",))
    (row,) = resolve(request, ROWS)
    assert whatif_devices.fill([row], request) == []
    assert (row.what_if[0].id, row.what_if[0].missing) == (trees.id, None)


def test_the_newest_recording_with_a_result_is_the_answer(recordings_folder: Path) -> None:
    put(recordings_folder, document({matmul(4096): 1e-3}, day=2), "a.json")
    put(recordings_folder, document({matmul(4096): 2e-3}, day=3), "b.json")
    put(recordings_folder, document({matmul(64): 1e-5}, day=4), "c.json")
    assert ask().source == "b.json"


def test_thread_counts_and_modes_must_be_those_of_the_row(recordings_folder: Path) -> None:
    one = matmul(4096, device="cpu", threads=1)
    put(recordings_folder, document({matmul(4096, device="cpu"): 2e-3, one: 1e-3}))
    assert ask(asked="test cpu").id == matmul(4096, device="cpu").id
    assert ask(asked="test cpu", threads=(1,)).id == one.id


def test_the_work_of_a_step_must_be_the_same(recordings_folder: Path) -> None:
    written = document({matmul(4096): 1e-3})
    written.measurements[0].work = rows()[0].workload.work(matmul(2048))
    put(recordings_folder, written)
    assert ask().missing.code == "not_recorded"


def ask_as(objective: str) -> WhatIf:
    """The answer to a row with another objective."""
    request = Request(scenarios=("floating_point",), what_if=("h200",))
    (row,) = resolve(request, ROWS)
    row.scenario = msgspec.structs.replace(row.scenario, objective=objective)
    whatif_devices.fill([row], request)
    return row.what_if[0]


def test_tails_need_steps_measured_one_by_one(recordings_folder: Path) -> None:
    written = document({matmul(4096): 1e-3}, rounds=24)
    put(recordings_folder, written)
    samples = written.measurements[0].samples_s
    assert sorted(samples)[60] < ask_as("latency_p99").step_s <= max(samples)
    written.measurements[0].iterations_per_sample = 4
    put(recordings_folder, written)
    assert ask_as("latency_p99").missing.code == "not_recorded"
    assert ask_as("throughput").basis == "recorded"


def test_time_to_result_includes_the_recorded_set_up(recordings_folder: Path) -> None:
    put(recordings_folder, document({matmul(4096): 1.0}))
    assert ask_as("time_to_result").step_s == pytest.approx(1.0 + 1.5, rel=0.01)


@pytest.mark.parametrize("objective", ["memory", "energy", "cost"])
def test_objectives_other_than_time_are_not_compared(recordings_folder, objective: str) -> None:
    put(recordings_folder, document({matmul(4096): 1.0}))
    assert ask_as(objective).missing.code == "objective"


# ---------------------------------------------------------------- estimated


def test_between_recorded_sizes_there_is_an_estimate(recordings_folder: Path) -> None:
    def truth(n: int) -> float:
        return 1e-5 + 2.0 * n**3 / 5e13

    sizes = (256, 512, 1024, 2048, 4096)
    put(recordings_folder, document({matmul(n, "bf16"): truth(n) for n in sizes}))
    found = ask("n=3000")
    assert (found.basis, found.id) == ("estimated", matmul(3000, "bf16").id)
    assert found.step_s == pytest.approx(truth(3000), rel=0.01)
    assert 0 <= found.error < 0.02
    low, high = found.step_ci95_s
    assert low < found.step_s / (1 + found.error) < found.step_s * (1 + found.error) < high
    assert ask("n=4096").basis == "recorded"


def test_there_is_no_estimate_outside_the_recorded_sizes(recordings_folder: Path) -> None:
    put(recordings_folder, document({matmul(n): 1e-9 * n**3 for n in (64, 128, 256, 512)}))
    found = ask("n=1024")
    assert found.basis is None
    assert found.step_s is None
    assert found.missing.code == "outside"
    assert "n 64, 128, 256, 512: cuda:0 torch fp32" in found.missing.message
    assert "`workbench advise floating_point --set n=1024 --json" in found.missing.hint


def test_the_reason_nearest_to_an_answer_is_given(recordings_folder: Path) -> None:
    few = {matmul(n, "bf16"): 1e-9 * n**3 for n in (64, 2048)}
    put(recordings_folder, document({matmul(n): 1e-9 * n**3 for n in (64, 128, 256, 512)} | few))
    assert ask("n=1024").missing.code == "too_few_sizes"


def test_an_inadmissible_neighbour_gives_no_estimate(recordings_folder: Path) -> None:
    cases = {matmul(n, "bf16"): 1e-9 * n**3 for n in (64, 128, 256, 512)}
    put(recordings_folder, document(cases, errors={matmul(512, "bf16"): 0.05}))
    assert ask("n=200").basis == "estimated"
    assert ask("n=300").missing.code == "not_recorded"


def test_sizes_that_the_workload_refuses_are_no_points(recordings_folder: Path) -> None:
    written = document({matmul(n): 1e-9 * n**3 for n in (64, 128, 256, 512)})
    for measured in written.measurements:
        if measured.case.params["n"] == 512:
            measured.case = matmul(10**9)
            measured.id = measured.case.id
            measured.work = rows()[0].workload.work(measured.case)
    put(recordings_folder, written)
    assert ask("n=200").missing.code == "too_few_sizes"
    assert load()[0][0].measurements[-1].case.params == {"n": 10**9}


def test_sizes_that_differ_in_two_ways_are_no_points(recordings_folder: Path) -> None:
    found = {matmul(n, params={"n": n, "of": n}): 1e-9 * n**3 for n in (64, 128, 256, 512)}
    put(recordings_folder, document(found))
    assert ask("n=200").missing.code == "not_recorded"


# ------------------------------------------------------------------ verdict


def recorded(**changes: object) -> WhatIf:
    fields: dict = {
        "device": "h200",
        "name": H200,
        "basis": "recorded",
        "id": matmul(4096, "bf16").id,
        "step_s": 0.5,
        "step_ci95_s": (0.45, 0.55),
        "ratio": None,
        "ratio_ci95": None,
        "error": None,
        "recorded_at": "2026-11-21T00:00:00.000Z",
        "source": "h200.json",
    }
    return WhatIf(**{**fields, **changes})


MISSING = recorded(
    **dict.fromkeys(("basis", "id", "step_s", "step_ci95_s")),
    missing=Reason("outside", "it is not there", "make one"),
)
HERE = Case("work", "cpu", "torch", "fp32", threads=8, params={"of": "a"})


def planned(*what_if: WhatIf, blocks=None) -> Report:
    blocks = {HERE: steady(1.0)} if blocks is None else blocks
    report = Report.of(changed(events(blocks), ev.RacePlanned, what_if=list(what_if)))
    report.apply(ev.VerdictReached(at_s=9.0, verdict=decide(report, scenario())))
    return report


def test_the_ratio_uses_the_far_ends_of_both_intervals() -> None:
    report = planned(recorded())
    (verdict,), here = report.verdicts, report.candidates[HERE.id]
    (found,) = verdict.what_if
    low, high = here.interval
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert found.ratio_ci95[0] < low / 0.55
    assert found.ratio_ci95[0] == pytest.approx(low / 0.55, rel=0.01)
    assert found.ratio_ci95[1] > high / 0.45
    assert found.ratio_ci95[1] == pytest.approx(high / 0.45, rel=0.01)
    assert (verdict.pick, verdict.choice, verdict.basis) == (HERE.id, "cpu", "measured")


def test_other_devices_do_not_change_choice_and_pick() -> None:
    alone = report({HERE: steady(1.0)})
    (compared,) = planned(recorded(step_s=1e-6), MISSING).verdicts
    assert msgspec.structs.replace(compared, what_if=[]) == decide(alone, scenario())


def test_without_a_pick_there_is_no_ratio() -> None:
    (verdict,) = planned(recorded(), blocks={HERE: []}).verdicts
    (found,) = verdict.what_if
    assert (found.ratio, found.uncompared.code) == (None, "no_pick")
    assert sentence(found, "throughput").endswith("not compared: no pick was measured here")


def test_a_ratio_needs_an_interval_on_both_sides() -> None:
    (verdict,) = planned(recorded(), blocks={HERE: [[1.0]]}).verdicts
    (here,) = verdict.what_if
    assert (here.ratio, here.uncompared.code) == (None, "few_samples")
    assert "500 ms, not compared: cpu torch fp32 t8 has" in sentence(here, "throughput")
    (verdict,) = planned(recorded(step_ci95_s=None)).verdicts
    (there,) = verdict.what_if
    assert (there.ratio, there.uncompared.code) == (None, "few_recorded")


def test_a_recording_of_a_machine_of_this_kind_is_marked() -> None:
    (verdict,) = planned(recorded(name="Test CPU, 8 cores"), recorded()).verdicts
    own, other = verdict.what_if
    assert (own.of_this_kind, other.of_this_kind) == (True, False)
    words = " (recorded 2026-11-21 in h200.json on a machine of this kind), "
    assert words in sentence(own, "throughput")


def test_a_simulated_pick_is_not_compared_with_real_hardware() -> None:
    fake = Case("work", "fake:0", "torch", "fp32", params={"of": "a"})
    (verdict,) = planned(recorded(), blocks={fake: steady(1.0)}).verdicts
    assert (verdict.pick, verdict.basis) == (fake.id, "simulated")
    assert verdict.what_if[0].uncompared.code == "simulated"


def test_a_document_gives_the_same_answers_again() -> None:
    report = planned(recorded(), recorded(error=0.09, basis="estimated"), MISSING)
    written = msgspec.json.decode(dump(report.document()), type=Document)
    again = report_of(written)
    assert again.document() == report.document()
    assert decide(again, scenario()).what_if == report.verdicts[0].what_if
    assert run_text(again) == run_text(report)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ratio": 38.0, "ratio_ci95": (36.0, 40.0)}, "38.0x faster (95% CI 36.0-40.0)"),
        ({"ratio": 0.25, "ratio_ci95": (0.2, 0.5)}, "4.00x slower (95% CI 2.00-5.00)"),
        ({"ratio": 1.1, "ratio_ci95": (0.9, 1.3)}, "cannot be distinguished: 1.1"),
        ({"ratio": 3.0}, "500 ms, not compared"),  # in a document of an older version
    ],
)
def test_an_answer_in_words(changes: dict, words: str) -> None:
    text = sentence(recorded(**changes), "throughput")
    assert text.startswith(
        f"NVIDIA H200 (recorded 2026-11-21 in h200.json), cuda:0 torch bf16: {words}"
    )


def test_an_estimate_has_its_error_and_a_tail_its_percentile() -> None:
    answer = recorded(basis="estimated", error=0.09, ratio=2.0, ratio_ci95=(1.5, 2.5))
    assert "2.00x faster at the 99th percentile (" in sentence(answer, "latency_p99")
    assert sentence(answer, "latency_p99").startswith(
        "NVIDIA H200 (estimated between sizes recorded 2026-11-21 in h200.json, error up to "
    )


def test_the_warnings_of_a_recording_are_shown() -> None:
    busy = Warning("busy_machine", "it was busy", "wait")
    once, twice = (recorded(ratio=2.0, warnings=[busy] * count) for count in (1, 2))
    assert sentence(once, "throughput").endswith("; warning in the recording: it was busy")
    assert sentence(twice, "throughput").endswith(": it was busy (and 1 more)")


def test_the_text_of_a_run_has_a_line_for_each() -> None:
    text = " ".join(run_text(planned(recorded(), MISSING)).split())
    assert "what if NVIDIA H200 (recorded 2026-11-21 in h200.json), cuda:0 torch bf16: 2.0" in text
    assert "NVIDIA H200: unknown: it is not there (make one" in text


def test_a_users_model_has_no_recordings() -> None:
    request = Request(question=ModelQuestion("m.onnx"), what_if=("h200",))
    with pytest.raises(UsageError, match="--what-if"):
        resolve(request, ROWS)


def test_the_recordings_of_the_program_are_usable() -> None:
    _, warnings = load([path("recordings")])
    assert warnings == []
