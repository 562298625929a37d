"""The search over the sizes of a row, with races that answer at once."""

from collections.abc import Callable

import pytest
from builders import context, scenario
from fakes import IdleWorkload

from workbench.advisor.verdict import decide
from workbench.contract import Accuracy, Case, Work
from workbench.engine.context import SLACK_S
from workbench.engine.crossovers import search_crossovers
from workbench.engine.workers import NO_TURN
from workbench.planning.announcing import planned
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.planning.scenario import Size
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report

CPU = Case("work", "cpu", "torch", "fp32", threads=8, batch=2)
GPU = Case("work", "cuda:0", "torch", "fp32", batch=2)
INT8 = Case("work", "cpu", "torch", "int8", threads=8, batch=2, quantization="static")

StepOf = Callable[[Case], float]


class Growing(IdleWorkload):
    def work(self, case: Case) -> Work:
        if case.batch == self.refuses:
            raise ValueError("it has no such size")
        return Work(None, None, float(case.batch or 1), "samples", 0.0)

    def __init__(self, refuses: int | None = None) -> None:
        self.refuses = refuses


class Clock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def check(self) -> None:
        pass


class Bench:
    """The search of one row over its batch, each race of which takes `race_s`."""

    def __init__(self, step_s: StepOf, *, end_s: float = 100.0, race_s: float = 1.0, **of: object):
        self.step_s, self.race_s, self.clock = step_s, race_s, Clock()
        self.report, self.emitted, self.sizes = Report(), [], []
        size = of.pop("size", Size("batch", 1, 512))
        self.error_of: StepOf = of.pop("error_of", lambda case: 0.0)
        self.late: StepOf = of.pop("late", lambda case: 0.0)  # 1: no turn within the budget
        self.why_late: Reason = of.pop("why_late", NO_TURN)
        cases = of.pop("cases", [CPU, GPU])
        row = scenario(textbook="cpu", batch=2, params={}, size=size, precisions=("fp32", "int8"))
        self.row = RowPlan(row, Growing(**of), cases)
        self.race(self.row, 0.0)
        self.report.apply(ev.VerdictReached(at_s=0.0, verdict=decide(self.report, row)))
        shared = context(None, self.clock, self.report, budget_s=end_s + SLACK_S)
        search_crossovers([self.row], shared, self.race)

    def race(self, row: RowPlan, until_s: float) -> None:
        self.sizes.append(row.cases[0].batch)
        self.clock.at_s += self.race_s
        self.report.apply(planned(row, Request(), 0.0))
        self.report.apply(ev.RaceStarted(at_s=0.0, scenario=row.scenario.id, share_s=1.0))
        for case in row.cases:
            error = Accuracy("relative_error", self.error_of(case), "fp64", 1.0, True)
            self.report.candidates[case.id].accuracy = error
            if self.late(case):
                self.report.candidates[case.id].reason = self.why_late
                continue
            for number in range(6):
                self.report.apply(
                    ev.BlockMeasured(
                        at_s=0.0,
                        case=case.id,
                        scenario=row.scenario.id,
                        round=number,
                        samples_s=[self.step_s(case)],
                        lead_in_s=[],
                        loss=None,
                    )
                )


def at_twelve(case: Case) -> float:
    """Milliseconds: the GPU is as fast from a batch of 12 on."""
    return 12e-3 if case.device == "cuda:0" else 1e-3 * (case.batch or 1)


def test_the_search_begins_at_both_ends_and_closes_in() -> None:
    bench = Bench(at_twelve)
    assert bench.sizes[:3] == [2, 1, 512]
    found = bench.report.rows["row"].verdict.crossover
    assert found.ci95[0] <= 12 <= found.ci95[1]
    assert len(set(bench.sizes)) == len(bench.sizes)
    assert {row.plan.of for row in bench.report.rows.values()} == {None, "row"}


def test_without_time_for_a_race_nothing_is_raced() -> None:
    assert Bench(at_twelve, end_s=3.5, race_s=1.0).sizes == [2]


@pytest.mark.parametrize("own", [2, 3, 4, 5])
def test_sizes_out_of_reach_end_the_search(own: int) -> None:
    bench = Bench(lambda case: 50.0 * (case.batch or 1), size=Size("batch", 1, own + 1))
    assert bench.sizes == [2]  # its steps alone would take minutes


def test_a_far_end_out_of_reach_is_brought_nearer() -> None:
    bench = Bench(lambda case: 0.05 * (case.batch or 1) * (2 if case.device == "cpu" else 1))
    assert max(bench.sizes) < 512
    found = bench.report.rows["row"].verdict.crossover
    assert found.searched == (1, max(bench.sizes))
    assert found.leads == found.searched


def test_a_workload_that_fails_at_a_size_costs_its_crossover_only() -> None:
    bench = Bench(at_twelve, refuses=512)
    (warning,) = bench.report.warnings
    assert warning.code == "no_crossover"
    assert "it has no such size" in warning.message
    assert bench.report.rows["row"].verdict.crossover.searched == (1, 2)


def int8_first(case: Case) -> float:
    return {"cuda:0": 2e-3}.get(case.device, 1e-3 if case.precision == "int8" else 5e-3)


def over_between(case: Case) -> float:
    """INT8 is beyond the error limit at sizes in the middle only."""
    inside = case.precision == "int8" and 50 < (case.batch or 1) < 200
    return 0.5 if inside else 0.0


def test_where_the_leader_cannot_be_picked_another_leads() -> None:
    bench = Bench(int8_first, cases=[CPU, INT8, GPU], error_of=over_between)
    found = bench.report.rows["row"].verdict.crossover
    assert (found.below, found.above) == ("cpu", "gpu")
    assert found.ci95[0] <= 50 <= found.ci95[1] <= 200 <= found.back[1]


def test_who_could_not_be_picked_at_the_size_of_the_row_may_lead_at_others() -> None:
    bench = Bench(
        int8_first,
        cases=[CPU, INT8, GPU],
        error_of=lambda case: 0.5 * (case.precision == "int8" and case.batch == 2),
    )
    assert bench.report.rows["row"].verdict.choice == "gpu"
    found = bench.report.rows["row"].verdict.crossover
    assert found.below == "cpu"
    assert {p.value: p.ratio > 1 for p in found.points if p.value in (2, 512)} == {
        2: True,
        512: False,
    }


@pytest.mark.parametrize("code", ["budget", "no_time"])
def test_a_size_whose_next_best_had_no_turn_proves_nothing(code: str) -> None:
    def late(case: Case) -> float:
        return float(case.precision == "fp32" and case.device == "cpu" and case.batch == 512)

    bench = Bench(
        int8_first,
        cases=[CPU, INT8, GPU],
        error_of=lambda case: 0.5 * (case.precision == "int8" and case.batch == 512),
        late=late,
        why_late=Reason(code, "too little time"),
    )
    assert 512 in bench.sizes
    found = bench.report.rows["row"].verdict.crossover
    assert 512 not in found.sizes
