"""What to try next, in one sentence: never what this report has tried already."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Set

from ..contract import REDUCED
from ..report.candidate import Candidate
from ..report.names import short
from ..stats import ratios
from ..stats.samples import Ratio
from ..text import units
from ..text.units import as_sentence, times
from .causes import NEAR_ROOF, launch_bound, roof_of, waiting_fraction
from .reasons import Evidence, better

LARGEST_BATCH = 256
BATCHES = 16  # times the batch that was raced, at the least
LESS_ERROR = 0.1  # of the pick's: worth more time to some
LEAST_BUDGET_S = 10.0
OUT_OF_TIME = ("budget", "no_time", "timeout")
TAKEN = {"memory": "peak memory", "energy": "energy", "cost": "money"}  # where not time
NOISE = ("busy_machine", "stolen_time")  # that a quieter hour is the remedy for


def next_best(found: Evidence) -> str:
    """The first piece of advice that the report gives reason for; empty where none does."""
    return next(map(as_sentence, _advice(found)), "")


def _advice(found: Evidence) -> Iterator[str]:
    command = found.row.plan.reproduce
    if not command:
        return  # nobody could say how to go on
    if found.cut_short:
        yield f"let it run to its end: `{command}`"
    if found.absent is not None and found.absent.hint:
        yield found.absent.hint
    elif (found.absent is None and len(found.kinds) < 2) or not found.eligible:
        yield from _for_who_is_missing(found)
    yield from _for_a_firmer_basis(found)
    yield from _for_the_gpu(found)
    yield from _for_precision(found)
    waiting = waiting_fraction(found)
    if waiting is not None:
        yield "make loading cheaper (smaller or decoded files) or give it more cores"
    size = found.scenario.size
    if size is not None and "--crossover" not in command.split():
        yield f"See at which {size.name} the lead changes: `{command} --crossover`"


def _for_who_is_missing(found: Evidence) -> Iterator[str]:
    """Of a device whose candidates could not be picked."""
    lost = [c for c in found.for_the_pick if c.case.device_kind not in found.kinds]
    lost.sort(key=lambda candidate: candidate.case.id)
    if any(c.reason is not None and c.reason.code in OUT_OF_TIME for c in lost):
        yield _larger_budget(found)
    if over := [c.accuracy.value for c in found.over_limit if c in lost and c.accuracy]:
        yield (
            f"if an error of {units.share(min(over))} is acceptable to the job, raise its limit; "
            "otherwise race a precision with a smaller error"
        )
    yield from (c.reason.hint for c in lost if c.reason is not None and c.reason.hint)


def _for_a_firmer_basis(found: Evidence) -> Iterator[str]:
    codes = {warning.code for warning in found.warnings}
    if codes & set(NOISE):
        quiet = "run it again when the machine is quiet"
        if _needs_more_time(found, codes):
            yield f"{quiet}, and give it more time: `{_longer(found)}`"
        yield f"{quiet}: `{found.row.plan.reproduce}`"
    of_row = (w for w in found.warnings if w.subject == found.row.plan.scenario)
    yield from (w.remedy for w in of_row if w.code not in (*NOISE, "unmeasured"))
    if "oversubscribed" in codes:
        yield from (w.remedy for w in found.warnings if w.code == "oversubscribed")
    if _needs_more_time(found, codes):
        yield _larger_budget(found)


def _needs_more_time(found: Evidence, codes: Set[str]) -> bool:
    """Whether more rounds, or the turns that did not fit, might change the answer."""
    # Where start-ups are what spreads a ratio, more rounds would not tell.
    device, lead = (
        ratio is not None and ratios.is_exhausted(ratio)
        for ratio in (found.ratio, found.pick_ratio)
    )
    if lead:
        codes = codes - {"pick_unsettled"}
    unsettled = found.choice == "unknown" and found.ratio is not None and not device
    few = len(found.kinds) == 2 and found.ratio is None
    if unsettled or few or codes & {"pick_unsettled", "unmeasured"}:
        return True
    # What is known loosely is ahead all the same where the lead's own interval says so.
    ahead = found.pick_ratio is not None and found.pick_ratio.low > 1
    return bool(codes & {"few_samples", "unstable"}) and not ahead


def _larger_budget(found: Evidence) -> str:
    return f"give it more time: `{_longer(found)}`"


def _longer(found: Evidence) -> str:
    """The command of the row with twice the budget of this run, and enough to start workers."""
    words = shlex.split(found.row.plan.reproduce)
    if "--budget" in words:
        at = words.index("--budget")
        del words[at : at + 2]
    budget_s = found.report.started.budget_s if found.report.started else 0.0
    return shlex.join([*words, "--budget", f"{max(LEAST_BUDGET_S, 2 * budget_s):g}"])


def _for_the_gpu(found: Evidence) -> Iterator[str]:
    gpu = found.best_gpu
    if gpu is None or gpu.case.batch is None or found.row.plan.workload == "model":
        return
    low = gpu.case.batch
    high = max(LARGEST_BATCH, BATCHES * low)
    if launch_bound(found) is not None:
        yield (
            f"launches limit the GPU, so give it more per launch: "
            f"`workbench run {gpu.case.workload} --batch {low}..{high} --device gpu`"
        )


def _for_precision(found: Evidence) -> Iterator[str]:
    pick = found.pick
    if pick is None:
        return
    for other in found.over_limit:
        gain = _times_of(pick, other)
        if gain > 1 + ratios.TOLERANCE and other.accuracy is not None:
            yield (
                f"{short(other.case)} is {gain:.2f}x {better(found.scenario)}: raise the error "
                f"limit only if {units.share(other.accuracy.value)} is acceptable to the job"
            )
    roof = roof_of(found, pick)
    limited = roof is not None and roof.limited_by == "memory" and roof.fraction >= NEAR_ROOF
    reduced = any(c.case.precision in REDUCED for c in found.row.candidates)
    if limited and pick.case.precision == "fp32" and not reduced:
        yield (
            f"memory bandwidth limits {short(pick.case)}: race precisions of fewer bytes, such as "
            "bf16 or int8"
        )
    yield from _for_accuracy(pick, found)


def _for_accuracy(pick: Candidate, found: Evidence) -> Iterator[str]:
    """The fastest that is far more accurate than the pick, and what it costs."""
    accuracy = pick.accuracy
    if accuracy is None or accuracy.metric != "relative_error" or not accuracy.value:
        return
    exact: list[tuple[Ratio, Candidate]] = []
    for other in found.eligible:
        ratio = ratios.ratio_between(other.rounds(), pick.rounds())
        found_error = other.accuracy
        if found_error is None or found_error.metric != accuracy.metric or ratio is None:
            continue
        if found_error.value <= LESS_ERROR * accuracy.value:
            exact.append((ratio, other))
    if exact:
        ratio, other = min(exact, key=lambda each: (each[0].value, each[1].case.id))
        error = units.figure(other.accuracy.value) if other.accuracy else ""
        factor = times(ratio.value, ratio.interval)
        yield (
            f"should {units.share(accuracy.value)} of error be too much, {short(other.case)} has "
            f"{error} and takes {factor} the {TAKEN.get(pick.objective, 'time')}"
        )


def _times_of(pick: Candidate, other: Candidate) -> float:
    """Time of the pick over the other's, from however few rounds."""
    mine, others = pick.rounds(), other.rounds()
    return ratios.relative(mine, others) if mine and others else 0.0
