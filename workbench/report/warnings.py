"""Warnings on single measurements.

Those on a whole row or run come from `machine.host.disturbance` and `machine.warnings`.
"""

from __future__ import annotations

import math
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
    return list(_warnings(candidate, machine)) if candidate.blocks else []


def _warnings(candidate: Candidate, machine: Machine | None) -> Iterator[Warning]:
    samples, interval, case = candidate.ordered_s, candidate.interval, candidate.case
    center, overhead = stats.median(samples), candidate.call_overhead_s
    if len(samples) < FEW_SAMPLES:
        remedy = "raise --budget or run fewer scenarios"
        yield Warning("few_samples", f"few samples ({len(samples)})", remedy, case.id)
    width = stats.relative_half_width(center, interval)
    if interval is not None and width is not None and width > WIDE:
        low, high = map(units.duration, interval)
        extent = f"±{width:.0%}" if width < 1 else f"between {low} and {high}"
        remedy = "stop other processes or raise --budget"
        yield Warning("unstable", f"median uncertain ({extent})", remedy, case.id)
    if abs(change := stats.trend(candidate.medians_s)) > DRIFT:
        did = "slowed down" if change > 0 else "sped up"
        message = f"{did} by {abs(change):.0%} during the run"
        remedy = "let the machine settle (heat, caches) and rerun"
        yield Warning("drifting", message, remedy, case.id)
    if overhead is not None and overhead > OVERHEAD * center:
        share = units.percent(overhead / center)
        message = f"the timing loop takes {overhead * 1e9:.0f} ns of a step ({share})"
        remedy = "choose a larger size or batch: a step should take 10 us or more"
        yield Warning("short_step", message, remedy, case.id)
    cores = machine.cpu.effective_cores if machine is not None else math.inf
    if case.threads is not None and case.threads > cores:
        message, remedy = f"{case.threads} threads share {cores} cores", f"--threads {cores}"
        yield Warning("oversubscribed", message, remedy, case.id)
