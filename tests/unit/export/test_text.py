"""Which events have a line in the log; test_golden.py keeps the wording of text."""

import machines
import pytest
from builders import case, changed, eventful, events, machine, report, steady
from msgspec.structs import replace

from workbench.advisor.verdict import decide
from workbench.cli.program import head
from workbench.export.catalogue import catalogue_text, jobs
from workbench.export.text import run_text
from workbench.export.view.derived import RunView
from workbench.export.view.events import log_line
from workbench.export.view.machine import machine_text, warnings
from workbench.export.view.tables import pending_texts
from workbench.export.view.words import pick_texts, state_texts
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.machine import Gpu, Package
from workbench.records.reason import Reason, Warning
from workbench.report.journal import Journal, runs_folder
from workbench.report.report import Report

PLAIN = Scenario("row", "Row", "", None, "work", "throughput", ("fp32",))


def test_a_run_ends_with_what_weakens_all_of_it() -> None:
    built = report({case("cpu-a"): steady(1.0)}, row=PLAIN)
    built.warnings = [
        Warning("busy_gpu", "others use it", "wait", "GPU-1"),
        Warning("busy_machine", "others compute", "stop them", "row"),
    ]
    assert "\n\n! warning     others use it; wait\n\nincomplete" in run_text(built)
    assert run_text(built).count("others compute") == 1


def test_the_catalogue_is_wrapped_for_a_narrow_terminal() -> None:
    for width in (60, 80):
        lines = catalogue_text(jobs(head("list")), width).splitlines()
        assert max(map(len, lines)) <= width
    (first, *_) = [line for line in lines if line.startswith("training ")]
    assert first.split()[1] == "Training"


def test_a_small_lead_of_a_plain_run_is_not_called_open() -> None:
    one, other = case("cpu-a"), case("cpu-b")
    small = run_text(report({one: steady(1.0, 20), other: steady(1.03, 20)}))
    assert "of=a leads cpu torch fp32 t8 of=b by less than 5%: 1.03x" in small
    level = run_text(report({one: steady(1.0, 20), other: steady(1.002, 20)}))
    assert "cpu torch fp32 t8 of=b are too close to call: 1.00x" in level


@pytest.mark.parametrize(
    ("objective", "better"),
    [
        ("throughput", "is 2.00x faster than"),
        ("latency_p99", "is 2.00x faster at the 99th percentile than"),
        ("memory", "is 2.00x lower in peak memory than"),
    ],
)
def test_a_row_without_a_verdict_says_what_it_compares(objective, better) -> None:
    one, other = case("cpu-a"), case("cpu-b")
    row = replace(PLAIN, objective=objective)
    for factor, words in ((2.0, better), (1.0, "are too close to call: 1.00x")):
        built = report({one: steady(1.0, 20), other: steady(factor, 20)}, row=row)
        for candidate, peak in zip(built.candidates.values(), (1.0, factor), strict=True):
            candidate.memory_peak_bytes = round(peak * 2**30)
        text = run_text(built, 200)
        assert words in text
        assert ("best " if objective == "memory" else "fastest ") in text


def test_a_row_that_compares_memory_shows_it() -> None:
    one, other = case("cpu-a"), case("cpu-b")
    for objective in ("memory", "throughput"):
        row = replace(PLAIN, objective=objective)
        built = report({one: steady(1.0), other: steady(2.0)}, row=row)
        for candidate in built.candidates.values():
            candidate.memory_peak_bytes = 432 << 20
        assert ("peak memory 432 MiB" in run_text(built)) is (objective == "memory")


def test_a_sole_candidate_of_a_plain_run_is_not_called_the_fastest() -> None:
    one, other = case("cpu-a"), case("cpu-b")
    for blocks, words in (({}, "measured: "), ({other: steady(2.0)}, "fastest: ")):
        run = RunView(report({one: steady(1.0), **blocks}, row=PLAIN))
        run.report.rows["row"].began_at_s = 0.0
        (row,) = run.report.rows.values()
        assert pending_texts(row, run)[0].plain.startswith(words)
        assert not pending_texts(row, run)[0].plain.endswith(" / ...")
    level = RunView(report({one: steady(1.0), other: steady(1.001)}, row=PLAIN))
    (row,) = level.report.rows.values()
    row.began_at_s = 0.0
    assert pending_texts(row, level)[0].plain.endswith(" / ..."), "it may be as fast"


def test_a_race_that_was_cut_short_is_called_so_in_a_narrow_table() -> None:
    run = RunView(report({case("cpu-a"): steady(1.0)}))
    (row,) = run.report.rows.values()
    row.began_at_s = 0.0
    assert [text.plain for text in pending_texts(row, run)][1:] == ["cut short"]


def test_a_candidate_that_the_race_eliminated_is_not_named_as_equal_to_the_pick() -> None:
    row = Scenario("row", "Row", "Which?", "", "work", "throughput", ("fp32",))
    one, other = case("cpu-a"), case("cpu-b")
    built = report({one: steady(1.0), other: steady(1.03)}, gpus=[])
    for beaten_by, shown in ((None, True), (one.id, False)):
        built.candidates[other.id].beaten_by = beaten_by
        verdict = built.rows["row"].verdict = decide(built, row)
        assert (verdict.pick, verdict.tie) == (one.id, True)
        run = RunView(built)
        assert any(" / " in text.plain for text in pick_texts(verdict, run)) is shown


def test_a_pick_that_leads_by_a_little_stands_alone_in_the_table() -> None:
    row = Scenario("row", "Row", "Which?", "", "work", "throughput", ("fp32",))
    built = report({case("cpu-a"): steady(1.0), case("cpu-b"): steady(1.03)}, gpus=[])
    found, run = decide(built, row), RunView(built)
    for bounds, shown in (((1.01, 1.08), False), ((1.01, 1.04), True), ((0.99, 1.08), True)):
        verdict = replace(found, pick_ratio=1.04, pick_ratio_ci95=bounds)
        assert any(" / " in text.plain for text in pick_texts(verdict, run)) is shown


@pytest.mark.parametrize(
    ("code", "shown"), [("no_journal", True), ("not_frozen", True), ("x", False)]
)
def test_a_run_that_is_not_kept_or_misleads_says_so_at_once(code: str, shown: bool) -> None:
    event = ev.WarningRaised(at_s=1.0, warning=Warning(code, "it is so", "do that"))
    line = log_line(event, Report(), verbose=False)
    assert (line is not None and line.endswith("warning     it is so; do that")) is shown


def test_a_race_for_one_size_says_which() -> None:
    (planned,) = [e for e in events({case("cpu-a"): []}) if isinstance(e, ev.RacePlanned)]
    point = replace(planned, point={"batch": 12}, of="row")
    read = Report.of([eventful()[0], planned, point])
    race = ev.RaceStarted(at_s=9.0, scenario=point.scenario, share_s=4.0)
    read.apply(race)
    assert log_line(race, read).endswith("Row, batch=12: 1 candidate, 4 s")


def test_a_plain_run_shows_its_disturbances_below_its_candidates() -> None:
    run = Report.of([e for e in eventful() if not isinstance(e, ev.VerdictReached)])
    assert "! warning   busy; wait\n" in run_text(run)


def test_the_end_of_a_worker_as_asked_or_of_a_case_without_samples_is_not_worth_a_line() -> None:
    assert log_line(ev.WorkerEnded(at_s=1.0, worker="cpu/torch", reason=None), Report()) is None
    ended = events({case("cpu-a"): []})
    assert isinstance(ended[-2], ev.CaseFinished)
    assert log_line(ended[-2], Report.of(ended)) is None


def test_fewer_cores_than_the_machine_has_come_with_their_cause() -> None:
    few = replace(machine().cpu, effective_cores=3, limited_by="cgroup")
    read = Report(machine=replace(machine("cuda:0", "cuda:1"), cpu=few))
    assert RunView(read).machine_line() == "Test, 3 of 8 cores (cgroup) | 2x Test GPU"


def test_many_gpus_share_a_table_and_the_facts_that_are_equal() -> None:
    machine, software = machines.eight_gpus()
    machine.gpus[5] = replace(machine.gpus[5], ecc=False)
    shown = machine_text(machine, software)
    assert "8 GPUs  NVIDIA H200" in shown
    assert shown.count("  1.20 of 140 GiB  118 W  34 C") == 8
    assert shown.count("PCIe ") == 1
    assert shown.count("ECC on") == 7 and shown.count("ECC off") == 1


def test_a_table_of_gpus_that_cannot_be_read_has_no_shares_of_an_unknown_size() -> None:
    machine, software = machines.eight_gpus()
    machine.gpus[:] = [Gpu(n, f"cuda:{n}", None, None, None) for n in range(3)]
    shown = machine_text(machine, software)
    assert shown.count("n/a  ") >= 3 and "n/a of" not in shown


def test_the_same_remedy_for_both_libraries_of_a_gpu_stands_once() -> None:
    machine, software = machines.cpu_server()
    alike = replace(machine.cuda, reason=machine.nvml.reason)
    shown = " ".join(machine_text(replace(machine, cuda=alike), software).split())
    assert shown.count("was not found remedy install the NVIDIA driver") == 1
    assert shown.count("libnvidia-ml.so.1 was not found") == 2


def test_the_stack_says_where_it_breaks() -> None:
    assert "Stack" not in machine_text(*machines.cpu_server()), "the section on GPUs says why"
    machine, software = machines.gpu_server()
    assert "! a CPU build: not on the GPU" in machine_text(machine, software)
    fitting = dict(software.packages) | {"onnxruntime-gpu": Package("1.28.0", "CUDA 13.0")}
    fits = machine_text(machine, replace(software, packages=fitting))
    assert "1.28.0  CUDA 13.0" in fits.split("Stack")[1] and "! " not in fits.split("Stack")[1]
    old = dict(fitting) | {"torch": Package("2.13.0", "CPU build")}
    broken = machine_text(machine, replace(software, packages=old))
    assert "2.13.0  CPU build  ! " in broken.split("Stack")[1]


def test_warnings_that_differ_only_in_their_device_are_one() -> None:
    busy = [Warning("busy_gpu", f"another process uses cuda:{n}", "see which") for n in range(8)]
    first, _ = warnings([*busy, Warning("other", "text", "see which")], {})
    assert first.text.plain == "another process uses cuda:0, and 7 more; see which"


def test_a_warning_about_several_rows_stands_once_on_the_hardware_screen() -> None:
    busy = [Warning("busy_machine", "others ran", "stop them", row) for row in ("a", "b", "c")]
    cold = Warning("clock_low", "slow", "look", "cuda:0")
    facts = warnings([busy[0], cold, *busy[1:]], {"a": "Row A", "b": "B", "c": "C"})
    assert [fact.text.plain for fact in facts] == [
        "others ran (Row A, and 2 more); stop them",
        "slow; look",
    ]


def test_a_run_that_broke_off_says_so_and_no_candidate_waits() -> None:
    one, other = case("cpu-a"), case("cpu-b")
    cut = Report.of(events({one: steady(1.0), other: steady(2.0)})[:4])
    cut.apply(ev.CasePreparing(at_s=0.5, case=one.id))
    text = run_text(cut)
    assert "waiting" not in text and "preparing" not in text and text.count(" not measured") == 2
    assert text.endswith("incomplete    the run was cut short")
    kept = Journal(runs_folder() / f"{cut.started.id}.jsonl")
    assert run_text(cut).endswith("incomplete    the run is still under way")
    kept.close()
    assert run_text(cut).endswith("incomplete    run it again: `workbench`")
    cut.started = replace(cut.started, resumes="20260101-000000-beef")
    assert "`workbench resume 20260101-000000-beef` measures the rest" in run_text(cut)


@pytest.mark.parametrize(
    ("code", "word"), [("limit", "over the limit"), ("not_counted", "not counted")]
)
def test_a_candidate_that_cannot_be_compared_is_over_no_limit(code: str, word: str) -> None:
    gpu = case("cuda:0-a")
    built = events({case("cpu-a"): steady(1.0), gpu: steady(0.1, 1)}, gpus=["cuda:0"])
    reason = Reason(code, "a GPU's memory is not compared")
    found = Report.of(changed(built, ev.CaseFinished, gpu, reason=reason))
    texts = state_texts(found.candidates[gpu.id], RunView(found))
    assert texts[0].plain.startswith(f"{word}: a GPU's memory is not compared")
    assert all(text.plain.split()[0] == word.split()[0] for text in texts)


def test_a_file_has_the_whole_reason_of_a_failure() -> None:
    broken = case("cpu-b")
    built = events({case("cpu-a"): steady(1.0), broken: steady(2.0)})
    reason = Reason("failed", " ".join(["shapes of MatMul do not fit"] * 10))
    found = Report.of(changed(built, ev.CaseFinished, broken, status="failed", reason=reason))
    assert f"failed: {reason.message}" in run_text(found)
