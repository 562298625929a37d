"""Why a working candidate may not be picked: it exceeds a limit, or its value is not measured."""

import math
from collections.abc import Iterable

from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from ..stats.objectives import OF_A_STEP
from ..stats.samples import MIN_SAMPLES_FOR_P99, quantile
from ..stats.tails import tail_interval
from ..text import units
from ..worker.code import OWN

MIB = 1 << 20
BEST = 0.10  # quantile of its steps that must meet a limit to earn further blocks


def is_admissible(candidate: Candidate, scenario: Scenario) -> bool:
    """Whether the row may pick this candidate: admissible precision, correct, within the limits."""
    if candidate.state == "failed" or candidate.case.precision in scenario.reference_only:
        return False
    over = exceeds_error_limit(candidate, scenario) or beyond_limits(candidate, scenario)
    return not over and uncounted(candidate) is None


def eligible(candidates: Iterable[Candidate], scenario: Scenario) -> list[Candidate]:
    """The measured candidates that the row may pick."""
    return [c for c in candidates if c.blocks and is_admissible(c, scenario)]


def exceeds_error_limit(candidate: Candidate, scenario: Scenario) -> bool:
    limit = error_limit(candidate, scenario)
    return limit is not None and candidate.accuracy is not None and candidate.accuracy.worst > limit


def error_limit(candidate: Candidate, scenario: Scenario) -> float | None:
    """The largest error that a pick may have: the scenario's, or for own code the candidate's."""
    accuracy = candidate.accuracy
    if accuracy is None or accuracy.metric == "test_accuracy":
        return None
    return accuracy.limit if scenario.workload == OWN else scenario.max_error


def beyond_limits(candidate: Candidate, scenario: Scenario) -> str | None:
    """The limit that the candidate exceeds, as `peak memory 90 MiB, limit 50 MiB`; None if none."""
    return _too_large(candidate, scenario) or _too_slow(candidate, scenario)


def is_surely_beyond_limits(candidate: Candidate, scenario: Scenario) -> bool:
    """Whether it exceeds a limit by more than chance: the whole interval of its latency does, or
    every step where there are too few for one.  An unknown value exceeds nothing."""
    if _too_large(candidate, scenario) is not None:
        return candidate.memory_peak_bytes is not None
    if scenario.limits.latency_ms is None:
        return False
    blocks = [block.samples_s for block in candidate.blocks]
    interval = tail_interval(blocks) if scenario.measures_tails else candidate.interval
    least_s = _best_s(candidate, 0.0) if interval is None else interval[0]
    return least_s * 1e3 > scenario.limits.latency_ms


def leaves_for_limits(candidate: Candidate, scenario: Scenario) -> str | None:
    """As `beyond_limits`, but None while a second block, or more samples for a 99th percentile, may
    still show that the limit holds, since better steps or the warm-up meet it."""
    if why := _too_large(candidate, scenario):
        return why
    why, latency_ms = _too_slow(candidate, scenario), scenario.limits.latency_ms
    tails, samples = scenario.measures_tails, candidate.samples_s
    is_known = len(candidate.blocks) > 1 and not (tails and len(samples) < MIN_SAMPLES_FOR_P99)
    if why is None or latency_ms is None or is_known:
        return why
    # While it stays it may eliminate others, but only slower ones.
    may_pass = _best_s(candidate, BEST) * 1e3 <= latency_ms
    return None if may_pass and scenario.objective in OF_A_STEP else why


def _best_s(candidate: Candidate, part: float) -> float:
    """Seconds of a warm-up step, or of this quantile of the measured steps if that is less."""
    return min(quantile(candidate.samples_s, part), candidate.warmup.step_s or math.inf)


def uncounted(candidate: Candidate) -> str | None:
    """Why a measured candidate has no value under its objective; None if it has or may get one."""
    if candidate.case.device_kind == "cpu" or not candidate.blocks:
        return None
    if candidate.objective == "memory":
        return "a GPU's memory is not compared with the host's"
    if candidate.objective == "energy" and not candidate.rounds():
        return "energy per candidate is read on the CPU only"
    return None


def exceeding(noun: str, shown: str, limit: str) -> str:
    """`median step 21.0 ms, limit 20.0 ms`; other words where rounding makes both look equal."""
    if shown == limit:
        return f"{noun} just above the limit of {limit}"
    return f"{noun} {shown}, limit {limit}"


def _too_large(candidate: Candidate, scenario: Scenario) -> str | None:
    most, peak = scenario.limits.memory_mib, candidate.memory_peak_bytes
    if most is None or not candidate.blocks:
        return None
    if peak is None:
        return f"unknown peak memory, limit {most:,g} MiB"
    if peak <= most * MIB:
        return None
    return exceeding("peak memory", f"{round(peak / MIB, 1):,g} MiB", f"{most:,g} MiB")


def _too_slow(candidate: Candidate, scenario: Scenario) -> str | None:
    """The latency limit, on the median step or on the 99th percentile if that is the objective."""
    limit_ms = scenario.limits.latency_ms
    if limit_ms is None or not candidate.blocks:
        return None
    step_s = quantile(candidate.samples_s, 0.99 if scenario.measures_tails else 0.5)
    if step_s * 1e3 <= limit_ms:
        return None
    noun = "99th percentile" if scenario.measures_tails else "median step"
    return exceeding(noun, units.duration(step_s), units.duration(limit_ms / 1e3))
