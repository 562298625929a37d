"""The exit code of a run: docs/commands.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..planning.request import Request
    from ..report.candidate import Row
    from ..report.report import Report

OK, FAILED, USAGE, UNTRUSTED, BEYOND, CUT_SHORT = 0, 1, 2, 3, 4, 130  # BEYOND: --fail-on


def exit_code(status: str, request: Request, report: Report) -> int:
    """The exit code of the process after a run that ended with `status`."""
    if status == "cancelled":
        return CUT_SHORT
    if status == "failed":
        return FAILED
    rows = report.asked_rows
    if request.question is not None and not request.batch:
        del rows[1:]  # further batches, which the user did not name
    if request.largest_batch:  # each row found one, and no search failed
        states = [{candidate.state for candidate in row.candidates} for row in rows]
        is_whole = all("ok" in each and "failed" not in each for each in states)
    else:
        is_whole = _has_measured(rows, request)
    if not is_whole or _is_unwritten(request, report):
        return FAILED
    if request.strict and any(row.verdict is not None and row.verdict.is_open for row in rows):
        return UNTRUSTED
    if not request.strict_samples:
        return OK
    others = report.rows.keys() - {row.plan.scenario for row in rows}
    warned = any(warning.subject not in others for warning in report.warnings)
    doubted = any(report.measurement_warnings(c) for row in rows for c in row.candidates)
    return UNTRUSTED if warned or doubted else OK


def _has_measured(rows: Sequence[Row], request: Request) -> bool:
    """Whether each row has the results that it owes."""
    for row in rows:
        measured = any(c.is_valid for c in row.candidates)
        failed = any(c.state == "failed" for c in row.candidates)
        # A scenario has an answer although a candidate failed; a plain run owes every candidate.
        owed = not request.every or failed  # with --all, some workloads cannot run here
        if (not measured and owed) or (failed and not row.plan.owes_verdict):
            return False
    return any(c.is_valid for row in rows for c in row.candidates)


def _is_unwritten(request: Request, report: Report) -> bool:
    """Whether a requested file is missing or unchecked; the report has the reason."""
    if request.trace is not None and report.trace is None:
        return True
    if request.question is None or request.question.save_best is None:
        return False
    advice = report.subject.advice if report.subject else None
    return advice is None or advice.saved is None or advice.saved.reason is not None
