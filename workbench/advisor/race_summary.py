"""The course of a row's race: who joined, who fell when and why, who stayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..records.verdict import Elimination, RaceSummary
from ..report.candidate import CUT_SHORT, Candidate
from ..report.names import name_of
from ..report.row import Row
from ..stats import ratios
from ..text import units

SENT_AWAY = ("far_slower", "slower_precision")  # for what one block showed: no interval is owed
ENDED = {
    "decided": "decided",
    "budget": "ended by the budget",
    "rounds": "ended as more rounds tell no more",
    "empty": "nobody was left",
    CUT_SHORT: "cut short",
}


def course(row: Row) -> RaceSummary | None:
    """How the race of `row` went; None if it was never begun, or nobody told how it ended.

    It depends on samples, reasons and what each `CasesJoined` says, not on the order of events,
    so that a document gives the course that the journal gives.
    """
    if not row.started or not (row.ended_by or is_cut_short(row)):
        return None
    left = sorted((c for c in row.candidates if has_left(c)), key=_left_after)
    stayed = [c for c in row.candidates if not has_left(c)]
    order = ratios.ranking({c.case.id: c.rounds() for c in stayed})
    seen = [block.round + 1 for c in row.candidates for block in c.blocks]
    return RaceSummary(
        rounds=row.rounds if not is_cut_short(row) else max(seen, default=0),
        ended_by=row.ended_by or CUT_SHORT,
        joined={c.case.id: c.joined_after for c in row.candidates if c.joined_after is not None},
        left=[_departure(candidate) for candidate in left],
        stayed=[*order, *(c.case.id for c in stayed if c.case.id not in order)],
    )


def is_cut_short(row: Row) -> bool:
    """Whether the run ended before the race did."""
    unfinished = row.ended_by in (None, CUT_SHORT)
    return unfinished and any(c.state == CUT_SHORT for c in row.candidates)


def has_left(candidate: Candidate) -> bool:
    """Whether it was out before the end; a run cut short sends nobody away that it measured."""
    if candidate.state == CUT_SHORT and candidate.blocks:
        return False
    return candidate.reason is not None or candidate.state == "failed"


def _left_after(candidate: Candidate) -> int:
    raced = candidate.blocks[-1].round + 1 if candidate.blocks else 0
    return max(raced, candidate.joined_after or 0)


def _departure(candidate: Candidate) -> Elimination:
    reason = candidate.reason
    return Elimination(
        id=candidate.case.id,
        rounds=len(candidate.blocks),
        code=reason.code if reason else candidate.state,
        message=reason.message if reason else candidate.state,
        beaten_by=candidate.beaten_by,
        ratio=candidate.ratio,
        ratio_bounds=candidate.ratio_bounds,
    )


def sent_away(told: RaceSummary | None, case: str | None) -> Elimination | None:
    """How the candidate left, if its first block showed it far behind."""
    left = told.left if told is not None else []
    return next((d for d in left if d.id == case and d.rounds and d.code in SENT_AWAY), None)


# ------------------------------------------------------------------ words


def course_text(told: RaceSummary) -> str:
    """`14 rounds, decided; out: cpu torch fp32 t1 after 3 (1.41x slower than ...)`."""
    parts = [ended_text(told.rounds, told.ended_by)]
    if told.joined:
        joined = [f"{name_of(case)} after {rounds}" for case, rounds in told.joined.items()]
        parts.append(f"joined: {', '.join(joined)}")
    parts += _departures("out", [each for each in told.left if each.rounds])
    parts += _departures("not raced", [each for each in told.left if not each.rounds])
    if len(told.stayed) > 1:
        parts.append(f"to the end: {', '.join(map(name_of, told.stayed))}")
    return "; ".join(parts)


def _departures(word: str, left: Sequence[Elimination]) -> Iterator[str]:
    """Those who left for one reason one after the other share its words."""
    told = []
    for why, group in groupby(left, _why):
        names = [name_of(d.id) + (f" after {d.rounds}" if d.rounds else "") for d in group]
        told.append(f"{', '.join(names)} ({why})")
    if told:
        yield f"{word}: {', '.join(told)}"


def _why(left: Elimination) -> str:
    if left.ratio is None or left.beaten_by is None:
        return left.message
    return f"{units.ratio(left.ratio)} slower than {name_of(left.beaten_by)}"


def ended_text(rounds: int, ended_by: str) -> str:
    """`14 rounds, decided`."""
    return f"{rounds} round{'' if rounds == 1 else 's'}, {ENDED.get(ended_by, ended_by)}"
