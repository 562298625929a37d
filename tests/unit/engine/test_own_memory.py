"""When a candidate that keeps freed memory joins the race of the user's module."""

from typing import Any, ClassVar

from simulated_own import SimulatedOwn, raced

from workbench.advisor.own.overview import recommendation
from workbench.contract import FAULTING_FRACTION, Case
from workbench.records.reason import Reason
from workbench.report.candidate import Candidate
from workbench.report.report import Report


class Faulting(SimulatedOwn):
    """Torch spends half of its time on page faults, unless the process keeps freed memory."""

    failures: ClassVar = {"export": Reason("not_exported", "it has no ONNX form")}

    def step_s(self, case: Case) -> float:
        return super().step_s(case.without("keep")) / (2 if "keep" in case.mode_words else 1)

    def accuracy(self, case: Case) -> dict[str, Any]:
        return super().accuracy(case.without("keep"))

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        case = self.cases[request["case"]]
        faults = case.backend == "torch" and "keep" not in case.mode_words
        figures = {FAULTING_FRACTION: 0.5} if faults else {}
        return {**super().block(request), "figures": figures}


def keeping(report: Report) -> list[Candidate]:
    return [c for c in report.candidates.values() if "keep" in c.case.mode_words]


def test_torch_races_with_freed_memory_kept_where_page_faults_cost_it_the_lead() -> None:
    report = Report.of(raced(Faulting, budget_s=120, batch=(1,)))
    row = report.rows["own"]
    assert row.picked.case.mode == "nhwc+keep"
    assert "freed memory kept" in str(recommendation(report))
    assert "is 2.00x faster than without keep" in " ".join(row.verdict.reasons)
    assert "mallopt" in report.code.advice.snippet
    assert "compile+keep" in {candidate.case.mode for candidate in keeping(report)}


def test_a_filter_without_kept_memory_keeps_no_compiled_candidate_out() -> None:
    report = Report.of(raced(Faulting, budget_s=120, batch=(1,), modes=("plain", "compile")))
    compiled = [c.case for c in report.candidates.values() if c.case.is_compiled]
    assert {case.threads for case in compiled} == {1, 2}
    assert not keeping(report)


def test_what_could_not_lead_without_page_faults_is_not_raced_again() -> None:
    assert not keeping(Report.of(raced(budget_s=120, batch=(1,))))  # nothing faults
    assert not keeping(Report.of(raced(FarBehind, budget_s=120, batch=(1,))))


class FarBehind(Faulting):
    failures: ClassVar = {}

    def step_s(self, case: Case) -> float:
        return super().step_s(case) / (3 if case.backend == "onnxruntime" else 1)


def test_a_candidate_that_faults_says_how_to_keep_its_memory() -> None:
    report = Report.of(raced(Faulting, budget_s=20, batch=(1,), modes=("plain",)))
    warned = {w.code: w for w in report.rows["own"].verdict.warnings}["page_faults"]
    assert "up to 50% of its time" in warned.message
    assert "MALLOC_TRIM_THRESHOLD_=1" in warned.remedy
