"""The verdicts of a document in short."""

from __future__ import annotations

from ..contract import Case
from ..records.document import Pick, Summary
from ..records.verdict import Verdict


def summary_of(verdict: Verdict, pick: Case | None) -> Summary:
    """The answer of `verdict`, whose pick is the case `pick`."""
    picked = None
    if pick is not None:
        picked = Pick(**{name: getattr(pick, name) for name in Pick.__struct_fields__})
    return Summary(
        scenario=verdict.scenario,
        device=verdict.choice,
        pick=picked,
        lead=verdict.pick_ratio,
        lead_ci95=verdict.pick_ratio_ci95,
        confidence=verdict.confidence,
    )
