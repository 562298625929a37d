"""The seconds of a run by what they went into, row by row."""

from ...report.report import Report
from ...text.sanitize import shown
from .table import plain_table

PHASES = ("starting", "preparing", "measured", "idle", "closing")


def where_lines(report: Report) -> list[str]:
    """A line for each row and one for the whole run."""
    spent = report.finished.overhead if report.finished is not None else None
    if spent is None or spent.starting_s is None:
        return ["this run does not say where its seconds went: it is older, or did not end"]
    table = []
    for name, part in [*spent.rows.items(), ("the run", spent)]:
        seconds = [getattr(part, f"{phase}_s", 0.0) for phase in PHASES]
        table.append((shown(name), *(f"{each:.1f}" for each in (sum(seconds), *seconds))))
    lines = plain_table(("Seconds", "all", *PHASES), table, range(1, 7))
    return [line.plain.rstrip() for line in lines]
