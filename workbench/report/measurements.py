"""The measurements of the document, from samples: statistics, fractions of ceilings, warnings.

Warnings on a whole row or run come from `machine.host.disturbance` and `machine.warnings`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..contract import FAULTING_FRACTION
from ..records import document as doc
from ..records.machine import Machine
from ..records.reason import Warning
from ..stats import ratios, samples as stats
from ..text import units
from .candidate import ENERGY, SHARED, Candidate, ranked

FEW_SAMPLES = 10
WIDE = 0.05  # relative half-width of the median's interval
DRIFT = 0.03  # relative change from the first third of the blocks to the last
OVERHEAD = 0.01  # share of a step that the timing loop itself takes
KEEPING = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1000000000000"  # mallopt(3)


def statistics(
    candidate: Candidate,
    row: Sequence[Candidate],
    fastest: Candidate | None,
    warned: list[Warning],
    ceilings: doc.Ceilings | None,
    *,
    with_samples: bool,
) -> doc.Measurement:
    """The measurement of a candidate of `row`, compared with the `fastest` and the `ceilings`."""
    blocks = candidate.blocks if with_samples else []
    peak_fraction, roofline = under_ceilings(candidate, ceilings)
    metrics, efficiency = candidate.metrics, scaling_efficiency(candidate, row)
    if efficiency is not None:
        metrics["scaling_efficiency_fraction"] = efficiency
    return doc.Measurement(
        **{name: getattr(candidate, name) for name in SHARED},
        **_of_samples(candidate),
        id=candidate.case.id,
        status=candidate.status,
        scenario=candidate.scenario,
        samples_s=candidate.samples_s if with_samples else [],
        blocks=[doc.BlockShape(b.round, len(b.samples_s), b.metrics.get(ENERGY)) for b in blocks],
        lead_in_s=[value for block in blocks for value in block.lead_in_s],
        ci95_s=candidate.interval,
        p99_s=candidate.p99_s,
        flops_per_s=flops_per_s(candidate),
        peak_fraction=peak_fraction,
        roofline=roofline,
        simulated=candidate.simulated,
        loss=candidate.loss,
        clocks=clocks_of(candidate),
        against=against(candidate, fastest),
        metrics=metrics,
        warnings=warned,
    )


def _of_samples(candidate: Candidate) -> dict[str, Any]:
    """The members of a measurement that follow from the sorted samples."""
    samples = candidate.ordered_s
    if not samples:
        absent = "median_s", "p10_s", "p90_s", "min_s", "throughput", "energy_j"
        return {"n": 0, **dict.fromkeys(absent)}
    center, fast = stats.median(samples), stats.quantile(samples, 0.10)
    telemetry = candidate.whole_telemetry
    power_w = telemetry.counted_power_w if telemetry is not None else None
    return {
        "n": len(samples),
        "median_s": center,
        "p10_s": fast,
        "p90_s": stats.quantile(samples, 0.90),
        "min_s": samples[0],
        "throughput": _throughput(candidate, center),
        "capability": _throughput(candidate, fast),
        "energy_j": power_w * center if power_w else None,
        "outliers": len(stats.outliers(samples)),
    }


def fastest_of(row: Sequence[Candidate]) -> Candidate | None:
    """The fastest valid candidate, by a comparison of every pair; None if none has a value."""
    return next(iter(ranked(c for c in row if c.is_valid)), None)


def against(candidate: Candidate, fastest: Candidate | None) -> doc.Against | None:
    """The comparison of a valid candidate with the fastest of its row; None if it is that one."""
    if fastest is None or candidate is fastest or not candidate.is_valid:
        return None
    ratio = ratios.ratio_between(candidate.rounds(), fastest.rounds())
    if ratio is None:
        return None
    return doc.Against(fastest.case.id, ratio.value, ratio.interval, ratio.word(ratios.TOLERANCE))


def scaling_efficiency(candidate: Candidate, row: Sequence[Candidate]) -> float | None:
    """The speed-up of several ranks over one, per GPU or CPU thread; None without a pair."""
    ranks, threads, case = candidate.work.ranks, candidate.case.threads or 1, candidate.case
    single = [c for c in row if c.work.ranks == 1] if ranks != 1 else []
    alone = [c for c in single if replace(c.case, tuning={}) == replace(case, tuning={})]
    if len(alone) != 1:
        return None
    ratio = ratios.ratio_between(alone[0].step_rounds(), candidate.step_rounds())
    resources = float(ranks)
    if case.device_kind == "cpu":
        known = [n for b in candidate.blocks if (n := b.metrics.get("threads_per_rank"))]
        resources *= next(iter(known), max(1, threads // ranks)) / threads
    return None if ratio is None else ratio.value / resources


def clocks_of(candidate: Candidate) -> doc.Clocks | None:
    """The medians over the blocks by each clock; None without a device's clock."""
    known = [block.clocks for block in candidate.blocks if block.clocks is not None]
    if not known:
        return None
    issued = [clocks.issue_s for clocks in known if clocks.issue_s is not None]
    return doc.Clocks(
        counted=known[-1].counted,
        host_s=stats.median([clocks.host_s for clocks in known]),
        device_s=stats.median([clocks.device_s for clocks in known]),
        issue_s=stats.median(issued) if issued else None,
    )


def _throughput(candidate: Candidate, step_s: float) -> doc.Throughput:
    return doc.Throughput(candidate.work.items / step_s, f"{candidate.work.item}/s")


# --------------------------------------------------------------- roofline
# A rate is bounded by the peak of its precision and by memory bandwidth times arithmetic intensity
# (Williams, Waterman and Patterson 2009).


def bounds_of(candidate: Candidate, ceilings: doc.Ceilings | None) -> tuple[float, str, float]:
    """The peak of the candidate's precision (operations per second), the memory that bounds it
    ("cache" if its work fits there) and the bandwidth of that (bytes per second); 0 if unknown.

    Both rates are those of all its GPUs, or of all usable cores.
    """
    case, gpus = candidate.case, gpus_of(candidate)
    known = ceilings.devices if ceilings is not None and not candidate.simulated else []
    device = next((each for each in known if each.device == case.device), None)
    if device is None:
        return 0.0, "", 0.0
    kind, bytes_per_s = "memory", device.memory_bytes_per_s
    if candidate.work.memory_bytes <= (device.cache_bytes or 0):
        kind, bytes_per_s = "cache", device.cache_bytes_per_s
    return gpus * device.peak_ops_per_s.get(case.precision, 0.0), kind, gpus * (bytes_per_s or 0.0)


def gpus_of(candidate: Candidate) -> int:
    """The number of GPUs that share the candidate's work; 1 on a CPU, where ranks share cores."""
    return candidate.work.ranks if candidate.case.device_kind == "gpu" else 1


def flops_per_s(candidate: Candidate) -> float | None:
    """Operations per second at the median step; None without a sample or where they are unknown."""
    flops = candidate.work.flops
    return flops / candidate.median_s if flops and candidate.blocks else None


def under_ceilings(
    candidate: Candidate, ceilings: doc.Ceilings | None
) -> tuple[float | None, doc.Roofline | None]:
    """Its rate over the peak of its precision, at most 1, and its place under the roofline; None if
    work, traffic or ceilings are unknown."""
    rate, (peak, slanted, bytes_per_s) = flops_per_s(candidate), bounds_of(candidate, ceilings)
    if not rate or not peak:
        return None, None
    fraction = min(rate / peak, 1.0)
    if not candidate.work.flops or not candidate.work.bytes_moved or not bytes_per_s:
        return fraction, None
    intensity = candidate.work.flops / candidate.work.bytes_moved
    attainable = max(min(peak, intensity * bytes_per_s), rate)
    return fraction, doc.Roofline(
        intensity_flops_per_byte=intensity,
        attainable_flops_per_s=attainable,
        fraction=rate / attainable,
        limited_by=slanted if intensity * bytes_per_s < peak else "compute",
    )


def measurement_warnings(candidate: Candidate, machine: Machine | None = None) -> Iterator[Warning]:
    """The warnings on this candidate's measurement; none before its first sample."""
    if not candidate.blocks:
        return
    samples, interval, case = candidate.ordered_s, candidate.interval, candidate.case
    center, overhead = stats.median(samples), candidate.call_overhead_s
    step_share = candidate.step_share
    if len(samples) < FEW_SAMPLES and (step_share == 1 or interval is None):
        message = f"few samples ({len(samples)})"
        yield Warning("few_samples", message, "raise --budget", case.id)
    width = stats.relative_half_width(center, interval)
    if interval is not None and width is not None and width * step_share > WIDE:
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
    faulting = candidate.metrics.get(FAULTING_FRACTION)
    if faulting is not None and "keep" not in case.mode_words:
        share = f"up to {faulting:.0%} of its time"
        message = f"{share} goes into memory that each step faults in again"
        remedy = f"put {KEEPING} before the command: glibc then keeps freed memory"
        yield Warning("page_faults", message, remedy, case.id)
    cores = machine.cpu.effective_cores if machine is not None else math.inf
    if case.threads is not None and case.threads > cores:
        message = f"{case.threads} threads share {units.counted(int(cores), 'core')}"
        yield Warning("oversubscribed", message, f"--threads {cores}", case.id)
