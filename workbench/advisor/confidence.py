"""Confidence in a verdict, in one word, from the paired ratio that decides.

That is the lead of the better device where both raced, otherwise that of the pick over the next.
`sure`: it is above 5 % after all looks.  `tie`: its 95 % interval lies within 5 %.  `likely`: the
interval lies above 1.  `open`: anything else.  Doubts lower the word by one step.
"""

from __future__ import annotations

from ..report.candidate import BY_FIRST_BLOCK, Candidate
from ..report.from_document import CONFIDENCES
from ..stats import ratios
from ..stats.samples import Ratio

SURE, LIKELY, TIE, OPEN = CONFIDENCES
LOWERED = {SURE: LIKELY}  # by doubts; every other word becomes open
EDGE = 1 + ratios.TOLERANCE


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
