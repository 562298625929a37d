"""What the rows of the user's code show together: how the answer changes with the batch, and when
compiling pays."""

from __future__ import annotations

from collections.abc import Iterator

from ...contract import Case
from ...report.candidate import Candidate
from ...report.names import candidate_name
from ...report.report import Report
from ...report.row import Row
from ...stats import ratios
from ...text.units import times
from ..model.overview import ratio_of
from .overview import as_written, rows_of, share_sentence


def flips(report: Report) -> list[str]:
    """For each further batch: whether the pick stays the best there."""
    own, *others = rows_of(report)
    pick = own.verdict.pick if own.verdict else None
    if pick is None:
        return []
    case = report.candidates[pick].case
    return [text for row in others for text in _compared(case, row, report)]


def _compared(pick: Case, row: Row, report: Report) -> Iterator[str]:
    if row.verdict is None or row.verdict.pick is None:
        return
    best = report.candidates[row.verdict.pick]
    same = next((c for c in row.candidates if c.case.label == pick.label and c.blocks), None)
    batch, name = best.case.batch, candidate_name(best.case)
    if same is best:
        yield f"The same candidate is the pick at batch {batch}."
    elif same is None:
        yield f"At batch {batch} the pick is {name}; the pick at batch {pick.batch} did not race."
    else:
        yield _flip(best, same, name)


def _flip(best: Candidate, same: Candidate, name: str) -> str:
    batch, other = best.case.batch, candidate_name(same.case)
    ratio = ratios.ratio_between(same.rounds(), best.rounds())
    if ratio is None:
        return f"At batch {batch} {name} leads {other}, after one or two rounds only."
    if ratio.low <= 1 or ratios.is_close(ratio):
        return f"At batch {batch} {name} and {other} cannot be distinguished."
    measured = times(ratio.value, ratio.interval)
    return f"The answer flips at batch {batch}: {name} is {measured} faster than {other} there."


def compile_calls(row: Row) -> float | None:
    """The calls after which the best compiled candidate has paid for its compilation."""
    if row.verdict is None:
        return None
    compiled = {c.case.id for c in row.candidates if c.case.is_compiled}
    found = [p.steps for p in row.verdict.payoffs if p.id in compiled and p.steps is not None]
    return min(found, default=None)


def script_gain(report: Report, row: Row, pick: Candidate) -> str:
    """What the pick means for the whole script; empty for other code."""
    module = next((m for m in report.code.facts.modules if m.chosen), None) if report.code else None
    if report.code is None or module is None:
        return ""
    gained = ratio_of(as_written(row, report.code), pick)
    return "" if gained is None else share_sentence(module.name, module.share, gained[0])
