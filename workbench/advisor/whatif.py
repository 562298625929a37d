"""What a recorded run of another device says beside the pick of this one: pure, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from .. import units
from ..contender import Contender
from ..measure import statistics as stats
from .course import name_of
from .facts import WhatIf
from .objective import SINGLE_STEPS, START_UP_SPREAD
from .race import RUN_TO_RUN, Z95

TIMED = {  # objectives that count seconds, and what is added to a ratio of them
    "throughput": "",
    "latency": "",
    "latency_p99": " at the 99th percentile",
    "time_to_result": " from start-up to result",
}

Interval = tuple[float, float]


def counted(contender: Contender) -> tuple[float, Interval | None] | None:
    """Seconds as the contender's objective counts them, with a distribution-free 95 % interval.

    None where its samples do not tell: no objective of time, or tails of grouped steps.
    """
    samples, objective = contender.samples_s, contender.objective
    if not samples or objective not in TIMED:
        return None
    if objective in SINGLE_STEPS and contender.iterations_per_sample != 1:
        return None
    if objective == "latency_p99":
        if len(samples) < stats.MIN_SAMPLES_FOR_P99:
            return None
        blocks = list(contender.rounds().values())
        return stats.median(blocks), stats.median_interval(blocks)
    value, interval = stats.median(samples), contender.interval
    if objective != "time_to_result":
        return value, interval
    fixed_s = contender.fixed_s
    low, high = (fixed_s * math.exp(sign * Z95 * START_UP_SPREAD) for sign in (-1, 1))
    return fixed_s + value, interval and (low + interval[0], high + interval[1])


def compared(found: Sequence[WhatIf], pick: Contender | None) -> list[WhatIf]:
    """Each answer with the time of the pick here over the time there.

    The two were never measured in the same rounds, so the interval takes the far ends of both,
    and what differs from run to run (RUN_TO_RUN) twice.
    """
    here = counted(pick) if pick is not None and not pick.simulated else None
    return [_compared(what_if, here) for what_if in found]


def _compared(what_if: WhatIf, here: tuple[float, Interval | None] | None) -> WhatIf:
    if here is None or what_if.step_s is None:
        return what_if
    value, interval = here
    ratio, there = value / what_if.step_s, what_if.step_ci95_s
    between = None
    if interval is not None and there is not None:
        bounds = stats.Ratio(ratio, interval[0] / there[1], interval[1] / there[0], 0)
        between = bounds.widened(math.sqrt(2) * RUN_TO_RUN).interval
    return msgspec.structs.replace(what_if, ratio=ratio, ratio_ci95=between)


def alone(what_if: WhatIf) -> WhatIf:
    """As it was known before anything was measured here."""
    return msgspec.structs.replace(what_if, ratio=None, ratio_ci95=None)


def sentence(what_if: WhatIf, objective: str) -> str:
    """`NVIDIA H200 (recorded 2026-11-21): 38.0x faster, 95 %: 36.0-40.0, cuda:0 torch bf16`."""
    name = what_if.name or what_if.device
    if what_if.missing is not None:
        hint = f" ({what_if.missing.hint})" if what_if.missing.hint else ""
        return f"{name}: not known: {what_if.missing.message}{hint}"
    day = (what_if.recorded_at or "").partition("T")[0]
    basis = f"recorded {day}"
    if what_if.error is not None:
        off = f"those held out are up to {units.percent(what_if.error)} off"
        basis = f"estimated between sizes {basis}; {off}"
    label = name_of(what_if.id or "")
    told = f"{name} ({basis}): {_ahead(what_if, objective)}, {label}"
    if not what_if.warnings:
        return told
    first, *others = what_if.warnings
    more = f", and {len(others)} more" if others else ""
    return f"{told}; the recording warns: {first.message}{more}"


def _ahead(what_if: WhatIf, objective: str) -> str:
    value, interval = what_if.ratio, what_if.ratio_ci95
    if value is None:
        took = units.duration(what_if.step_s)
        return f"{took}{TIMED[objective]}, not compared: no pick was measured here"
    if interval is not None and interval[0] <= 1 <= interval[1]:
        told, spread = units.ratio_parts(value, interval)
        return f"not told apart{TIMED[objective]}: time here over time there {told}, 95 %: {spread}"
    word = "faster" if value >= 1 else "slower"
    if value < 1:
        value, interval = 1 / value, interval and (1 / interval[1], 1 / interval[0])
    told, spread = units.ratio_parts(value, interval)
    sure = f"95 %: {spread}" if spread else "too few blocks for an interval"
    return f"{told} {word}{TIMED[objective]}, {sure}"
