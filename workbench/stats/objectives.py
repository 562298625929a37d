"""The objectives of a scenario: each gives a block one number, and smaller is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ..records.document import SetupTimes
from .samples import median, quantile

Objective = Literal[
    "throughput", "latency", "latency_p99", "time_to_result", "cost", "memory", "energy"
]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
HOUR_S = 3600.0
# Standard deviation of the logarithm of a start-up time from process to process; torch's import
# had 0.087 within runs on two cores of a cloud machine (16 starts).
START_UP_SPREAD = 0.1
OF_A_STEP = ("throughput", "latency", "latency_p99")  # their values are seconds of one step
SECONDS = (*OF_A_STEP, "time_to_result")  # their values are seconds
SINGLE_STEPS = ("latency", "latency_p99")  # their samples are one step each


def fixed_parts_s(
    setup: SetupTimes, first_s: float | None, samples_s: Sequence[float]
) -> tuple[float, ...]:
    """The one-time costs in seconds: import, build, transfer, compilation, and the first call's
    excess over a steady one.

    Each was measured a single time, and the first import of a library may read a cold disk.
    """
    beyond = 0.0 if first_s is None or not samples_s else max(0.0, first_s - median(samples_s))
    parts = (setup.import_s, setup.build_s, setup.transfer_s, setup.compile_s, beyond)
    return tuple(part or 0.0 for part in parts)


def block_value(
    objective: str,
    samples_s: Sequence[float],
    *,
    median_s: float | None = None,
    fixed_s: float = 0.0,
    memory_bytes: int | None = None,
    energy_j: float | None = None,
    price_per_hour: float | None = None,
) -> float | None:
    """The value of one block, whose median may be known, under `objective`: seconds, bytes,
    joules, or the price of a step.

    None if it is not known.  `latency_p99` needs at least a hundred samples of single steps: with
    fewer, the quantile is practically the largest.  `time_to_result` adds the one-time costs
    (`fixed_s`).
    """
    median_s = median(samples_s) if median_s is None else median_s
    if objective == "memory":
        return memory_bytes
    if objective == "energy":
        return energy_j
    if objective == "cost":
        return None if price_per_hour is None else median_s * price_per_hour / HOUR_S
    if objective == "latency_p99":
        return quantile(samples_s, 0.99)
    if objective == "time_to_result":
        return fixed_s + median_s
    return median_s
