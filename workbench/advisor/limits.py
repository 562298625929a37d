"""What keeps a candidate from being picked though it works: a scenario's limits, or that what the
row counts cannot be read of it."""

from __future__ import annotations

from ..planning.scenario import Scenario
from ..report.candidate import Candidate
from ..report.row import Row
from ..stats.objectives import OF_A_STEP
from ..stats.samples import quantile
from ..text import units

MIB = 1 << 20
BEST = 0.10  # the quantile of its steps that must keep a limit for a second block


def is_admissible(candidate: Candidate, scenario: Scenario) -> bool:
    """Whether the row may pick this candidate: right precision, correct, within the limits."""
    if candidate.state == "failed" or candidate.case.precision in scenario.apart:
        return False
    if exceeds_error_limit(candidate, scenario) or beyond_limits(candidate, scenario):
        return False
    return uncounted(candidate) is None


def is_over_error_limit(candidate: Candidate, scenario: Scenario) -> bool:
    """Whether its error alone keeps a candidate from being picked."""
    if candidate.state == "failed" or candidate.case.precision in scenario.apart:
        return False
    return bool(candidate.blocks) and exceeds_error_limit(candidate, scenario)


def exceeds_error_limit(candidate: Candidate, scenario: Scenario) -> bool:
    found = candidate.accuracy
    if found is None or scenario.max_error is None or found.metric == "test_accuracy":
        return False
    return found.value > scenario.max_error


def only_within(row: Row, scenario: Scenario) -> str | None:
    """The kind of device that keeps the scenario's limits where all of the other do not."""
    able = {c.case.device_kind for c in row.candidates if c.blocks and is_admissible(c, scenario)}
    others = [
        c for c in row.candidates if c.case.device_kind not in able and not row.is_reference_only(c)
    ]
    if len(able) != 1 or not others:
        return None
    known = all(candidate.blocks and candidate.state != "failed" for candidate in others)
    return able.pop() if known and all(beyond_limits(c, scenario) for c in others) else None


def beyond_limits(candidate: Candidate, scenario: Scenario) -> str | None:
    """Which of the scenario's limits the candidate does not keep, as a clause; None if all."""
    return _too_large(candidate, scenario) or _too_slow(candidate, scenario)


def leaves_for_limits(candidate: Candidate, scenario: Scenario) -> str | None:
    """As `beyond_limits`, but one whose better steps keep the limit has a second block."""
    if why := _too_large(candidate, scenario):
        return why
    why, latency_ms = _too_slow(candidate, scenario), scenario.limits.latency_ms
    if why is None or latency_ms is None or len(candidate.blocks) > 1:
        return why
    # Meanwhile it may send away others, but only such as are slower still.
    waits = quantile(candidate.samples_s, BEST) * 1e3 <= latency_ms
    return None if waits and scenario.objective in OF_A_STEP else why


def uncounted(candidate: Candidate) -> str | None:
    """Why it was measured and yet has no value; None if it has, or may still get one."""
    if candidate.case.device_kind == "cpu" or not candidate.blocks:
        return None
    if candidate.objective == "memory":
        return "a GPU's memory is not compared with the host's"
    if candidate.objective == "energy" and not candidate.rounds():
        return "only the processors' energy is read for each candidate"
    return None


def _too_large(candidate: Candidate, scenario: Scenario) -> str | None:
    limits, threads, peak = scenario.limits, candidate.case.threads, candidate.memory_peak_bytes
    if limits.threads is not None and threads is not None and threads > limits.threads:
        return f"it runs on {threads} threads, the limit is {limits.threads}"
    if limits.memory_mib is None or not candidate.blocks:
        return None
    limit = f"the limit of {limits.memory_mib:g} MiB"
    if peak is None:
        return f"its peak memory is not told here, so {limit} cannot be checked"
    if peak <= limits.memory_mib * MIB:
        return None
    return f"its peak of {peak / MIB:,.0f} MiB is above {limit}"


def _too_slow(candidate: Candidate, scenario: Scenario) -> str | None:
    """By its median step, or by the 99th percentile where that is the objective."""
    limit_ms = scenario.limits.latency_ms
    if limit_ms is None or not candidate.blocks:
        return None
    tails = scenario.objective == "latency_p99"
    step_s = quantile(candidate.samples_s, 0.99 if tails else 0.5)
    if step_s * 1e3 <= limit_ms:
        return None
    noun = "99th percentile" if tails else "median step"
    took, limit = units.duration(step_s), units.duration(limit_ms / 1e3)
    return f"its {noun} of {took} is above the limit of {limit}"
