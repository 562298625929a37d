"""Why the pick won and the other lost, as far as the report shows what limits each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..contract import REDUCED
from ..machine.host.isa import having, lacking
from ..records.document import Clocks, Roofline
from ..report.candidate import Candidate
from ..report.names import candidate_name
from ..stats.samples import median
from ..text import units
from ..text.units import as_sentence
from .comparison import Comparison, better
from .evidence import Evidence

LAUNCH_BOUND = 0.8  # share of the device's time per step that the host spends on queueing
WAITING = 0.25  # share of an epoch without a batch, from which loading is the limit
NEAR_LIMIT = 0.5  # share of a roof from which it is what limits
FAR_FROM_LIMIT = 0.1  # share of a roof up to which it is not
ROOFS = {"memory": "memory bandwidth", "cache": "cache bandwidth", "compute": "arithmetic"}


def causes(found: Evidence) -> list[str]:
    """Each a fact of the report and what follows from it, the most telling first."""
    if found.pick is None:
        return []
    return [
        *_start_up(found, found.pick),
        *_waiting(found, found.pick),
        *_launches(found),
        *_roofs(found, found.pick),
        *_precision(found, found.pick),
        *_threads(found, found.pick),
    ]


def _start_up(found: Evidence, pick: Candidate) -> Iterator[str]:
    if found.scenario.objective != "time_to_result":
        return
    share, spent = _start_up_share(pick)
    name = candidate_name(pick.case)
    text = f"{share} of the time to result of {name} is start-up and set-up ({spent})."
    rival = found.rival
    if rival is not None and rival.case.device_kind != pick.case.device_kind:
        share, spent = _start_up_share(rival)
        text = f"{text} For {candidate_name(rival.case)} it is {share} ({spent})."
    yield text


def _start_up_share(candidate: Candidate) -> tuple[str, str]:
    """The share of its time to result that comes once, and that time."""
    fixed_s = candidate.fixed_s
    share = fixed_s / (fixed_s + median(candidate.ordered_s))
    return f"{share:.0%}", units.duration(fixed_s)


def _waiting(found: Evidence, pick: Candidate) -> Iterator[str]:
    waiting = waiting_fraction(found)
    if waiting is not None:
        name = candidate_name(pick.case)
        yield f"{name} waits for data {waiting:.0%} of the time: loading is the limit."


def waiting_fraction(found: Evidence) -> float | None:
    """The share of time that the pick waits for data, where that limits it."""
    if found.pick is None:
        return None
    waiting = found.report.statistics(found.pick).metrics.get("waiting_fraction")
    return waiting if waiting is not None and waiting >= WAITING else None


def _launches(found: Evidence) -> Iterator[str]:
    clocks = launch_bound(found)
    if clocks is not None and found.best_gpu is not None:
        name = candidate_name(found.best_gpu.case)
        issue, device = units.duration(clocks.issue_s), units.duration(clocks.device_s)
        yield f"Launches limit {name}: the host needs {issue} to queue a step of {device}."


def launch_bound(found: Evidence) -> Clocks | None:
    """The clocks of the best GPU candidate where the host queues no faster than the GPU works.

    None also where its steps wait, since that hides what queueing takes.
    """
    if found.best_gpu is None:
        return None
    clocks = found.report.statistics(found.best_gpu).clocks
    if clocks is None or clocks.issue_s is None or clocks.issue_s < LAUNCH_BOUND * clocks.device_s:
        return None
    return clocks


def roof_of(found: Evidence, candidate: Candidate) -> Roofline | None:
    return found.report.statistics(candidate).roofline


def _roofs(found: Evidence, pick: Candidate) -> Iterator[str]:
    """The limit of the pick, and that of a rival on another device."""
    rival = found.rival
    has_other = rival is not None and rival.case.device != pick.case.device
    candidates = [pick, rival] if rival is not None and has_other else [pick]
    if sentences := [text for c in candidates if (text := _roof(found, c)) is not None]:
        yield " ".join(sentences)


def _roof(found: Evidence, candidate: Candidate) -> str | None:
    roof = roof_of(found, candidate)
    if roof is None or FAR_FROM_LIMIT < roof.fraction < NEAR_LIMIT:
        return None  # in between, neither can be said
    name, limit = candidate_name(candidate.case), ROOFS[roof.limited_by]
    reached = units.percent(roof.fraction)
    if roof.fraction >= NEAR_LIMIT:
        return f"{limit.capitalize()} limits {name}, which reaches {reached} of that limit."
    return f"{name} reaches only {reached} of the {limit} limit: something else holds it back."


def _precision(found: Evidence, pick: Candidate) -> Iterator[str]:
    """The pick against the same candidate in another precision, and what the CPU has for it."""
    alike = [
        c
        for c in found.by_id
        if c is not pick
        and c.state != "failed"
        and c.case.but_precision() == pick.case.but_precision()
    ]
    is_reduced = pick.case.precision in REDUCED
    others = ("fp32",) if is_reduced else REDUCED
    for other in (c for c in alike if c.case.precision in others):
        if not is_reduced and other.reason is not None and other.reason.code == "slower_precision":
            yield as_sentence(other.reason.message)
        elif (gain := _gain(pick, other)) is not None:
            factor, ci = gain
            one, than = _name(pick), _name(other)
            yield " ".join(
                [
                    f"{one} is {factor} than {than}, all else equal (95% CI {ci}).",
                    *_instructions(found, pick if is_reduced else other, wins=is_reduced),
                ]
            )


def _gain(pick: Candidate, other: Candidate) -> tuple[str, str] | None:
    """`1.11x faster` and its interval; None where it is not beyond doubt, or no time counts."""
    comparison = Comparison.of(pick, other)
    if pick.objective in ("memory", "energy", "cost") or not comparison.is_proven:
        return None
    factor, ci = comparison.parts
    return f"{factor} {better(pick.objective)}", ci


def _instructions(found: Evidence, reduced: Candidate, *, wins: bool) -> Iterator[str]:
    """The instruction set that the CPU has or lacks for a reduced precision, where it is known."""
    machine, case = found.report.machine, reduced.case
    if machine is None or case.device_kind != "cpu":
        return
    if names := having(case.precision, machine.cpu):
        has = f"the CPU has {names}."
        yield as_sentence(has) if wins else f"{_name(reduced)} loses although {has}"
    elif names := lacking(case.precision, machine.cpu):
        yield f"The CPU has no {names}."


def _name(candidate: Candidate) -> str:
    """`BF16`, `INT8 static`."""
    case = candidate.case
    return " ".join(filter(None, [case.precision.upper(), case.quantization]))


def _threads(found: Evidence, pick: Candidate) -> Iterator[str]:
    """The pick against the same candidate with more threads."""
    if pick.case.threads is None:
        return
    for other in sorted(found.row.candidates, key=lambda candidate: candidate.case.threads or 0):
        has_more = (other.case.threads or 0) > pick.case.threads
        if not has_more or replace(other.case, threads=pick.case.threads) != pick.case:
            continue
        if (gain := _gain(pick, other)) is not None:
            factor, ci = gain
            name, threads = candidate_name(pick.case), other.case.threads
            yield f"{name} is {factor} than with {threads} threads (95% CI {ci})."
            return
