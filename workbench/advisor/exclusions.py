"""Why candidates could not be picked, as short phrases that a sentence can list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..planning.scenario import Scenario
from ..report.candidate import BY_FIRST_BLOCK, Candidate
from ..report.names import candidate_name
from ..text import units
from .evidence import Evidence
from .limits import beyond_limits, error_limit, uncounted


def listed(phrases: Sequence[str], most: int | None = None) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most` of them `a, b and 4 more`."""
    if most is not None and len(phrases) > most:
        phrases = [*phrases[:most], f"{len(phrases) - most} more"]
    *others, last = phrases
    return f"{', '.join(others)} and {last}" if others else last


def excluded(found: Evidence) -> dict[str, list[str]]:
    """Names of candidates that could not be picked though their device has others, by the reason:
    `{"error 5.0%, limit 1.0%": ["cpu torch bf16 t8"]}`."""
    by_reason: dict[str, list[str]] = {}

    def exclude(candidate: Candidate, why: str) -> None:
        by_reason.setdefault(why, []).append(candidate_name(candidate.case))

    here = [c for c in found.for_the_pick if c.case.device_kind in found.kinds]
    for candidate in found.over_limit:
        exclude(candidate, _error(candidate, found.scenario))
    for candidate in here:
        why = beyond_limits(candidate, found.scenario) or uncounted(candidate)
        if why and candidate.state != "failed" and candidate not in found.over_limit:
            exclude(candidate, why)
    for state in ("failed", "skipped"):
        for candidate in (c for c in here if c.state == state):
            reason = candidate.reason
            if reason is not None and reason.code not in BY_FIRST_BLOCK:
                exclude(candidate, f"{state}: {reason.message.rstrip('.')}")
    return by_reason


def why_lost(lost: Sequence[Candidate], found: Evidence) -> list[str]:
    """Why none of these could be picked: at most three phrases, one for each kind of reason."""
    phrases = []
    over = sorted((c for c in lost if c in found.over_limit), key=_by_error)
    if over:
        name, error = candidate_name(over[0].case), _error(over[0], found.scenario)
        which = f"the most accurate of {len(over)}" if len(over) > 1 else ""
        phrases.append(f"{name} ({', '.join(filter(None, [which, error]))})")
    others = sorted((c for c in lost if c not in found.over_limit), key=lambda c: c.case.id)
    counts = Counter(_why(candidate, found.scenario) for candidate in others)
    for why, count in list(counts.items())[:2]:
        phrases.append(why if count == 1 else f"{why} ({count} candidates)")
    if more := sum(list(counts.values())[2:]):
        phrases.append(f"{more} more candidate{'s'[: more > 1]}")
    return phrases


def _why(candidate: Candidate, scenario: Scenario) -> str:
    """Why it cannot be picked: the limit that it exceeds, or its own reason."""
    exceeded = None if candidate.state == "failed" else beyond_limits(candidate, scenario)
    if exceeded is not None:
        return f"{candidate_name(candidate.case)} ({exceeded})"
    if (why := uncounted(candidate)) is not None:
        return why
    if candidate.reason is not None:
        return candidate.reason.message.rstrip(".")
    return "the run did not get that far" if not candidate.blocks else "it exceeds a limit"


def _error(candidate: Candidate, scenario: Scenario) -> str:
    """`error 5.0%, limit 1.0%`."""
    accuracy = candidate.accuracy
    assert accuracy is not None  # noqa: S101 - only a checked candidate can exceed the limit
    noun = "disagreement" if accuracy.metric == "disagreement" else "error"
    limit = units.share(error_limit(candidate, scenario) or 0.0)
    bound = accuracy.error_bound
    unseen = "" if bound is None else f", up to {units.share(bound)} on unseen inputs"
    return f"{noun} {units.share(accuracy.value)}{unseen}, limit {limit}"


def _by_error(candidate: Candidate) -> tuple[float, str]:
    return candidate.accuracy.worst if candidate.accuracy else 0.0, candidate.case.id
