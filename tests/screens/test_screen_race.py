"""The log of a race shows its course for a document too, whose events have no times."""

from __future__ import annotations

import recorded
import recorded_machines
import recorded_model

from screens.text.log import log_lines
from workbench.export.view.derived import DerivedValues
from workbench.export.view.events import LogLine, narrate
from workbench.records import events as ev
from workbench.report.replay import events_of
from workbench.report.report import Report


def told(events: list[ev.AnyEvent]) -> list[LogLine]:
    report = Report()
    derived, found = DerivedValues(report), []
    for event in events:
        report.apply(event)
        found.append(narrate(event, derived))
    return [line for line in found if line is not None]


def narrated(events: list[ev.AnyEvent]) -> list[LogLine]:
    return [line for line in told(events) if line.word in ("joined", "eliminated", "ended")]


def test_a_document_tells_who_fell_and_why_as_the_journal_did() -> None:
    live = recorded_model.done(*recorded_machines.cpu_server())
    there = narrated(live)
    again = narrated(list(events_of(Report.of(live).document())))
    assert [line.text for line in there if line.word == "eliminated"] == [
        line.text for line in again if line.word == "eliminated"
    ]
    assert {(line.word, line.text) for line in there} == {(line.word, line.text) for line in again}
    assert again[-1].text == "8 rounds, ended as more rounds tell no more"


def test_a_document_has_no_times_and_none_are_made_up() -> None:
    live = recorded.cpu_only()
    document = Report.of(live).document()
    *lines, end = [line.plain for line in log_lines(told(list(events_of(document))), 200)]
    assert all(line.startswith(" " * 10) for line in lines)
    assert not any(line.endswith(" 0 s") for line in lines)
    assert end.startswith("  16.9 s  done")
    assert log_lines(told(live), 200)[0].plain.startswith("   0.2 s  run")
