"""Why the pick won and the other lost, as far as the report shows what limits each."""

from collections.abc import Iterator
from dataclasses import replace

from ..contract import REDUCED, WAITING_FRACTION
from ..machine.host.isa import having, lacking
from ..planning.cases import one_thread_per_core
from ..records.document import Clocks, Roofline
from ..report.candidate import Candidate
from ..report.measurements import clocks_of, under_ceilings
from ..text import units
from .comparison import TIMED, better
from .evidence import Evidence
from .ranking import gain_over

LAUNCH_BOUND = 0.8  # share of the device's time per step that the host spends on queueing
LOADING_LIMITS_FROM = 0.25  # share of an epoch without a batch
NEAR_LIMIT = 0.5  # fraction of a ceiling from which that ceiling is the limit
FAR_FROM_LIMIT = 0.1  # fraction of a ceiling up to which something else is the limit
ROOFS = {"memory": "memory bandwidth", "cache": "cache bandwidth", "compute": "arithmetic"}


def causes(evidence: Evidence) -> list[str]:
    """Sentences that each state a fact and its consequence, the most telling first."""
    if (pick := evidence.pick) is None:
        return []
    looks = (_start_up, _waiting, _launches, _roofs, _memory, _precision, _threads)
    return [sentence for look in looks for sentence in look(evidence, pick)]


def _start_up(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    if evidence.scenario.objective != "time_to_result":
        return
    (share, spent), rival = _start_up_share(pick), evidence.rival
    text = f"{share} of the time to result of {pick.name} is start-up and set-up ({spent})."
    if rival is not None and rival.case.device_kind != pick.case.device_kind:
        share, spent = _start_up_share(rival)
        text = f"{text} For {rival.name} it is {share} ({spent})."
    yield text


def _start_up_share(candidate: Candidate) -> tuple[str, str]:
    """One-time costs as text: their share of the time to result, and their duration."""
    fixed_s = candidate.fixed_s
    share = fixed_s / (fixed_s + candidate.median_s)
    return f"{share:.0%}", units.duration(fixed_s)


def _waiting(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    waiting = waiting_fraction(evidence)
    if waiting is not None:
        yield f"{pick.name} waits for data {waiting:.0%} of the time: loading is the limit."


def waiting_fraction(evidence: Evidence) -> float | None:
    """The share of time that the pick waits for data, where that limits it."""
    known = evidence.pick.metrics if evidence.pick is not None else {}
    waiting = known.get(WAITING_FRACTION, 0.0)
    return waiting if waiting >= LOADING_LIMITS_FROM else None


def _launches(evidence: Evidence, _: Candidate) -> Iterator[str]:
    clocks = launch_bound(evidence)
    if clocks is not None and evidence.best_gpu is not None:
        name, issue = evidence.best_gpu.name, units.duration(clocks.issue_s)
        step = units.duration(clocks.device_s)
        yield f"Launches limit {name}: the host needs {issue} to queue a step of {step}."


def launch_bound(evidence: Evidence) -> Clocks | None:
    """The clocks of the best GPU candidate if the host queues work about as slowly as the GPU does
    it.  None also if steps wait for the GPU, since that hides the time spent on queueing."""
    clocks = evidence.best_gpu and clocks_of(evidence.best_gpu)
    if not clocks or clocks.issue_s is None or clocks.issue_s < LAUNCH_BOUND * clocks.device_s:
        return None
    return clocks


def roof_of(evidence: Evidence, candidate: Candidate) -> Roofline | None:
    return under_ceilings(candidate, evidence.report.ceilings)[1]


def _roofs(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    """The limit of the pick, and that of a rival on another device."""
    candidates, rival = [pick], evidence.rival
    if rival is not None and rival.case.device != pick.case.device:
        candidates.append(rival)
    if sentences := list(filter(None, (_roof(evidence, c) for c in candidates))):
        yield " ".join(sentences)


def _roof(evidence: Evidence, candidate: Candidate) -> str | None:
    roof = roof_of(evidence, candidate)
    if roof is None or FAR_FROM_LIMIT < roof.fraction < NEAR_LIMIT:
        return None  # between the two bounds nothing can be said
    name, limit = candidate.name, ROOFS[roof.limited_by]
    reached = units.percent(roof.fraction)
    if roof.fraction >= NEAR_LIMIT:
        return f"{limit.capitalize()} limits {name}, which reaches {reached} of that ceiling."
    if _has_spare_cores(evidence, candidate):
        return None  # the ceilings are those of all cores
    return f"{name} reaches only {reached} of the {limit} ceiling: something else holds it back."


def _has_spare_cores(evidence: Evidence, candidate: Candidate) -> bool:
    machine, threads = evidence.report.machine, candidate.case.threads
    if machine is None or threads is None:
        return False
    return threads < (one_thread_per_core(machine.cpu) or machine.cpu.effective_cores)


def _precision(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    """The pick against itself in another precision, and the CPU's instructions for that."""
    is_reduced = pick.case.precision in REDUCED
    others = ("fp32",) if is_reduced else REDUCED
    for other in evidence.by_id:
        is_like = other.case.but_precision() == pick.case.but_precision()
        if not is_like or other.case.precision not in others or other.state == "failed":
            continue
        if gain := _gain(pick, other, _name(pick), f"{_name(other)}, all else equal"):
            reduced = pick if is_reduced else other
            yield " ".join([gain, *_instructions(evidence, reduced, wins=is_reduced)])
        elif not is_reduced and other.reason and other.reason.code == "slower_precision":
            yield units.as_sentence(other.reason.message)


def _gain(pick: Candidate, other: Candidate, name: str, than: str) -> str | None:
    """The lead of the pick; None where it is in doubt, medians contradict it, or it is no time."""
    gained = gain_over(other, pick) if pick.objective in TIMED else None
    if gained is None or gained.ratio is None or gained.ratio.low <= 1 or gained.least is not None:
        return None
    factor, ci = units.ratio_parts(gained.factor, gained.ratio.interval)
    return f"{name} is {factor} {better(pick.objective)} than {than} (95% CI {ci})."


def _instructions(evidence: Evidence, reduced: Candidate, *, wins: bool) -> Iterator[str]:
    """The instruction set that the CPU has or lacks for a reduced precision, where it is known."""
    machine, case = evidence.report.machine, reduced.case
    if machine is None or case.device_kind != "cpu":
        return
    if names := having(case.precision, machine.cpu):
        has = f"the CPU has {names}."
        yield units.as_sentence(has) if wins else f"{_name(reduced)} loses although {has}"
    elif names := lacking(case.precision, machine.cpu):
        lacks = f"the CPU has no {names}."
        yield f"{_name(reduced)} wins although {lacks}" if wins else units.as_sentence(lacks)


def _name(candidate: Candidate) -> str:
    """`BF16`, `INT8 static`."""
    case = candidate.case
    return " ".join(filter(None, [case.precision.upper(), case.quantization]))


def _memory(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    """The pick against itself in a process that does not keep freed memory."""
    usual = pick.case.without("keep")
    for other in evidence.by_id:
        if other is not pick and other.case == usual:
            than = "without keep, where each step faults memory in again"
            if gain := _gain(pick, other, pick.name, than):
                yield gain


def _threads(evidence: Evidence, pick: Candidate) -> Iterator[str]:
    """The pick against the same candidate with more threads."""
    if pick.case.threads is None:
        return
    for other in sorted(evidence.row.candidates, key=lambda candidate: candidate.case.threads or 0):
        threads = other.case.threads or 0
        if threads > pick.case.threads and other.case == replace(pick.case, threads=threads):
            than = f"with {threads} threads"
            if gain := _gain(pick, other, pick.name, than):
                yield gain
                return
