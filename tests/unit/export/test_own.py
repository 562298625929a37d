"""The text, log and document of a run of own code; test_golden.py keeps the wording."""

import dataclasses

import own_runs
import pytest
from msgspec.structs import replace

from workbench.contract import Accuracy, OutputAccuracy
from workbench.export.text import run_text, summary_text
from workbench.export.view.derived import RunView
from workbench.export.view.details import output_text
from workbench.export.view.events import log_line
from workbench.export.view.model import advice_lines, module_lines, stage
from workbench.export.view.model_facts import code_facts, left_out, saved_text
from workbench.export.view.spans import plain_lines
from workbench.planning.request import Request, check
from workbench.records import events as ev
from workbench.records.code import SavedCode
from workbench.report.report import Report

RUNS = {name: make() for name, make in own_runs.GALLERY.items()}


class Going(RunView):
    going = True


def test_what_was_saved_is_logged_once() -> None:
    report, lines = Report(), []
    for event in RUNS["net"]:
        report.apply(event)
        lines.append(log_line(event, report) or "")
    assert sum(isinstance(event, ev.CodeAdvised) for event in RUNS["net"]) == 2
    assert sum("best: inputs.pt" in text for text in lines) == 1


@pytest.mark.parametrize("length", range(1, len(RUNS["net"]), 7))
def test_a_run_that_is_cut_short_anywhere_says_what_it_knows(length: int) -> None:
    report = Report.of(RUNS["net"][:length])
    assert ("25.6 M parameters" in run_text(report)) == (report.code is not None)
    assert isinstance(summary_text(report), str)


def test_code_that_raised_leaves_no_empty_remedy() -> None:
    answer = plain_lines(advice_lines([], None, RunView(Report.of(RUNS["raised"])), 80))
    assert "! failed" in answer and "remedy" not in answer, "nothing is known to help"


def test_what_was_not_tried_has_the_names_that_users_know() -> None:
    report = Report.of(RUNS["script"])
    names = left_out(report, report.rows["own"].verdict)
    assert list(names) == ["ONNX Runtime", "torch.compile", "GPU"]


def test_the_questions_of_the_gallery_are_ones_that_can_be_asked(tmp_path, monkeypatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    for question in own_runs.QUESTIONS:
        check(Request(question=question))


def test_long_inputs_of_a_module_are_cut_and_stay() -> None:
    report = Report.of(own_runs.script())
    report.code.facts.modules[1].shapes[:] = ["input_ids=8x16, attention_mask=8x16, labels=8"] * 2
    lines = [text.plain for text in module_lines(report, 80)]
    assert any("raced  input_ids=8x16" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("known", [False, True], ids=["in the race", "before it"])
def test_a_note_says_once_why_results_were_not_checked(known: bool) -> None:
    report = Report.of(own_runs.function())
    why = "not checked: its inputs are not the same each time"
    for candidate in report.candidates.values():
        candidate.accuracy = Accuracy.uncompared(why)
    notes = [why] if known else []
    report.code.facts = replace(report.code.facts, notes=notes, nondeterministic=known)
    assert run_text(report).count(why) == 1


def test_a_folder_that_was_not_written_says_why() -> None:
    text = saved_text(SavedCode("best", reason=own_runs.BROKEN))
    assert text.startswith("best was not written: net:build: ValueError")


def test_the_stage_names_what_is_built_and_the_batch_that_races() -> None:
    events = RUNS["net"]
    examined = next(n for n, e in enumerate(events) if isinstance(e, ev.CodeExamined))
    planned = [n for n, e in enumerate(events) if isinstance(e, ev.RaceStarted)]

    def at(end: int, *further: ev.AnyEvent) -> str:
        run = Going(Report.of([*events[:end], *further]))
        return stage(run)

    assert at(1) == "reading it, making inputs, running it once"
    assert at(examined + 1) == "choosing its candidates"
    assert at(planned[0] + 1) == "racing at batch 1, 6 of 6 candidates left"
    building = ev.ModelBuilding(at_s=0.9, recipe="onnx")
    assert at(planned[0] + 1, building) == "building onnx"
    assert at(planned[1] + 1) == "racing at batch 8, 6 of 6 candidates left"
    assert at(len(events)) == "finishing"


@pytest.mark.parametrize(("worst", "said"), [(0.01, ""), (0.02, ", worst sample 2.00%")])
def test_of_a_single_sample_none_is_the_worst(worst: float, said: str) -> None:
    found = OutputAccuracy("mask", 0.01, None, None, 0, worst)
    assert output_text(found) == f"error 1.00%{said}"
    joined = dataclasses.replace(found, part="[:, 4:84]")
    assert output_text(joined) == f"error 1.00% in [:, 4:84]{said}"


def test_of_many_outputs_the_worst_are_listed() -> None:
    report = Report.of(RUNS["net"])
    errors = [OutputAccuracy(f"out{n}", n / 1e4, None, None, 0, n / 1e4) for n in range(10)]
    pick = report.subject_row.picked
    pick.accuracy = dataclasses.replace(pick.accuracy, outputs=errors)
    text = run_text(report)
    assert "out9  error 0.09%" in text and "out1 " not in text
    assert "2 more, with no larger error" in text


def test_of_many_inputs_the_first_are_listed() -> None:
    facts = Report.of(RUNS["net"]).code.facts
    _, *lines = code_facts(replace(facts, inputs=facts.inputs * 66))
    assert len(lines) == 9 and lines[-1] == "and 58 further inputs"


def test_a_kind_of_code_that_only_a_later_version_knows_is_named_as_it_is() -> None:
    facts = Report.of(RUNS["net"]).code.facts
    first, *_ = code_facts(replace(facts, kind="notebook"))
    assert ": notebook, " in first
