"""A run as log lines, for CI and for everyone without a screen."""

from ..records import events as ev
from ..report.report import Report
from .view.derived import RunView
from .view.events import narrate

WORD_WIDTH = 10  # the longest word is `eliminated`


def line(event: ev.AnyEvent, report: Report, *, verbose: bool = True) -> str | None:
    """One line for an event that `report` has already taken in; None for mere detail, and without
    `verbose` for all but failures."""
    found = narrate(event, RunView(report))
    if found is None or not (verbose or found.tone == "error"):
        return None
    return f"{found.at_s:7.1f} s  {found.word:<{WORD_WIDTH}}  {found.text}".rstrip()
