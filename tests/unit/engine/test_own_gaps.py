"""Forms that a race of the user's module reports as missing, with the real engine."""

from typing import Any
from unittest.mock import patch

import machines
from simulated_own import SimulatedOwn, raced
from simulated_run import SimulatedMachine, run

from workbench.advisor.own.overview import recommendation
from workbench.contract import Case
from workbench.engine import own_exports
from workbench.engine.model_variants import LATE
from workbench.export.text import run_text
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.records.reason import Reason
from workbench.report.report import Report


def gaps(report: Report) -> dict[str, list[str]]:
    return {name: [gap.message for gap in report.gaps(row)] for name, row in report.rows.items()}


def slow(_: Case) -> float:
    return 50.0


def test_the_less_a_budget_has_room_for_the_more_is_named() -> None:
    for budget_s, missing in (
        (30.0, "its other precisions and its ONNX form"),
        (60.0, "its ONNX form"),
    ):
        report = Report.of(raced(takes=slow, batch=(1,), budget_s=budget_s, modes=("plain",)))
        verdict = report.rows["own"].verdict
        assert verdict.confidence == "likely"
        assert gaps(report) == {"own": [f"no time was left for {missing}"]}


class SlowToExport(SimulatedOwn):
    def consult(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["question"] == "export":
            self.control.at_s += 11.0
        return super().consult(request)


def test_the_answer_is_less_sure_where_int8_forms_had_no_turn() -> None:
    report = Report.of(raced(SlowToExport, budget_s=25.0, batch=(1,)))
    assert not any(c.case.precision == "int8" for c in report.candidates.values())
    verdict = report.rows["own"].verdict
    assert verdict.confidence == "open"
    assert "no time was left for its INT8 forms and its compiled form" in verdict.reasons[0]
    assert verdict.next_best.startswith("Raise the budget")
    assert "No time was left for its INT8 forms and its compiled form; raise --budget." in " ".join(
        recommendation(report)
    )
    assert report.code.left_out["int8"] == LATE
    assert run_text(report).count("its INT8 forms and its compiled form") == 1


def test_what_the_first_batch_had_no_time_for_is_missing_at_the_next_too() -> None:
    report = Report.of(raced(SlowToExport, budget_s=25.0, batch=(1, 8)))
    found = gaps(report)
    assert list(found) == ["own", "own[batch=8]"]
    for (message,) in found.values():
        assert message.startswith("no time was left for its INT8 forms")
    said = [each for each in recommendation(report) if "time was left" in each]
    assert len(said) == len({message for (message,) in found.values()})
    assert said[0].startswith("No time was left for its INT8 forms")


def test_what_cannot_be_or_was_not_asked_for_is_not_missing() -> None:
    failures = {"export": Reason("not_exported", "it has no ONNX form")}
    filters = {"modes": ("plain",), "precisions": ("fp32",), "backends": ("torch",)}
    for events in (
        raced(failures=failures, budget_s=120.0, batch=(1,)),
        raced(takes=slow, batch=(1,), **filters),
    ):
        assert gaps(Report.of(events)) == {"own": []}


def test_a_run_that_the_user_stops_had_time() -> None:
    where = SimulatedMachine(*machines.cpu_server(), noise={"own": 0.004})
    asked = Request(question=OwnQuestion("torch", "shop.model:build"))
    with patch.object(own_exports, "knows_compiler", lambda: True):
        report = Report.of(run(asked, where, pool=SimulatedOwn, cancel_at_s=9.0))
    assert report.rows["own"].ended_by == "cancelled"
    assert gaps(report)["own"] == []


def test_what_has_joined_gets_its_turn_before_more_workers_start() -> None:
    report = Report.of(raced(gpu=True, budget_s=30.0))
    found = list(report.candidates.values())
    unmeasured = [c.case.mode for c in found if not c.blocks]
    assert len(found) > 20 and set(unmeasured) <= {"graph"} and len(unmeasured) < 4
