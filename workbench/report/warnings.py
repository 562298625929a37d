"""What weakens one measurement, each with its remedy; what weakens a whole row or run is told by
`machine.watch` and `machine.cautions`."""

from __future__ import annotations

from collections.abc import Iterator

from ..records.machine import Machine
from ..records.reason import Warning
from ..stats import samples as stats
from ..text import units
from .candidate import Candidate

FEW_SAMPLES = 10
WIDE = 0.05  # relative half-width of the median's interval
DRIFT = 0.03  # change from the first third of the blocks to the last
OVERHEAD = 0.01  # share of a step that is the timing loop's own


def measurement_warnings(candidate: Candidate, machine: Machine | None = None) -> list[Warning]:
    """What weakens trust in this candidate's figures; nothing before its first sample."""
    if not candidate.blocks:
        return []
    case_id = candidate.case.id
    return [
        Warning(code, message, remedy, case_id)
        for code, message, remedy in (
            *_samples(candidate),
            *_drift(candidate),
            *_overhead(candidate),
            *_threads(candidate, machine),
        )
    ]


def _samples(candidate: Candidate) -> Iterator[tuple[str, str, str]]:
    samples = candidate.samples_s
    if len(samples) < FEW_SAMPLES:
        remedy = "give it more time: a larger --budget, or fewer scenarios"
        yield "few_samples", f"only {len(samples)} sample{'' if len(samples) == 1 else 's'}", remedy
    width = stats.relative_half_width(stats.median(samples), candidate.interval)
    if width is not None and width > WIDE:
        low, high = map(units.duration, candidate.interval or (0.0, 0.0))
        message = f"the median is known only to lie between {low} and {high}"
        if width < 1:
            message = f"the median is known to within {width:.0%} only"
        yield "unstable", message, "stop other work on this machine, or give it a larger --budget"


def _drift(candidate: Candidate) -> Iterator[tuple[str, str, str]]:
    change = stats.trend([stats.median(block.samples_s) for block in candidate.blocks])
    if abs(change) > DRIFT:
        course = "slower" if change > 0 else "faster"
        message = f"it became {abs(change):.0%} {course} while it was measured"
        yield "drifting", message, "let the machine come to rest (heat, caches), then run it again"


def _overhead(candidate: Candidate) -> Iterator[tuple[str, str, str]]:
    overhead, step_s = candidate.call_overhead_s, stats.median(candidate.samples_s)
    if overhead is not None and overhead > OVERHEAD * step_s:
        share = units.percent(overhead / step_s)
        message = f"calling a step costs {overhead * 1e9:.0f} ns, {share} of it"
        yield "short_step", message, "take a larger size or batch: a step should take 10 us or more"


def _threads(candidate: Candidate, machine: Machine | None) -> Iterator[tuple[str, str, str]]:
    threads = candidate.case.threads
    if machine is None or threads is None or threads <= machine.cpu.effective_cores:
        return
    message = f"{threads} threads share {machine.cpu.effective_cores} cores"
    yield "oversubscribed", message, f"--threads {machine.cpu.effective_cores}"
