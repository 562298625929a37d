"""Races on a fake pool: candidates that join, and candidates that leave."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import scenes
import simulated_run
from builders import case, events, scenario
from fakes import (
    CPU_A,
    CPU_B,
    CPU_C,
    FakePool,
    IdleWorkload,
    LateSource,
    events_of,
    rounds_of,
    run_race,
)
from simulated_run import SimulatedMonitor
from verdicts import BUSY

from workbench import catalog
from workbench.advisor.verdict import decide
from workbench.contract import Case, Work
from workbench.engine import race
from workbench.engine.race import MOST_ROUNDS
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.report.candidate import Candidate
from workbench.report.report import Report


def test_a_newcomer_is_reported_prepared_and_raced_from_then_on() -> None:
    source = LateSource(2, CPU_C)
    report, emitted, pool = run_race(
        {CPU_A: 1.0, CPU_B: 1.001, CPU_C: 0.99}, starters=[CPU_A, CPU_B], source=source
    )
    (joined,) = events_of(emitted, ev.CasesJoined)
    assert (joined.scenario, joined.cases) == ("row", [CPU_C])
    assert joined.work[CPU_C.id].item == "steps"
    assert rounds_of(report, CPU_A)[0] == 0
    assert rounds_of(report, CPU_C)[0] == 2
    assert len(rounds_of(report, CPU_C)) >= 3  # a newcomer is not the reason to end at once
    prepared = {r["case"].id: r["files"] for _, r in pool.asked if r["op"] == "prepare"}
    assert prepared[CPU_C.id] == {"model": "c.onnx"}
    assert {event.status for event in events_of(emitted, ev.CaseFinished)} == {"ok"}


@pytest.mark.parametrize(("step_s", "rounds"), [(1.4, [0, 1, 3]), (1.2, [0, 1, 2])])
def test_a_candidate_well_behind_leaves_the_round_of_a_newcomer_to_those_near_the_leader(
    step_s: float, rounds: list[int]
) -> None:
    times = {CPU_A: 1.0, CPU_B: step_s, CPU_C: 1.001}
    report, _, _ = run_race(times, starters=[CPU_A, CPU_B], source=LateSource(2, CPU_C))
    assert rounds_of(report, CPU_B)[:3] == rounds
    assert rounds_of(report, CPU_A)[:4] == [0, 1, 2, 3]
    assert rounds_of(report, CPU_C)[:2] == [2, 3]


def test_a_pause_is_left_out_of_what_disturbed_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SimulatedMonitor({})
    monkeypatch.setattr(race, "DisturbanceMonitor", lambda *_: watch)
    _, _, pool = run_race({CPU_A: 1.0, CPU_B: 1.1})
    assert pool.clock.at_pause == watch.paused


@pytest.mark.parametrize(("objective", "is_seen"), [("time_to_result", True), ("latency", False)])
def test_what_disturbs_the_start_ups_is_reported_where_they_count(
    objective: str, is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed_until_all_are_prepared(_cores: int, own: Any) -> SimulatedMonitor:
        return SimulatedMonitor({} if own.__self__.asked else {"row": [BUSY]})

    monkeypatch.setattr(race, "DisturbanceMonitor", disturbed_until_all_are_prepared)
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 1.1}, objective=objective)
    warnings = decide(report, scenario(objective=objective)).warnings
    assert ("busy_machine" in {each.code for each in warnings}) is is_seen


def test_a_decided_row_that_is_cut_while_fp64_races_keeps_its_pick_and_its_warnings() -> None:
    request = Request(scenarios=("floating_point",), quick=True)
    warning = msgspec.structs.replace(BUSY, subject="floating_point")
    busy = replace(scenes.CPU_SERVER, disturbances={"floating_point": [warning]})
    whole = simulated_run.run(request, busy)
    first = next(e.at_s for e in events_of(whole, ev.BlockMeasured) if "/fp64/" in e.case)
    report = Report.of(simulated_run.run(request, busy, cancel_at_s=first))
    row = report.rows["floating_point"]
    assert (report.status, row.ended_by) == ("cancelled", "decided")
    assert row.picked.state == "ok"
    cut = {c.case.precision for c in row.candidates if c.state == "cancelled"}
    assert cut == {"fp64"}
    assert "busy_machine" in {each.code for each in row.verdict.warnings}


def test_a_row_that_is_cut_in_its_first_round_has_its_warnings() -> None:
    request = Request(scenarios=("branching",), quick=True)
    warning = msgspec.structs.replace(BUSY, subject="branching")
    busy = replace(scenes.CPU_SERVER, disturbances={"branching": [warning]})
    whole = simulated_run.run(request, busy)
    first = next(e.at_s for e in events_of(whole, ev.BlockMeasured))
    report = Report.of(simulated_run.run(request, busy, cancel_at_s=first))
    row = report.rows["branching"]
    assert sum(len(candidate.blocks) for candidate in row.candidates) == 1
    assert "busy_machine" in {each.code for each in report.disturbances(row)}


def test_a_row_without_a_measurement_on_a_busy_machine_says_so() -> None:
    warning = msgspec.structs.replace(BUSY, subject="branching")
    busy = replace(scenes.CPU_SERVER, disturbances={"branching": [warning]})
    request = Request(scenarios=("branching",), budget_s=2.0)
    row = Report.of(simulated_run.run(request, busy)).rows["branching"]
    assert not any(candidate.blocks for candidate in row.candidates)
    assert [each.code for each in row.verdict.warnings] == ["busy_machine"]
    assert row.verdict.next_best.startswith("Run it again on a quiet machine and with a larger ")


class WaitingPool(FakePool):
    """Steps that wait for data half of the time."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**super().block(request), "figures": {"waiting_fraction": 0.5}}


def test_more_loaders_join_once_the_leader_waits_for_its_data() -> None:
    few = replace(case("cuda:0"), tuning={"loaders": 4})
    more, mute = replace(few, tuning={"loaders": 8}), replace(few, tuning={"loaders": 1})
    report, emitted, _ = run_race(
        {few: 1.0, more: 0.7}, starters=[few], refining=[mute, more], pool_type=WaitingPool
    )
    (joined,) = events_of(emitted, ev.CasesJoined)
    assert (joined.cases, joined.after) == ([more], 2)
    assert len(rounds_of(report, more)) >= 3
    assert mute.id not in report.candidates
    reasons = decide(report, scenario(textbook="")).reasons
    assert any("waits for data 50% of the time" in reason for reason in reasons), reasons


def test_what_there_is_no_time_to_compile_is_left_out_aloud_and_weakens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "load", lambda _: IdleWorkload())
    eager = case("cuda:0")
    compiled = replace(eager, mode="reduce-overhead")
    for budget_s, status, code in ((25.0, "skipped", "no_time"), (90.0, "ok", None)):
        report, _, _ = run_race(
            {CPU_A: 9e-3, eager: 1e-3, compiled: 1.01e-3},
            starters=[CPU_A, eager],
            refining=[compiled],
            budget_s=budget_s,
        )
        found = report.candidates[compiled.id]
        assert found.state == status
        assert (found.reason.code if found.reason and not found.blocks else None) == code
        warnings = decide(report, scenario(textbook="")).warnings
        assert "unmeasured" not in {warning.code for warning in warnings}


def test_the_source_is_asked_after_every_round_about_all_candidates() -> None:
    source = LateSource(2, CPU_C)
    times = {CPU_A: 1.0, CPU_B: 9.0, CPU_C: 1.0}
    report, _, _ = run_race(times, starters=[CPU_A, CPU_B], source=source)
    assert len(rounds_of(report, CPU_B)) == 3
    assert [count for count, _ in source.seen][:5] == [2, 2, 3, 3, 3]  # eliminated ones count too
    left = [left_s for _, left_s in source.seen]
    assert left[3:] == sorted(left[3:], reverse=True)


class LastMoment(LateSource):
    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        self.seen.append((len(candidates), left_s))
        found, self.cases = (self.cases, []) if left_s < 1.0 else ([], self.cases)
        return found


def test_who_joins_at_the_last_moment_has_the_rounds_that_an_answer_needs() -> None:
    source = LastMoment(0, CPU_C)
    times = {CPU_A: 1.0, CPU_B: 1.001, CPU_C: 1.0}
    report, _, _ = run_race(times, starters=[CPU_A, CPU_B], source=source, budget_s=7.0)
    assert not source.cases
    assert len(rounds_of(report, CPU_C)) >= 3


def test_all_are_raced_however_many_join_one_by_one() -> None:
    crowd = [case(f"cpu-n{number}") for number in range(60)]

    class OneByOne(LateSource):
        def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
            return [self.cases.pop(0)] if self.cases else []

    steps_s = {CPU_A: 1.0, **dict.fromkeys(crowd, 1.2)}
    report, _, _ = run_race(steps_s, starters=[CPU_A], source=OneByOne(0, *crowd), budget_s=1000.0)
    assert all(candidate.blocks for candidate in report.candidates.values())
    assert len(rounds_of(report, CPU_A)) <= len(crowd) + MOST_ROUNDS


def test_a_newcomer_that_cannot_be_prepared_ends_there() -> None:
    report, _, _ = run_race(
        {CPU_A: 1.0, CPU_B: 1.0}, starters=[CPU_A, CPU_B], source=LateSource(1, CPU_C)
    )
    lost = report.candidates[CPU_C.id]
    assert (lost.state, lost.blocks) == ("failed", [])
    assert lost.reason.message == "no such kernel"
    assert report.candidates[CPU_A.id].state == "ok"


def test_a_newcomer_far_behind_leaves_after_one_block() -> None:
    report, _, _ = run_race(
        {CPU_A: 1.0, CPU_B: 1.0, CPU_C: 5.0}, starters=[CPU_A, CPU_B], source=LateSource(2, CPU_C)
    )
    assert rounds_of(report, CPU_C) == [2]
    reason = report.candidates[CPU_C.id].reason
    assert reason.code == "far_slower"


def test_no_candidate_is_slow_against_one_that_cannot_be_picked() -> None:
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 0.1}, errors={CPU_B: 0.5})
    assert rounds_of(report, CPU_B) == [0]
    reason = report.candidates[CPU_B.id].reason
    assert reason.code == "error_limit"
    assert len(rounds_of(report, CPU_A)) >= 3
    assert report.candidates[CPU_A.id].reason is None


def test_even_on_a_tight_budget_no_candidate_leaves_for_one_that_cannot_be_picked() -> None:
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 0.1}, errors={CPU_B: 0.5}, budget_s=2.5)
    assert report.candidates[CPU_A.id].reason is None


def test_if_all_are_over_the_limit_the_race_is_over() -> None:
    report, _, _ = run_race(
        {CPU_A: 1.0, CPU_B: 0.1}, errors={CPU_A: 0.5, CPU_B: 0.5}, source=LateSource(9)
    )
    assert (rounds_of(report, CPU_A), rounds_of(report, CPU_B)) == ([0], [0])


def test_with_memory_as_objective_each_case_has_a_worker_to_itself() -> None:
    _, _, pool = run_race({CPU_A: 1.0, CPU_B: 1.0}, objective="memory")
    keys = {r["case"].id: key for key, r in pool.asked if r["op"] == "prepare"}
    assert {name: key.alone for name, key in keys.items()} == {
        CPU_A.id: CPU_A.id,
        CPU_B.id: CPU_B.id,
    }
    assert keys[CPU_A.id].name == f"cpu/torch for {CPU_A.id}"
    _, _, pool = run_race({CPU_A: 1.0, CPU_B: 1.0})
    assert len({key for key, _ in pool.asked}) == 1


def test_what_had_no_time_makes_the_answer_less_sure_but_not_the_results() -> None:
    answers = []
    for missing in ("", "int8-static"):
        source = LateSource(9)
        source.missing = missing
        report, _, _ = run_race({CPU_A: 2e-3, CPU_B: 1e-3}, source=source)
        answers.append(decide(report, scenario(textbook="")))
        marks = report.measurement_warnings(report.candidates[CPU_B.id])
        assert "unmeasured" not in {warning.code for warning in marks}
        assert report.disturbances(report.rows["row"]) == []
    assert [answer.confidence for answer in answers] == ["sure", "likely"]
    assert "no time was left for int8-static" in " ".join(answers[1].reasons)
    assert answers[1].next_best.startswith("Raise the budget")


def test_a_report_reads_newcomers_from_a_journal() -> None:
    _, emitted, _ = run_race(
        {CPU_A: 1.0, CPU_B: 1.0, CPU_C: 1.0}, starters=[CPU_A, CPU_B], source=LateSource(1, CPU_C)
    )
    read = [ev.decode(ev.encode(event)) for event in emitted]
    again = Report.of([*events({})[:2], *read])
    assert list(again.candidates) == [CPU_A.id, CPU_B.id, CPU_C.id]
    assert [c.case.id for c in again.rows["row"].candidates] == [CPU_A.id, CPU_B.id, CPU_C.id]
    assert msgspec.json.encode(again.document().measurements)


def test_a_slower_baseline_stays_in_the_race() -> None:
    source = LateSource(3, CPU_C)
    source.kept = CPU_A.id
    report, emitted, _ = run_race(
        {CPU_A: 2e-3, CPU_B: 1e-3, CPU_C: 0.9e-3}, starters=[CPU_A, CPU_B], source=source
    )
    rounds = {name: set(report.candidates[name].rounds()) for name in (CPU_A.id, CPU_C.id)}
    assert rounds[CPU_C.id] <= rounds[CPU_A.id]
    assert len(rounds[CPU_C.id]) >= 3
    eliminated = [event for event in events_of(emitted, ev.CaseFinished) if event.beaten_by]
    assert CPU_A.id not in {event.case for event in eliminated}
    assert report.candidates[CPU_A.id].state == "ok"
    assert max(rounds[CPU_A.id]) < MOST_ROUNDS  # and the race ends before its last round


def test_without_a_price_no_case_is_raced_for_cost() -> None:
    report, _, pool = run_race({CPU_A: 1.0, CPU_B: 1.0}, objective="cost")
    assert {c.reason.code for c in report.candidates.values() if c.reason} == {"no_price"}
    assert not any(r["op"] == "prepare" for _, r in pool.asked)
    reasons = decide(report, scenario(textbook="", objective="cost")).reasons
    assert "add --price cpu=" in reasons[0]


def test_an_eliminated_candidate_still_holds_its_memory(monkeypatch) -> None:
    work = Work(None, None, 1.0, "steps", memory_bytes=0.4 * 2**33)  # 2**33 are free
    monkeypatch.setattr(IdleWorkload, "work", lambda _, __: work)
    source = LateSource(3, CPU_C)
    report, _, _ = run_race(
        {CPU_A: 1.0, CPU_B: 5.0, CPU_C: 1.0}, starters=[CPU_A, CPU_B], source=source
    )
    assert rounds_of(report, CPU_B) == [0, 1, 2]  # eliminated before CPU_C joins
    reason = report.candidates[CPU_C.id].reason
    assert reason.code == "no_memory"
    assert "hold 6.40 GiB of 8 GiB" in reason.message


def test_a_wrong_result_fails_its_candidate_before_its_first_turn() -> None:
    class Wrong(FakePool):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            found = super().prepare(request)
            found["accuracy"]["passed"] = request["case"] != CPU_B
            return found

    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 0.1}, pool_type=Wrong)
    wrong = report.candidates[CPU_B.id]
    assert (wrong.state, wrong.reason.code, wrong.blocks) == ("failed", "wrong_result", [])
    assert decide(report, scenario()).pick == CPU_A.id


def test_a_block_during_which_the_machine_slept_is_measured_again() -> None:
    class Sleeping(FakePool):
        def block(self, request: dict[str, Any]) -> dict[str, Any]:
            turns = sum(asked["op"] == "block" for _, asked in self.asked)
            return {**super().block(request), "gap": turns == 1}

    report, emitted, pool = run_race({CPU_A: 1.0, CPU_B: 1.5}, pool_type=Sleeping)
    (discarded,) = events_of(emitted, ev.BlockDiscarded)
    assert (discarded.case, discarded.reason.code) == (CPU_A.id, "suspended")
    turns = sum(asked.get("case") == CPU_A.id for _, asked in pool.asked)
    assert turns == 1 + len(rounds_of(report, CPU_A))
