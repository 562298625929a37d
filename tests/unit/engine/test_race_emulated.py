"""Emulated precisions: tried at a small size, and raced once the others are decided."""

from typing import Any

import pytest
from builders import case, scenario
from fakes import CPU_A, CPU_B, CPU_C, FakePool, IdleWorkload, events_of, rounds_of, run_race

from workbench.advisor import stopping
from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.engine import refusals
from workbench.engine.race import MOST_ROUNDS
from workbench.engine.workers import NO_TURN
from workbench.pool.pool import WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason


class Emulating(FakePool):
    """FP16 is 2x slower than FP32 at a small size, and never gets ready at the full one."""

    def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"case_s": 2.0, "other_s": 1.0}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].precision == "fp16":
            self.clock.at_s += 5.0
            raise WorkerFailed(Reason("timeout", "no answer within 5 s"))
        return super().prepare(request)


@pytest.fixture
def small(monkeypatch) -> None:
    like = Case("work", "cpu", "torch", "fp16", params={"of": "small"})
    monkeypatch.setattr(IdleWorkload, "small_probe", lambda _, __: like)


@pytest.mark.usefixtures("small")
def test_emulated_precisions_wait_until_the_others_are_decided() -> None:
    fp16 = case("cpu-a", "fp16")
    report, emitted, _ = run_race({fp16: 1.0, CPU_A: 1.0, CPU_B: 1.5}, pool_type=Emulating)
    began = [event.case for event in events_of(emitted, ev.CasePreparing)]
    assert began == [CPU_A.id, CPU_B.id, fp16.id]
    assert len(rounds_of(report, CPU_A)) >= 3
    assert report.candidates[fp16.id].state == "failed"
    (ended,) = events_of(emitted, ev.RaceEnded)
    assert ended.ended_by == "decided"


@pytest.mark.usefixtures("small")
def test_late_candidates_get_rounds_of_their_own_or_a_reason() -> None:
    class Fine(Emulating):
        prepare = FakePool.prepare

    fp16 = case("cpu-a", "fp16")
    report, _, _ = run_race({fp16: 0.8, CPU_A: 1.0, CPU_B: 1.5}, pool_type=Fine)
    assert len(rounds_of(report, fp16)) >= 3
    assert decide(report, scenario(precisions=("fp32", "fp16"))).pick == fp16.id
    report, _, pool = run_race({fp16: 0.8, CPU_A: 1.0, CPU_B: 1.0}, pool_type=Fine, budget_s=1.5)
    assert [asked["op"] for _, asked in pool.asked].count("probe_small") == 1
    assert report.candidates[fp16.id].reason == NO_TURN
    report, _, _ = run_race({fp16: 0.8}, pool_type=Fine)  # no others to wait for
    assert len(rounds_of(report, fp16)) >= 3
    report, _, _ = run_race({fp16: 0.8, CPU_C: 1.0}, pool_type=Fine, errors={CPU_C: 0.5})
    assert len(rounds_of(report, fp16)) >= 3  # the others were eliminated


@pytest.mark.usefixtures("small")
def test_an_emulated_precision_that_had_no_turn_is_no_gap_in_the_evidence(monkeypatch) -> None:
    monkeypatch.setattr(refusals, "lacking", lambda *_: "AVX512-FP16")
    fp16 = case("cpu-a", "fp16")
    fine = type("Fine", (Emulating,), {"prepare": FakePool.prepare})
    for pool_type, text in ((fine, NO_TURN.message), (Emulating, "not ready within its")):
        steps = {fp16: 0.8, CPU_A: 1.0, CPU_B: 1.5 if pool_type is fine else 1.0}
        report, _, _ = run_race(steps, pool_type=pool_type, budget_s=3.0)
        reason = report.candidates[fp16.id].reason
        assert reason.code == "no_time" and text in reason.message and "FP16" in reason.message
        assert "unmeasured" not in {w.code for w in decide(report, scenario()).warnings}


@pytest.mark.usefixtures("small")
def test_the_looks_of_a_race_go_on_when_late_candidates_enter_after_its_last_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fine(Emulating):
        prepare = FakePool.prepare

    looks: list[int] = []
    monkeypatch.setattr(stopping, "is_over", lambda standings: looks.append(standings.rounds))
    fp16 = case("cpu-a", "fp16")
    report, _, _ = run_race({fp16: 1.0, CPU_A: 1.0, CPU_B: 1.0}, pool_type=Fine)
    assert rounds_of(report, fp16)[0] == MOST_ROUNDS
    assert looks == list(range(1, len(looks) + 1))


@pytest.mark.usefixtures("small")
def test_a_precision_far_slower_at_a_small_size_never_joins() -> None:
    class Slow(Emulating):
        def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
            return {"case_s": 80.0, "other_s": 1.0}

    fp16 = case("cpu-a", "fp16")
    report, emitted, _ = run_race({fp16: 1.0, CPU_A: 1.0}, pool_type=Slow, budget_s=2.0)
    reason = report.candidates[fp16.id].reason
    assert reason.code == "slower_precision"
    assert fp16.id not in [event.case for event in events_of(emitted, ev.CasePreparing)]
    assert not [w for w in decide(report, scenario()).warnings if w.code == "unmeasured"]
