"""A contender's raw samples into what the document says of them: pure derivation."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.document import Against, Ceilings, Clocks, Measurement, Throughput
from ..records.reason import Warning
from ..stats import ratios
from ..stats import samples as stats
from .candidate import Contender
from .roofline import peak_fraction, roofline


def measurement(
    contender: Contender,
    *,
    row: Sequence[Contender] = (),
    warnings: Sequence[Warning] = (),
    ceilings: Ceilings | None = None,
) -> Measurement:
    """The contender beside the others of its `row`, with its `warnings`, under the `ceilings`."""
    samples = contender.samples_s
    n = len(samples)
    center = stats.median(samples) if n else None
    fast = stats.quantile(samples, 0.10) if n else None
    power = contender.telemetry.counted_power_w if contender.telemetry else None
    rate = contender.work.flops / center if center and contender.work.flops else None
    return Measurement(
        id=contender.case.id,
        case=contender.case,
        status=contender.state if contender.ended else "cancelled",
        reason=contender.reason,
        scenario=contender.scenario,
        work=contender.work,
        samples_s=samples,
        blocks=contender.block_shapes,
        iterations_per_sample=contender.iterations_per_sample,
        lead_in_s=[value for block in contender.blocks for value in block.lead_in_s],
        warmup=contender.warmup,
        n=n,
        median_s=center,
        ci95_s=contender.interval,
        p10_s=fast,
        p90_s=stats.quantile(samples, 0.90) if n else None,
        p99_s=contender.p99_s,
        min_s=min(samples) if n else None,
        throughput=_throughput(contender, center),
        capability=_throughput(contender, fast),
        flops_per_s=rate,
        peak_fraction=peak_fraction(contender, rate, ceilings),
        roofline=roofline(contender, rate, ceilings),
        setup=contender.setup,
        accuracy=contender.accuracy,
        memory_peak_bytes=contender.memory_peak_bytes,
        energy_j=power * center if power and center else None,
        telemetry=contender.telemetry,
        simulated=contender.simulated,
        loss=list(contender.loss),
        outliers=len(stats.outliers(samples)),
        clocks=_clocks(contender),
        call_overhead_s=contender.call_overhead_s,
        against=against(contender, row),
        figures=figures_of(contender, row),
        operators=contender.operators,
        unprofiled=contender.unprofiled,
        warnings=list(warnings),
    )


def against(contender: Contender, row: Sequence[Contender]) -> Against | None:
    """The contender beside the fastest of its row that came out right; None if that is itself."""
    rounds = {c.case.id: c.rounds() for c in row if c.blocks and c.state != "failed"}
    if not rounds.get(contender.case.id):  # not measured, or not in what counts
        return None
    fastest = ratios.ranking(rounds)[0]
    ratio = ratios.ratio_between(rounds[contender.case.id], rounds[fastest])
    if fastest == contender.case.id or ratio is None:
        return None
    return Against(fastest, ratio.value, ratio.interval, ratio.word(ratios.TOLERANCE))


def figures_of(contender: Contender, row: Sequence[Contender] = ()) -> dict[str, float]:
    """What the workload itself tells, the median over its blocks; and of several ranks beside one
    of the same `row`, how well they scale."""
    names = dict.fromkeys(name for block in contender.blocks for name in block.figures)
    found = {
        name: stats.median([b.figures[name] for b in contender.blocks if name in b.figures])
        for name in names
    }
    efficiency = scaling_efficiency(contender, row)
    return found if efficiency is None else {**found, "scaling_efficiency_fraction": efficiency}


def scaling_efficiency(contender: Contender, row: Sequence[Contender]) -> float | None:
    """The time of one rank over that of several times what they have for its one.

    Ranks on GPUs have one each; on a CPU they share the threads of the case, one each at least.
    """
    ranks, threads = contender.work.ranks, contender.case.threads or 1
    alike = contender.case.device, contender.case.precision, contender.case.threads
    alone = [
        c
        for c in row
        if c.work.ranks == 1 and (c.case.device, c.case.precision, c.case.threads) == alike
    ]
    if ranks == 1 or len(alone) != 1:
        return None
    ratio = ratios.ratio_between(alone[0].rounds(), contender.rounds())
    resources = float(ranks)
    if contender.case.device_kind == "cpu":
        resources *= max(1, threads // ranks) / threads
    return None if ratio is None else ratio.value / resources


def _clocks(contender: Contender) -> Clocks | None:
    told = [block.clocks for block in contender.blocks if block.clocks is not None]
    if not told:
        return None
    issued = [clocks.issue_s for clocks in told if clocks.issue_s is not None]
    return Clocks(
        counted=told[-1].counted,
        host_s=stats.median([clocks.host_s for clocks in told]),
        device_s=stats.median([clocks.device_s for clocks in told]),
        issue_s=stats.median(issued) if issued else None,
    )


def _throughput(contender: Contender, step_s: float | None) -> Throughput | None:
    if not step_s:
        return None
    return Throughput(contender.work.items / step_s, f"{contender.work.item}/s")
