"""The curves of a run over sizes or batches: pure derivation from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..contract import ParameterValue
from ..records.document import Curve, CurvePoint, LeadChange, Sweep
from ..stats import samples as stats
from .candidate import Candidate

if TYPE_CHECKING:
    from .row import Row

KNEE = 0.9  # of the best rate
BARRED = ("error_limit", "limit", "not_counted")  # why a scenario may not pick a candidate

PointOf = Callable[[Mapping[str, ParameterValue], Candidate], CurvePoint]


def point_of(at: Mapping[str, ParameterValue], candidate: Candidate) -> CurvePoint:
    """What one candidate reached at one point."""
    samples = candidate.samples_s
    median_s = stats.median(samples) if samples else None
    amount = candidate.work.flops or candidate.work.items
    valid = median_s is not None and candidate.state != "failed"
    return CurvePoint(
        at=dict(at),
        id=candidate.case.id,
        median_s=median_s,
        ci95_s=candidate.interval,
        rate=amount / median_s if valid and median_s else None,
        memory_peak_bytes=candidate.memory_peak_bytes,
    )


def sweeps(rows: Sequence[Row], point: PointOf = point_of) -> list[Sweep]:
    """One for each workload, or scenario, that was raced at several points.

    A caller that asks again and again may give a `point` that remembers.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.sweep is not None:
            groups.setdefault(row.sweep, []).append(row)
    for row in rows:  # a crossover begins at the size of its scenario
        if row.plan.scenario in groups and not row.plan.point:
            groups[row.plan.scenario].append(row)
    return [_sweep(group, point) for group in groups.values()]


def _sweep(rows: Sequence[Row], point: PointOf) -> Sweep:
    names = list(rows[0].plan.point)
    places = [place_of(row, names) for row in rows]
    axes = {name: _sorted(place[name] for place in places) for name in names}
    ordered = sorted(
        zip(places, rows, strict=True),
        key=lambda found: [axes[name].index(value) for name, value in found[0].items()],
    )
    candidates = [c for _, row in ordered for c in row.candidates]
    # A sweep has one unit: operations only where every step of it counts them.
    by_flops = all(candidate.work.flops for candidate in candidates)
    units: dict[str, str] = {}
    found: dict[str, list[CurvePoint]] = {}
    for place, row in ordered:
        for candidate in row.candidates:
            label, items = candidate.case.label, candidate.work.items
            reached = point(place, candidate)
            if not by_flops and reached.rate is not None and reached.median_s:
                reached = msgspec.structs.replace(reached, rate=items / reached.median_s)
            if _is_barred(row, candidate):
                reached = msgspec.structs.replace(reached, admissible=False)
            found.setdefault(label, []).append(reached)
            units[label] = "FLOP/s" if by_flops else f"{candidate.work.item}/s"
    curves = [Curve(label, units[label], points, _knee(points)) for label, points in found.items()]
    measured = [(p.rate, p.id) for c in curves for p in c.points if p.rate and p.admissible]
    return Sweep(
        workload=rows[0].plan.workload,
        scenario=rows[0].plan.of,
        axes=axes,
        curves=curves,
        best=max(measured)[1] if measured else None,
        # Where a crossover was looked for, its own races say more than single intervals.
        lead_changes=[] if rows[0].plan.of else _lead_changes(axes, curves),
    )


def _is_barred(row: Row, candidate: Candidate) -> bool:
    """Whether the row may not pick it, however fast it is."""
    reason = candidate.reason
    return row.is_apart(candidate) or (reason is not None and reason.code in BARRED)


def place_of(row: Row, names: Sequence[str]) -> dict[str, ParameterValue]:
    """The values of the sizes `names` at which a row was raced."""
    case = row.candidates[0].case
    sizes = {"batch": case.batch or 1, **case.params}
    return {name: sizes[name] for name in names}


def _sorted(values: Iterable[ParameterValue]) -> list[ParameterValue]:
    """Each once, numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=lambda value: 0.0 if isinstance(value, str) else float(value))


def _knee(points: Sequence[CurvePoint]) -> ParameterValue | None:
    """Where a batch stops paying: the smallest at which the rate is near the curve's best; None
    where it still rises at the largest measured."""
    measured = [(p.at["batch"], p.rate) for p in points if list(p.at) == ["batch"] and p.rate]
    if len(measured) < 2:
        return None
    best = max(rate for _, rate in measured)
    found = next(batch for batch, rate in measured if rate >= KNEE * best)
    return None if found == measured[-1][0] else found


def _lead_changes(
    axes: Mapping[str, Sequence[ParameterValue]], curves: Sequence[Curve]
) -> list[LeadChange]:
    """Where another candidate becomes the fastest beyond doubt, over one number.

    Both must have been measured on either side, and their intervals must not touch where the new
    one leads.
    """
    if len(axes) != 1 or any(isinstance(value, str) for value in next(iter(axes.values()))):
        return []
    ((name, values),) = axes.items()
    leader, led_at, found = "", values[0], []
    before: dict[str, CurvePoint] = {}
    for value in values:
        here = {
            curve.candidate: point
            for curve in curves
            for point in curve.points
            if point.at[name] == value and point.rate is not None and point.median_s is not None
        }
        if not here:
            continue
        fastest = min(here, key=lambda label: here[label].median_s or 0.0)
        if leader not in here:
            leader = fastest
        elif fastest != leader and fastest in before and _apart(here[fastest], here[leader]):
            found.append(LeadChange(name, (led_at, value), leader, fastest))
            leader = fastest
        if fastest == leader:
            led_at, before = value, here
    return found


def _apart(faster: CurvePoint, slower: CurvePoint) -> bool:
    """Whether two intervals of the median step do not touch."""
    if faster.ci95_s is None or slower.ci95_s is None:
        return False
    return faster.ci95_s[1] < slower.ci95_s[0]
