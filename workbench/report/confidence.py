"""Confidence in a verdict, in one word, from the paired ratio that decides.

That is the lead of the better device where both raced, otherwise that of the pick over the next.
`sure`: it is above 5 % after all looks.  `tie`: its 95 % interval lies within 5 %.  `likely`: the
interval lies above 1.  `open`: anything else.  Doubts lower the word by one step.

A word needs only a verdict and its row, so a run of an older version gets one as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..records.reason import Warning
from ..records.verdict import Verdict
from ..stats import ratios
from ..stats.samples import Ratio
from .candidate import BY_FIRST_BLOCK, CANCELLED, Candidate
from .names import candidate_name
from .row import Row

WORDS = SURE, LIKELY, TIE, OPEN = "sure", "likely", "tie", "open"
LOWERED = {SURE: LIKELY}  # by doubts; every other word becomes open
EDGE = 1 + ratios.TOLERANCE


def rated(verdict: Verdict, row: Row) -> Verdict:
    """The verdict with its word, unless it has one already."""
    is_new = verdict.confidence == OPEN
    return msgspec.structs.replace(verdict, confidence=_word(verdict, row)) if is_new else verdict


def lead_word(ratio: Ratio | None, decisive: Ratio | None) -> str:
    """The word for the loser's time over the winner's; `decisive` is the same over all looks."""
    if ratio is None or decisive is None:
        return OPEN
    if decisive.low > EDGE:
        return SURE
    return TIE if ratios.is_tie(ratio) else LIKELY if ratio.low > 1 else OPEN


def was_far_behind(candidate: Candidate) -> bool:
    """Whether its first block eliminated it, so that no interval is owed."""
    return candidate.reason is not None and candidate.reason.code in BY_FIRST_BLOCK


def was_missed(candidate: Candidate) -> bool:
    """Whether it might have been picked, had the budget left time for it."""
    reason = candidate.reason
    return not candidate.blocks and reason is not None and reason.code == "budget"


def doubts(
    row: Row, pick: Candidate, lead: Ratio | None, warnings: Iterable[Warning], *, cut_short: bool
) -> Iterator[tuple[str | None, str]]:
    """What could change the pick unseen by an interval: the candidate and the cause, in order."""
    of_row = [warning for warning in warnings if warning.subject == row.plan.scenario]
    name = candidate_name(pick.case)
    raced = {c.case.device_kind for c in row.candidates if c.blocks}
    missed = {c.case.device_kind for c in row.candidates if was_missed(c)}
    # Where both kinds of device raced, one more on the better kind could only add to its lead.
    if missed and (len(raced) == 1 or missed != {pick.case.device_kind}):
        yield from ((None, w.message) for w in of_row if w.code == "unmeasured")
    if cut_short:
        yield None, "the run was cut short"
    if len(pick.blocks) == 1:
        yield name, "only one round was measured"
    if pick.eliminated:
        yield name, "it left the race before the end"
    if lead is not None and any(lead.low <= edge <= lead.high for edge in (EDGE, 1 / EDGE)):
        yield from ((None, w.message) for w in of_row if w.code != "unmeasured")


def _word(verdict: Verdict, row: Row) -> str:
    by_id = {candidate.case.id: candidate for candidate in row.candidates}
    best = {verdict.best_cpu, verdict.best_gpu}
    rival = verdict.runner_up if None in best else next(iter(best - {verdict.pick}), None)
    one, other = by_id.get(verdict.pick or ""), by_id.get(rival or "")
    if one is None or (verdict.choice == "unknown" and (verdict.textbook or None not in best)):
        return OPEN
    lead, missed = None, any(warning.code == "unmeasured" for warning in verdict.warnings)
    word = OPEN if missed else SURE  # without a rival nothing else can be picked
    if other is not None:
        rounds = other.rounds(), one.rounds()
        lead = ratios.ratio_between(*rounds)
        word = lead_word(lead, ratios.decisive_ratio(*rounds))
        word = LIKELY if lead is None and was_far_behind(other) else word
    cut_short = verdict.race is not None and verdict.race.ended_by == CANCELLED
    has_doubts = any(doubts(row, one, lead, verdict.warnings, cut_short=cut_short))
    return LOWERED.get(word, OPEN) if has_doubts else word
