"""The advice on the user's own code: baseline, ranking, sentences and Amdahl's law."""

import builders
import own_runs
import pytest
from builders import steady
from msgspec.structs import replace
from own_runs import NET, case

from workbench.advisor.break_even import plain
from workbench.advisor.own.overview import (
    TRAINS,
    answer,
    as_written,
    compile_calls,
    flips,
    recommendation,
    script_gain,
)
from workbench.advisor.ranking import Gain, gain_text, tie_text
from workbench.advisor.subject import pick_of, snippet
from workbench.advisor.verdict import decide
from workbench.contract import Accuracy
from workbench.records import events as ev
from workbench.records.code import CodeReport
from workbench.records.reason import Reason
from workbench.records.verdict import Payoff
from workbench.report.candidate import in_order
from workbench.report.report import Report
from workbench.stats.paired import Ratio

REPORTS = {name: Report.of(make()) for name, make in own_runs.GALLERY.items()}


def advised(name: str, **verdict: object) -> list[str]:
    """The advice of a run of the gallery with another verdict for its first row."""
    report = Report.of(own_runs.GALLERY[name]())
    row = report.subject_rows[0]
    row.verdict = replace(row.verdict, **verdict)
    return recommendation(report)


@pytest.mark.parametrize(("calls", "text"), [(0.3, "1 call"), (1.2, "2 calls"), (2847.0, "2,850")])
def test_the_calls_after_which_compiling_pays_off_are_counted_as_steps_are(calls, text) -> None:
    report = Report.of(own_runs.net())
    report.code = replace(report.code, compile_calls=calls)
    assert f"Compiling breaks even after {text}" in " ".join(recommendation(report))
    assert f"{text}s" not in " ".join(recommendation(report))


@pytest.mark.parametrize(
    ("share", "whole"), [(0.2, "1.22x"), (1.0, "10.0x"), (0.001, "less than 1%")]
)
def test_a_gain_in_a_part_counts_as_amdahl_says(share: float, whole: str) -> None:
    report = Report.of(own_runs.script())
    row, facts = report.subject_rows[0], report.code.facts
    modules = [replace(each, share=share) for each in facts.modules]
    report.code.facts = replace(facts, modules=modules)
    found = script_gain(report, row, report.candidates[row.verdict.pick])
    assert found.endswith(f"10.0x faster there makes the script {whole} faster.")


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.96, 0.99), "cpu torch fp32 t2 leads it by less than 5%."),
        ((0.98, 1.03), "No clear lead over cpu torch fp32 t2."),
        ((1.01, 1.03), "It leads cpu torch fp32 t2 by less than 5%."),
        ((1.01, 1.10), "It leads cpu torch fp32 t2: 1.04x (95% CI 1.01-1.10)."),
    ],
)
def test_a_lead_in_a_tie_is_as_large_as_its_interval(interval, said) -> None:
    verdict = REPORTS["net"].subject_rows[0].verdict
    found = replace(verdict, pick_ratio=1.04, pick_ratio_ci95=interval)
    assert tie_text(found, "cpu torch fp32 t2") == said


def test_a_proven_loss_is_called_one() -> None:
    row = REPORTS["net"].subject_rows[0]
    lost = Ratio(0.5, 0.48, 0.52, 9)
    assert (
        gain_text(Gain(0.5, lost), row.plan.objective, "X")
        == "2.00x (95% CI 1.92-2.08) slower than X"
    )


def test_the_pick_of_another_batch_is_the_pick_where_the_first_has_none() -> None:
    report = Report.of(own_runs.net())
    first, other = report.subject_rows
    assert pick_of(report) is first.picked
    first.verdict = replace(first.verdict, pick=None)
    assert pick_of(report) is other.picked


def test_a_compiled_candidate_says_how_many_sizes_the_script_uses() -> None:
    report = Report.of(own_runs.net())
    (module,) = (each for each in REPORTS["script"].code.facts.modules if each.chosen)
    varied = [replace(module, sizes=7)]
    report.code.facts = replace(report.code.facts, modules=varied)
    found = recommendation(report)
    assert "It compiles again for inputs of every other size, and the script uses 7 sizes." in found


def test_the_answer_says_that_results_could_not_be_checked() -> None:
    report = Report.of(own_runs.net())
    row = report.subject_rows[0]
    row.picked.accuracy = Accuracy.uncompared("not checked: eager differs from itself by 43%")
    assert answer(row, report)[0].endswith("; its results could not be checked.")


def test_true_fp32_on_a_gpu_is_not_called_the_code_as_written() -> None:
    report = Report.of(own_runs.gpu())
    del report.subject_rows[0].candidates[0]  # --device gpu
    assert "faster than eager (cuda:0 torch fp32)" in recommendation(report)[0]


def test_code_that_runs_in_another_way_today_is_compared_with_eager() -> None:
    report = Report.of(own_runs.net())
    row = report.subject_rows[0]
    for given in {"compiled": True}, {"data": "dataset"}:
        report.code.facts = replace(NET, **given)
        assert "faster than eager (cpu torch fp32 t2)" in recommendation(report)[0]
    row.verdict = replace(row.verdict, pick=row.candidates[0].case.id)
    assert recommendation(report)[0].startswith("Run it eager on the CPU with 2 threads: no other")


def test_candidates_without_a_turn_are_named() -> None:
    report = Report.of(own_runs.GALLERY["function"]())
    last = report.subject_rows[0].candidates[-1]
    last.blocks.clear()
    last.reason = Reason("budget", "it was not ready within its 30 s of the budget")
    assert recommendation(report) == [
        "Run it as it is on the CPU with 2 threads.",
        "Not measured, for lack of time: cpu python t1.",
    ]


def test_a_tie_names_the_equal_and_no_pick_says_why() -> None:
    equal = REPORTS["net"].subject_rows[0].candidates[2].case.id
    level = {"tie": True, "runner_up": equal, "pick_ratio_ci95": (0.99, 1.03)}
    assert "No clear lead over cpu torch bf16 t2." in advised("net", **level)
    reasons = ["Nothing was measured: cpu torch fp32 t2 died."]
    assert advised("net", pick=None, reasons=reasons)[0] == (
        "No recommendation. Nothing was measured: cpu torch fp32 t2 died."
    )


def test_without_the_code_as_written_the_pick_stands_without_gain() -> None:
    report = Report.of(own_runs.net())
    row = report.subject_rows[0]
    row.candidates = [c for c in row.candidates if "/fp32/t" not in c.case.id]
    assert recommendation(report)[0] == (
        "Run it on the CPU with BF16 autocast, channels_last and 2 threads; "
        "error 0.33% of 1.00% allowed."
    )


def test_code_that_raised_and_a_run_cut_short_get_no_advice() -> None:
    assert recommendation(REPORTS["raised"]) == []
    assert snippet(REPORTS["raised"]) is None
    decided = [e for e in own_runs.net() if not isinstance(e, ev.VerdictReached)]
    assert recommendation(Report.of(decided))[0].startswith("No recommendation: the run ended")


def test_eager_with_all_threads_on_the_cpu_is_the_code_as_written() -> None:
    row, facts = Report.of(own_runs.gpu()).subject_rows[0], CodeReport(NET)
    assert as_written(row, facts).case.label == "cpu/torch/fp32/t8"
    other = CodeReport(replace(NET, threads=3))  # but --threads 8
    assert as_written(row, other) is None
    row.candidates = row.candidates[1:]  # it needs a GPU
    assert as_written(row, other).case.label == "cuda:0/torch/fp32"
    assert as_written(row, facts).case.label == "cuda:0/torch/fp32"
    row.candidates = row.candidates[1:]  # --mode graph
    assert as_written(row, facts) is None
    half = CodeReport(replace(NET, precision="fp16"))
    row.candidates[0].case = case("cuda:0/torch/fp16")
    assert as_written(row, half).case.label == "cuda:0/torch/fp16"


@pytest.mark.parametrize(
    ("other_s", "kind", "picked"),
    [(0.98, "torch", "t8"), (0.98, "command", "t1"), (0.9, "torch", "t1"), (1.0, "torch", "t8")],
)
def test_code_is_left_as_it_is_where_the_best_is_no_better(other_s, kind, picked) -> None:
    given, other = case("cpu/torch/fp32/t8"), case("cpu/torch/fp32/t1")
    built = builders.report({given: steady(1.0), other: steady(other_s)})
    built.code = CodeReport(replace(NET, kind=kind))
    verdict = decide(built, builders.scenario())
    assert verdict.pick.endswith(picked)
    assert verdict.confidence == ("sure" if other_s == 0.9 else "tie")


def test_a_training_says_how_long_it_waits_for_data() -> None:
    report = Report.of(own_runs.function())
    pick = report.candidates[report.subject_rows[0].verdict.pick]
    block = replace(pick.blocks[-1], metrics={"waiting_fraction": 0.12})
    pick.blocks = [block]
    assert recommendation(report)[1] == "It waits for data 12% of the time."


def picks(second: int) -> list[str]:
    """The sentences on the first pick, if the second batch picks the candidate in this place."""
    report = Report.of(own_runs.net())
    other = report.subject_rows[1]
    found = in_order(other.candidates)[second].case.id
    other.verdict = replace(other.verdict, pick=found)
    return flips(report)


def test_the_answer_flips_stays_or_is_open_at_another_batch() -> None:
    pick = "cpu torch bf16 nhwc t2"
    (flipped,) = picks(1)
    assert flipped.startswith("The answer flips at batch 8: cpu torch fp32 compile t2 is 1.1")
    assert flipped.endswith(f" faster than {pick} there.")
    assert picks(2) == ["The same candidate is the pick at batch 8."]
    assert picks(3) == [f"At batch 8 cpu torch bf16 t2 and {pick} cannot be distinguished."]


def test_a_pick_that_did_not_race_at_another_batch_is_not_compared_there() -> None:
    report = Report.of(own_runs.net())
    other = report.subject_rows[1]
    other.candidates = [c for c in other.candidates if c.case.mode != "nhwc"]
    (text,) = flips(report)
    assert text.endswith("cpu torch bf16 nhwc t2 raced too little there to compare.")
    other.verdict = None
    assert flips(report) == []


@pytest.mark.parametrize(("state", "code"), [("ok", "error_limit"), ("failed", "worker_died")])
def test_a_pick_that_may_not_be_picked_at_another_batch_is_said_to_be_so(state, code) -> None:
    report = Report.of(own_runs.net())
    same = next(c for c in report.subject_rows[1].candidates if c.case.mode == "nhwc")
    same.state, same.reason = state, Reason(code, "its error is above the limit of 1.0%")
    (text,) = flips(report)
    assert text.endswith("cpu torch bf16 nhwc t2 could not be picked there.")


def test_a_batch_that_failed_does_not_hide_the_answer_for_another() -> None:
    report = Report.of(own_runs.net())
    first, other = report.subject_rows
    reason = "Nothing was measured."
    first.verdict = replace(first.verdict, pick=None, reasons=[reason])
    found = recommendation(report)
    assert found[0] == f"No recommendation. {reason}"
    there = answer(other, report)
    assert found[1 : 1 + len(there)] == there
    assert found[1].startswith("At batch 8: run it on the CPU")
    assert flips(report) == []


def test_compiling_pays_off_only_where_that_is_certain() -> None:
    row = Report.of(own_runs.net()).subject_rows[0]
    compiled = next(c for c in row.candidates if c.case.is_compiled)
    plain_id = plain(compiled.case).id
    others = (plain_id, 9.0, 0.0, 0.004, 0.005)
    certain = Payoff(compiled.case.id, *others, 4_210.0, (4_000.0, 4_400.0), None)
    unsure = replace(certain, steps=7.0, steps_ci95=None)
    eager = replace(certain, id=row.candidates[0].case.id, steps=5.0)
    slower = replace(certain, over="cpu/torch/fp32/t1", steps=20.0)

    def calls(*payoffs: Payoff) -> float | None:
        row.verdict = replace(row.verdict, payoffs=list(payoffs))
        return compile_calls(row)

    assert calls(eager, unsure) is None
    assert calls(eager, unsure, certain) == 4_210.0
    assert calls(slower, certain) == 4_210.0, "it is against the same code, uncompiled"


def test_the_gain_of_a_script_is_that_of_its_chosen_module() -> None:
    report = REPORTS["script"]
    row = report.subject_rows[0]
    pick = report.candidates[row.verdict.pick]
    assert script_gain(report, row, pick).startswith("fc takes 20% of the script's time: 10.0x")
    assert script_gain(report, row, pick, trains=True) == "", "its calls are a part of its steps"
    for shown_no_gain in row.candidates[0], *(c for c in row.candidates if len(c.blocks) < 3):
        assert script_gain(report, row, shown_no_gain) == ""
    assert script_gain(REPORTS["net"], row, pick) == ""
    whole = report.code.facts
    altered = [replace(each, altered=True) for each in whole.modules]
    report.code.facts = replace(whole, modules=altered)
    assert script_gain(report, row, pick).endswith("calls it in another way than this race does.")
    assert "faster than eager (cpu torch" in recommendation(report)[0]
    several = [replace(each, sizes=60) for each in whole.modules]
    report.code.facts = replace(whole, modules=several)
    text = "in calls with 60 input sizes, of which one was raced."
    assert script_gain(report, row, pick).endswith(text)
    assert "faster than the code as written (cpu torch" in recommendation(report)[0]
    report.code.facts = replace(whole, trains=True)
    assert TRAINS in recommendation(report)
    assert script_gain(report, row, pick) == ""
    report.code.facts = replace(whole, cut=True)
    assert script_gain(report, row, pick) == "", "nothing is known about the whole time"
    report.code.facts = whole
