"""The measurements of the document, derived from the samples of candidates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..records.document import Against, BlockShape, Ceilings, Clocks, Measurement, Throughput
from ..records.reason import Warning
from ..stats import ratios
from ..stats import samples as stats
from .candidate import ENERGY, SHARED, Candidate
from .roofline import under_ceilings


def with_samples(measured: Measurement, candidate: Candidate) -> Measurement:
    """The measurement with every sample that the candidate's blocks hold."""
    return msgspec.structs.replace(
        measured,
        samples_s=candidate.samples_s,
        blocks=[
            BlockShape(block.round, len(block.samples_s), block.metrics.get(ENERGY))
            for block in candidate.blocks
        ],
        lead_in_s=[value for block in candidate.blocks for value in block.lead_in_s],
    )


def statistics(
    candidate: Candidate,
    *,
    row: Sequence[Candidate] = (),
    warnings: Sequence[Warning] = (),
    ceilings: Ceilings | None = None,
) -> Measurement:
    """The measurement of a candidate, compared with its `row` and with the `ceilings`, without its
    samples, which may be millions."""
    samples = candidate.ordered_s
    n = len(samples)
    center = stats.median(samples) if n else None
    fast = stats.quantile(samples, 0.10) if n else None
    power = candidate.telemetry.counted_power_w if candidate.telemetry else None
    rate = candidate.work.flops / center if center and candidate.work.flops else None
    peak_fraction, roofline = under_ceilings(candidate, rate, ceilings)
    return Measurement(
        **{name: getattr(candidate, name) for name in SHARED},
        id=candidate.case.id,
        status=candidate.state if candidate.ended else "cancelled",
        scenario=candidate.scenario,
        samples_s=[],
        blocks=[],
        lead_in_s=[],
        n=n,
        median_s=center,
        ci95_s=candidate.interval,
        p10_s=fast,
        p90_s=stats.quantile(samples, 0.90) if n else None,
        p99_s=candidate.p99_s,
        min_s=samples[0] if n else None,
        throughput=_throughput(candidate, center),
        capability=_throughput(candidate, fast),
        flops_per_s=rate,
        peak_fraction=peak_fraction,
        roofline=roofline,
        energy_j=power * center if power and center else None,
        simulated=candidate.simulated,
        loss=candidate.loss,
        outliers=len(stats.outliers(samples)),
        clocks=_clocks(candidate),
        against=against(candidate, row),
        metrics=metrics_of(candidate, row),
        warnings=list(warnings),
    )


def against(candidate: Candidate, row: Sequence[Candidate]) -> Against | None:
    """The comparison with the fastest valid candidate of the row; None if that is itself."""
    rounds = {c.case.id: c.rounds() for c in row if c.blocks and c.state != "failed"}
    if not rounds.get(candidate.case.id):  # not measured, or not under the row's objective
        return None
    fastest = ratios.ranking(rounds)[0]
    ratio = ratios.ratio_between(rounds[candidate.case.id], rounds[fastest])
    if fastest == candidate.case.id or ratio is None:
        return None
    return Against(fastest, ratio.value, ratio.interval, ratio.word(ratios.TOLERANCE))


def metrics_of(candidate: Candidate, row: Sequence[Candidate] = ()) -> dict[str, float]:
    """The workload's own metrics, medians over the blocks, and the scaling efficiency of ranks."""
    names = dict.fromkeys(name for block in candidate.blocks for name in block.metrics)
    medians = {
        name: stats.median([b.metrics[name] for b in candidate.blocks if name in b.metrics])
        for name in names
    }
    efficiency = scaling_efficiency(candidate, row)
    return medians if efficiency is None else {**medians, "scaling_efficiency_fraction": efficiency}


def scaling_efficiency(candidate: Candidate, row: Sequence[Candidate]) -> float | None:
    """The speed-up of several ranks over one rank, per unit of hardware; None without a pair.

    The unit is a GPU, or a thread: ranks on a CPU share those of their machine, at least one each.
    """
    ranks, threads = candidate.work.ranks, candidate.case.threads or 1
    alike = candidate.case.device, candidate.case.precision, candidate.case.threads
    alone = [
        c
        for c in row
        if c.work.ranks == 1 and (c.case.device, c.case.precision, c.case.threads) == alike
    ]
    if ranks == 1 or len(alone) != 1:
        return None
    ratio = ratios.ratio_between(alone[0].rounds(), candidate.rounds())
    resources = float(ranks)
    if candidate.case.device_kind == "cpu":
        known = [b.metrics["threads_per_rank"] for b in candidate.blocks if b.metrics]
        resources *= next(iter(known), max(1, threads // ranks)) / threads
    return None if ratio is None else ratio.value / resources


def _clocks(candidate: Candidate) -> Clocks | None:
    known = [block.clocks for block in candidate.blocks if block.clocks is not None]
    if not known:
        return None
    issued = [clocks.issue_s for clocks in known if clocks.issue_s is not None]
    return Clocks(
        counted=known[-1].counted,
        host_s=stats.median([clocks.host_s for clocks in known]),
        device_s=stats.median([clocks.device_s for clocks in known]),
        issue_s=stats.median(issued) if issued else None,
    )


def _throughput(candidate: Candidate, step_s: float | None) -> Throughput | None:
    if not step_s:
        return None
    return Throughput(candidate.work.items / step_s, f"{candidate.work.item}/s")
