"""The log of a race shows its course for a document too, whose events have no times."""

from __future__ import annotations

from collections.abc import Iterable

import recorded
import recorded_machines
import recorded_model
from builders import eventful

from screens.state.document_log import document_log
from screens.text.log import log_lines
from workbench.export.view.derived import DerivedValues
from workbench.export.view.events import LogLine, narrate
from workbench.records import events as ev
from workbench.report.from_document import report_of
from workbench.report.report import Report


def told(events: list[ev.AnyEvent]) -> list[LogLine]:
    report = Report()
    derived, found = DerivedValues(report), []
    for event in events:
        report.apply(event)
        found.append(narrate(event, derived))
    return [line for line in found if line is not None]


def reopened(events: list[ev.AnyEvent]) -> list[LogLine]:
    return list(document_log(DerivedValues(report_of(Report.of(events).document()))))


def of_races(lines: Iterable[LogLine]) -> list[LogLine]:
    return [line for line in lines if line.word in ("joined", "eliminated", "ended")]


def test_a_document_tells_who_fell_and_why_as_the_journal_did() -> None:
    live = recorded_model.done(*recorded_machines.cpu_server())
    there = of_races(told(live))
    again = of_races(reopened(live))
    assert [line.text for line in there if line.word == "eliminated"] == [
        line.text for line in again if line.word == "eliminated"
    ]
    assert {(line.word, line.text) for line in there} == {(line.word, line.text) for line in again}
    assert again[-1].text == "8 rounds, enough rounds"


def test_a_document_has_no_times_and_none_are_made_up() -> None:
    live = recorded.cpu_only()
    *lines, end = [line.plain for line in log_lines(reopened(live), 200)]
    assert all(line.startswith(" " * 10) for line in lines)
    assert not any(line.endswith(" 0 s") for line in lines)
    assert end.startswith("  16.9 s  done")
    assert log_lines(told(live), 200)[0].plain.startswith("   0.2 s  run")


def test_a_failure_is_in_the_log_of_a_document() -> None:
    lines = reopened(eventful())
    assert [line.tone for line in lines if "the worker died" in line.text] == ["bad"]
