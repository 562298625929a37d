"""What a scenario counts: one number per block, smaller is better."""

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
# Standard deviation of the logarithm of a start-up from process to process; torch's import spread
# by 0.087 within runs on two cores of a cloud machine (16 starts).
START_UP_SPREAD = 0.1
OF_A_STEP = ("throughput", "latency", "latency_p99")  # whose values are seconds of one step
SECONDS = (*OF_A_STEP, "time_to_result")  # whose values are times
SINGLE_STEPS = ("latency", "latency_p99")  # whose samples are one step each


def fixed_parts_s(
    setup: SetupTimes, first_s: float | None, samples_s: Sequence[float]
) -> tuple[float, ...]:
    """What comes once, in seconds: import, build, transfer, compilation, and what the first call
    took beyond a steady one.

    Each was observed a single time, and whoever imports a library first finds it on a cold disk.
    """
    beyond = 0.0 if first_s is None or not samples_s else max(0.0, first_s - median(samples_s))
    parts = (setup.import_s, setup.build_s, setup.transfer_s, setup.compile_s, beyond)
    return tuple(part or 0.0 for part in parts)


def block_value(
    objective: str,
    samples_s: Sequence[float],
    *,
    fixed_s: float = 0.0,
    memory_bytes: int | None = None,
    energy_j: float | None = None,
    price_per_hour: float | None = None,
) -> float | None:
    """What stands for one block under `objective`: seconds, bytes, joules, or the price of a step;
    None: not known.

    `latency_p99` needs samples of single steps, and enough of them: below a hundred the
    quantile is in effect the largest.  `time_to_result` adds what comes once (`fixed_s`).
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
        return fixed_s + median(samples_s)
    return median(samples_s)
