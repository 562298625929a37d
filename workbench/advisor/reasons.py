"""The reasons of a verdict: the outcome, its causes, and what the answer leaves out.

At most three, each one or a few whole sentences.
"""

import math
from collections.abc import Iterator, Sequence

from ..catalog.files import UNLISTED
from ..contract import kind_of
from ..planning.scenario import Scenario
from ..records.verdict import LIKELY
from ..report.candidate import BY_FIRST_BLOCK, Candidate
from ..stats.objectives import UNTIMED
from ..stats.paired import Ratio
from ..stats.ratios import TOLERANCE, is_tie
from ..text import units
from .comparison import BELOW, COMPARED, Comparison, better, worse
from .evidence import Evidence, was_far_behind
from .limits import beyond_limits, error_limit, exceeding, uncounted
from .ranking import VARY, is_vague

NAMES = {"cpu": "the CPU", "gpu": "the GPU"}
OTHER = {"cpu": "gpu", "gpu": "cpu"}
MOST = 3  # reasons of a verdict
MOST_NAMED = 2  # candidates named for one reason, and reasons named
NOTABLE_COPY = 1.0  # steps: a copy that takes longer is mentioned


def reasons(evidence: Evidence, causes: Sequence[str]) -> list[str]:
    """The outcome, then as many `causes` as there is room for, then what the answer leaves out."""
    left_out = " ".join([*_not_picked(evidence), *_copying(evidence)])
    room = MOST - 1 - bool(left_out)
    outcome = list(_outcome(evidence))
    if (best := evidence.chosen_by_median or evidence.ahead_by_median) is not None:
        (factor, ci), other = best.parts, best.other.name
        outcome.append(f"The median decides: that of {other} is {factor} as long (95% CI {ci}).")
    return [" ".join(outcome), *causes[:room], *([left_out] if left_out else [])]


def _outcome(evidence: Evidence) -> Iterator[str]:
    if evidence.pick is None and evidence.eligible:
        yield f"Nothing to compare: the {_counted(evidence)} of every candidate is unknown."
    elif evidence.absence is not None and "cpu" in evidence.kinds:
        yield from _without_gpu(evidence)
    elif evidence.device_ratio is None and evidence.choice in NAMES:
        yield f"Only {NAMES[evidence.choice]} meets the limits."
        yield f"Not eligible: {units.listed(why_lost(evidence.lost, evidence))}."
        if evidence.lead is not None:
            yield from _lead(evidence.lead)
        yield from _weak_evidence(evidence)
    elif evidence.device_ratio is None:
        yield from _incomparable(evidence)
    elif evidence.choice in NAMES:
        yield from _decided(evidence, evidence.device_ratio)
    else:
        yield from _undecided(evidence, evidence.device_ratio)


def _without_gpu(evidence: Evidence) -> Iterator[str]:
    absence = evidence.absence
    if absence is not None and not evidence.is_without_gpu:
        yield units.as_sentence(absence.message)
    if evidence.lead is not None:
        yield from _lead(evidence.lead)
    elif evidence.pick is not None:
        name = evidence.pick.name
        measured = [c for c in evidence.by_id if c.blocks]
        if len(evidence.for_the_pick) > 1 and len(measured) == 1:
            yield f"{name} is the only candidate that was measured."
        elif len(evidence.eligible) > 1:
            yield f"{name} is the only candidate whose {_counted(evidence)} is known."
        else:
            yield f"{name} is the only candidate that could be picked."
    if evidence.is_without_gpu:
        yield "No GPU found."
    yield from _weak_evidence(evidence)


def _lead(lead: Comparison) -> Iterator[str]:
    """The pick against the runner-up."""
    if was_far_behind(lead):
        behind = f"{units.ratio(lead.estimate)} {worse(lead.one.objective)}"
        yield f"{lead.one.name} leads."
        turns = "its first turn" if len(lead.other.blocks) == 1 else "two turns"
        yield f"{lead.other.name} was eliminated after {turns} ({behind})."
    elif is_vague(lead.one, lead.other):
        names = units.listed([each.name for each in (lead.one, lead.other)])
        yield f"The times of {names} {VARY}."
    else:
        yield lead.sentence()


def _incomparable(evidence: Evidence) -> Iterator[str]:
    """The outcome without a ratio of CPU to GPU, although there may be a GPU."""
    if evidence.best_cpu is not None and evidence.best_gpu is not None:
        yield "Undecided: too few rounds to compare CPU and GPU."
        return
    if len(evidence.kinds) == 2:
        where = NAMES["cpu" if evidence.best_cpu is None else "gpu"]
        what = _counted(evidence)
        yield f"Nothing to compare: the {what} of every candidate on {where} is unknown."
        return
    missing = [c for c in evidence.by_id if c.case.device_kind not in evidence.kinds]
    could_be = "was measured"
    if any(c.blocks for c in missing):
        could_be, missing = "could be picked", evidence.lost
    nothing, why = "Nothing", "the run did not get that far"
    if evidence.kinds:
        nothing = f"Nothing on {NAMES[OTHER[next(iter(evidence.kinds))]]}"
        why = "no candidate runs there"
        if evidence.scenario.objective in UNTIMED:
            why = f"only the {evidence.scenario.objective} of candidates on the CPU is compared"
    first, *others = why_lost(missing, evidence) or [why]
    yield f"{nothing} {could_be}: {first}."
    if others:
        yield f"Others: {units.listed(others)}."
    # The other device was not requested; a model and own code have sentences of their own.
    is_listed = evidence.row.plan.workload not in UNLISTED
    if is_listed and not missing and evidence.lead is not None:
        yield from _lead(evidence.lead)
        yield from _weak_evidence(evidence)


def _undecided(evidence: Evidence, ratio: Ratio) -> Iterator[str]:
    """The outcome where both devices were measured and neither is better beyond doubt."""
    other = kind_of(evidence.best_gpu.case.device).word if evidence.best_gpu else "GPU"
    slower, faster = ("CPU", other) if ratio.value >= 1 else (other, "CPU")
    factor, ci = units.ratio_parts(*units.above_1(ratio.value, ratio.interval))
    relation = f"the {slower}'s {_counted(evidence)} is {factor} the {faster}'s (95% CI {ci})"
    decisive = evidence.decisive_ratio or ratio
    is_open = decisive.low <= 1 <= decisive.high
    lead = f"The {faster} leads by {BELOW}" if is_tie(ratio) else f"The {faster} leads"
    close = "Too close to call" if is_open else lead
    if is_open and evidence.confidence == LIKELY:
        close = f"The {faster} probably leads"
    vague = is_vague(evidence.best_cpu, evidence.best_gpu) or units.says_nothing(ratio.interval)
    relation = f"the times of both {VARY}" if vague else relation
    yield f"{close if evidence.choice == 'either' else 'Undecided'}: {relation}."
    if not vague and is_open and not ratio.low <= 1 <= ratio.high:
        decisive = decisive if slower == "CPU" else decisive.inverse()
        _, wider = units.ratio_parts(decisive.value, decisive.interval)
        if wider != ci:
            yield f"Adjusted for repeated looks, the interval is {wider} and includes 1."
    if evidence.choice == "either":
        yield from _weak_evidence(evidence)


def _decided(evidence: Evidence, ratio: Ratio) -> Iterator[str]:
    """The outcome where one device is better, or seems to be."""
    faster = ratio if evidence.choice == "gpu" else ratio.inverse()
    factor, ci = units.lead_parts(faster.value, faster.interval)
    verb = "looks" if evidence.doubts or evidence.ahead_by_median is not None else "is"
    winner, loser = f"The {evidence.choice.upper()}", NAMES[OTHER[evidence.choice]]
    if evidence.best_gpu is not None:
        kind = kind_of(evidence.best_gpu.case.device)
        if kind.simulated:
            winner = winner.replace("GPU", "simulated GPU")
            loser = loser.replace("the GPU", "a simulated GPU")
        winner, loser = winner.replace("GPU", kind.word), loser.replace("GPU", kind.word)
    words = better(evidence.scenario.objective)
    if is_vague(evidence.best_cpu, evidence.best_gpu) or units.says_nothing(faster.interval):
        yield f"{winner} {verb} {words} than {loser}, but their times {VARY}."
    else:
        yield f"{winner} {verb} {factor} {words} than {loser} ({ci})."
    usual = evidence.row.plan.textbook
    if usual in NAMES and usual != evidence.choice:
        is_simulated = any(candidate.simulated for candidate in evidence.row.candidates)
        if faster.low > 1 + TOLERANCE and not evidence.doubts and not is_simulated:
            yield f"This contradicts the usual advice ({usual.upper()})."
        else:
            yield f"Usual advice: {usual.upper()}; this run cannot confirm or refute it."
    if evidence.lead is not None and evidence.lead.other.case.device_kind == evidence.choice:
        yield from _lead(evidence.lead)
    yield from _weak_evidence(evidence)


def _counted(evidence: Evidence) -> str:
    return COMPARED[evidence.scenario.objective]


def _weak_evidence(evidence: Evidence) -> Iterator[str]:
    if not evidence.doubts:
        return
    (about, why), *others = evidence.doubts
    subject = f" for {about}" if about is not None else ""
    more = f", and {units.counted(len(others), 'more reason')}" if others else ""
    yield f"Weak evidence{subject}: {why}{more}."


def _not_picked(evidence: Evidence) -> Iterator[str]:
    """The candidates that might have been picked, and why they could not be."""
    if not evidence.eligible:
        return  # the outcome says it all
    groups = [(why, names) for why, names in excluded(evidence).items()]
    named = [f"{units.listed(names, MOST_NAMED)} ({why})" for why, names in groups[:MOST_NAMED]]
    if named:
        yield f"Not picked: {'; '.join(named)}."
    if more := sum(len(names) for _, names in groups[MOST_NAMED:]):
        yield f"{more} more could not be picked."


def _copying(evidence: Evidence) -> Iterator[str]:
    """The copies to and from a GPU, where only steps are compared."""
    gpu = evidence.best_gpu
    if gpu is None or evidence.scenario.objective == "time_to_result":
        return
    if gpu.work.transfers == "step":
        return  # every step includes them
    copy_s = (gpu.setup.transfer_s or 0.0) + (gpu.setup.transfer_out_s or 0.0)
    steps = copy_s / gpu.median_s
    if steps > NOTABLE_COPY:
        device, count = gpu.case.device, units.significant(steps)
        yield f"Copying to {device} and back once takes {units.duration(copy_s)} ({count} steps)."
        yield "The comparison does not count it."


def excluded(evidence: Evidence) -> dict[str, list[str]]:
    """Names of candidates that could not be picked, on devices where others could, by reason:
    `{"error 5.0%, limit 1.0%": ["cpu torch bf16 t8"]}`."""
    by_reason: dict[str, list[str]] = {}
    here = [c for c in evidence.for_the_pick if c.case.device_kind in evidence.kinds]
    working = [c for c in here if c.state != "failed" and c not in evidence.over_limit]
    phrases = [(c, _error(c, evidence.scenario)) for c in here if c in evidence.over_limit]
    phrases += [(c, beyond_limits(c, evidence.scenario) or uncounted(c) or "") for c in working]
    for state in ("failed", "skipped"):
        phrases += [
            (c, f"{state}: {c.reason.message.rstrip('.')}")
            for c in here
            if c.state == state and c.reason is not None and c.reason.code not in BY_FIRST_BLOCK
        ]
    for candidate, why in phrases:
        if why:
            by_reason.setdefault(why, []).append(candidate.name)
    return by_reason


def why_lost(lost: Sequence[Candidate], evidence: Evidence) -> list[str]:
    """Why none of these could be picked: at most three phrases, one for each kind of reason."""
    phrases = []
    over = [c for c in lost if c in evidence.over_limit]
    if over:
        best = min(over, key=lambda c: (c.accuracy.worst if c.accuracy else 0.0, c.case.id))
        which = f"the most accurate of {len(over)}, " if len(over) > 1 else ""
        phrases.append(f"{best.name} ({which}{_error(best, evidence.scenario)})")
    others = [c for c in lost if c not in over]
    by_why: dict[str, list[Candidate]] = {}
    for candidate in sorted(others, key=lambda c: (c.value or math.inf, c.case.id)):
        by_why.setdefault(_why(candidate, evidence.scenario), []).append(candidate)
    for why, (first, *more) in list(by_why.items())[:2]:
        if more:
            phrases.append(f"{why} ({1 + len(more)} candidates)")
        elif over or len(by_why) > 1 or first.blocks:
            phrases.append(f"{first.name} ({why})")
        else:
            phrases.append(why)
    if rest := sum(map(len, list(by_why.values())[2:])):
        phrases.append(units.counted(rest, "more candidate"))
    return phrases


def _why(candidate: Candidate, scenario: Scenario) -> str:
    """Why it cannot be picked: the limit that it exceeds, or its own reason."""
    exceeded = None if candidate.state == "failed" else beyond_limits(candidate, scenario)
    if exceeded is not None:
        return exceeded
    own = candidate.reason.message.rstrip(".") if candidate.reason else None
    return uncounted(candidate) or own or "the run did not get that far"


def _error(candidate: Candidate, scenario: Scenario) -> str:
    """`error 5.0%, limit 1.0%`."""
    accuracy = candidate.accuracy
    assert accuracy is not None  # only a checked candidate can exceed the limit
    noun = "disagreement" if accuracy.metric == "disagreement" else "error"
    limit = units.share(error_limit(candidate, scenario) or 0.0)
    shown, bound = units.share(accuracy.value), accuracy.error_bound
    if bound is not None:
        return f"{noun} {shown}, up to {units.share(bound)} on unseen inputs, limit {limit}"
    return exceeding(noun, shown, limit)
