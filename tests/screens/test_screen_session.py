"""Phases, clocks and exit codes of one run as the screens see it."""

import json
from pathlib import Path

import pytest
import scenes
from builders import block
from stage import JOURNALS, kept, replayed

from screens.state.event_source import EventSourceError
from screens.state.session import Session
from screens.widgets.bars import activity_line
from workbench.export.json import document_parts
from workbench.export.text import summary_text
from workbench.export.view.derived import RunView
from workbench.export.view.events import race_log
from workbench.export.view.tables import candidate_line
from workbench.records import events as ev
from workbench.records.reason import Reason, Warning
from workbench.report.from_document import report_of
from workbench.report.names import short_cpu
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun, read_document


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def session_of(events: list[ev.AnyEvent], clock: Clock | None = None, **more: bool) -> Session:
    session = Session(monotonic=clock or Clock(), **more)
    for event in events:
        session.apply(event)
    return session


def test_a_run_goes_through_its_phases() -> None:
    session = Session()
    assert (session.phase, session.exit_code) == ("starting", 130)
    events = scenes.h200()
    for event in events[:-1]:
        session.apply(event)
    assert session.phase == "running"
    session.apply(ev.StatusChanged(at_s=20.0, status="paused"))
    assert session.phase == "paused"
    session.apply(ev.StatusChanged(at_s=20.0, status="a word of a later version"))
    assert session.phase == "running"
    session.cancelling = True
    assert session.phase == "stopping"
    session.apply(events[-1])
    assert (session.phase, session.exit_code) == ("finished", 0)


def test_a_record_without_an_end_breaks_off_and_is_no_failure_of_ours() -> None:
    session = session_of(scenes.midway(), replay=True)
    session.ended = True
    assert (session.phase, session.exit_code) == ("incomplete", 0)


def test_a_cancelled_run_returns_its_own_exit_code() -> None:
    assert session_of(scenes.cancelled()).exit_code == 130


def test_a_dead_engine_is_a_failure() -> None:
    session = session_of(scenes.midway())
    session.failure = EventSourceError("killed", "try again")
    assert (session.phase, session.exit_code) == ("died", 1)
    session.failure = EventSourceError("no such file", "start another run", code=2)
    assert (session.phase, session.exit_code) == ("refused", 2)


def test_recorded_answers_without_a_rating_are_answers() -> None:
    file = Path(__file__).parents[2] / "assets/recordings/amd-epyc-2-rows.json"
    session = Session.of(OpenedRun(read_document(file), []))
    assert activity_line(session, 80).plain == "recorded, done  6 of 6 scenarios answered"


def test_a_run_that_measured_nothing_does_not_look_like_a_success() -> None:
    measured = scenes.cpu_only()
    empty = [event for event in measured if not isinstance(event, ev.BlockMeasured)]
    for events, style in ((measured, "$success"), (empty, "$warning")):
        spans = activity_line(session_of(events), 80).spans
        assert str(spans[0].style) == f"bold {style}"


def test_an_opened_run_without_an_end_calls_nothing_cancelled() -> None:
    session = kept(scenes.midway())
    rows = session.report.rows.values()
    lines = (candidate_line(c, row, session) for row in rows for c in row.candidates)
    states = {line.cells["state"][0].plain for line in lines}
    assert {"not finished", "not measured"} <= states and "cancelled" not in states


def test_what_may_not_be_picked_is_not_the_best_of_a_live_race() -> None:
    session = session_of([e for e in scenes.midway() if not isinstance(e, ev.VerdictReached)])
    rows = session.report.rows.values()
    row = next(row for row in rows if sum(bool(c.blocks) for c in row.candidates) > 1)
    best = session.best(row)
    best.reason = Reason("error_limit", "its error is above the limit")
    best.state = "ok"
    session._kept.clear()
    assert session.best(row) is not best
    for candidate in row.candidates:
        candidate.reason = best.reason
    session._kept.clear()
    assert session.best(row) is best, "nothing else was measured"


def test_the_clock_runs_on_between_events_but_not_while_paused() -> None:
    clock = Clock()
    session = session_of(scenes.midway(), clock)
    last = session.report.last_at_s
    clock.now += 2.5
    assert session.elapsed_s == last + 2.5
    session.apply(ev.StatusChanged(at_s=last + 2.5, status="paused"))
    clock.now += 60.0
    assert session.elapsed_s == last + 2.5


def test_a_stray_line_of_the_engine_does_not_turn_the_clock_back() -> None:
    clock = Clock()
    session = session_of(scenes.midway(), clock)
    clock.now += 2.5
    before = session.elapsed_s
    stray = Warning("stray_output", "the engine printed a stray line", "report it")
    session.apply(ev.WarningRaised(at_s=0.0, warning=stray))  # it came without a time
    assert session.elapsed_s == before


def test_numbers_are_computed_once_until_a_block_arrives() -> None:
    report = Report.of(scenes.midway())
    figures = RunView(report)
    candidate = next(c for c in report.candidates.values() if c.blocks)
    first = figures.measured(candidate)
    assert figures.measured(candidate) is first
    candidate.blocks.append(candidate.blocks[0])
    assert figures.measured(candidate) is not first


def test_speeds_compare_what_shared_its_rounds_and_the_best_is_the_pick() -> None:
    """The first was measured while the machine was quick, too: its median misleads."""
    report = Report.of(scenes.training_midway())
    figures, row = RunView(report), report.rows["train_cnn"]
    first, second, third = row.candidates[:3]
    for candidate in row.candidates:
        candidate.blocks, candidate.reason, candidate.state = [], None, "measuring"
    times = [(first, [1.0] * 5 + [3.0] * 4), (second, [None] * 5 + [2.0] * 4), (third, [9.0])]
    for candidate, values in times:
        candidate.blocks = [
            block(candidate.case, number, [value])
            for number, value in enumerate(values)
            if value is not None
        ]
    behind = figures.behind(row)
    assert behind[second.case.id].value == 1.0
    assert behind[first.case.id].value == pytest.approx(1.5)
    assert third.case.id not in behind, "no common round yet"
    third.state = "cancelled"
    assert third.case.id in figures.behind(row), "there is nothing better to come"

    done = Report.of(scenes.cpu_only())
    for row in done.rows.values():
        assert RunView(done).behind(row)[row.verdict.pick].value == 1.0


def test_a_document_played_back_has_the_figures_of_the_run() -> None:
    """A JSON document carries later losses on blocks without samples."""
    original = Report.of(scenes.h200())
    again = report_of(original.document())
    for case_id, candidate in original.candidates.items():
        before = RunView(original).measured(candidate)
        after = RunView(again).measured(again.candidates[case_id])
        assert (before.n, before.median_s) == (after.n, after.median_s)


def test_candidates_of_one_row_are_told_apart_by_their_parameters() -> None:
    events = scenes.h200()
    report = Report.of(events)
    row = report.rows["training"]
    first = row.candidates[0].case
    assert RunView(report).case_name(first.id) == "cpu torch fp32 t16"
    object.__setattr__(first, "params", {**first.params, "channels_last": 1})
    report.candidates[first.id] = row.candidates[0]
    assert RunView(report).case_name(first.id).endswith(" channels_last=1")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_stays_in_the_terminal_fits_it_and_names_every_pick(width: int) -> None:
    lines = summary_text(Report.of(scenes.cpu_only()), width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("Scenario")
    verdicts = Report.of(scenes.cpu_only()).verdicts
    for line, verdict in zip(lines[1:], verdicts, strict=True):
        assert verdict.title[:12] in line or verdict.scenario in line
        assert (verdict.pick or "").split("/")[3] in line


def test_of_a_plain_run_the_candidates_stay_and_of_nothing_nothing() -> None:
    assert "overtakes" in summary_text(Report.of(scenes.sweep()), 80)
    assert "largest     batch" in summary_text(Report.of(scenes.largest_batch()), 120)
    assert summary_text(Report(), 80) == ""


def test_processor_names_lose_their_filler() -> None:
    assert short_cpu("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz") == "Intel Xeon Platinum 8481C"
    assert short_cpu("AMD EPYC 9654 96-Core Processor") == "AMD EPYC 9654"
    assert short_cpu(None) == "CPU"


def test_a_long_run_keeps_the_log_of_its_first_rows() -> None:
    *events, end = scenes.h200()
    more = [ev.BudgetExtended(at_s=end.at_s, scenario="branching", by_s=1.0)] * 2000
    long, short = session_of([*events, *more, end]), session_of([*events, end])
    row = short.report.rows["training"]
    kept = race_log(row, long.log)
    assert kept == race_log(row, short.log)
    assert (kept[0].word, kept[-1].word) == ("race", "answer")


@pytest.mark.parametrize("journal", ["advise-simulated-gpu", "run-sweep"])
async def test_the_tui_holds_the_document_that_json_prints(journal: str) -> None:
    lines = (JOURNALS / f"{journal}.jsonl").read_bytes().splitlines()
    events = [ev.decode(line) for line in lines]
    app = replayed(events)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        held = json.loads(b"".join(document_parts(app.session.report)))
    assert held == json.loads(b"".join(document_parts(Report.of(events))))
    assert held["run"]["status"] == "done"
