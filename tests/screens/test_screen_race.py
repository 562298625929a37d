"""The log of a race shows its course for a document too, whose events have no times."""

from __future__ import annotations

import scenes
import simulated_lab

from screens.state.derived import Figures
from screens.state.log_entries import LogLine, narrate
from screens.text.log import log_lines
from workbench.records import events as ev
from workbench.report.replay import events_of
from workbench.report.report import Report


def told(events: list[ev.AnyEvent]) -> list[LogLine]:
    report = Report()
    figures, found = Figures(report), []
    for event in events:
        report.apply(event)
        found.append(narrate(event, figures))
    return [line for line in found if line is not None]


def joined(lines: list[LogLine]) -> set[str]:
    """The names of those that joined; in a document each joins alone."""
    return {name for line in lines if line.word == "joined" for name in line.text.split(", ")}


def narrated(events: list[ev.AnyEvent]) -> list[LogLine]:
    return [line for line in told(events) if line.word in ("joined", "dropped", "ended")]


def test_a_document_tells_who_fell_and_why_as_the_journal_did() -> None:
    live = simulated_lab.done()
    there = narrated(live)
    again = narrated(list(events_of(Report.of(live).document())))
    assert sorted(line.text for line in there if line.word == "dropped") == sorted(
        line.text for line in again if line.word == "dropped"
    )
    assert joined(there) == joined(again)
    assert again[-1].word == "ended"


def test_a_document_has_no_times_and_none_are_made_up() -> None:
    live = scenes.cpu_only()
    document = Report.of(live).document()
    *lines, end = [line.plain for line in log_lines(told(list(events_of(document))), 200)]
    assert all(line.startswith(" " * 10) for line in lines)
    assert not any(line.endswith(" 0 s") for line in lines)
    assert end.startswith(f"  {document.run.duration_s:.1f} s  done")
    assert log_lines(told(live), 200)[0].plain.startswith("   0.6 s  run")
