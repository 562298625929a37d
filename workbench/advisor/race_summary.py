"""The summary of a row's race: who joined, who was eliminated when and why, who finished."""

from ..records.verdict import Elimination, RaceSummary
from ..report.candidate import BY_FIRST_BLOCK, CANCELLED, Candidate, Row, in_order
from ..text import units

ENDINGS = {
    "decided": "decided after {}",
    "budget": "out of time after {}",
    "rounds": "ended after {}, the most that a race takes",
    "empty": "no candidate left after {}",
    CANCELLED: "interrupted after {}",
}


def summarise(row: Row) -> RaceSummary | None:
    """The summary of the race of `row`; None if it did not begin or its end is not known.

    It depends on samples, reasons and the rounds of `CasesJoined`, not on the order of events, so
    that a document and its journal have the same summary.
    """
    if not row.started or not (row.ended_by or row.is_cut_short):
        return None
    left = sorted(
        filter(left_early, row.candidates),
        key=lambda c: max(c.blocks[-1].round + 1 if c.blocks else 0, c.joined_after or 0),
    )
    finished = [candidate for candidate in row.candidates if not left_early(candidate)]
    measured = [block.round + 1 for c in row.candidates for block in c.blocks]
    return RaceSummary(
        rounds=row.rounds if not row.is_cut_short else max(measured, default=0),
        ended_by=row.ended_by or CANCELLED,
        joined={c.case.id: c.joined_after for c in row.candidates if c.joined_after is not None},
        left=[
            Elimination(
                id=candidate.case.id,
                rounds=len(candidate.blocks),
                code=candidate.reason.code if candidate.reason else candidate.state,
                message=candidate.reason.message if candidate.reason else candidate.state,
                beaten_by=candidate.beaten_by,
                ratio=candidate.ratio,
                ratio_bounds=candidate.ratio_bounds,
            )
            for candidate in left
        ],
        stayed=[candidate.case.id for candidate in in_order(finished)],
    )


def left_early(candidate: Candidate) -> bool:
    """Whether it was eliminated, failed or never measured, and not merely interrupted."""
    if candidate.state == CANCELLED and candidate.blocks:
        return False
    return candidate.reason is not None or candidate.state == "failed"


def eliminated_by_first_block(summary: RaceSummary | None, case: str | None) -> Elimination | None:
    """The elimination of `case` if its first block alone was the cause."""
    left = summary.left if summary is not None else []
    return next((e for e in left if e.id == case and e.rounds and e.code in BY_FIRST_BLOCK), None)


def counts_text(summary: RaceSummary) -> str:
    """`decided after 14 rounds; 2 joined, 1 eliminated, 3 finished`; a table names them."""
    measured = sum(each.rounds > 0 for each in summary.left)
    counts = {
        "joined": len(summary.joined),
        "eliminated": measured,
        "not measured": len(summary.left) - measured,
        "finished": len(summary.stayed),
    }
    found = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    ended = ended_text(summary.rounds, summary.ended_by)
    return f"{ended}; {found}" if found else ended


def ended_text(rounds: int, ended_by: str) -> str:
    """`decided after 14 rounds`."""
    return ENDINGS.get(ended_by, ended_by + " after {}").format(units.counted(rounds, "round"))
