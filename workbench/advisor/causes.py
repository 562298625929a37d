"""Why the pick won and the other lost: what limits each, as far as the report shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..contract import REDUCED, Case
from ..machine.host.isa import having, lacking
from ..records.document import Clocks, Roofline
from ..report.candidate import Candidate
from ..report.names import short
from ..stats import ratios
from ..stats.samples import median
from ..text import units
from ..text.units import times
from .reasons import COUNTED, Evidence

LAUNCH_BOUND = 0.8  # of the device's time per step, spent by the host on queueing the next
WAITING = 0.25  # of an epoch without a batch: the loaders limit it
NEAR_ROOF = 0.5  # of what a roof allows: it is the limit
IDLE = 0.1  # of what a roof allows: it is not
ROOFS = {"memory": "memory bandwidth", "cache": "cache bandwidth", "compute": "arithmetic"}


def causes(found: Evidence) -> list[str]:
    """Each a fact of the report with what follows from it; the most telling first."""
    if found.pick is None:
        return []
    return [
        *_start_up(found),
        *_waiting(found),
        *_launches(found),
        *_roofs(found),
        *_precision(found),
        *_threads(found),
    ]


def _start_up(found: Evidence) -> Iterator[str]:
    if found.scenario.objective != "time_to_result" or found.pick is None:
        return
    first, seconds = _start_up_share(found.pick)
    told = (
        f"of {short(found.pick.case)}'s time to result, {first:.0%} is start-up and set-up "
        f"({units.duration(seconds)})"
    )
    rival = found.rival
    if rival is not None and rival.case.device_kind != found.pick.case.device_kind:
        other, seconds = _start_up_share(rival)
        told += f", and of that of {short(rival.case)} {other:.0%} ({units.duration(seconds)})"
    yield told


def _start_up_share(candidate: Candidate) -> tuple[float, float]:
    fixed_s = candidate.fixed_s
    return fixed_s / (fixed_s + median(candidate.samples_s)), fixed_s


def _waiting(found: Evidence) -> Iterator[str]:
    waiting = waiting_fraction(found)
    if waiting is not None and found.pick is not None:
        yield (
            f"{short(found.pick.case)} waits for its data {waiting:.0%} of the time: loading "
            "limits it, not the device"
        )


def waiting_fraction(found: Evidence) -> float | None:
    """The pick's, where that limits it."""
    if found.pick is None:
        return None
    waiting = found.report.measurement(found.pick).metrics.get("waiting_fraction")
    return waiting if waiting is not None and waiting >= WAITING else None


def _launches(found: Evidence) -> Iterator[str]:
    clocks = launch_bound(found)
    if clocks is not None and found.best_gpu is not None:
        yield (
            f"launches limit {short(found.best_gpu.case)}: the host takes "
            f"{units.duration(clocks.issue_s)} to queue a step that keeps the device for "
            f"{units.duration(clocks.device_s)}"
        )


def launch_bound(found: Evidence) -> Clocks | None:
    """The clocks of the best GPU candidate, where its host cannot queue faster than it works; None
    too where its steps wait, which hides what queueing takes."""
    if found.best_gpu is None:
        return None
    clocks = found.report.measurement(found.best_gpu).clocks
    if clocks is None or clocks.issue_s is None or clocks.issue_s < LAUNCH_BOUND * clocks.device_s:
        return None
    return clocks


def roof_of(found: Evidence, candidate: Candidate) -> Roofline | None:
    return found.report.measurement(candidate).roofline


def _roofs(found: Evidence) -> Iterator[str]:
    """What limits the pick, and beside a rival on another device what limits that."""
    pick, rival = found.pick, found.rival
    shown = [pick] if pick is not None else []
    if rival is not None and pick is not None and rival.case.device != pick.case.device:
        shown.append(rival)
    told = []
    for candidate in shown:
        roof = roof_of(found, candidate)
        if roof is None or IDLE < roof.fraction < NEAR_ROOF:
            continue  # in between, neither can be said
        name, limit = short(candidate.case), ROOFS[roof.limited_by]
        reached = units.percent(roof.fraction)
        if roof.fraction >= NEAR_ROOF:
            told.append(f"{limit} limits {name} ({reached} of what it allows)")
        else:
            told.append(
                f"{name} reaches only {reached} of what {limit} allows: that is no limit yet"
            )
    if told:
        yield ", and ".join(told)


def _precision(found: Evidence) -> Iterator[str]:
    """The pick beside its like in another precision, with what the CPU has for it."""
    pick = found.pick
    if pick is None:
        return
    alike = [
        c
        for c in found.row.candidates
        if c is not pick
        and c.state != "failed"
        and c.case.but_precision() == pick.case.but_precision()
    ]
    alike.sort(key=lambda candidate: candidate.case.id)
    if pick.case.precision in REDUCED:
        for other in (c for c in alike if c.case.precision == "fp32"):
            told = _gain(pick, other)
            if told is not None:
                yield f"{_name(pick)} is {told} FP32 done the same way{_isa(found, pick.case)}"
        return
    for other in (c for c in alike if c.case.precision in REDUCED):
        if other.reason is not None and other.reason.code == "slower_precision":
            yield other.reason.message
        elif (told := _gain(pick, other)) is not None:
            yield (
                f"{_name(pick)} is {told} {_name(other)} done the same way{_isa(found, other.case)}"
            )


def _gain(pick: Candidate, other: Candidate) -> str | None:
    """`1.11x (95 %: 1.08-1.15) faster at the 99th percentile than`; None where that is not beyond
    doubt."""
    if pick.objective in ("memory", "energy", "cost"):
        return None
    ratio = ratios.ratio_between(other.rounds(), pick.rounds())
    counted = COUNTED.get(pick.objective, "")
    told = ratio is not None and ratio.low > 1
    return (
        f"{times(ratio.value, ratio.interval)} faster{counted} than"
        if ratio is not None and told
        else None
    )


def _isa(found: Evidence, case: Case) -> str:
    machine = found.report.machine
    if machine is None or case.device_kind != "cpu":
        return ""
    if names := having(case.precision, machine.cpu):
        return f" (the CPU has {names})"
    if names := lacking(case.precision, machine.cpu):
        return f" (the CPU has no {names})"
    return ""


def _name(candidate: Candidate) -> str:
    case = candidate.case
    quantization = f" {case.quantization}" if case.quantization else ""
    return f"{case.precision.upper()}{quantization}"


def _threads(found: Evidence) -> Iterator[str]:
    """The pick beside its like with more threads."""
    pick = found.pick
    if pick is None or pick.case.threads is None:
        return
    for other in sorted(found.row.candidates, key=lambda candidate: candidate.case.threads or 0):
        more = (other.case.threads or 0) > pick.case.threads
        if not more or replace(other.case, threads=pick.case.threads) != pick.case:
            continue
        told = _gain(pick, other)
        if told is not None:
            yield f"{short(pick.case)} is {told} on {other.case.threads} threads"
            return
