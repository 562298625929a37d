"""Exit codes of runs that lack a file that was asked for, or firm results."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from workbench.engine.exit_codes import FAILED, OK, UNTRUSTED, exit_code
from workbench.planning.model_question import ModelQuestion
from workbench.planning.own_question import OwnQuestion
from workbench.planning.request import Request
from workbench.records.code import CodeAdvice, CodeFacts, CodeReport, SavedCode
from workbench.records.document import Trace
from workbench.records.model import Saved
from workbench.records.reason import Reason
from workbench.report.report import Report
from workbench.report.run_files import read_journal

KEPT = Path(__file__).parents[2] / "fixtures" / "journals"
FULL = Reason("not_saved", "the disk is full", None)


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
    [
        (Saved("b.onnx", 9, 0.0), OK),
        (Saved("b.onnx", None, None, FULL), FAILED),
        (None, FAILED),
    ],
)
def test_a_missing_model_is_a_failure(saved: Saved | None, code: int) -> None:
    report = kept("advise-model")
    assert report.model is not None and report.model.advice is not None
    report.model.advice = msgspec.structs.replace(report.model.advice, saved=saved)
    asked = ModelQuestion("m.onnx", save_best="b.onnx")
    assert exit_code("done", Request(model=asked), report) == code
    assert exit_code("done", Request(model=ModelQuestion("m.onnx")), report) == OK


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
    assert exit_code("done", Request(own=asked), report) == code
    assert exit_code("done", Request(own=OwnQuestion("torch", "m:build")), report) == OK


@pytest.mark.parametrize(("word", "code"), [("sure", OK), ("tie", OK), ("open", UNTRUSTED)])
def test_strict_asks_for_a_word_in_every_verdict(word: str, code: int) -> None:
    report = kept("advise-prices")
    for row in report.rows.values():
        row.verdict = row.verdict and msgspec.structs.replace(row.verdict, confidence="likely")
    assert exit_code("done", Request(strict=True), report) == OK
    row = report.rows["realtime"]
    assert row.verdict is not None
    row.verdict = msgspec.structs.replace(row.verdict, confidence=word)
    assert exit_code("done", Request(strict=True), report) == code
    assert exit_code("done", Request(), report) == OK


def test_strict_samples_asks_for_results_without_a_warning() -> None:
    report = kept("advise-prices")
    warned = [c for r in report.rows.values() for c in r.candidates if c.blocks]
    assert any(report.measurement_warnings(candidate) for candidate in warned)
    assert exit_code("done", Request(strict_samples=True), report) == UNTRUSTED
    assert exit_code("failed", Request(strict_samples=True), report) == FAILED
