"""When torch.compile joins the race of the user's module, by the real engine."""

from typing import Any, ClassVar
from unittest.mock import patch

import pytest
import simulated_own
from simulated_own import SimulatedOwn, raced

from workbench.advisor.own.overview import recommendation
from workbench.contract import Case
from workbench.engine import own_exports
from workbench.pool.pool import WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report


def far_ahead(case: Case) -> float:
    return 1 / 3 if case.precision == "int8" else 1


def test_compiling_is_left_out_where_another_library_is_far_ahead() -> None:
    code = Report.of(raced(takes=far_ahead)).code
    assert code.breaks == []
    assert "as fast as eager torch" in code.left_out["compile"]
    near = Report.of(raced(budget_s=120))
    assert any(candidate.case.is_compiled for candidate in near.candidates.values())


def test_a_compiled_mode_that_the_user_names_races_behind_another_library_far_ahead() -> None:
    named = ("plain", "compile+reduce-overhead")
    report = Report.of(raced(takes=far_ahead, gpu=True, budget_s=120, modes=named))
    assert "compile" not in report.code.left_out
    assert {c.case.mode for c in report.candidates.values()} == {None, named[1]}


def test_what_torch_does_not_compile_is_not_compiled() -> None:
    failures = {"breaks": Reason("unsupported", "torch.compile finds nothing in it")}
    report = Report.of(raced(failures=failures, budget_s=120))
    assert not any(candidate.case.is_compiled for candidate in report.candidates.values())
    assert report.code.left_out["compile"] == "torch.compile finds nothing in it"


class Enormous(SimulatedOwn):
    failures: ClassVar = {"export": Reason("not_exported", "it has no ONNX form")}
    size: ClassVar = {"operations": 9000, "convolutions": 0}


def test_the_probe_counts_what_would_take_too_long_to_compile() -> None:
    report = Report.of(raced(Enormous, budget_s=120))
    assert not any(candidate.case.is_compiled for candidate in report.candidates.values())
    assert report.code.left_out["compile"].startswith("compiling may take 4")


class Hasty(SimulatedOwn):
    """Compiling is the best way, and less time than it may take is left."""

    failures: ClassVar = {"export": Reason("not_exported", "it has no ONNX form")}

    def step_s(self, case: Case) -> float:
        return super().step_s(case) / (2 if case.is_compiled else 1)


@pytest.mark.parametrize(("budget_s", "tried"), [(40.0, True), (20.0, False)])
def test_once_nothing_else_is_left_a_compilation_is_tried_in_less_time(budget_s, tried) -> None:
    with patch.object(own_exports.ways, "compile_s", lambda *_, **__: 30.0):
        report = Report.of(raced(Hasty, budget_s=budget_s, batch=(1,)))
    compiled = [c for c in report.candidates.values() if c.case.is_compiled and c.blocks]
    assert bool(compiled) == tried
    assert ("compile" in report.code.left_out) == (not tried)
    verdict = report.rows["own"].verdict
    assert verdict.confidence == ("sure" if tried else "likely")
    gap = "No time was left for its compiled form; raise --budget."
    assert (gap in " ".join(recommendation(report))) == (not tried)


@pytest.mark.parametrize(
    ("budget_s", "compile_s", "tried"),
    [(None, 95.0, True), (None, 150.0, False), (60.0, 95.0, False)],
)
def test_without_a_budget_the_run_goes_on_to_compile_where_eager_torch_leads(
    budget_s: float | None, compile_s: float, tried: bool
) -> None:
    with patch.object(own_exports.ways, "compile_s", lambda *_, **__: compile_s):
        events = raced(Hasty, budget_s=budget_s, batch=(1,))
    report, given = Report.of(events), [e.by_s for e in events if isinstance(e, ev.BudgetExtended)]
    assert any(c.case.is_compiled and c.blocks for c in report.candidates.values()) == tried
    assert ("compile" in report.code.left_out) == (not tried)
    assert given[:1] == ([60.0] if tried else [])
    assert sum(given) == pytest.approx(0.0), "it is ready at once, so the race gives all back"
    assert report.rows["own"].verdict.confidence == ("sure" if tried else "likely")


@pytest.mark.parametrize(("lead", "tried"), [(1.3, True), (2.0, False)])
def test_the_run_also_goes_on_where_eager_torch_is_in_reach_of_another_library(
    lead: float, tried: bool
) -> None:
    def takes(case: Case) -> float:  # milliseconds over those of the best eager form
        return 11.8 / lead / 12.4 if case.backend == "onnxruntime" else 1.0

    plain = ("fp32", "bf16")
    with patch.object(own_exports.ways, "compile_s", lambda *_, **__: 95.0):
        report = Report.of(raced(takes=takes, precisions=plain, batch=(1,)))
    assert report.rows["own"].picked.case.backend == "onnxruntime"
    assert any(c.case.is_compiled and c.blocks for c in report.candidates.values()) == tried
    assert not report.gaps(report.rows["own"])


class Broken(Hasty):
    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].is_compiled:
            raise WorkerFailed(Reason("user_code", "RuntimeError: it cannot be compiled"))
        return super().prepare(request)


def test_time_to_compile_is_given_back_if_it_fails_and_is_there_for_either_batch() -> None:
    def ends(code: type[Hasty], batch: tuple[int, ...]) -> tuple[set[str], Report]:
        with patch.object(own_exports.ways, "compile_s", lambda *_, **__: 80.0):
            report = Report.of(raced(code, batch=batch))
        compiled = [c for c in report.candidates.values() if c.case.is_compiled]
        return {c.scenario for c in compiled if c.blocks}, report

    tried, report = ends(Broken, (1,))
    assert not tried and report.extended_s == 0.0
    assert ends(Hasty, (1, 8))[0] == {"own", "own[batch=8]"}


class TooSlow(Hasty):
    """The compilation at last is cut off by the end of the row."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].is_compiled:
            raise WorkerFailed(Reason("timeout", "no answer within 12 s"))
        return super().prepare(request)


class TooSlowBehind(TooSlow):
    """The same, where another library leads."""

    failures: ClassVar = {}


@pytest.mark.parametrize(
    ("code", "budget_s", "reason", "confidence"),
    [(TooSlow, 40.0, "budget", "likely"), (TooSlowBehind, 50.0, "no_time", "tie")],
)
def test_a_compilation_that_is_late_leaves_a_doubt_where_eager_torch_leads(
    code: type[TooSlow], budget_s: float, reason: str, confidence: str
) -> None:
    with patch.object(own_exports.ways, "compile_s", lambda *_, **__: 30.0):
        report = Report.of(raced(code, budget_s=budget_s, batch=(1,)))
    (late,) = [c for c in report.candidates.values() if c.case.is_compiled]
    assert late.reason.code == reason
    verdict = report.rows["own"].verdict
    assert verdict.confidence == confidence


class LateAtFirst(Hasty):
    """Another library leads at the first batch and takes its time, eager torch at the further."""

    failures: ClassVar = {}

    def step_s(self, case: Case) -> float:
        slow = case.backend == "onnxruntime" and case.batch == 8
        return super().step_s(case) * (3 if slow else 1)


def test_a_further_batch_compiles_where_the_first_had_no_time_and_eager_torch_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_exports.ways, "compile_s", lambda *_, **__: 9.0)
    monkeypatch.setattr(simulated_own, "BUILD_S", 6.0)
    report = Report.of(raced(LateAtFirst, budget_s=60.0, batch=(1, 8)))
    raced_in = {c.scenario for c in report.candidates.values() if c.case.is_compiled and c.blocks}
    assert raced_in == {"own[batch=8]"}


def test_what_only_a_further_batch_misses_is_named_with_it() -> None:
    with patch.object(own_exports.ways, "compile_s", lambda *_, **__: 60.0):
        report = Report.of(raced(LateAtFirst, budget_s=60.0, batch=(1, 8)))
    said = "At batch 8 no time was left for its compiled form; raise --budget."
    assert said in recommendation(report)


def test_a_compiled_candidate_that_was_beaten_is_not_compiled_for_another_batch() -> None:
    """Compiled it is the best of torch, and takes 2.3 times as long as INT8."""

    def takes(case: Case) -> float:
        return 1 / 1.3 if case.precision == "int8" else 1 / 1.2 if case.is_compiled else 1.0

    own, large = Report.of(raced(takes=takes, budget_s=240)).rows.values()
    assert any(candidate.case.is_compiled for candidate in own.candidates)
    assert not any(candidate.case.is_compiled for candidate in large.candidates)
    assert any(c.case.label.endswith("cpu/torch/bf16/nhwc/t2") for c in large.candidates)


def test_torch_is_compiled_for_another_batch_where_it_leads_there_alone() -> None:
    def takes(case: Case) -> float:
        factor = 0.25 if (case.batch or 1) == 1 else 4.0
        return factor if case.backend == "onnxruntime" else 1.0

    report = Report.of(raced(takes=takes, budget_s=240))
    own, large = report.rows.values()
    assert not any(candidate.case.is_compiled for candidate in own.candidates)
    assert any(c.case.is_compiled and c.blocks for c in large.candidates)
    assert "compile" not in report.code.left_out


@pytest.mark.parametrize(("slower", "first"), [(1.0, "int8"), (2.5, "compile")])
def test_the_more_promising_of_compiling_and_int8_comes_first(slower: float, first: str) -> None:
    def takes(case: Case) -> float:
        return slower if case.backend == "onnxruntime" else 1.0

    report = Report.of(raced(takes=takes, budget_s=120))
    race = [c.case for c in report.candidates.values()]  # in the order of joining
    kinds = ["int8" if c.precision == "int8" else "compile" for c in race if _costly(c)]
    assert kinds[0] == first and {"int8", "compile"} == set(kinds)


def _costly(case: Case) -> bool:
    return case.precision == "int8" or case.is_compiled
