"""A row raced by workers that answer as told: who joins, who leaves, and when."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from builders import case, events, scenario
from fakes import A, B, C, Latecomers, Nothing, only, race, rounds

from workbench.advisor.verdict import decide
from workbench.contract import Case, Work
from workbench.engine.race import MOST_ROUNDS
from workbench.records import events as ev
from workbench.report.candidate import Candidate
from workbench.report.report import Report


def test_who_joins_is_told_prepared_and_raced_from_then_on() -> None:
    source = Latecomers(2, C)
    report, told, pool = race({A: 1.0, B: 1.001, C: 0.99}, starters=[A, B], source=source)
    (joined,) = only(told, ev.CasesJoined)
    assert (joined.scenario, joined.cases) == ("row", [C])
    assert joined.work[C.id].item == "steps"
    assert rounds(report, A)[0] == 0
    assert rounds(report, C)[0] == 2
    assert len(rounds(report, C)) >= 3  # a newcomer is not the reason to end at once
    prepared = {r["case"].id: r["files"] for _, r in pool.asked if r["op"] == "prepare"}
    assert prepared[C.id] == {"model": "c.onnx"}
    assert {event.status for event in only(told, ev.CaseFinished)} == {"ok"}


def test_the_source_is_asked_after_every_round_with_all_candidates() -> None:
    source = Latecomers(2, C)
    race({A: 1.0, B: 9.0, C: 1.0}, starters=[A, B], source=source)
    assert [count for count, _ in source.seen][:3] == [2, 2, 3]  # who dropped out counts too
    left = [left_s for _, left_s in source.seen]
    assert left == sorted(left, reverse=True)


def test_however_many_join_one_by_one_all_are_raced() -> None:
    crowd = [case(f"cpu-n{number}") for number in range(60)]

    class OneByOne(Latecomers):
        def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
            return [self.cases.pop(0)] if self.cases else []

    steps_s = {A: 1.0, **dict.fromkeys(crowd, 1.2)}
    report, _, _ = race(steps_s, starters=[A], source=OneByOne(0, *crowd), budget_s=1000.0)
    assert all(candidate.blocks for candidate in report.candidates.values())
    assert len(rounds(report, A)) <= len(crowd) + MOST_ROUNDS


def test_a_newcomer_that_cannot_be_prepared_ends_there() -> None:
    report, _, _ = race({A: 1.0, B: 1.0}, starters=[A, B], source=Latecomers(1, C))
    lost = report.candidates[C.id]
    assert (lost.state, lost.blocks) == ("failed", [])
    assert lost.reason is not None and lost.reason.message == "no such kernel"
    assert report.candidates[A.id].state == "ok"


def test_a_newcomer_far_behind_goes_after_one_block() -> None:
    report, _, _ = race({A: 1.0, B: 1.0, C: 5.0}, starters=[A, B], source=Latecomers(2, C))
    assert rounds(report, C) == [2]
    reason = report.candidates[C.id].reason
    assert reason is not None and reason.code == "far_slower"


def test_nobody_is_slow_beside_one_that_cannot_be_picked() -> None:
    report, _, _ = race({A: 1.0, B: 0.1}, errors={B: 0.5})
    assert rounds(report, B) == [0]
    reason = report.candidates[B.id].reason
    assert reason is not None and reason.code == "error_limit"
    assert len(rounds(report, A)) >= 3
    assert report.candidates[A.id].reason is None


def test_where_the_budget_is_tight_nobody_goes_for_one_that_cannot_be_picked() -> None:
    report, _, _ = race({A: 1.0, B: 0.1}, errors={B: 0.5}, budget_s=2.5)
    assert report.candidates[A.id].reason is None


def test_if_all_are_over_the_limit_the_race_is_over() -> None:
    report, _, _ = race({A: 1.0, B: 0.1}, errors={A: 0.5, B: 0.5}, source=Latecomers(9))
    assert (rounds(report, A), rounds(report, B)) == ([0], [0])


def test_with_memory_at_stake_each_has_a_worker_to_itself() -> None:
    _, _, pool = race({A: 1.0, B: 1.0}, objective="memory")
    keys = {r["case"].id: key for key, r in pool.asked if r["op"] == "prepare"}
    assert {name: key.alone for name, key in keys.items()} == {A.id: A.id, B.id: B.id}
    assert keys[A.id].name == f"cpu/torch for {A.id}"
    _, _, pool = race({A: 1.0, B: 1.0})
    assert len({key for key, _ in pool.asked}) == 1


def test_a_report_takes_newcomers_in_from_a_journal() -> None:
    _, told, _ = race({A: 1.0, B: 1.0, C: 1.0}, starters=[A, B], source=Latecomers(1, C))
    read = [ev.decode(ev.encode(event)) for event in told]
    again = Report.of([*events({})[:2], *read])
    assert list(again.candidates) == [A.id, B.id, C.id]
    assert [c.case.id for c in again.rows["row"].candidates] == [A.id, B.id, C.id]
    assert msgspec.json.encode(again.document().measurements)


def test_a_yardstick_stays_though_it_is_beaten() -> None:
    source = Latecomers(3, C)
    source.kept = A.id
    report, told, _ = race({A: 2e-3, B: 1e-3, C: 0.9e-3}, starters=[A, B], source=source)
    rounds = {name: set(report.candidates[name].rounds()) for name in (A.id, C.id)}
    assert rounds[C.id] <= rounds[A.id]
    assert len(rounds[C.id]) >= 3
    assert A.id not in {event.case for event in only(told, ev.CaseDropped)}
    assert report.candidates[A.id].state == "ok"
    assert max(rounds[A.id]) < MOST_ROUNDS  # nor does it keep the race from its end


def test_without_a_price_nobody_is_raced_for_cost() -> None:
    report, _, pool = race({A: 1.0, B: 1.0}, objective="cost")
    assert {c.reason.code for c in report.candidates.values() if c.reason} == {"no_price"}
    assert not any(r["op"] == "prepare" for _, r in pool.asked)
    told = decide(report, scenario(textbook="", objective="cost")).reasons[0]
    assert "add --price cpu=" in told


def test_who_left_the_race_still_holds_its_memory(monkeypatch) -> None:
    work = Work(None, None, 1.0, "steps", memory_bytes=0.4 * 2**33)  # of 2**33 that are free
    monkeypatch.setattr(Nothing, "work", lambda _, __: work)
    source = Latecomers(3, C)
    report, _, _ = race({A: 1.0, B: 5.0, C: 1.0}, starters=[A, B], source=source)
    assert rounds(report, B) == [0, 1, 2]  # gone when C comes
    reason = report.candidates[C.id].reason
    assert reason is not None and reason.code == "no_memory"
    assert "beside the 6.4 GiB" in reason.message
