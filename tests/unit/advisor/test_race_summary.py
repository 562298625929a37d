"""The course of a race follows from the report, live and from its document alike."""

from __future__ import annotations

import msgspec
import recorded_model
import simulated_lab
from builders import case, eventful, events, scenario, steady
from verdicts import cut_short

from workbench.advisor.race_summary import course, course_text
from workbench.advisor.verdict import decide
from workbench.engine.engine import Engine
from workbench.export.text import run_text
from workbench.planning.request import Request
from workbench.pool.control import Control
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.records.verdict import RaceSummary
from workbench.report.replay import events_of
from workbench.report.report import Report

FAST, SLOW, LATE, BROKEN = (case(f"cpu-{name}") for name in ("a", "b", "late", "broken"))
BEATEN = Reason("beaten", "2x slower than cpu torch fp32 t8")
RACE = eventful()


def told(report: Report, row: str = "row") -> RaceSummary:
    found = course(report.rows[row])
    assert found is not None
    return found


def dropped(after: int) -> list[ev.AnyEvent]:
    """A race in which the slower of two falls, and a third joins after the third round."""
    built = events({FAST: steady(1.0), SLOW: steady(2.0, after), LATE: []})
    plan = next(n for n, e in enumerate(built) if isinstance(e, ev.RacePlanned))
    planned = built[plan]
    built[plan] = msgspec.structs.replace(planned, cases=[FAST, SLOW])
    joined = ev.CasesJoined(
        at_s=3.0, scenario="row", cases=[LATE], work={LATE.id: planned.work[LATE.id]}, after=3
    )
    built.insert(plan + 1, joined)
    found: list[ev.AnyEvent] = []
    for event in built:
        if isinstance(event, ev.CaseFinished) and event.case == SLOW.id:
            found.append(
                ev.CaseDropped(
                    at_s=8.0,
                    case=SLOW.id,
                    scenario="row",
                    reason=BEATEN,
                    beaten_by=FAST.id,
                    ratio=2.0,
                    ratio_bounds=(1.9, 2.1),
                )
            )
            event = msgspec.structs.replace(event, reason=BEATEN)
        if isinstance(event, ev.CaseFinished) and event.case == LATE.id:
            event = msgspec.structs.replace(
                event, status="skipped", reason=Reason("budget", "no time")
            )
        found.append(event)
    return found


def test_who_fell_when_and_why() -> None:
    found = told(Report.of(dropped(after=3)))
    assert (found.rounds, found.ended_by) == (8, "decided")
    assert found.joined == {LATE.id: 3}
    assert found.stayed == [FAST.id]
    first, second = found.left
    assert (first.id, first.rounds, first.code) == (SLOW.id, 3, "beaten")
    assert (first.beaten_by, first.ratio, first.ratio_bounds) == (FAST.id, 2.0, (1.9, 2.1))
    assert (second.id, second.rounds, second.message) == (LATE.id, 0, "no time")


def test_one_line_of_words() -> None:
    text = course_text(told(Report.of(dropped(after=3))))
    assert text == (
        "8 rounds, decided; joined: cpu torch fp32 t8 after 3; out: cpu torch fp32 t8 after 3 "
        "(2.00x slower than cpu torch fp32 t8); not raced: cpu torch fp32 t8 (no time)"
    )


def test_they_left_in_the_order_of_their_last_round() -> None:
    # SLOW fell after 5 rounds, LATE could not be raced when it joined after 3.
    assert [left.id for left in told(Report.of(dropped(after=5))).left] == [LATE.id, SLOW.id]


def test_those_who_stayed_are_listed_fastest_first() -> None:
    found = told(Report.of(events({SLOW: steady(1.4), FAST: steady(1.0)})))
    assert found.stayed == [FAST.id, SLOW.id]
    assert course_text(found).endswith("to the end: cpu torch fp32 t8, cpu torch fp32 t8")


def test_a_race_cut_short_sends_nobody_away_that_it_measured() -> None:
    built = events({FAST: steady(1.0, 2), SLOW: []})
    found = told(Report.of(map(cut_short, built)))
    assert (found.rounds, found.ended_by, found.stayed) == (2, "cancelled", [FAST.id])
    assert [(left.id, left.rounds) for left in found.left] == [(SLOW.id, 0)]
    assert course_text(found).startswith("2 rounds, cut short")


def test_a_row_that_was_not_begun_has_no_course() -> None:
    built = [e for e in events({FAST: []}) if not isinstance(e, ev.RaceStarted)]
    assert course(Report.of(built).rows["row"]) is None


def test_a_journal_that_does_not_tell_how_the_race_ended_has_none_either() -> None:
    built = [e for e in events({FAST: steady(1.0)}) if not isinstance(e, ev.RaceEnded)]
    assert course(Report.of(built).rows["row"]) is None


def test_a_failure_without_a_reason_is_a_departure_too() -> None:
    built = events({FAST: steady(1.0), BROKEN: []})
    built = [
        msgspec.structs.replace(e, status="failed")
        if isinstance(e, ev.CaseFinished) and e.case == BROKEN.id
        else e
        for e in built
    ]
    (left,) = told(Report.of(built)).left
    assert (left.id, left.code) == (BROKEN.id, "failed")


def test_a_document_tells_the_course_again() -> None:
    live = Report.of(RACE)
    replayed = Report.of(events_of(live.document()))
    for row in ("row", "other"):
        assert told(replayed, row) == told(live, row)
    assert replayed.candidates[case("cpu-b").id].dropped is not None
    assert replayed.rows["row"].ended_by == "decided"


def test_so_does_the_document_of_a_model() -> None:
    recorded = simulated_lab.done()
    live = Report.of(recorded)
    replayed = Report.of(events_of(live.document()))
    found = told(live, "model")
    assert recorded_model.MIXED.id in found.joined
    assert [left.code for left in found.left]
    assert told(replayed, "model") == found
    (verdict,) = live.verdicts
    assert decide(replayed, simulated_lab.SCENARIO) == verdict


def test_a_cut_in_a_race_is_told_of_those_that_had_a_turn_and_of_those_that_had_none() -> None:
    report = Report.of(e for e in events({FAST: steady(1.0, 2), SLOW: []}) if not is_an_end(e))
    report.apply(ev.RaceEnded(at_s=8.0, scenario="row", rounds=2, ended_by="cancelled"))
    Engine(Request(), [], Control(), report, lambda _: None)._conclude()
    told_ = {case: candidate.reason.message for case, candidate in report.candidates.items()}
    assert told_ == {
        FAST.id: "the run was cut short before its race was over",
        SLOW.id: "the run was cut short before its turn",
    }
    verdict = decide(report, scenario())
    assert "on a weak basis: the run was cut short" in verdict.reasons[0]
    assert verdict.next_best == "Let it run to its end: `workbench advise row`."


def is_an_end(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.CaseFinished | ev.RaceEnded | ev.RunFinished)


def test_a_cut_race_and_a_failed_one_are_told_again_too() -> None:
    row = scenario()
    broken = events({FAST: []}, failed={FAST: Reason("worker_died", "it died")})
    short = list(map(cut_short, events({FAST: steady(1.0, 2), SLOW: []})))
    apart = events({FAST: steady(1.0), case("cpu-a", "fp64"): []}, failed={}, gpus=["cuda:0"])
    for built in (broken, short, apart):
        verdict = decide(Report.of(built), row)
        live = Report.of([*built, ev.VerdictReached(at_s=9.5, verdict=verdict)])
        assert decide(Report.of(events_of(live.document())), row) == verdict


def test_a_race_is_traced_in_plain_text() -> None:
    text = " ".join(run_text(Report.of(RACE)).split())
    assert "race: 8 rounds, decided;" in text
    assert "out: cpu torch fp32 t8 after 3 (2.00x slower than cpu torch fp32 t8)" in text
