"""The next thing to try, in a sentence or two; never one that this report has tried already."""

import shlex
from collections.abc import Iterator, Set

from ..catalog.files import UNLISTED
from ..contract import COLUMNS, MOST_BATCH, REDUCED
from ..records.reason import NOISE
from ..records.verdict import OPEN
from ..report.candidate import Candidate
from ..stats import ratios
from ..text import units
from .causes import NEAR_LIMIT, launch_bound, roof_of, waiting_fraction
from .comparison import Comparison, better, quantity
from .evidence import Evidence

LARGEST_BATCH = 256
BATCHES = 16  # least factor between the raced batch and the largest one advised
LESS_ERROR = 0.1  # share of the pick's error up to which a slower candidate is worth naming
LEAST_BUDGET_S = 10.0


def next_best(evidence: Evidence) -> str:
    """The first piece of advice that the report gives reason for; empty where none does."""
    return next(map(units.as_sentence, _advice(evidence)), "")


def _advice(evidence: Evidence) -> Iterator[str]:
    command = evidence.row.plan.reproduce
    if evidence.row.is_cut_short:
        yield f"Let the run finish: `{command}`"
    if evidence.absence is not None and evidence.absence.hint:
        yield evidence.absence.hint
    elif (evidence.absence is None and len(evidence.kinds) < 2) or not evidence.eligible:
        yield from _for_a_missing_device(evidence)
    yield from _for_firmer_evidence(evidence)
    yield from _for_the_gpu(evidence)
    yield from _for_precision(evidence)
    if waiting_fraction(evidence) is not None:
        yield "Make loading cheaper (smaller or decoded files) or use more cores"
    size = evidence.scenario.size
    if size is not None and len(evidence.eligible) > 1 and "--crossover" not in command.split():
        yield f"See at which {size.name} the lead changes: `{command} --crossover`"


def _for_a_missing_device(evidence: Evidence) -> Iterator[str]:
    """Advice for a device that has no candidate to pick."""
    reasons = [c.reason for c in evidence.lost if c.reason is not None]
    if any(reason.is_late or reason.code == "timeout" for reason in reasons):
        yield _raise_budget(evidence)
    if errors := [
        c.accuracy.worst for c in evidence.over_limit if c in evidence.lost and c.accuracy
    ]:
        raise_it = f"If an error of {units.share(min(errors))} is acceptable, raise the error limit"
        yield f"{raise_it}. Otherwise choose a more accurate precision"
    yield from (reason.hint for reason in reasons if reason.hint)


def _for_firmer_evidence(evidence: Evidence) -> Iterator[str]:
    codes = {warning.code for warning in evidence.warnings}
    if codes & set(NOISE):
        if _needs_more_time(evidence, codes):
            yield _raise_budget(evidence)
        yield f"Run it again on a quiet machine: `{evidence.row.plan.reproduce}`"
    of_row = (w for w in evidence.warnings if w.subject == evidence.row.plan.scenario)
    yield from (w.remedy for w in of_row if w.code not in (*NOISE, "unmeasured"))
    yield from (w.remedy for w in evidence.warnings if w.code == "oversubscribed")
    if _needs_more_time(evidence, codes):
        yield _raise_budget(evidence)


def _needs_more_time(evidence: Evidence, codes: Set[str]) -> bool:
    """Whether more rounds, or the turns that did not fit, might change the answer."""
    if "unmeasured" in codes:
        return True
    if evidence.row.ended_by == "rounds":
        return False  # more time would add none
    lead, device = evidence.lead, evidence.device_ratio
    # More rounds do not narrow an interval that start-up times spread.
    is_spread = lead is not None and lead.ratio is not None and ratios.is_exhausted(lead.ratio)
    if device is None:
        is_unsettled = len(evidence.kinds) == 2
    else:
        is_open = evidence.choice not in COLUMNS and evidence.confidence == OPEN
        is_unsettled = is_open and not ratios.is_exhausted(device)
    if is_unsettled or ("pick_unsettled" in codes and not is_spread):
        return True
    # Uncertain medians do not matter where the interval of the lead is above 1.
    is_ahead = lead is not None and lead.is_proven
    return bool(codes & {"few_samples", "unstable"}) and not (is_ahead or is_spread)


def _raise_budget(evidence: Evidence) -> str:
    is_noisy = any(warning.code in NOISE for warning in evidence.warnings)
    quietly = "Run it again on a quiet machine and with a larger budget"
    return f"{quietly if is_noisy else 'Raise the budget'}: `{_longer(evidence)}`"


def _longer(evidence: Evidence) -> str:
    """The command of the row with a larger budget, which is also enough to start the workers."""
    words = shlex.split(evidence.row.plan.reproduce)
    # The arguments of a user's script follow `--`.
    end = words.index("--") if "--" in words else len(words)
    words, of_script = words[:end], words[end:]
    if "--budget" in words:
        at = words.index("--budget")
        del words[at : at + 2]
    budget_s = max(LEAST_BUDGET_S, evidence.larger_budget_s)
    return shlex.join([*words, "--budget", f"{budget_s:g}", *of_script])


def _for_the_gpu(evidence: Evidence) -> Iterator[str]:
    gpu = evidence.best_gpu
    if gpu is None or gpu.case.batch is None or evidence.row.plan.workload in UNLISTED:
        return  # `workbench run` knows neither the user's model nor code
    low = gpu.case.batch
    high = min(max(LARGEST_BATCH, BATCHES * low), MOST_BATCH)
    if low < high and launch_bound(evidence) is not None:
        sizes = [w for name, value in gpu.case.params.items() for w in ("--set", f"{name}={value}")]
        words = ["workbench", "run", gpu.case.workload, *sizes, "--batch", f"{low}..{high}"]
        command = shlex.join([*words, "--device", "gpu"])
        yield f"Launches limit the GPU. Try larger batches: `{command}`"


def _for_precision(evidence: Evidence) -> Iterator[str]:
    pick = evidence.pick
    if pick is None:
        return
    for other in evidence.over_limit:
        gain, faster = Comparison.of(other, pick).estimate or 0.0, better(pick.objective)
        if pick.objective == "latency_p99":  # one block says little about its tail
            gain, faster = ratios.relative(pick.step_rounds(), other.step_rounds()), "faster"
        if gain > 1 + ratios.TOLERANCE and other.accuracy is not None:
            leads = f"{other.name} is about {units.ratio(gain)} {faster}"
            error = units.share(other.accuracy.worst)
            yield f"{leads}. Raise the error limit only if an error of {error} is acceptable"
    roof = roof_of(evidence, pick)
    is_limited = roof is not None and roof.limited_by == "memory" and roof.fraction >= NEAR_LIMIT
    has_reduced = any(c.case.precision in REDUCED for c in evidence.row.candidates)
    if is_limited and pick.case.precision == "fp32" and not has_reduced:
        limits = f"Memory bandwidth limits {pick.name}"
        yield f"{limits}. Try a precision with fewer bytes, such as bf16 or int8"
    yield from _for_accuracy(pick, evidence)


def _for_accuracy(pick: Candidate, evidence: Evidence) -> Iterator[str]:
    """The fastest candidate that is far more accurate than the pick, and what it costs."""
    accuracy = pick.accuracy
    if accuracy is None or accuracy.metric != "relative_error" or not accuracy.value:
        return
    for other in evidence.ranked:
        error, comparison = other.accuracy, Comparison.of(pick, other)
        if error is None or error.metric != accuracy.metric or comparison.ratio is None:
            continue
        if error.value <= LESS_ERROR * accuracy.value:
            factor, ci = comparison.parts
            name, own = other.name, units.share(accuracy.value)
            takes = f"takes {factor} the {quantity(pick.objective)} (95% CI {ci})"
            text = f"{name} is accurate to {units.figure(error.value)} and {takes}"
            yield f"{text}. Prefer it if an error of {own} is too much"
            return
