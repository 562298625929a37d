"""Warnings on single measurements.

Those on a whole row or run come from `machine.host.disturbance` and `machine.warnings`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records.machine import Machine
from ..records.reason import Warning
from ..stats import samples as stats
from ..text import units
from .candidate import Candidate

FEW_SAMPLES = 10
WIDE = 0.05  # relative half-width of the median's interval
DRIFT = 0.03  # relative change from the first third of the blocks to the last
OVERHEAD = 0.01  # share of a step that the timing loop itself takes


def measurement_warnings(candidate: Candidate, machine: Machine | None = None) -> list[Warning]:
    """The warnings on this candidate's measurement; none before its first sample."""
    if not candidate.blocks:
        return []
    return [
        *_samples(candidate),
        *_drift(candidate),
        *_overhead(candidate),
        *_threads(candidate, machine),
    ]


def _samples(candidate: Candidate) -> Iterator[Warning]:
    samples, case = candidate.ordered_s, candidate.case.id
    if len(samples) < FEW_SAMPLES:
        remedy = "raise --budget or run fewer scenarios"
        yield Warning("few_samples", f"few samples ({len(samples)})", remedy, case)
    width = stats.relative_half_width(stats.median(samples), candidate.interval)
    if width is not None and width > WIDE:
        low, high = map(units.duration, candidate.interval or (0.0, 0.0))
        extent = f"±{width:.0%}" if width < 1 else f"between {low} and {high}"
        remedy = "stop other processes or raise --budget"
        yield Warning("unstable", f"median uncertain ({extent})", remedy, case)


def _drift(candidate: Candidate) -> Iterator[Warning]:
    change = stats.trend(candidate.medians_s)
    if abs(change) > DRIFT:
        did = "slowed down" if change > 0 else "sped up"
        message = f"{did} by {abs(change):.0%} during the run"
        remedy = "let the machine settle (heat, caches) and rerun"
        yield Warning("drifting", message, remedy, candidate.case.id)


def _overhead(candidate: Candidate) -> Iterator[Warning]:
    overhead, step_s = candidate.call_overhead_s, stats.median(candidate.ordered_s)
    if overhead is not None and overhead > OVERHEAD * step_s:
        share = units.percent(overhead / step_s)
        message = f"the timing loop takes {overhead * 1e9:.0f} ns of a step ({share})"
        remedy = "choose a larger size or batch: a step should take 10 us or more"
        yield Warning("short_step", message, remedy, candidate.case.id)


def _threads(candidate: Candidate, machine: Machine | None) -> Iterator[Warning]:
    threads = candidate.case.threads
    if machine is None or threads is None or threads <= machine.cpu.effective_cores:
        return
    cores = machine.cpu.effective_cores
    message, remedy = f"{threads} threads share {cores} cores", f"--threads {cores}"
    yield Warning("oversubscribed", message, remedy, candidate.case.id)
