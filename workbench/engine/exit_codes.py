"""The exit code of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..planning.request import Request
    from ..report.report import Report

OK, FAILED, USAGE, UNTRUSTED, BEYOND, CUT_SHORT = 0, 1, 2, 3, 4, 130  # BEYOND: --fail-on


def exit_code(status: str, request: Request, report: Report) -> int:
    """The exit code of the process after a run that ended with `status`."""
    if status == "cancelled":
        return CUT_SHORT
    if status == "failed":
        return FAILED
    rows = report.asked_rows
    if request.largest_batch:
        states = [{candidate.state for candidate in row.candidates} for row in rows]
        return OK if all("ok" in each and "failed" not in each for each in states) else FAILED
    if not any(c.blocks for row in rows for c in row.candidates):
        return FAILED
    if request.own is not None and not request.batch:
        del rows[1:]  # further batches, which the user did not name
    for row in rows:
        measured = any(c.blocks for c in row.candidates)
        failed = any(c.state == "failed" for c in row.candidates)
        # A scenario can answer although a candidate failed; a plain run owes every candidate.
        owed = not request.every or failed  # with --all, some workloads cannot run here
        if (not measured and owed) or (failed and not row.plan.owes_verdict):
            return FAILED
    if _is_unwritten(request, report):
        return FAILED
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if request.strict and any(verdict.is_open for verdict in verdicts):
        return UNTRUSTED
    if not request.strict_samples:
        return OK
    points = {name for name, row in report.rows.items() if row.plan.is_crossover_point}
    warned = any(warning.subject not in points for warning in report.warnings)
    doubted = any(report.measurement_warnings(c) for row in rows for c in row.candidates)
    return UNTRUSTED if warned or doubted else OK


def _is_unwritten(request: Request, report: Report) -> bool:
    """Whether a file that was asked for is missing or unchecked; the report has the reason."""
    if request.trace is not None and report.trace is None:
        return True
    if request.question is None or request.question.save_best is None:
        return False
    found = report.model or report.code
    advice = found.advice if found is not None else None
    return advice is None or advice.saved is None or advice.saved.reason is not None
