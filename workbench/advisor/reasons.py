"""The reasons of a verdict: what came out, why, and what the answer leaves out.

At most three, each one or a few whole sentences.  The same report gives the same words.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ..contract import kind_of
from ..planning.scenario import Scenario
from ..report.candidate import BY_FIRST_BLOCK, Candidate, candidate_name
from ..stats.ratios import TOLERANCE, is_tie
from ..stats.samples import Ratio
from ..text import units
from ..text.units import as_sentence
from .comparison import BELOW, COMPARED, Comparison, better, worse
from .evidence import Evidence, was_far_behind
from .limits import beyond_limits, error_limit, uncounted

NAMES = {"cpu": "the CPU", "gpu": "the GPU"}
OTHER = {"cpu": "gpu", "gpu": "cpu"}
MOST = 3  # reasons of a verdict
MOST_NAMED = 2  # candidates named for one reason, and reasons named
NOTABLE_COPY = 1.0  # steps: a copy that takes longer is mentioned


def reasons(found: Evidence, causes: Sequence[str]) -> list[str]:
    """The outcome, then as many `causes` as there is room for, then what the answer leaves out."""
    left_out = " ".join([*_not_picked(found), *_copying(found)])
    room = MOST - 1 - bool(left_out)
    outcome = " ".join([*_outcome(found), *_by_median(found)])
    return [outcome, *causes[:room], *([left_out] if left_out else [])]


# ------------------------------------------------------------------ outcome


def _outcome(found: Evidence) -> Iterator[str]:
    if found.pick is None and found.eligible:
        yield f"Nothing to compare: the {_counted(found)} of every candidate is unknown."
    elif found.absence is not None and "cpu" in found.kinds:
        yield from _without_gpu(found)
    elif found.device_ratio is None and found.choice in NAMES:
        yield from _only_within_limits(found)
    elif found.device_ratio is None:
        yield from _incomparable(found)
    elif found.choice in NAMES:
        yield from _decided(found, found.device_ratio)
    else:
        yield from _undecided(found, found.device_ratio)


def _without_gpu(found: Evidence) -> Iterator[str]:
    absence = found.absence
    if absence is not None and not found.is_without_gpu:
        yield as_sentence(absence.message)
    if found.lead is not None:
        yield from _lead(found.lead)
    elif found.pick is not None:
        name = candidate_name(found.pick.case)
        others = [c for c in found.for_the_pick if c is not found.pick]
        if others and not any(c.blocks for c in others):
            yield f"{name} is the only candidate that was measured."
        else:
            yield f"{name} is the only candidate that could be picked."
    if found.is_without_gpu:
        yield "No GPU found."
    yield from _weak_evidence(found)


def _lead(lead: Comparison) -> Iterator[str]:
    """The pick against the runner-up."""
    if lead.ratio is None and was_far_behind(lead.other) and lead.estimate is not None:
        behind = f"{units.ratio(lead.estimate)} {worse(lead.one.objective)}"
        yield f"{candidate_name(lead.one.case)} leads."
        turns = "its first turn" if len(lead.other.blocks) == 1 else "two turns"
        yield f"{candidate_name(lead.other.case)} was eliminated after {turns} ({behind})."
    else:
        yield lead.sentence()


def _only_within_limits(found: Evidence) -> Iterator[str]:
    """All candidates of the other device were measured, and none meets the limits."""
    yield f"Only {NAMES[found.choice]} meets the limits."
    yield f"Not eligible: {listed(why_lost(found.lost, found))}."
    if found.lead is not None:
        yield from _lead(found.lead)
    yield from _weak_evidence(found)


def _incomparable(found: Evidence) -> Iterator[str]:
    """There is no ratio of CPU to GPU, although there may be a GPU."""
    if len(found.kinds) == 2 and found.best_cpu is not None and found.best_gpu is not None:
        yield "Undecided: too few rounds to compare CPU and GPU."
        return
    if len(found.kinds) == 2:
        where = NAMES["cpu" if found.best_cpu is None else "gpu"]
        yield f"Nothing to compare: the {_counted(found)} of every candidate on {where} is unknown."
        return
    missing = [c for c in found.by_id if c.case.device_kind not in found.kinds]
    could_be = "was measured"
    if any(c.blocks for c in missing):
        could_be, missing = "could be picked", found.lost
    nothing = "Nothing"
    if found.kinds:
        nothing = f"Nothing on {NAMES[OTHER[next(iter(found.kinds))]]}"
    why = "no candidate runs there" if found.kinds else "the run did not get that far"
    first, *others = why_lost(missing, found) or [why]
    yield f"{nothing} {could_be}: {first}."
    if others:
        yield f"Others: {listed(others)}."


def _undecided(found: Evidence, ratio: Ratio) -> Iterator[str]:
    """Both devices were measured, and neither is the better one beyond doubt."""
    slower, faster = ("CPU", "GPU") if ratio.value >= 1 else ("GPU", "CPU")
    factor, ci = units.ratio_parts(*units.above_1(ratio.value, ratio.interval))
    relation = f"the {slower}'s {_counted(found)} is {factor} the {faster}'s (95% CI {ci})"
    decisive = found.decisive_ratio or ratio
    is_open = decisive.low <= 1 <= decisive.high
    lead = f"The {faster} leads by {BELOW}" if is_tie(ratio) else f"The {faster} leads"
    close = "Too close to call" if is_open else lead
    yield f"{close if found.choice == 'either' else 'Undecided'}: {relation}."
    if is_open and not ratio.low <= 1 <= ratio.high:
        decisive = decisive if slower == "CPU" else decisive.inverse()
        _, ci = units.ratio_parts(decisive.value, decisive.interval)
        yield f"The interval that decides is {ci}, adjusted for repeated looks."
    if found.choice == "either":
        yield from _weak_evidence(found)


def _decided(found: Evidence, ratio: Ratio) -> Iterator[str]:
    """One device is the better one, or looks so."""
    faster = ratio if found.choice == "gpu" else ratio.inverse()
    factor, ci = units.ratio_parts(faster.value, faster.interval)
    verb = "looks" if found.doubts else "is"
    winner, loser = f"The {found.choice.upper()}", NAMES[OTHER[found.choice]]
    if found.best_gpu is not None:
        kind = kind_of(found.best_gpu.case.device)
        if kind.simulated:
            winner = winner.replace("GPU", "simulated GPU")
            loser = loser.replace("the GPU", "a simulated GPU")
        winner, loser = winner.replace("GPU", kind.word), loser.replace("GPU", kind.word)
    yield f"{winner} {verb} {factor} {better(found.scenario.objective)} than {loser} (95% CI {ci})."
    if found.lead is not None and found.lead.other.case.device_kind == found.choice:
        yield from _lead(found.lead)
    usual = found.row.plan.textbook
    if usual in NAMES and usual != found.choice:
        is_simulated = any(candidate.simulated for candidate in found.row.candidates)
        if faster.low > 1 + TOLERANCE and not found.doubts and not is_simulated:
            yield f"This contradicts the usual advice ({usual.upper()})."
        else:
            yield f"Usual advice: {usual.upper()}; this run cannot confirm or refute it."
    yield from _weak_evidence(found)


def _by_median(found: Evidence) -> Iterator[str]:
    """Why the pick is not the candidate with the lowest 99th percentile."""
    if (best := found.best_median) is not None:
        (factor, ci), other = best.parts, candidate_name(best.other.case)
        yield f"The median decides: that of {other} is {factor} as long (95% CI {ci})."


def _counted(found: Evidence) -> str:
    return COMPARED[found.scenario.objective]


# ------------------------------------------------------------------- doubts


def _weak_evidence(found: Evidence) -> Iterator[str]:
    if not found.doubts:
        return
    (about, why), *others = found.doubts
    subject = f" for {about}" if about is not None else ""
    more = f", and {units.counted(len(others), 'more reason')}" if others else ""
    yield f"Weak evidence{subject}: {why}{more}."


# ------------------------------------------- what the answer leaves out


def _not_picked(found: Evidence) -> Iterator[str]:
    """The candidates that might have been picked, and why they could not be."""
    if not found.eligible:
        return  # the outcome says it all
    groups = [(why, names) for why, names in excluded(found).items()]
    named = [f"{listed(names, MOST_NAMED)} ({why})" for why, names in groups[:MOST_NAMED]]
    if named:
        yield f"Not picked: {'; '.join(named)}."
    if more := sum(len(names) for _, names in groups[MOST_NAMED:]):
        yield f"{more} more could not be picked."


def _copying(found: Evidence) -> Iterator[str]:
    """The copies to and from a GPU, where only steps are compared."""
    gpu = found.best_gpu
    if gpu is None or not gpu.blocks or found.scenario.objective == "time_to_result":
        return
    if gpu.work.transfers == "step":
        return  # every step includes them
    copy_s = (gpu.setup.transfer_s or 0.0) + (gpu.setup.transfer_out_s or 0.0)
    steps = copy_s / gpu.median_s
    if steps > NOTABLE_COPY:
        device, count = gpu.case.device, units.significant(steps)
        yield f"Copying to {device} and back once takes {units.duration(copy_s)} ({count} steps)."
        yield "The comparison does not count it."


# ------------------------------------------- why a candidate cannot be picked


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
    here = [c for c in found.for_the_pick if c.case.device_kind in found.kinds]
    working = [c for c in here if c.state != "failed" and c not in found.over_limit]
    phrases = [(c, _error(c, found.scenario)) for c in found.over_limit]
    phrases += [(c, beyond_limits(c, found.scenario) or uncounted(c) or "") for c in working]
    for state in ("failed", "skipped"):
        phrases += [
            (c, f"{state}: {c.reason.message.rstrip('.')}")
            for c in here
            if c.state == state and c.reason is not None and c.reason.code not in BY_FIRST_BLOCK
        ]
    for candidate, why in phrases:
        if why:
            by_reason.setdefault(why, []).append(candidate_name(candidate.case))
    return by_reason


def why_lost(lost: Sequence[Candidate], found: Evidence) -> list[str]:
    """Why none of these could be picked: at most three phrases, one for each kind of reason."""
    phrases = []
    over = [c for c in lost if c in found.over_limit]
    if over:
        best = min(over, key=lambda c: (c.accuracy.worst if c.accuracy else 0.0, c.case.id))
        which = f"the most accurate of {len(over)}, " if len(over) > 1 else ""
        phrases.append(f"{candidate_name(best.case)} ({which}{_error(best, found.scenario)})")
    others = sorted(
        (c for c in lost if c not in over), key=lambda c: (c.value or math.inf, c.case.id)
    )
    counts = Counter(_why(candidate, found.scenario) for candidate in others)
    for why, count in list(counts.items())[:2]:
        phrases.append(why if count == 1 else f"{why} ({count} candidates)")
    if more := sum(list(counts.values())[2:]):
        phrases.append(units.counted(more, "more candidate"))
    return phrases


def _why(candidate: Candidate, scenario: Scenario) -> str:
    """Why it cannot be picked: the limit that it exceeds, or its own reason."""
    exceeded = None if candidate.state == "failed" else beyond_limits(candidate, scenario)
    if exceeded is not None:
        return f"{candidate_name(candidate.case)} ({exceeded})"
    own = candidate.reason.message.rstrip(".") if candidate.reason else None
    return uncounted(candidate) or own or "the run did not get that far"


def _error(candidate: Candidate, scenario: Scenario) -> str:
    """`error 5.0%, limit 1.0%`."""
    accuracy = candidate.accuracy
    assert accuracy is not None  # only a checked candidate can exceed the limit
    noun = "disagreement" if accuracy.metric == "disagreement" else "error"
    limit = units.share(error_limit(candidate, scenario) or 0.0)
    bound = accuracy.error_bound
    unseen = "" if bound is None else f", up to {units.share(bound)} on unseen inputs"
    return f"{noun} {units.share(accuracy.value)}{unseen}, limit {limit}"
