"""The row of `advise --torch ... --train`, by the real engine on a made-up machine."""

import re
from typing import Any, ClassVar

import pytest
from simulated_own import FACTS, SimulatedOwn, raced

from workbench.contract import FAULTING_FRACTION, Case
from workbench.export.text import run_text
from workbench.export.view.derived import RunView
from workbench.planning.questions import OwnQuestion
from workbench.pool.pool import WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report

QUESTION = OwnQuestion("torch", "shop.model:build", train=True)


class SimulatedTraining(SimulatedOwn):
    """A fused step is fastest, above all with two loader processes."""

    facts: ClassVar[dict[str, Any]] = {**FACTS, "data": "dataset", "convolves": False}

    def step_s(self, case: Case) -> float:
        factor = 0.8 if "fused" in (case.mode or "") else 1.0
        factor *= 1.1 if case.is_compiled else 1.0
        factor *= 0.5 if case.tuning["workers"] else 1.0
        return 0.02 * factor * (1.5 if case.threads == 1 or case.precision != "fp32" else 1.0)

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().block(request)
        return {**answer, "figures": {"waiting_fraction": 0.4}}

    def accuracy(self, case: Case) -> dict[str, Any]:
        found = {"metric": "relative_error", "reference": "gradients of eager float64"}
        return {**found, "value": 1e-6, "limit": 1e-4, "passed": True}


def test_modes_and_loaders_of_the_leader_join_and_the_best_is_picked() -> None:
    events = raced(SimulatedTraining, own=QUESTION)
    planned = next(e for e in events if isinstance(e, ev.RacePlanned))
    assert planned.cases[0].label == "cpu/torch/fp32/workers=0/t2"
    own = Report.of(events).rows["own"]
    assert own.verdict.pick is not None and "fused" in own.verdict.pick
    assert "workers=2" in own.verdict.pick
    compiled = {c.case.tuning["workers"] for c in own.candidates if c.case.is_compiled}
    assert compiled == {2}, "only the leader that led all quick changes is compiled"
    assert {case.params["batches"] for case in (c.case for c in own.candidates)} == {2}


class Faulting(SimulatedTraining):
    """Page faults take a third of a step, unless the process keeps freed memory."""

    def step_s(self, case: Case) -> float:
        return super().step_s(case) * (1 if "keep" in case.mode_words else 1.5)

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        faults = "keep" not in self.cases[request["case"]].mode_words
        return {**super().block(request), "figures": {FAULTING_FRACTION: 0.6 if faults else 0.0}}


def test_a_leader_that_faults_in_memory_races_with_freed_memory_kept() -> None:
    report = Report.of(raced(Faulting, own=QUESTION, budget_s=120, batch=(8,)))
    assert "fused+keep" in report.rows["own"].verdict.pick
    usual = Report.of(raced(SimulatedTraining, own=QUESTION, budget_s=120, batch=(8,)))
    assert not any("keep" in c.case.mode_words for c in usual.candidates.values())


def test_each_batch_has_a_row_with_the_best_of_the_first_and_the_fastest_batch_is_named() -> None:
    report = Report.of(raced(SimulatedTraining, own=QUESTION, batch=(8, 64)))
    first, second = report.rows.values()
    assert second.verdict.pick == first.verdict.pick.replace("batch=8", "batch=64")
    assert len(second.candidates) < len(first.candidates)
    stays, fastest = report.code.advice.flips
    assert stays == "The same candidate is the pick at batch 64."
    assert re.fullmatch(r"Batch 64 trains the most samples: .* against .* at batch 8\.", fastest)


class Loading(SimulatedTraining):
    """The more loader processes, the faster."""

    def step_s(self, case: Case) -> float:
        return 0.02 / (1 + int(case.tuning["workers"]))


def test_a_sample_of_a_further_batch_holds_whole_rounds_of_the_loaders_that_are_carried_over() -> (
    None
):
    cores = {"gpu": True, "devices": ("cpu",)}  # sixteen
    report = Report.of(raced(Loading, own=QUESTION, batch=(8, 4096), **cores))
    first, second = report.rows.values()
    most = [max(int(c.case.tuning["workers"]) for c in row.candidates) for row in (first, second)]
    assert most[0] > most[1]
    assert {int(c.case.params["batches"]) for c in second.candidates} == {most[1]}


class Slow(Loading):
    """A step takes seconds on the CPU."""

    facts: ClassVar[dict[str, Any]] = {**Loading.facts, "step_s": 1.0}


def test_long_steps_on_the_cpu_leave_the_loaders_of_a_gpu_alone() -> None:
    report = Report.of(raced(Slow, own=QUESTION, gpu=True))
    cases = [each.case for each in report.rows["own"].candidates]
    for device, most in (("cpu", 2), ("cuda:0", 16)):
        there = [case for case in cases if case.device == device]
        assert max(int(case.tuning["workers"]) for case in there) == most
        assert {case.params["batches"] for case in there} == {most}, "whole rounds of all loaders"
    names = {RunView(report).case_name(case.id) for case in cases}
    assert not any("batches" in name for name in names)
    assert "the mean of 2 or 16 steps" in run_text(report)


class Hangs(SimulatedTraining):
    """FP16 has no kernels of its own: a step takes minutes, and its worker ends with it."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].precision == "fp16":
            self.control.at_s += 20.0
            raise WorkerFailed(Reason("timeout", "no answer within 20 s"))
        return super().prepare(request)


def test_the_code_as_written_has_had_a_turn_before_other_precisions_are_tried() -> None:
    events = raced(Hangs, own=QUESTION, budget_s=30.0, precisions=("fp32", "bf16", "fp16"))
    planned = next(e for e in events if isinstance(e, ev.RacePlanned))
    assert {(case.precision, case.mode) for case in planned.cases} == {("fp32", None)}
    first = Report.of(events).rows["own"].candidates[0]
    assert first.blocks


class HangsInLayouts(Hangs):
    facts: ClassVar[dict[str, Any]] = {**FACTS, "data": "dataset", "convolves": True}


@pytest.mark.parametrize("budget_s", [45.0, 90.0], ids=["late", "failed"])
def test_a_precision_that_is_never_ready_is_not_tried_in_another_form(budget_s) -> None:
    asked = {"precisions": ("fp32", "bf16", "fp16"), "budget_s": budget_s}
    report = Report.of(raced(HangsInLayouts, own=QUESTION, **asked))
    half = [c for c in report.rows["own"].candidates if c.case.precision == "fp16"]
    first, *others = (each.reason.message for each in half)
    assert set(others) == {f"{first} (in another form)"}


def test_other_precisions_and_modes_that_had_no_time_are_named() -> None:
    class Long(SimulatedTraining):
        def step_s(self, case: Case) -> float:
            return 100 * super().step_s(case)

    report = Report.of(raced(Long, own=QUESTION, budget_s=20.0))
    (gap,) = report.gaps(report.rows["own"])
    assert gap.message == "no time was left for its other precisions and modes"


def test_a_compiled_form_that_never_had_its_turn_is_named() -> None:
    class Long(SimulatedTraining):
        size: ClassVar = {"operations": 600, "convolutions": 0}

        def step_s(self, case: Case) -> float:
            return 50 * super().step_s(case)

    report = Report.of(raced(Long, own=QUESTION, budget_s=80.0))
    (gap,) = report.gaps(report.rows["own"])
    assert gap.message == "no time was left for its compiled form"
    assert report.rows["own"].verdict.confidence != "sure"
    assert report.code.left_out["compile"].startswith("compiling may take")

    going_on = Report.of(raced(Long, own=QUESTION))
    assert not going_on.gaps(going_on.rows["own"])
    assert [c.case.mode for c in going_on.candidates.values() if c.case.is_compiled and c.blocks]


def test_a_size_that_is_unknown_is_no_reason_to_lengthen_the_run() -> None:
    events = raced(SimulatedTraining, own=QUESTION, facts={"convolves": True})
    assert not any(isinstance(each, ev.BudgetExtended) for each in events)
    candidates = Report.of(events).candidates.values()
    assert any(each.case.is_compiled and each.blocks for each in candidates)


def test_an_impossible_mode_is_left_out_with_its_reason() -> None:
    class Unfused(SimulatedTraining):
        facts: ClassVar[dict[str, Any]] = {
            **SimulatedTraining.facts,
            "impossible": {"fused": "Adamax has no fused form"},
        }

    report = Report.of(raced(Unfused, own=QUESTION))
    assert report.code.left_out["fused"] == "Adamax has no fused form"
    assert not any("fused" in case for case in report.candidates)
