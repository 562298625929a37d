"""Fastest, cheapest and most frugal of a verdict, in sentences."""

from collections.abc import Iterator, Sequence

from ...advisor.race_summary import eliminated_by_first_block
from ...records.reason import Reason
from ...records.verdict import CaseCost, ObjectivePick, Verdict
from ...report.names import candidate_name
from ...stats.ratios import TOLERANCE, is_tie
from ...stats.samples import Ratio
from ...text import units
from ...text.units import as_sentence


def notes(verdict: Verdict) -> list[str]:
    """Limits of the most frugal pick: other sensors, and candidates that were not read."""
    pick = next((f.pick for f in verdict.by_objective if f.objective == "most_frugal"), None)
    if pick is None:
        return []
    source = next(cost.joules_from for cost in verdict.costs if cost.id == pick)
    texts = []
    if others := [c for c in verdict.costs if c.joules_from not in (None, source)]:
        one, other = candidate_name(pick), _listed(others)
        texts.append(
            f"The energy of {one} ({source}) and {other} ({others[0].joules_from}) comes from "
            "different sensors. The two are not directly comparable."
        )
    if unread := [cost for cost in verdict.costs if cost.joules_from is None]:
        texts.append(f"No power reading for {_listed(unread)}: most frugal excludes it.")
    return texts


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """The name of each objective with its best, or why there is none."""
    for found in verdict.by_objective:
        text = f"unknown: {_because(found.unknown)}" if found.unknown else ""
        if found.pick is not None:
            text = f"{candidate_name(found.pick)}, {_value(found)}; {_lead(found, verdict)}"
        yield found.objective.replace("_", " "), text


def _lead(found: ObjectivePick, verdict: Verdict) -> str:
    """The lead of the best over the next."""
    if found.runner_up is None:
        return "no other candidate to compare with"
    next_ = candidate_name(found.runner_up)
    if found.ratio is None:
        far = eliminated_by_first_block(verdict.race, found.runner_up) is not None
        few = f"too few rounds to compare with {next_}"
        return f"{next_} was far behind after its first turn" if far else few
    if found.ratio_ci95 is None:
        level = found.ratio <= 1 + TOLERANCE
        lead = "about level with {}: {}" if level else "leads {} by about {}"
        return lead.format(next_, units.ratio(found.ratio))
    lead = units.times(found.ratio, found.ratio_ci95)
    if is_tie(Ratio(found.ratio, *found.ratio_ci95, 0)):
        return f"level with {next_}: {lead}"
    if found.ratio_ci95[0] <= 1:
        return f"cannot be distinguished from {next_}: {lead}"
    return f"leads {next_} by {lead}"


def _because(reason: Reason) -> str:
    return f"{reason.message}. {as_sentence(reason.hint)}" if reason.hint else f"{reason.message}."


def _listed(costs: Sequence[CaseCost]) -> str:
    first, *others = costs
    return candidate_name(first.id) + (f" and {len(others)} more" if others else "")


def _value(found: ObjectivePick) -> str:
    kind, slash, per = found.unit.partition("/")
    if found.value is None:
        return "too few samples for a 99th percentile"
    if slash:
        shown = units.duration(found.value) if kind == "s" else units.joules(found.value)
        return f"{shown}/{per}"
    money = units.significant(found.value) if found.value >= 1e-3 else units.figure(found.value)
    return f"{money} {found.unit}"
