"""Where the time of a race goes: who stays for an interval, who waits, what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from builders import case, scenario
from fakes import A, B, C, Latecomers, Nothing, Workers, only, race, rounds

from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.engine.preparation import BUDGET, PreparedCase, worker_key
from workbench.engine.race import APART_ROUNDS
from workbench.engine.schedule import (
    BLOCK_S,
    GPU_SETTLE_S,
    OVERDRAFT,
    SHORTEST_BLOCK_S,
    RoundBudget,
)
from workbench.planning.plan import RowPlan
from workbench.pool.control import Cancelled
from workbench.pool.pool import WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason


def test_whoever_may_come_in_second_stays_until_its_interval_stands() -> None:
    report, _, _ = race({A: 1.0, B: 4.0, C: 5.0})
    assert (rounds(report, B), rounds(report, C)) == ([0, 1, 2], [0])
    verdict = decide(report, scenario())
    assert (verdict.pick, verdict.runner_up) == (A.id, B.id)
    assert verdict.pick_ratio_ci95 is not None and verdict.pick_ratio_ci95[0] > 1


def test_a_slow_precision_that_comes_in_second_stays_too_and_keeps_its_reason() -> None:
    bf16, fp16 = case("cpu-a", "bf16"), case("cpu-a", "fp16")
    report, told, _ = race({A: 1.0, bf16: 4.0, fp16: 40.0})
    assert (rounds(report, bf16), rounds(report, fp16)) == ([0, 1, 2], [0])
    last = only(told, ev.CaseDropped)[-1]
    assert (last.case, last.beaten_by, last.ratio) == (bf16.id, A.id, pytest.approx(4.0))
    reasons = [report.candidates[c.id].reason for c in (bf16, fp16)]
    assert [reason and reason.code for reason in reasons] == ["slower_precision"] * 2
    assert "4x slower than fp32 in its first block" in str(reasons[0])


def test_it_goes_at_once_where_its_rounds_do_not_fit_or_another_has_an_interval() -> None:
    report, _, _ = race({A: 1.0, B: 5.0}, budget_s=8.0)
    assert rounds(report, B) == [0]
    beaten = {A: 1.0, B: 1.5, C: 5.0}
    report, _, _ = race(beaten, starters=[A, B], entries=Latecomers(3, C))
    assert rounds(report, C) == [3]


def test_what_is_apart_has_its_turns_after_the_decision_and_few_of_them() -> None:
    fp64 = case("cpu-a", "fp64")
    report, told, _ = race({fp64: 0.1, A: 1.0, B: 1.001})
    decided = len(rounds(report, A))
    assert rounds(report, fp64)[0] == decided
    assert len(rounds(report, fp64)) <= APART_ROUNDS
    (ended,) = only(told, ev.RaceEnded)
    assert (ended.rounds, ended.ended_by) == (decided, "decided")
    assert report.candidates[fp64.id].state == "ok"


def test_what_is_apart_gets_no_turn_that_the_decision_needs() -> None:
    fp64 = case("cpu-a", "fp64")
    report, _, _ = race({fp64: 1.0, A: 1.0, B: 1.0}, budget_s=0.9)
    assert (report.candidates[fp64.id].state, rounds(report, fp64)) == ("skipped", [])
    assert report.candidates[fp64.id].reason == BUDGET
    alone, _, _ = race({fp64: 1.0})  # it is what was asked for
    assert len(rounds(alone, fp64)) >= 3


class Undecided(Workers):
    """B takes half as long as A or twice, in turn."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        turns = sum(asked.get("case") == request["case"] for _, asked in self.asked)
        if request["case"] == B.id:
            self.steps_s[B.id] = 0.5 if turns % 2 else 2.0
        return super().block(request)


class CutShort(Workers):
    """The run is cut in the third round."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        if sum(asked["op"] == "block" for _, asked in self.asked) > 5:
            raise Cancelled("SIGINT")
        return super().block(request)


@pytest.mark.parametrize(
    ("ended_by", "options"),
    [
        ("decided", {}),
        ("budget", {"budget_s": 5.0, "workers": Undecided}),
        ("budget", {"budget_s": 0.0}),  # nobody was even prepared
        ("rounds", {"budget_s": 500.0, "workers": Undecided}),
        ("empty", {"errors": {A: 0.5, B: 0.5}}),
        ("cancelled", {"workers": CutShort}),
    ],
)
def test_the_race_says_what_ended_it(ended_by: str, options: dict[str, Any]) -> None:
    report, told, _ = race({A: 1.0, B: 1.0}, **options)
    (ended,) = only(told, ev.RaceEnded)
    assert ended.ended_by == report.rows["row"].ended_by == ended_by
    assert ended.rounds == len(rounds(report, B))  # whole ones


class Doomed(Undecided):
    """In its fourth turn B takes the worker along, and the rest of the row's time."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        turns = sum(asked.get("case") == B.id for _, asked in self.asked)
        if request["case"] == B.id and turns > 3:
            self.clock.at_s += 60.0
            self.generation[worker_key(B)] = 1
            raise WorkerFailed(Reason("worker_died", "the worker process died"))
        return super().block(request)


def test_what_was_measured_stands_though_there_is_no_time_to_prepare_it_again() -> None:
    report, _, _ = race({A: 1.0, B: 1.0}, workers=Doomed, end_s=500.0)
    assert len(rounds(report, A)) == 3
    assert (report.candidates[A.id].state, report.candidates[A.id].reason) == ("ok", BUDGET)
    verdict = decide(report, scenario())
    assert verdict.pick == A.id
    assert "skipped" not in " ".join(verdict.reasons)


def test_preparing_leaves_time_for_a_round_of_each_kind_of_device() -> None:
    class Slow(Workers):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            self.clock.at_s += 2.0
            return super().prepare(request)

    gpu, other = case("cuda:0-a"), case("cuda:0-b")
    steps = {A: 0.1, B: 0.1, C: 0.1, gpu: 0.1, other: 0.1}
    report, _, _ = race(steps, budget_s=9.0, end_s=60.0, workers=Slow)
    measured = {c for c in steps if report.candidates[c.id].blocks}
    assert measured == {A, gpu, B, other}


def test_a_verdict_says_who_had_no_turn() -> None:
    class Late(Workers):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            self.clock.at_s += 1.0
            return super().prepare(request)

    report, _, _ = race({A: 1.0, B: 1.0, C: 1.0}, budget_s=1.5, end_s=60.0, workers=Late)
    (warning,) = (w for w in decide(report, scenario()).warnings if w.code == "unmeasured")
    assert "1 of 3 candidates" in warning.message


# ---------------------------------------------------- what is only emulated


class Emulating(Workers):
    """Small products in FP16 are as fast as in FP32, and the large one never gets ready."""

    def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"case_s": 2.0, "beside_s": 1.0}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].precision == "fp16":
            self.clock.at_s += 5.0
            raise WorkerFailed(Reason("timeout", "no answer within 5 s"))
        return super().prepare(request)


@pytest.fixture
def small(monkeypatch) -> None:
    like = Case("work", "cpu", "torch", "fp16", params={"of": "small"})
    monkeypatch.setattr(Nothing, "small_probe", lambda _, __: like)


@pytest.mark.usefixtures("small")
def test_what_is_only_emulated_waits_until_the_others_are_decided() -> None:
    fp16 = case("cpu-a", "fp16")
    report, told, _ = race({fp16: 1.0, A: 1.0, B: 1.5}, workers=Emulating)
    began = [event.case for event in only(told, ev.CasePreparing)]
    assert began == [A.id, B.id, fp16.id]
    assert len(rounds(report, A)) >= 3
    assert report.candidates[fp16.id].state == "failed"
    (ended,) = only(told, ev.RaceEnded)
    assert ended.ended_by == "decided"


@pytest.mark.usefixtures("small")
def test_what_waited_joins_with_rounds_of_its_own_or_is_told_why_not() -> None:
    class Fine(Emulating):
        prepare = Workers.prepare

    fp16 = case("cpu-a", "fp16")
    report, _, _ = race({fp16: 0.8, A: 1.0, B: 1.5}, workers=Fine)
    assert len(rounds(report, fp16)) >= 3
    assert decide(report, scenario(precisions=("fp32", "fp16"))).pick == fp16.id
    report, _, pool = race({fp16: 0.8, A: 1.0, B: 1.0}, workers=Fine, budget_s=1.5)
    assert [asked["op"] for _, asked in pool.asked].count("probe_small") == 1
    assert report.candidates[fp16.id].reason == BUDGET
    report, _, _ = race({fp16: 0.8}, workers=Fine)  # nobody else to wait for
    assert len(rounds(report, fp16)) >= 3
    report, _, _ = race({fp16: 0.8, C: 1.0}, workers=Fine, errors={C: 0.5})
    assert len(rounds(report, fp16)) >= 3  # the others are gone


@pytest.mark.usefixtures("small")
def test_what_is_far_slower_when_small_never_joins() -> None:
    class Slow(Emulating):
        def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
            return {"case_s": 80.0, "beside_s": 1.0}

    fp16 = case("cpu-a", "fp16")
    report, told, _ = race({fp16: 1.0, A: 1.0}, workers=Slow, budget_s=2.0)
    reason = report.candidates[fp16.id].reason
    assert reason is not None and reason.code == "slower_precision"
    assert fp16.id not in [event.case for event in only(told, ev.CasePreparing)]
    assert not [w for w in decide(report, scenario()).warnings if w.code == "unmeasured"]


# ------------------------------------------------------------ length of turns


def runner(of: Case, step_s: float, iterations: int = 1) -> PreparedCase:
    return PreparedCase(of, worker_key(of), step_s=step_s, iterations=iterations)


def pace(*, until_s: float = 60.0, end_s: float = 60.0, **of_row: Any) -> RoundBudget:
    plan = RowPlan(scenario(textbook="", **of_row), Nothing(), [A, B])
    return RoundBudget(plan, lambda: 10.0, until_s=until_s, end_s=end_s)


def test_a_turn_is_as_long_as_its_bounds_and_the_budget_let_it() -> None:
    field = [runner(A, 1e-3), runner(B, 1e-3)]
    assert pace().block_s(field) == BLOCK_S
    assert pace(until_s=11.6).block_s(field) == pytest.approx(0.1)
    assert pace(until_s=10.0).block_s(field) == SHORTEST_BLOCK_S


def test_a_long_step_has_no_lead_in() -> None:
    field = [runner(A, 1.0), runner(B, 0.01, iterations=2)]
    assert [pace().turn_s(each, field) for each in field] == [1.0, pytest.approx(0.24)]
    tails = pace(objective="latency_p99")
    assert tails.least_samples(field[0]) == 1
    assert tails.least_samples(runner(A, 0.02)) == 50
    assert tails.turn_s(runner(A, 0.005), field) == pytest.approx(0.51)


def test_a_gpu_is_given_time_to_raise_its_clocks_until_it_is_known_what_it_takes() -> None:
    on_gpu = runner(case("cuda:0-a"), 0.01)
    assert pace().turn_s(on_gpu, [on_gpu]) == pytest.approx(BLOCK_S + GPU_SETTLE_S)
    on_gpu.lead_in_s = 0.06
    assert pace().turn_s(on_gpu, [on_gpu]) == pytest.approx(BLOCK_S + 0.06)


def test_the_rounds_that_an_interval_needs_may_overdraw_the_share() -> None:
    field = [runner(A, 0.5), runner(B, 0.5)]
    late = pace(until_s=10.0, end_s=60.0)
    assert late.left_s(field, after=2) == OVERDRAFT * 50
    assert late.fits(field, after=1, rounds=2)
    assert not late.fits(field, after=3)
    assert not late.fits(field[:1], after=1)  # alone it is compared with nobody
    assert not pace(until_s=10.0, end_s=20.0).fits(field, after=1)
