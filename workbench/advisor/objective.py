"""What a scenario counts: one number per block, smaller is better."""

from __future__ import annotations

from collections.abc import Sequence

from ..document import SetupTimes
from ..measure.statistics import median, quantile

OBJECTIVES = (
    "throughput",
    "latency",
    "latency_p99",
    "time_to_result",
    "cost",
    "memory",
    "energy",
)
HOUR_S = 3600.0
OF_A_STEP = ("throughput", "latency", "latency_p99")  # whose values are seconds of one step
SECONDS = (*OF_A_STEP, "time_to_result")  # whose values are times
SINGLE_STEPS = ("latency", "latency_p99")  # whose samples are one step each


def start_up_s(setup: SetupTimes) -> float:
    """Everything that comes once, before the first step, in seconds."""
    parts = (setup.import_s, setup.build_s, setup.transfer_s, setup.compile_s)
    return sum(part for part in parts if part is not None)


def block_value(
    objective: str,
    samples_s: Sequence[float],
    setup: SetupTimes,
    *,
    memory_bytes: int | None = None,
    energy_j: float | None = None,
    price_per_hour: float | None = None,
) -> float | None:
    """What stands for one block under `objective`: seconds, bytes, joules, or the price of a step;
    None: not known.

    `latency_p99` needs samples of single steps, and enough of them: below a hundred the
    quantile is in effect the largest.  `time_to_result` adds what comes before the first step.
    """
    if objective == "memory":
        return memory_bytes
    if objective == "energy":
        return energy_j
    if objective == "cost":
        return None if price_per_hour is None else median(samples_s) * price_per_hour / HOUR_S
    if objective == "latency_p99":
        return quantile(samples_s, 0.99)
    if objective == "time_to_result":
        return start_up_s(setup) + median(samples_s)
    return median(samples_s)
