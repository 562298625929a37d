"""Exit codes of runs that lack a file that was asked for, or firm results."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machines
import msgspec
import own_runs
import pytest
from simulated_run import SimulatedMachine, SimulatedPool, run

from workbench.engine.exit_codes import FAILED, OK, UNTRUSTED, exit_code
from workbench.planning.questions import ModelQuestion, OwnQuestion
from workbench.planning.request import Request
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.code import CodeAdvice, CodeFacts, CodeReport, SavedCode
from workbench.records.document import Trace
from workbench.records.model import Saved
from workbench.records.reason import Reason, Warning
from workbench.report.candidate import Candidate
from workbench.report.report import Report
from workbench.report.run_files import read_journal

KEPT = Path(__file__).parents[2] / "fixtures" / "journals"
CALM = 12  # samples in a block, as steady as they can be
FULL = Reason("not_saved", "the disk is full", None)


def steady_blocks(candidate: Candidate) -> list[ev.BlockMeasured]:
    """Its blocks without anything to warn about."""
    calm = [candidate.median_s] * CALM
    return [msgspec.structs.replace(block, samples_s=calm) for block in candidate.blocks]


def kept(name: str) -> Report:
    return read_journal(KEPT / f"{name}.jsonl").report


def test_a_missing_trace_is_a_failure() -> None:
    report, request = kept("advise-prices"), Request(trace="t.json")
    report.trace = Trace("t.json", None)
    assert exit_code("done", request, report) == OK
    report.trace = None
    assert exit_code("done", request, report) == FAILED
    assert exit_code("done", Request(), report) == OK


@pytest.mark.parametrize(
    ("saved", "code"),
    [(Saved("b.onnx", 9, 0.0), OK), (Saved("b.onnx", None, None, FULL), FAILED), (None, FAILED)],
)
def test_a_missing_model_is_a_failure(saved: Saved | None, code: int) -> None:
    report = kept("advise-model")
    report.model.advice = msgspec.structs.replace(report.model.advice, saved=saved)
    asked = ModelQuestion("m.onnx", save_best="b.onnx")
    assert exit_code("done", Request(question=asked), report) == code
    assert exit_code("done", Request(question=ModelQuestion("m.onnx")), report) == OK


@pytest.mark.parametrize(
    ("advice", "code"),
    [
        (CodeAdvice("lines", saved=SavedCode("best", ["reproduce.py"])), OK),
        (CodeAdvice("lines", saved=SavedCode("best", [], FULL)), FAILED),
        (CodeAdvice("lines"), FAILED),
        (None, FAILED),
    ],
)
def test_a_missing_artefact_of_ones_own_code_is_a_failure(advice, code: int) -> None:
    report = kept("advise-model")
    facts = CodeFacts("torch", "m:build", code_sha256="", inputs_sha256="")
    report.model, report.code = None, CodeReport(facts, advice=advice)
    asked = OwnQuestion("torch", "m:build", save_best="best")
    assert exit_code("done", Request(question=asked), report) == code
    assert exit_code("done", Request(question=OwnQuestion("torch", "m:build")), report) == OK


@pytest.mark.parametrize(
    ("place", "asked", "code"), [(0, (), FAILED), (1, (), OK), (1, (4, 8), FAILED)]
)
def test_a_batch_that_nobody_asked_for_may_fail(place, asked, code) -> None:
    report = Report.of(own_runs.net())
    report.code.advice = None
    row = report.subject_rows[place]
    for candidate in row.candidates:
        candidate.blocks = []
    request = Request(question=OwnQuestion("torch", "m:build"), batch=asked)
    assert exit_code("done", request, report) == code


def test_strict_asks_for_no_word_on_a_batch_that_nobody_asked_for() -> None:
    report = Report.of(own_runs.net())
    report.code.advice = None
    other = report.subject_rows[1]
    other.verdict = msgspec.structs.replace(other.verdict, confidence="open")
    request = Request(question=OwnQuestion("torch", "m:build"), strict=True)
    assert exit_code("done", request, report) == OK
    asked = replace(request, batch=(1, 8))
    assert exit_code("done", asked, report) == UNTRUSTED


def test_a_row_whose_candidates_all_failed_after_their_turns_has_no_result() -> None:
    report = kept("advise-prices")
    candidates = report.rows["realtime"].candidates
    for candidate in candidates[1:]:
        candidate.state = "failed"
    assert candidates[0].blocks and exit_code("done", Request(), report) == OK
    candidates[0].state = "failed"
    assert exit_code("done", Request(), report) == FAILED


@pytest.mark.parametrize(
    ("word", "code"), [("sure", OK), ("tie", OK), ("open", UNTRUSTED), ("unrated", UNTRUSTED)]
)
def test_strict_asks_for_a_word_in_every_verdict(word: str, code: int) -> None:
    report = kept("advise-prices")
    for row in report.rows.values():
        row.verdict = row.verdict and msgspec.structs.replace(row.verdict, confidence="likely")
    assert exit_code("done", Request(strict=True), report) == OK
    row = report.rows["realtime"]
    row.verdict = msgspec.structs.replace(row.verdict, confidence=word)
    assert exit_code("done", Request(strict=True), report) == code
    assert exit_code("done", Request(), report) == OK


def test_strict_samples_asks_for_results_without_a_warning() -> None:
    report = kept("advise-prices")
    warned = [c for r in report.rows.values() for c in r.candidates if c.blocks]
    assert any(report.measurement_warnings(candidate) for candidate in warned)
    assert exit_code("done", Request(strict_samples=True), report) == UNTRUSTED
    assert exit_code("failed", Request(strict_samples=True), report) == FAILED


@pytest.mark.parametrize(
    ("states", "code"), [(["ok", "skipped"], OK), (["ok", "failed"], FAILED), (["skipped"], FAILED)]
)
def test_a_search_for_the_largest_batch_may_skip_what_cannot_run_here(states, code: int) -> None:
    row = SimpleNamespace(candidates=[SimpleNamespace(state=each) for each in states])
    report: Any = SimpleNamespace(asked_rows=[row])
    assert exit_code("done", Request(largest_batch=True), report) == code


def test_strict_samples_asks_for_a_search_without_a_warning_too() -> None:
    report = kept("run-largest-batch")
    request = Request(largest_batch=True, strict_samples=True)
    for candidate in report.candidates.values():
        candidate.state = "ok"
    report.warnings = []
    assert exit_code("done", request, report) == OK
    report.warnings = [Warning("busy_machine", "others were busy", "stop them")]
    assert exit_code("done", request, report) == UNTRUSTED


def test_strict_samples_does_not_ask_about_a_batch_that_nobody_asked_for() -> None:
    report = Report.of(own_runs.net())
    report.code.advice = None
    first, other = report.subject_rows[:2]
    for candidate in first.candidates:
        candidate.blocks = candidate.blocks and steady_blocks(candidate)
    request = Request(question=OwnQuestion("torch", "m:build"), strict_samples=True)
    report.warnings = []
    assert exit_code("done", request, report) == OK
    report.warnings = [Warning("busy_machine", "busy", "stop them", other.plan.scenario)]
    assert exit_code("done", request, report) == OK
    report.warnings = [Warning("busy_machine", "busy", "stop them", first.plan.scenario)]
    assert exit_code("done", request, report) == UNTRUSTED


class BusyPool(SimulatedPool):
    """A pool on a busy machine, where torch prepares nothing within its deadline."""

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        if key.backend == "torch" and request["op"] == "prepare":
            self.control.at_s += deadline_s
            raise WorkerFailed(Reason("timeout", f"no answer within {deadline_s:.0f} s"))
        return super().ask(key, deadline_s, kind, **request)


def test_what_runs_out_of_its_share_has_not_failed() -> None:
    request = Request(workloads=("matmul",), precisions=("fp32",), quick=True, devices=("cpu",))
    events = run(request, SimulatedMachine(*machines.gpu_server()), pool=BusyPool)
    ends = [event for event in events if isinstance(event, ev.CaseFinished)]
    assert sorted({event.status for event in ends}) == ["ok", "skipped"]
    (last,) = (event for event in events if isinstance(event, ev.RunFinished))
    assert last.exit_code == OK
