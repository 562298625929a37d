"""The log of a race shows its course for a document too, whose events have no times."""

from __future__ import annotations

import recorded_machines
import recorded_model

from screens.figures import Figures
from screens.narrate import LogLine, narrate
from workbench import events as ev
from workbench.replay import events_of
from workbench.report import Report


def narrated(events: list[ev.AnyEvent]) -> list[LogLine]:
    report = Report()
    figures, found = Figures(report), []
    for event in events:
        report.apply(event)
        found.append(narrate(event, figures))
    words = ("joined", "dropped", "ended")
    return [line for line in found if line is not None and line.word in words]


def test_a_document_tells_who_fell_and_why_as_the_journal_did() -> None:
    live = recorded_model.done(*recorded_machines.cpu_server())
    there = narrated(live)
    again = narrated(list(events_of(Report.of(live).document())))
    assert [line.text for line in there if line.word == "dropped"] == [
        line.text for line in again if line.word == "dropped"
    ]
    assert {(line.word, line.text) for line in there} == {(line.word, line.text) for line in again}
    assert again[-1].text == "8 rounds, ended as more rounds tell no more"
