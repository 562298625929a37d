"""The text, log and document of `advise --model`; test_golden.py keeps the wording."""

from dataclasses import replace
from typing import Any

import machines
import msgspec
import pytest
import recorded_model
import simulated_lab
from builders import block, changed
from simulated_run import SimulatedMachine, run

from workbench.advisor.model.overview import brief, compared, ranked_candidates, recommendation
from workbench.advisor.ranking import error_text
from workbench.export.text import run_text
from workbench.export.view.derived import RunView
from workbench.export.view.details import candidate_facts
from workbench.export.view.model import head_lines
from workbench.export.view.model_facts import model_and_inputs, saved_text
from workbench.export.view.ranked import candidate_lines
from workbench.export.view.table import texts_of
from workbench.export.view.tables import advisor_columns, candidate_line, run_columns
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.model import Advice, ModelFacts, Port, Saved
from workbench.records.reason import Reason
from workbench.report.from_document import report_of
from workbench.report.report import Report

RUN = simulated_lab.done()
REPORT = Report.of(RUN)
TEXT = run_text(REPORT)


def with_verdict(**changes: object) -> Report:
    """The run with another verdict."""
    verdict = {"verdict": lambda event: msgspec.structs.replace(event.verdict, **changes)}
    return Report.of(changed(RUN, ev.VerdictReached, **verdict))


def test_of_many_inputs_the_first_are_listed() -> None:
    facts = REPORT.model.facts
    _, *lines = model_and_inputs(msgspec.structs.replace(facts, inputs=facts.inputs * 66))
    assert len(lines) == 9 and lines[-1] == "and 58 further inputs"


def test_the_facts_of_a_model_are_cut_only_on_a_low_terminal() -> None:
    run, (facts, _) = RunView(REPORT), model_and_inputs(REPORT.model.facts)
    tall, low = (head_lines(run, 60, roomy=roomy) for roomy in (True, False))
    assert " ".join(line.plain for line in tall[:-1]) == facts
    assert len(low) == 2 and low[0].plain.endswith("…")


BOUNDS = {"static-u8s8-channel": (0.0091, 0.0123), "static-u8s8": (0.0181, 0.0257)}


def promising(event: ev.AnyEvent) -> ev.AnyEvent:
    """As if inputs had been kept apart, on which the fastest variant misses the limit."""
    if not isinstance(event, ev.CasePrepared) or event.accuracy is None:
        return event
    form = event.case.split("/int8-")[-1].split("/")[0]
    if form not in BOUNDS:
        return event
    value, bound = BOUNDS[form]
    changes = {"value": value, "error_bound": bound, "held_out": True}
    return msgspec.structs.replace(event, accuracy=replace(event.accuracy, **changes))


def test_the_promise_on_unseen_inputs_is_part_of_the_answer() -> None:
    shown = " ".join(run_text(Report.of(map(promising, RUN))).split())
    assert "error 0.91%, at most 1.23% on unseen inputs (95%) of 2.00% allowed" in shown
    assert "0.91% to 1.23%" in shown
    assert shown.count("at most 1.23%") == 1
    refuted = (
        "kept the limit on the selection inputs. On the held-out inputs its error may reach 2.57%"
    )
    assert f"int8-static-u8s8 looked better and {refuted}" in shown
    assert refuted not in TEXT and "unseen inputs (95%)" not in TEXT


def test_the_next_step_names_a_variant_as_the_other_lines_do() -> None:
    assert "next        int8-static-u8s8 t2 is about 1.14x faster." in TEXT


def test_a_refuted_variant_within_five_percent_of_the_pick_is_not_called_better() -> None:
    def level(event: ev.AnyEvent) -> ev.AnyEvent:
        if isinstance(event, ev.BlockMeasured) and event.case == recorded_model.TENSOR.id:
            samples = [1.1 * sample for sample in event.samples_s]
            return msgspec.structs.replace(event, samples_s=samples)
        return promising(event)

    shown = " ".join(run_text(Report.of(map(level, RUN))).split())
    assert "kept the limit on the selection inputs" not in shown


def test_the_split_of_the_inputs_is_among_the_facts() -> None:
    counts = {"samples": 64, "calibration_samples": 48, "check_samples": 80}
    facts = msgspec.structs.replace(REPORT.model.facts, **counts)
    assert "samples, split at random: 48 calibrate, 64 select, 80 are held out to check" in (
        "\n".join(model_and_inputs(facts))
    )
    few = msgspec.structs.replace(facts, folds=3)
    assert "64 calibrate and select, cross-validated in 3 parts, 80" in "\n".join(
        model_and_inputs(few)
    )


def test_an_outcome_and_an_error_read_the_same_in_every_table() -> None:
    run, row = RunView(REPORT), REPORT.subject_row
    for ranked in ranked_candidates(REPORT):
        (line,), other = candidate_lines([ranked], run), candidate_line(ranked.candidate, row, run)
        states = [texts_of(each.cells["state"])[-1].plain for each in (line, other)]
        assert states[0] == states[1]
        error, check = (
            texts_of(c)[0].plain for c in (line.cells["error"], other.cells["accuracy"])
        )
        assert error.removeprefix("! ") == check
    assert "Error" in [column.title for column in run_columns(row, run, checks=True)]


def test_the_lead_of_a_model_is_said_to_be_over_the_next_variant() -> None:
    titles = [
        [c.title for c in advisor_columns([REPORT.subject_row], width)] for width in (120, 80)
    ]
    assert ["Lead over next" in each for each in titles] == [True, False]


def test_operators_are_those_of_the_pick() -> None:
    found = compared(REPORT)
    assert found.case == recorded_model.CHANNEL.id
    other = compared(REPORT, recorded_model.DYNAMIC.id)
    assert other.case == recorded_model.DYNAMIC.id


def test_the_gain_of_a_raced_run_is_that_of_the_common_rounds() -> None:
    report = Report.of(RUN)
    given = report.candidates[recorded_model.FP32.id]
    given.blocks += [block(given.case, number, [9.0] * 5) for number in range(90, 99)]
    (line,) = [each.split() for each in run_text(report).splitlines() if "a whole run" in each]
    assert line[-1] == "1.92x"


def test_a_gain_that_rounds_to_1_is_not_called_slower() -> None:
    found = ranked_candidates(REPORT)
    for gain, texts in ((0.998, ["1.00x"]), (0.8, ["1.25x slower", "1/1.25x"])):
        lines = candidate_lines([replace(found[0], gain=gain)], RunView(REPORT))
        assert [text.plain for text in lines[0].cells["gain"]] == texts


def test_without_two_profiles_the_reason_stands_in_place_of_operators() -> None:
    silent = recorded_model.BUILT[2].reason

    def bare(event: ev.ModelAdvised) -> Advice:
        found = [msgspec.structs.replace(each, operators=[]) for each in event.advice.explanations]
        return msgspec.structs.replace(event.advice, explanations=found)

    events = changed(RUN, ev.CaseProfiled, operators=[], reason=silent)
    text = run_text(Report.of(changed(events, ev.ModelAdvised, advice=bare)))
    assert "a whole run, raced" not in text
    assert f"was not profiled: {silent.message}" in " ".join(text.split())


def test_a_profile_without_operators_explains_nothing_and_says_why() -> None:
    class OnGpu(simulated_lab.SimulatedLab):
        def profile(self, request: dict[str, Any]) -> dict[str, Any]:
            return {"operators": [], "total_s": 0.0, "fallback_s": 0.0, "events": []}

    where = SimulatedMachine(*machines.cpu_server())
    text = run_text(Report.of(run(Request(question=simulated_lab.QUESTION), where, pool=OnGpu)))
    shown = " ".join(text.split())
    assert "was not profiled: its profiler does not time operators on this device" in shown
    assert "is the fastest run of the model as given." in shown
    for claim in ("kernels fill", "instead of", "Operators in FP32", "operators' time"):
        assert claim not in shown
    assert "a whole run, raced" not in shown


def test_what_the_objective_counts_has_its_column() -> None:
    report = Report.of(changed(RUN, ev.RacePlanned, objective="memory"))
    text = run_text(report)
    table = next(part for part in text.split("\n\n") if part.startswith("Variant "))
    assert "Memory" in table.splitlines()[0]
    assert "58.2 MiB" in table.splitlines()[1]
    assert "Memory" not in TEXT
    candidate = report.candidates[recorded_model.FP32.id]
    known = {each.label: each.text.plain for each in candidate_facts(candidate, RunView(report))}
    assert known["memory"].endswith(" MiB"), "for screens whose table has no such column"


def test_where_the_model_as_given_wins_its_operators_stand_beside_the_fastest_other_form() -> None:
    report = with_verdict(pick=recorded_model.FP32.id, tie=False)
    found = compared(report)
    assert found.case == recorded_model.TENSOR.id
    advice = recommendation(report)[0]
    assert advice == (
        "Ship mobilenet_v2.onnx as it is with 2 threads: "
        "no other variant was shown to be better within the error limit."
    )
    assert "Outputs of" not in run_text(report)


def test_where_all_other_variants_failed_the_answer_says_why() -> None:
    report = with_verdict(pick=recorded_model.FP32.id, tie=False)
    (row,) = report.rows.values()
    for candidate in row.candidates:
        if candidate.case.quantization is not None:
            candidate.blocks.clear()
            candidate.state = "failed"
            candidate.reason = Reason("wrong_result", "output y has shape (3,)", "export it")
    _, why, *_ = recommendation(report)
    assert why.startswith("All other variants failed. int8-")
    assert why.endswith(": output y has shape (3,) (export it).")


def test_weights_that_are_inputs_make_the_gain_too_large() -> None:
    def listed(event: ev.ModelInspected) -> ModelFacts:
        return msgspec.structs.replace(event.facts, weights_are_inputs=True)

    report = Report.of(changed(RUN, ev.ModelInspected, facts=listed))
    assert "Its weights are inputs too" not in str(recommendation(REPORT))
    assert "remove_initializer_from_input" in recommendation(report)[-1]


def test_where_no_form_could_be_made_the_answer_says_that_none_was_tried() -> None:
    late = Reason("timeout", "it could not be prepared: no answer within 7 s", "raise --budget")

    def unmade(event: ev.ModelInspected) -> ModelFacts:
        return msgspec.structs.replace(event.facts, unquantisable=late)

    _, why, *_ = recommendation(Report.of(changed(RUN, ev.ModelInspected, facts=unmade)))
    assert why.startswith("INT8 was not tried, since it could not be prepared: no answer")


def test_without_the_model_as_given_the_pick_is_still_what_to_ship() -> None:
    report = with_verdict(tie=False)
    (row,) = report.rows.values()
    for candidate in row.candidates:
        if candidate.case.quantization is None:
            candidate.blocks.clear()
    assert recommendation(report)[0].startswith("Ship int8-static-u8s8-")


def test_no_other_variant_is_called_a_run_of_the_model_as_given() -> None:
    asked = Request(question=simulated_lab.QUESTION, precisions=("int8",))
    where = SimulatedMachine(*machines.cpu_server())
    report = Report.of(run(asked, where, pool=simulated_lab.SimulatedLab))
    text = run_text(report)
    assert "int8-static-u8s8-channel with 2 threads" in " ".join(text.split())
    assert all(c.case.precision == "int8" for c in report.subject_row.candidates)
    assert "run of the model as given" not in text
    assert "Where the time of one run goes" not in text


def test_a_tie_names_the_equal_and_no_pick_says_why() -> None:
    level = with_verdict(tie=True, pick_ratio=1.01, pick_ratio_ci95=(0.99, 1.03))
    assert recommendation(level)[1] == "No clear lead over int8-static-u8s8-mixed t2."
    ahead = with_verdict(tie=True, pick_ratio=1.02, pick_ratio_ci95=(1.01, 1.03))
    assert recommendation(ahead)[1] == "It leads int8-static-u8s8-mixed t2 by less than 5%."
    none = with_verdict(pick=None, reasons=["Nothing could be picked: it was too far off."])
    assert recommendation(none) == [
        "No recommendation. Nothing could be picked: it was too far off."
    ]


@pytest.mark.parametrize("length", range(1, len(RUN), 7))
def test_a_run_that_is_cut_short_anywhere_is_told_as_far_as_it_went(length: int) -> None:
    report = Report.of(RUN[:length])
    text = run_text(report)
    assert ("mobilenet_v2.onnx: 13.3 MiB" in text) == (report.model is not None)
    if report.started is not None:
        assert run_text(report_of(report.document())) == text


def test_a_refused_model_has_the_usual_table_without_usual_advice() -> None:
    kept = (ev.RunStarted, ev.HardwareDetected, ev.RacePlanned, ev.VerdictReached)
    text = run_text(Report.of(e for e in RUN if isinstance(e, kept)))
    row = next(line for line in text.splitlines() if line.startswith("mobilenet_v2.onnx  "))
    assert row.split()[1] == "CPU"
    assert "Usual" not in text


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("2x slower than cpu/onnxruntime/fp32/t16", "2x slower than fp32 t16"),
        ("cpu onnxruntime fp32 t1 leads.", "fp32 t1 leads."),
        ("cuda:0 onnxruntime fp16 is level", "cuda:0 fp16 is level"),
        ("cuda:0/onnxruntime/fp16, so", "cuda:0 fp16, so"),
        ("onnxruntime here has no provider", "onnxruntime here has no provider"),
    ],
)
def test_names_are_told_without_what_all_share(long: str, short: str) -> None:
    assert brief(long) == short


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00%"), (1e-7, "<0.01%"), (0.0198, "1.98%"), (0.5, "50.00%")]
)
def test_errors_are_percentages(value: float, text: str) -> None:
    assert error_text(value) == text


def test_candidates_are_none_before_the_race_is_planned() -> None:
    early = Report.of(simulated_lab.inspected())
    assert (early.subject_row, ranked_candidates(early), recommendation(early)) == (None, [], [])


def test_a_model_with_branches_maps_and_several_inputs_is_described() -> None:
    facts = msgspec.structs.replace(
        recorded_model.FACTS,
        inputs=[Port("x", "float32", [None], [4]), Port("sr", "int64", [], [], "constant 16000")],
        uncompared=["probabilities"],
        control_flow=["If"],
        quantised=True,
        multiply_adds=None,
    )
    head, *rest = model_and_inputs(facts)
    assert "already quantised" in head
    assert rest == [
        "input x float32 [4]",
        "input sr int64 [], constant 16000",
        "outputs that cannot be compared: probabilities; only tensors can (skl2onnx: zipmap=False)",
        "the static quantiser skips the graphs inside If",
    ]


def test_a_model_of_other_operators_than_onnxs_has_no_opset_nor_products() -> None:
    trees = msgspec.structs.replace(recorded_model.FACTS, opset=0, parameters=0, multiply_adds=0)
    (head, *_) = model_and_inputs(trees)
    assert "parameters" not in head and "multiply-adds" not in head
    assert "opset" not in head


def test_a_file_that_was_not_written_says_why() -> None:
    reason = recorded_model.BUILT[2].reason
    text = saved_text(Saved("best.onnx", None, None, reason))
    assert reason.message in text
