"""The result of `workbench ab`, as a table that reads well in Markdown and in a terminal."""

from __future__ import annotations

from ..records.ab import ABReport, ABResult
from ..stats.samples import median
from ..text.markdown import inert, table
from ..text.sanitize import shown
from ..text.units import NOT_AVAILABLE, duration

HEADINGS = ("B against A", "case", "B / A", "95 % interval", "A", "B", "pairs of processes")


def ab_text(report: ABReport, *, markdown: bool) -> str:
    """The sides, the table, and what there is to say about it."""
    written = inert if markdown else shown
    remarks = [f"{side.name}: {side.label}" for side in report.sides]
    remarks += [f"{each.case}: {each.reason.message}" for each in report.results if each.reason]
    remarks.append(f"SAME: the whole interval is within {report.tolerance:.2%}")
    rows = [[written(cell) for cell in _cells(result)] for result in report.results]
    lines = [table(HEADINGS, rows), "", *(f"- {written(remark)}" for remark in remarks)]
    return "\n".join(lines)


def _cells(result: ABResult) -> list[str]:
    """The cells of a result under HEADINGS."""
    ratio = NOT_AVAILABLE if result.ratio is None else f"{result.ratio:.3f}"
    interval = NOT_AVAILABLE if result.ci95 is None else "{:.3f} to {:.3f}".format(*result.ci95)
    times = [duration(median(each) if each else None) for each in (result.a_s, result.b_s)]
    word = result.word or "NO RESULT"
    return [word, result.case, ratio, interval, *times, str(len(result.ratios))]
