"""A run that was cut short, and the rows that a resuming run carries over from it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ..records import events as ev
from ..records.errors import JournalError
from .candidate import CANCELLED, Row
from .report import Report
from .run_files import OpenedRun

START_S = 5.0  # seconds of the budget that a run takes before its first race
ONLY_WHOLE = {"--trace", "--crossover"}  # options whose results need all rows together


@dataclass(frozen=True)
class CutRun:
    """The old run, and its complete rows, which are not measured again."""

    old: OpenedRun
    started: ev.RunStarted
    command: list[str]  # that began it, without the name of the program
    carried: dict[str, str]  # as in `RunStarted`
    budget_s: int  # the part of its budget for the other rows; 0 if there are none

    @classmethod
    def of(cls, old: OpenedRun, version: str) -> CutRun:
        """`old`, ready to be resumed by this `version`; JournalError if it has to start over."""
        report, started = old.report, old.report.started
        assert started is not None  # a journal begins with it
        rows = {row.plan.scenario: row for row in report.asked_rows}
        whole = [name for name, row in rows.items() if _is_complete(row)]
        carried = {name: started.carried.get(name, started.id) for name in whole}
        if not (words := _words(report)):
            raise JournalError(f"run {started.id} does not record the command that began it")
        command = words[1:]
        if report.status == "done" or (whole and len(whole) == len(rows)):
            return cls(old, started, command, carried, 0)
        due = rows.keys() - started.carried.keys()  # those that this run raced itself
        share = len(due - carried.keys()) / (len(due) or 1)
        cut = cls(old, started, command, carried, round(START_S + share * started.budget_s))
        if started.tool.version != version:
            raise cut.refused(f"workbench {started.tool.version} measured it")
        if not whole and started.resumes:
            text = f"run {started.id} was cut before it took over its rows"
            raise JournalError(f"{text}: workbench resume {started.resumes}")
        if why := refusal(report):
            raise cut.refused(why)
        return cut

    def refused(self, why: str) -> JournalError:
        again = f"run it again: {self.started.tool.command}"
        return JournalError(f"run {self.started.id} cannot be resumed: {why}; {again}")

    def events(self, at_s: float) -> Iterator[ev.AnyEvent]:
        """The events of the carried rows, except their plans, which the new run makes itself."""
        racing = None
        for event in self.old.events:
            row = getattr(event, "scenario", racing if hasattr(event, "case") else None)
            if isinstance(event, ev.RaceStarted):
                racing = row
            elif isinstance(event, ev.VerdictReached):
                row = event.verdict.scenario
            elif isinstance(event, ev.WarningRaised):
                row = event.warning.subject
            # Extensions of the old run do not lengthen the new one.
            if row in self.carried and not isinstance(event, ev.RacePlanned | ev.BudgetExtended):
                yield msgspec.structs.replace(event, at_s=at_s)


def resumable(report: Report) -> str | None:
    """The id to give to `resume` to measure the rows that a cut run lacks: its own, or that of the
    run that it resumes itself; None if there is none, or if no row is missing."""
    rows = report.asked_rows
    if report.started is None or (rows and all(map(_is_complete, rows))):
        return None
    return report.started.id if refusal(report) is None else report.started.resumes


def refusal(report: Report) -> str | None:
    """Why a run that was cut short has to start over; None if it can be resumed."""
    words = _words(report)
    if report.subject or ONLY_WHOLE & set(words):
        return "a model, your own code, --trace and --crossover need a whole run"
    if words[1:2] == ["ceilings"]:
        return "ceilings need a whole run"
    if not any(map(_is_complete, report.asked_rows)):
        return "none of its rows is complete"
    return None


def _words(report: Report) -> list[str]:
    """The words of the command that began a run; [] if unknown."""
    try:
        return shlex.split(report.started.tool.command) if report.started else []
    except ValueError:  # an unpaired quote
        return []


def _is_complete(row: Row) -> bool:
    decided = row.verdict is not None or not row.plan.owes_verdict
    all_in = all(each.ended and each.state != CANCELLED for each in row.candidates)
    return row.ended_by not in (None, CANCELLED) and all_in and decided
