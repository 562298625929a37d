"""A cut run says which of its rows are complete, or why it has to start over."""

from pathlib import Path

import pytest
from builders import eventful
from msgspec.structs import replace

from workbench.engine.engine import Engine
from workbench.export.text import run_text
from workbench.planning.request import Request
from workbench.pool.control import Control
from workbench.records import events as ev
from workbench.records.errors import JournalError
from workbench.report.cut_run import CutRun
from workbench.report.journal import Journal, runs_folder
from workbench.report.report import Report
from workbench.report.run_files import OpenedRun, open_run

FIXTURES = Path(__file__).parents[2] / "fixtures/journals"


def kept(name: str) -> OpenedRun:
    return open_run(str(FIXTURES / f"{name}.jsonl"))


def version_of(old: OpenedRun) -> str:
    return old.report.started.tool.version


def cut_before(old: OpenedRun, kind: type, count: int = 1) -> OpenedRun:
    """The run as a kill before its `count`-th event of that kind leaves it."""
    place = [n for n, event in enumerate(old.events) if isinstance(event, kind)][count - 1]
    events = old.events[:place]
    return OpenedRun(Report.of(events), events)


def test_the_complete_rows_of_an_interrupted_run_are_carried() -> None:
    old = kept("advise-interrupted")
    cut = CutRun.of(old, version_of(old))
    assert set(cut.carried) == {"realtime", "branching"}
    assert set(cut.carried.values()) == {cut.started.id}
    assert cut.budget_s == round(5 + cut.started.budget_s / 3)
    assert cut.command == ["--quick"]


def test_their_events_make_the_same_rows_again() -> None:
    old = kept("advise-interrupted")
    cut = CutRun.of(old, version_of(old))
    again = list(cut.events(7.0))
    assert {event.at_s for event in again} == {7.0}
    plans = [e for e in old.events if isinstance(e, ev.RunStarted | ev.RacePlanned)]
    report = Report.of([*plans, *again])
    for name in cut.carried:
        new, before = report.rows[name], old.report.rows[name]
        assert new.verdict == before.verdict
        for one, other in zip(new.candidates, before.candidates, strict=True):
            assert (one.state, one.setup, one.warmup) == (other.state, other.setup, other.warmup)
            assert one.samples_s == other.samples_s
    assert not any(each.blocks for each in report.rows["training"].candidates)


def test_an_extension_of_the_cut_run_does_not_lengthen_the_new_one() -> None:
    old = kept("advise-interrupted")
    place = next(n for n, event in enumerate(old.events) if isinstance(event, ev.RaceEnded))
    old.events.insert(place, ev.BudgetExtended(at_s=1.0, scenario="branching", by_s=40.0))
    again = list(CutRun.of(old, version_of(old)).events(7.0))
    assert any(isinstance(event, ev.RaceEnded) for event in again)
    assert not any(isinstance(event, ev.BudgetExtended) for event in again)


def test_a_run_that_was_killed_in_its_second_race_keeps_the_first() -> None:
    old = kept("advise-interrupted")
    killed = cut_before(old, ev.RaceEnded, 2)
    assert set(CutRun.of(killed, version_of(old)).carried) == {"branching"}


def test_a_run_cut_before_it_took_over_its_rows_names_the_run_that_has_them() -> None:
    old = kept("advise-interrupted")
    resumed = replace(old.events[0], resumes="old", carried={"training": "old"})
    report = Report.of([resumed])
    with pytest.raises(JournalError, match=r"took over its rows: workbench resume old$"):
        CutRun.of(OpenedRun(report, [resumed]), version_of(old))
    assert "measured by" not in run_text(report)


def test_a_cancelled_resume_advises_to_resume_the_run_that_has_the_rows() -> None:
    old = kept("advise-interrupted")
    cut, control, report = CutRun.of(old, version_of(old)), Control(), Report()
    control.cancel("Ctrl-C")
    Engine(Request(resumes=cut), [], control, report, lambda _: None).run()
    (warning,) = report.warnings
    assert f"`workbench resume {cut.started.id}`" in warning.remedy


def test_a_run_that_broke_off_names_resume_only_where_resume_takes_it() -> None:
    cut = cut_before(kept("advise-interrupted"), ev.RunFinished).report
    started = cut.started
    Journal(runs_folder() / f"{started.id}.jsonl").close()
    assert f"incomplete    `workbench resume {started.id}` measures" in run_text(cut)
    cut.rows = {"branching": cut.rows["branching"]}  # which is complete
    assert run_text(cut).endswith("incomplete    the run was cut short")
    cut.rows = kept("advise-interrupted").report.rows
    ceilings = replace(started.tool, command="workbench ceilings")
    cut.started = replace(started, tool=ceilings)
    assert run_text(cut).endswith("incomplete    run it again: `workbench ceilings`")


def test_a_part_of_a_run_that_is_kept_whole_names_the_whole() -> None:
    whole = kept("advise-simulated-gpu")
    journal = Journal(runs_folder() / f"{whole.report.started.id}.jsonl")
    for event in whole.events:
        journal.append(event)
    journal.close()
    part = cut_before(whole, ev.VerdictReached, 2).report
    run = f"`workbench open {part.started.id}`"
    assert run_text(part).endswith(f"incomplete    {run} shows the whole run")


def test_a_complete_run_lacks_nothing() -> None:
    assert CutRun.of(kept("run-sweep"), "another").budget_s == 0
    events = [event for event in eventful() if not isinstance(event, ev.RunFinished)]
    assert CutRun.of(OpenedRun(Report.of(events), events), "another").budget_s == 0


@pytest.mark.parametrize("command", ["workbench --set 'x", ""])
def test_a_journal_without_a_command_is_refused(command: str) -> None:
    old = kept("advise-interrupted")
    started = old.events[0]
    tool = replace(started.tool, command=command)
    events = [replace(started, tool=tool), *old.events[1:]]
    with pytest.raises(JournalError, match="does not record the command"):
        CutRun.of(OpenedRun(Report.of(events), events), version_of(old))


@pytest.mark.parametrize(
    ("name", "kind", "count", "version", "why"),
    [
        ("advise-interrupted", ev.RaceEnded, 1, "", "none of its rows is complete"),
        ("advise-interrupted", ev.RacePlanned, 1, "", "none of its rows is complete"),
        ("advise-interrupted", ev.RunFinished, 1, "9.9", "workbench 0.1.0 measured it"),
        ("advise-model", ev.RaceEnded, 1, "", "a model, your own code"),
        ("advise-crossover", ev.RaceEnded, 1, "", "need a whole run"),
        ("run-trace", ev.RaceEnded, 1, "", "need a whole run"),
        ("run-largest-batch", ev.RunFinished, 1, "", "none of its rows is complete"),
    ],
)
def test_what_has_to_start_over_says_why_and_how(name, kind, count, version, why) -> None:
    old = kept(name)
    with pytest.raises(JournalError, match=f"cannot be resumed: .*{why}.*; run it again: workben"):
        CutRun.of(cut_before(old, kind, count), version or version_of(old))
