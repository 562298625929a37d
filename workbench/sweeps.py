"""The curves of a run over sizes or batches: pure derivation from its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .contender import Contender
from .contract import ParameterValue
from .document import Curve, CurvePoint, LeadChange, Sweep
from .measure import statistics as stats

if TYPE_CHECKING:
    from .report import Row

KNEE = 0.9  # of the best rate


def sweeps(rows: Sequence[Row]) -> list[Sweep]:
    """One for each workload that was asked for at several points."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.plan.point:
            groups.setdefault(row.plan.workload, []).append(row)
    return [_sweep(workload, group) for workload, group in groups.items()]


def _sweep(workload: str, rows: Sequence[Row]) -> Sweep:
    axes = {name: _sorted(row.plan.point[name] for row in rows) for name in rows[0].plan.point}
    ordered = sorted(
        rows, key=lambda row: [axes[name].index(value) for name, value in row.plan.point.items()]
    )
    found: dict[str, list[CurvePoint]] = {}
    for row in ordered:
        for contender in row.contenders:
            found.setdefault(contender.case.label, []).append(_point(row.plan.point, contender))
    units = {c.case.label: _rate(c)[1] for row in ordered for c in row.contenders}
    curves = [Curve(label, units[label], points, _knee(points)) for label, points in found.items()]
    measured = [(p.rate, p.id) for curve in curves for p in curve.points if p.rate is not None]
    return Sweep(
        workload=workload,
        axes=axes,
        curves=curves,
        best=max(measured)[1] if measured else None,
        lead_changes=_lead_changes(ordered) if len(axes) == 1 else [],
    )


def _sorted(values: Iterable[ParameterValue]) -> list[ParameterValue]:
    """Each once, numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=lambda value: 0.0 if isinstance(value, str) else float(value))


def _point(at: Mapping[str, ParameterValue], contender: Contender) -> CurvePoint:
    samples = contender.samples_s
    return CurvePoint(
        at=dict(at),
        id=contender.case.id,
        median_s=stats.median(samples) if samples else None,
        ci95_s=contender.interval,
        rate=_rate(contender)[0],
        memory_peak_bytes=contender.memory_peak_bytes,
    )


def _rate(contender: Contender) -> tuple[float | None, str]:
    """Per second at the median step: of operations where they are counted, else of items."""
    flops, items = contender.work.flops, contender.work.item
    samples = contender.samples_s if contender.state != "failed" else []
    amount, unit = (flops, "FLOP/s") if flops else (contender.work.items, f"{items}/s")
    return (amount / stats.median(samples) if samples else None), unit


def _knee(points: Sequence[CurvePoint]) -> ParameterValue | None:
    """Where a batch stops paying: the smallest at which the rate is near the curve's best."""
    measured = [(p.at["batch"], p.rate) for p in points if list(p.at) == ["batch"] and p.rate]
    if len(measured) < 2:
        return None
    best = max(rate for _, rate in measured)
    return next(batch for batch, rate in measured if rate >= KNEE * best)


def _lead_changes(rows: Sequence[Row]) -> list[LeadChange]:
    """Where another contender becomes the fastest, between two neighbouring points."""
    leaders = []
    for row in rows:
        rates = [(_rate(c)[0], c.case.label) for c in row.contenders]
        known = [(rate, label) for rate, label in rates if rate is not None]
        if known:
            (value,) = row.plan.point.values()
            leaders.append((value, max(known)[1]))
    (name,) = rows[0].plan.point
    return [
        LeadChange(name, (below, above), before, after)
        for (below, before), (above, after) in itertools.pairwise(leaders)
        if before != after
    ]
