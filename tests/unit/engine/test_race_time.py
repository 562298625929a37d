"""The time of a race: candidates that stay for an interval or wait, and what ends the race."""

from dataclasses import replace
from typing import Any

import pytest
from builders import case, scenario
from fakes import (
    CPU_A,
    CPU_B,
    CPU_C,
    FakePool,
    LateSource,
    ManualClock,
    events_of,
    rounds_of,
    run_race,
)

from workbench.advisor.verdict import decide
from workbench.engine.blocks import HUNG
from workbench.engine.race import REFERENCE_ROUNDS
from workbench.engine.workers import NO_TURN, worker_key
from workbench.planning.request import Request
from workbench.pool.control import Cancelled
from workbench.pool.pool import HINTS, Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.stats.samples import MIN_PAIRS


def test_a_possible_runner_up_stays_until_the_lead_has_an_interval() -> None:
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 4.0, CPU_C: 5.0})
    assert (rounds_of(report, CPU_B), rounds_of(report, CPU_C)) == ([0, 1, 2], [0])
    verdict = decide(report, scenario())
    assert (verdict.pick, verdict.runner_up) == (CPU_A.id, CPU_B.id)
    assert verdict.pick_ratio_ci95[0] > 1


def test_a_slow_precision_in_second_place_stays_too_and_keeps_its_reason() -> None:
    bf16, fp16 = case("cpu-a", "bf16"), case("cpu-a", "fp16")
    report, emitted, _ = run_race({CPU_A: 1.0, bf16: 4.0, fp16: 40.0})
    assert (rounds_of(report, bf16), rounds_of(report, fp16)) == ([0, 1, 2], [0])
    last = [event for event in events_of(emitted, ev.CaseFinished) if event.reason][-1]
    assert (last.case, last.beaten_by, last.ratio) == (bf16.id, CPU_A.id, pytest.approx(4.0))
    reasons = [report.candidates[c.id].reason for c in (bf16, fp16)]
    assert [reason and reason.code for reason in reasons] == ["slower_precision"] * 2
    assert "4.00x slower than fp32 in its first turn" in str(reasons[0])


def test_it_leaves_at_once_if_its_rounds_do_not_fit_or_another_has_an_interval() -> None:
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 5.0}, budget_s=8.0)
    assert rounds_of(report, CPU_B) == [0]
    beaten = {CPU_A: 1.0, CPU_B: 1.5, CPU_C: 5.0}
    report, _, _ = run_race(beaten, starters=[CPU_A, CPU_B], source=LateSource(3, CPU_C))
    assert rounds_of(report, CPU_C) == [3]


def test_reference_only_precisions_have_a_few_turns_after_the_decision() -> None:
    fp64 = case("cpu-a", "fp64")
    report, emitted, _ = run_race({fp64: 0.1, CPU_A: 1.0, CPU_B: 1.001})
    decided = len(rounds_of(report, CPU_A))
    assert rounds_of(report, fp64)[0] == decided
    assert len(rounds_of(report, fp64)) <= REFERENCE_ROUNDS
    (ended,) = events_of(emitted, ev.RaceEnded)
    assert (ended.rounds, ended.ended_by) == (decided, "decided")
    assert report.candidates[fp64.id].state == "ok"


def test_reference_only_precisions_get_no_turn_that_the_decision_needs() -> None:
    fp64 = case("cpu-a", "fp64")
    report, _, _ = run_race({fp64: 1.0, CPU_A: 1.0, CPU_B: 1.0}, budget_s=0.9)
    assert (report.candidates[fp64.id].state, rounds_of(report, fp64)) == ("skipped", [])
    assert report.candidates[fp64.id].reason == NO_TURN
    alone, _, _ = run_race({fp64: 1.0})  # all that was asked for
    assert len(rounds_of(alone, fp64)) >= 3


class Undecided(FakePool):
    """CPU_B takes half and twice the time of CPU_A, in turn."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        turns = sum(asked.get("case") == request["case"] for _, asked in self.asked)
        if request["case"] == CPU_B.id:
            self.steps_s[CPU_B.id] = 0.5 if turns % 2 else 2.0
        return super().block(request)


class Slow(FakePool):
    """Each preparation takes four seconds."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.clock.at_s += 4.0
        return super().prepare(request)


class CutShort(FakePool):
    """The run is cancelled in the third round."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        if sum(asked["op"] == "block" for _, asked in self.asked) > 5:
            raise Cancelled("SIGINT")
        return super().block(request)


class Dying(FakePool):
    """Every worker dies in its first block."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        raise WorkerFailed(Reason("worker_died", "killed by SIGSEGV"))


@pytest.mark.parametrize(
    ("ended_by", "options"),
    [
        ("decided", {}),
        ("budget", {"budget_s": 5.0, "pool_type": Undecided}),
        ("budget", {"budget_s": 0.0}),  # no case was even prepared
        ("rounds", {"budget_s": 500.0, "pool_type": Undecided}),
        ("empty", {"errors": {CPU_A: 0.5, CPU_B: 0.5}}),
        ("empty", {"pool_type": Dying}),
        ("cancelled", {"pool_type": CutShort}),
    ],
)
def test_the_race_says_what_ended_it(ended_by: str, options: dict[str, Any]) -> None:
    report, emitted, _ = run_race({CPU_A: 1.0, CPU_B: 1.0}, **options)
    (ended,) = events_of(emitted, ev.RaceEnded)
    assert ended.ended_by == report.rows["row"].ended_by == ended_by
    assert ended.rounds == len(rounds_of(report, CPU_B))  # complete ones


@pytest.mark.parametrize("settles_after", [8, 1000])
def test_a_row_that_is_open_at_its_end_gets_more_time_and_gives_back_the_rest(
    settles_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settling(Undecided):
        def block(self, request: dict[str, Any]) -> dict[str, Any]:
            turns = sum(asked.get("case") == CPU_B.id for _, asked in self.asked)
            if turns <= settles_after:
                return super().block(request)
            self.steps_s[CPU_B.id] = 3.0
            return FakePool.block(self, request)

    monkeypatch.setattr(Request, "extension_s", 60.0)
    steps = {CPU_A: 1.0, CPU_B: 1.0}
    report, emitted, _ = run_race(steps, budget_s=5.0, pool_type=Settling)
    found = [event.by_s for event in events_of(emitted, ev.BudgetExtended)]
    assert 0 < sum(each for each in found if each > 0) <= 60.0
    assert report.extended_s == pytest.approx(sum(found))
    (ended,) = events_of(emitted, ev.RaceEnded)
    assert ended.rounds > 4
    if settles_after == 8:
        assert ended.ended_by == "decided" and found[-1] < 0
    monkeypatch.undo()
    _, emitted, _ = run_race(steps, budget_s=5.0, pool_type=Undecided)
    assert not events_of(emitted, ev.BudgetExtended)  # with --budget


def test_a_row_is_lengthened_for_candidates_that_it_has_no_time_to_prepare(monkeypatch) -> None:
    monkeypatch.setattr(Request, "extension_s", 60.0)
    steps = {CPU_A: 1.0, CPU_B: 2.0, CPU_C: 3.0}
    report, emitted, _ = run_race(steps, budget_s=5.0, pool_type=Slow)
    assert all(rounds_of(report, case) for case in steps)
    assert events_of(emitted, ev.BudgetExtended)[0].by_s == pytest.approx(6.0, abs=3.0)
    monkeypatch.setattr(Request, "extension_s", 0.5)  # too little for any of them
    report, emitted, _ = run_race(steps, budget_s=5.0, pool_type=Slow)
    assert report.candidates[CPU_C.id].reason.code == "budget"
    assert not events_of(emitted, ev.BudgetExtended)


OTHER = replace(CPU_C, backend="onnxruntime")  # in a worker of its own


class Hanging(FakePool):
    """Four seconds before the end of the run, that of OTHER takes all the time that it is given."""

    def __init__(self, clock: ManualClock, *known: Any) -> None:
        super().__init__(clock, *known)
        clock.at_s = 55.0

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        if request["op"] == "prepare" and request["case"] == OTHER:
            self.hang(deadline_s)
        if deadline_s < request.get("seconds", 0.0):
            raise WorkerFailed(Reason("timeout", "no answer"))
        return super().ask(key, deadline_s, kind, **request)

    def hang(self, deadline_s: float) -> None:
        self.clock.at_s += deadline_s
        raise WorkerFailed(Reason("timeout", "no answer"))


class HangingStart(Hanging):
    """The same with the start of its worker."""

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        if key == worker_key(OTHER):
            self.hang(deadline_s)
        super().start(key, deadline_s)


@pytest.mark.parametrize("pool_type", [Hanging, HangingStart])
def test_a_preparation_that_hangs_leaves_a_turn_to_each_that_is_ready(pool_type) -> None:
    report, _, _ = run_race(
        dict.fromkeys((CPU_A, CPU_B, OTHER), 0.01), budget_s=59.0, pool_type=pool_type
    )
    assert [rounds_of(report, case) for case in (CPU_A, CPU_B)] == [[0], [0]]
    late = report.candidates[OTHER.id]
    assert (late.state, late.reason and late.reason.code) == ("skipped", "budget")


def test_a_first_round_that_does_not_fit_begins_with_the_shortest_turn(monkeypatch) -> None:
    monkeypatch.setattr(Request, "extension_s", 3.0)
    steps = {CPU_A: 4.0, CPU_B: 2.0, CPU_C: 1.0}
    _, emitted, pool = run_race(steps, budget_s=6.5, end_s=20.0)
    assert events_of(emitted, ev.BudgetExtended)[0].by_s == pytest.approx(0.5, abs=0.1)
    turns = [request["case"] for _, request in pool.asked if request["op"] == "block"]
    assert turns[:3] == [CPU_C.id, CPU_B.id, CPU_A.id]


def test_what_a_process_loads_once_is_not_expected_of_the_next_candidate(monkeypatch) -> None:
    """Its share is over, and less is left to the run than the first candidate took."""

    class LoadsOnce(FakePool):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            paid_s = 4.0 if request["case"] == CPU_A else 0.0
            self.clock.at_s += 1.0 + paid_s
            return {**super().prepare(request), "loading_s": paid_s}

    monkeypatch.setattr(Request, "extension_s", 60.0)
    steps = {CPU_A: 0.2, CPU_B: 0.3}
    report, _, _ = run_race(steps, budget_s=4.0, end_s=9.0, pool_type=LoadsOnce)
    assert len(rounds_of(report, CPU_B)) >= MIN_PAIRS


def test_a_row_gets_time_for_a_few_rounds_where_there_is_none_for_twenty(monkeypatch) -> None:
    steps, rounds = {CPU_A: 1.0, CPU_B: 1.3}, []
    for extension_s in (0.0, 2.0):
        monkeypatch.setattr(Request, "extension_s", extension_s)
        report, emitted, _ = run_race(steps, budget_s=3.0, pool_type=Undecided)
        added = {event.by_s for event in events_of(emitted, ev.BudgetExtended) if event.by_s > 0}
        assert added == {extension_s} - {0.0}
        rounds.append(len(rounds_of(report, CPU_B)))
    assert rounds[0] < rounds[1] < 20


@pytest.mark.parametrize(
    ("options", "most_s"),
    [({}, 60.0), ({"budget_s": 60.0}, 0.0), ({"quick": True}, 20.0), ({"thorough": True}, 0.0)],
)
def test_only_a_default_budget_is_extended(options: dict[str, Any], most_s: float) -> None:
    assert Request(**options).extension_s == most_s


def test_an_open_row_leaves_the_rows_to_come_their_share_of_the_extension(monkeypatch) -> None:
    monkeypatch.setattr(Request, "extension_s", 6.0)
    steps, most_s = {CPU_A: 1.0, CPU_B: 1.0}, []
    for rows in (1, 3):
        _, emitted, _ = run_race(steps, budget_s=2.0, end_s=50.0, rows=rows, pool_type=Undecided)
        found = [event.by_s for event in events_of(emitted, ev.BudgetExtended)]
        most_s.append(sum(by_s for by_s in found if by_s > 0))
    assert most_s == pytest.approx([6.0, 2.0])


def test_a_row_that_is_decided_gives_back_its_extension_at_once(monkeypatch) -> None:
    class Wavering(FakePool):
        """Both take twice the time in every other round, so that no median is steady."""

        def block(self, request: dict[str, Any]) -> dict[str, Any]:
            turns = sum(asked.get("case") == request["case"] for _, asked in self.asked)
            self.steps_s = {each.id: steps[each] * (1 + turns % 2) for each in steps}
            return super().block(request)

    monkeypatch.setattr(Request, "extension_s", 60.0)
    steps = {CPU_A: 1.0, CPU_B: 1.5}
    report, emitted, _ = run_race(steps, budget_s=1.0, end_s=50.0, pool_type=Wavering)
    *more, last = [event.by_s for event in events_of(emitted, ev.BudgetExtended)]
    assert more and min(more) > 0 > last
    assert report.candidates[CPU_B.id].reason.code == "beaten"
    assert len(rounds_of(report, CPU_A)) == MIN_PAIRS


def test_a_turn_that_no_longer_fits_into_the_run_is_left_out() -> None:
    class Slowing(FakePool):
        """The second turn of CPU_B takes nearly all the time that is left."""

        def block(self, request: dict[str, Any]) -> dict[str, Any]:
            turns = sum(asked.get("case") == CPU_B.id for _, asked in self.asked)
            if request["case"] == CPU_B.id and turns > 1:
                self.clock.at_s = 9.5
            return super().block(request)

    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 1.0}, budget_s=10.0, pool_type=Slowing)
    assert [rounds_of(report, case) for case in (CPU_A, CPU_B)] == [[0], [0, 1]]


class Doomed(Undecided):
    """In its fourth turn CPU_B kills the worker, and the row's time runs out."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        turns = sum(asked.get("case") == CPU_B.id for _, asked in self.asked)
        if request["case"] == CPU_B.id and turns > 3:
            self.clock.at_s += 60.0
            self.held(worker_key(CPU_B)).clear()
            raise WorkerFailed(Reason("worker_died", "the worker process died"))
        return super().block(request)


def test_measured_blocks_count_even_if_there_is_no_time_to_prepare_the_case_again() -> None:
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 1.0}, pool_type=Doomed, end_s=500.0)
    assert len(rounds_of(report, CPU_A)) == 3
    assert (report.candidates[CPU_A.id].state, report.candidates[CPU_A.id].reason) == (
        "ok",
        NO_TURN,
    )
    verdict = decide(report, scenario())
    assert verdict.pick == CPU_A.id
    assert "skipped" not in " ".join(verdict.reasons)


def test_preparing_leaves_time_for_a_round_of_each_kind_of_device() -> None:
    class Slow(FakePool):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            self.clock.at_s += 2.0
            return super().prepare(request)

    gpu, other = case("cuda:0-a"), case("cuda:0-b")
    steps = {CPU_A: 0.1, CPU_B: 0.1, CPU_C: 0.1, gpu: 0.1, other: 0.1}
    report, _, _ = run_race(steps, budget_s=9.0, end_s=60.0, pool_type=Slow)
    measured = {c for c in steps if report.candidates[c.id].blocks}
    assert measured == {CPU_A, gpu, CPU_B, CPU_C}, "a second one of the GPU waits for a decision"


@pytest.mark.parametrize(("rows", "is_raced"), [(1, True), (2, False)])
def test_what_gave_way_on_a_gpu_takes_little_of_the_time_of_the_rows_to_come(
    rows: int, is_raced: bool
) -> None:
    gpu, other = case("cuda:0-a"), case("cuda:0-b")
    steps = {CPU_A: 0.1, gpu: 0.3, other: 0.2}
    report, _, _ = run_race(steps, budget_s=25.0, end_s=60.0, rows=rows, pool_type=Slow)
    assert len(rounds_of(report, gpu)) >= MIN_PAIRS
    assert bool(rounds_of(report, other)) is is_raced


def test_a_verdict_says_how_many_had_no_turn() -> None:
    class Late(FakePool):
        def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
            self.clock.at_s += 1.0
            return super().prepare(request)

    report, _, _ = run_race(
        {CPU_A: 1.0, CPU_B: 1.0, CPU_C: 1.0}, budget_s=1.5, end_s=60.0, pool_type=Late
    )
    (warning,) = (w for w in decide(report, scenario()).warnings if w.code == "unmeasured")
    assert "1 of 3 candidates" in warning.message


@pytest.mark.parametrize(("device", "hint"), [("cuda:0-a", HUNG), ("cpu-a", HINTS["timeout"])])
def test_a_gpu_that_falls_silent_in_a_block_is_not_said_to_be_too_slow(device, hint) -> None:
    class Silent(FakePool):
        def block(self, request: dict[str, Any]) -> dict[str, Any]:
            if request["case"] == silent.id:
                raise WorkerFailed(Reason("timeout", "no answer within 15 s", HINTS["timeout"]))
            return super().block(request)

    silent = case(device)
    report, _, _ = run_race({silent: 0.1, CPU_B: 0.1}, pool_type=Silent)
    reason = report.candidates[silent.id].reason
    assert reason.hint == hint


def test_a_row_that_takes_the_time_of_the_rows_to_come_makes_up_for_it(monkeypatch) -> None:
    monkeypatch.setattr(Request, "extension_s", 60.0)
    shares = {"budget_s": 3.0, "end_s": 60.0, "pool_type": Slow}
    report, _, _ = run_race({CPU_A: 1.0, CPU_B: 3.0}, rows=2, **shares)
    assert report.extended_s == pytest.approx(report.last_at_s - 3.0)
    assert report.extended_s > 1.0
    last, _, _ = run_race({CPU_A: 1.0}, **shares)
    assert last.extended_s == 0.0
