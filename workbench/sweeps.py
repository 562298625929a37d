"""The curves of a run over sizes or batches: pure derivation from its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .contender import Contender
from .contract import ParameterValue
from .document import Curve, CurvePoint, LeadChange, Sweep
from .measure import statistics as stats

if TYPE_CHECKING:
    from .report import Row

KNEE = 0.9  # of the best rate


PointOf = Callable[[Mapping[str, ParameterValue], Contender], CurvePoint]


def point_of(at: Mapping[str, ParameterValue], contender: Contender) -> CurvePoint:
    """What one contender reached at one point."""
    samples = contender.samples_s
    median_s = stats.median(samples) if samples else None
    amount, _ = _counted(contender)
    valid = median_s is not None and contender.state != "failed"
    return CurvePoint(
        at=dict(at),
        id=contender.case.id,
        median_s=median_s,
        ci95_s=contender.interval,
        rate=amount / median_s if valid and median_s else None,
        memory_peak_bytes=contender.memory_peak_bytes,
    )


def sweeps(rows: Sequence[Row], point: PointOf = point_of) -> list[Sweep]:
    """One for each workload that was asked for at several points.

    A caller that asks again and again may give a `point` that remembers.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.plan.point:
            groups.setdefault(row.plan.workload, []).append(row)
    return [_sweep(workload, group, point) for workload, group in groups.items()]


def _sweep(workload: str, rows: Sequence[Row], point: PointOf) -> Sweep:
    axes = {name: _sorted(row.plan.point[name] for row in rows) for name in rows[0].plan.point}
    ordered = sorted(
        rows, key=lambda row: [axes[name].index(value) for name, value in row.plan.point.items()]
    )
    found: dict[str, list[CurvePoint]] = {}
    for row in ordered:
        for contender in row.contenders:
            found.setdefault(contender.case.label, []).append(point(row.plan.point, contender))
    units = {c.case.label: _counted(c)[1] for row in ordered for c in row.contenders}
    curves = [Curve(label, units[label], points, _knee(points)) for label, points in found.items()]
    measured = [(p.rate, p.id) for curve in curves for p in curve.points if p.rate is not None]
    return Sweep(
        workload=workload,
        axes=axes,
        curves=curves,
        best=max(measured)[1] if measured else None,
        lead_changes=_lead_changes(axes, curves) if len(axes) == 1 else [],
    )


def _sorted(values: Iterable[ParameterValue]) -> list[ParameterValue]:
    """Each once, numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=lambda value: 0.0 if isinstance(value, str) else float(value))


def _counted(contender: Contender) -> tuple[float, str]:
    """What a step does: operations where they are counted, else items; with the unit of a rate."""
    work = contender.work
    return (work.flops, "FLOP/s") if work.flops else (work.items, f"{work.item}/s")


def _knee(points: Sequence[CurvePoint]) -> ParameterValue | None:
    """Where a batch stops paying: the smallest at which the rate is near the curve's best."""
    measured = [(p.at["batch"], p.rate) for p in points if list(p.at) == ["batch"] and p.rate]
    if len(measured) < 2:
        return None
    best = max(rate for _, rate in measured)
    return next(batch for batch, rate in measured if rate >= KNEE * best)


def _lead_changes(
    axes: Mapping[str, Sequence[ParameterValue]], curves: Sequence[Curve]
) -> list[LeadChange]:
    """Where another contender becomes the fastest, between two neighbouring points."""
    ((name, values),) = axes.items()
    leaders = []
    for value in values:
        known = [
            (point.rate, curve.contender)
            for curve in curves
            for point in curve.points
            if point.at[name] == value and point.rate is not None
        ]
        if known:
            leaders.append((value, max(known)[1]))
    return [
        LeadChange(name, (below, above), before, after)
        for (below, before), (above, after) in itertools.pairwise(leaders)
        if before != after
    ]
