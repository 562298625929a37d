"""The summary of a race follows from the report, live or from its document."""

import msgspec
import pytest
import recorded_model
import simulated_lab
from builders import case, changed, context, events, scenario, steady
from verdicts import cut_short

from workbench.advisor.race_summary import counts_text, summarise
from workbench.advisor.verdict import decide
from workbench.engine.engine import Engine
from workbench.export.text import run_text
from workbench.planning.request import Request
from workbench.pool.control import Control
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.records.verdict import RaceSummary
from workbench.report.from_document import report_of
from workbench.report.report import Report

FAST, SLOW = case("cpu-a"), case("cpu-b", threads=4)
LATE, BROKEN = case("cpu-late", threads=2), case("cpu-broken", threads=1)
BEATEN = Reason("beaten", "2.00x slower than cpu torch fp32 t8")


def summary(report: Report, row: str = "row") -> RaceSummary:
    return summarise(report.rows[row])


def eliminated(after: int) -> list[ev.AnyEvent]:
    """A race that eliminates SLOW after some rounds, and that LATE joins after the third."""
    built = events({FAST: steady(1.0), SLOW: steady(2.0, after), LATE: []})
    plan = next(n for n, e in enumerate(built) if isinstance(e, ev.RacePlanned))
    planned = built[plan]
    built[plan] = msgspec.structs.replace(planned, cases=[FAST, SLOW])
    joined = ev.CasesJoined(
        at_s=3.0, scenario="row", cases=[LATE], work={LATE.id: planned.work[LATE.id]}, after=3
    )
    built.insert(plan + 1, joined)
    beaten = {"reason": BEATEN, "beaten_by": FAST.id, "ratio": 2.0, "ratio_bounds": (1.9, 2.1)}
    built = changed(built, ev.CaseFinished, SLOW, **beaten)
    unmeasured = {"status": "skipped", "reason": Reason("budget", "no time")}
    return changed(built, ev.CaseFinished, LATE, **unmeasured)


def test_who_was_eliminated_when_and_why() -> None:
    found = summary(Report.of(eliminated(after=3)))
    assert (found.rounds, found.ended_by) == (8, "decided")
    assert found.joined == {LATE.id: 3}
    assert found.stayed == [FAST.id]
    first, second = found.left
    assert (first.id, first.rounds, first.code) == (SLOW.id, 3, "beaten")
    assert (first.beaten_by, first.ratio, first.ratio_bounds) == (FAST.id, 2.0, (1.9, 2.1))
    assert (second.id, second.rounds, second.message) == (LATE.id, 0, "no time")


def test_they_left_in_the_order_of_their_last_round() -> None:
    # SLOW was eliminated after 5 rounds, LATE could not be raced when it joined after 3.
    assert [left.id for left in summary(Report.of(eliminated(after=5))).left] == [LATE.id, SLOW.id]


def test_those_who_stayed_are_listed_fastest_first() -> None:
    found = summary(Report.of(events({SLOW: steady(1.4), FAST: steady(1.0)})))
    assert found.stayed == [FAST.id, SLOW.id]


def test_an_interrupted_race_eliminates_none_that_it_measured() -> None:
    built = events({FAST: steady(1.0, 2), SLOW: []})
    found = summary(Report.of(map(cut_short, built)))
    assert (found.rounds, found.ended_by, found.stayed) == (2, "cancelled", [FAST.id])
    assert [(left.id, left.rounds) for left in found.left] == [(SLOW.id, 0)]
    assert counts_text(found).startswith("interrupted after 2 rounds")


@pytest.mark.parametrize(("blocks", "lacking"), [([], ev.RaceStarted), (steady(1.0), ev.RaceEnded)])
def test_a_race_without_a_beginning_or_an_end_has_no_summary(blocks, lacking) -> None:
    built = [e for e in events({FAST: blocks}) if not isinstance(e, lacking)]
    assert summary(Report.of(built)) is None


def test_a_failure_without_a_reason_is_an_elimination_too() -> None:
    built = events({FAST: steady(1.0), BROKEN: []})
    built = changed(built, ev.CaseFinished, BROKEN, status="failed")
    (left,) = summary(Report.of(built)).left
    assert (left.id, left.code) == (BROKEN.id, "failed")


def with_verdict(run: list[ev.AnyEvent]) -> Report:
    verdict = decide(Report.of(run), scenario())
    return Report.of([*run, ev.VerdictReached(at_s=9.2, verdict=verdict)])


def test_so_does_the_document_of_a_model() -> None:
    recorded = simulated_lab.done()
    live = Report.of(recorded)
    replayed = report_of(live.document())
    found = summary(live, "model")
    assert recorded_model.MIXED.id in found.joined
    assert [left.code for left in found.left]
    assert summary(replayed, "model") == found
    (verdict,) = live.verdicts
    assert decide(replayed, simulated_lab.SCENARIO) == verdict


def test_an_interruption_has_a_reason_for_measured_and_one_for_unmeasured_candidates() -> None:
    report = Report.of(e for e in events({FAST: steady(1.0, 2), SLOW: []}) if not is_an_end(e))
    report.apply(ev.RaceEnded(at_s=8.0, scenario="row", rounds=2, ended_by="cancelled"))
    engine = Engine(Request(), [], Control(), report, lambda _: None)
    engine._context = context(None, Control(), report)
    engine._cut_short("SIGINT")
    messages = {case: candidate.reason.message for case, candidate in report.candidates.items()}
    assert messages == {
        FAST.id: "the run was cut short before its race was over",
        SLOW.id: "the run was cut short before its turn",
    }
    verdict = decide(report, scenario())
    assert "Weak evidence: the run was cut short" in verdict.reasons[0]
    assert verdict.confidence == "open", "the other candidate had no turn"
    assert "`workbench advise row`" in verdict.next_best


def is_an_end(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.CaseFinished | ev.RaceEnded | ev.RunFinished)


def test_interrupted_and_failed_races_survive_in_a_document() -> None:
    row = scenario()
    broken = events({FAST: []}, failed={FAST: Reason("worker_died", "it died")})
    short = list(map(cut_short, events({FAST: steady(1.0, 2), SLOW: []})))
    apart = events({FAST: steady(1.0), case("cpu-a", "fp64"): []}, failed={}, gpus=["cuda:0"])
    for built in (broken, short, apart):
        verdict = decide(Report.of(built), row)
        live = Report.of([*built, ev.VerdictReached(at_s=9.5, verdict=verdict)])
        assert decide(report_of(live.document()), row) == verdict


def test_plain_text_counts_who_raced() -> None:
    live = with_verdict(eliminated(after=3))
    text = " ".join(run_text(live).split())
    assert f"race {counts_text(summary(live))}" in text
