"""The subject of a run, which is the user's model or own code, and the advice on it."""

from ..report.candidate import Candidate, Row
from ..report.report import Report
from .model import overview as model
from .own import overview as own
from .ranking import RankedCandidate


def is_refused(report: Report) -> bool:
    """Whether the model could not be read, or the code not be run."""
    row = report.subject_row
    return row is not None and not report.subject and any(c.reason for c in row.candidates)


def pick_of(report: Report) -> Candidate | None:
    """The pick of the first row that has one."""
    rows = report.subject_rows
    return own.first_answered(rows).picked if rows else None


def brief(text: str, report: Report) -> str:
    """`text` without the parts that all candidates of a model share."""
    return model.brief(text) if report.code is None else text


def ranked_candidates(report: Report) -> list[RankedCandidate]:
    """The candidates of the first row, from best to worst."""
    row = report.subject_row
    found = model.ranked_candidates(report)
    return found if row is None or report.code is None else own.ranked_candidates(report, row)


def recommendation(report: Report) -> list[str]:
    """Sentences on the whole run, the answer first; [] in other runs."""
    return model.recommendation(report) or own.recommendation(report)


def answer(row: Row, report: Report) -> list[str]:
    """Sentences on a row with a verdict; [] for rows of workloads."""
    rows = report.subject_rows
    if row not in rows:
        return []
    return recommendation(report) if row is rows[0] else own.answer(row, report)


def snippet(report: Report) -> str | None:
    """The code to paste; None where there is no advice."""
    advice = report.subject.advice if report.subject else None
    return advice.snippet if advice else None
