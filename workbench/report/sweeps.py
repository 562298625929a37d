"""The curves of a run over sizes or batches, derived from its rows."""

from collections.abc import Iterable, Mapping, Sequence

from ..contract import ParameterValue
from ..records.document import Curve, CurvePoint, LeadChange, Sweep
from ..stats import ratios, samples as stats
from .candidate import Candidate, Row

KNEE = 0.9  # share of the best rate


def sweeps(rows: Sequence[Row]) -> list[Sweep]:
    """One sweep for each workload, or scenario, that was raced at several points."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.sweep is not None:
            groups.setdefault(row.sweep, []).append(row)
    for row in rows:  # a search for a crossover includes the size of its scenario
        if row.plan.scenario in groups and not row.plan.point:
            groups[row.plan.scenario].append(row)
    return list(map(_sweep, groups.values()))


def _sweep(rows: Sequence[Row]) -> Sweep:
    names = list(rows[0].plan.point)
    places = [place_of(row, names) for row in rows]
    axes = {name: _sorted(place[name] for place in places) for name in names}
    ordered = sorted(
        zip(places, rows, strict=True),
        key=lambda pair: [axes[name].index(value) for name, value in pair[0].items()],
    )
    candidates = [c for _, row in ordered for c in row.candidates]
    # A sweep has one unit: FLOP/s only if the operations of every step are known.
    by_flops = all(candidate.work.flops for candidate in candidates)
    by_label: dict[tuple[str, str], list[CurvePoint]] = {}
    for place, row in ordered:
        for candidate in row.candidates:
            samples, work = candidate.ordered_s, candidate.work
            median_s = stats.median(samples) if samples else None
            time_s = median_s and median_s / candidate.step_share  # with start-up, if it counts
            amount = (work.flops or 0.0) if by_flops else work.items
            point = CurvePoint(
                at=dict(place),
                id=candidate.case.id,
                median_s=median_s,
                ci95_s=candidate.interval,
                rate=amount / time_s if candidate.is_valid and time_s else None,
                memory_peak_bytes=candidate.memory_peak_bytes,
                admissible=not row.is_barred(candidate),
            )
            unit = "FLOP/s" if by_flops else f"{work.item}/s"
            by_label.setdefault((candidate.case.label, unit), []).append(point)
    curves = [Curve(*label, points, _knee(points)) for label, points in by_label.items()]
    measured = [(p.rate, p.id) for c in curves for p in c.points if p.rate and p.admissible]
    return Sweep(
        workload=rows[0].plan.workload,
        scenario=rows[0].plan.of,
        axes=axes,
        curves=curves,
        best=max(measured)[1] if measured else None,
        # The search for a crossover makes its own, more careful comparisons.
        lead_changes=[] if rows[0].plan.of else _lead_changes(axes, ordered),
    )


def place_of(row: Row, names: Sequence[str]) -> dict[str, ParameterValue]:
    """The values of the sizes `names` in a row."""
    case = row.candidates[0].case
    sizes = {"batch": case.batch or 1, **case.params}
    return {name: sizes[name] for name in names}


def _sorted(values: Iterable[ParameterValue]) -> list[ParameterValue]:
    """Unique values: numbers ascending, words in their given order."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=lambda value: 0.0 if isinstance(value, str) else float(value))


def _knee(points: Sequence[CurvePoint]) -> ParameterValue | None:
    """The smallest batch with a rate near the best; None if it still rises at the largest."""
    measured = [(p.at["batch"], p.rate) for p in points if list(p.at) == ["batch"] and p.rate]
    if len(measured) < 2:
        return None
    best = max(rate for _, rate in measured)
    knee = next(batch for batch, rate in measured if rate >= KNEE * best)
    return None if knee == measured[-1][0] else knee


def _lead_changes(
    axes: Mapping[str, Sequence[ParameterValue]],
    ordered: Sequence[tuple[Mapping[str, ParameterValue], Row]],
) -> list[LeadChange]:
    """The points of one numeric size between which the fastest candidate changes: on either side
    the interval of the paired ratio must exclude 1."""
    if len(axes) != 1 or any(isinstance(value, str) for value in next(iter(axes.values()))):
        return []
    ((name, values),) = axes.items()
    leader, changes = "", list[LeadChange]()
    seen: list[tuple[ParameterValue, dict[str, Candidate]]] = []  # the latest first
    for value in values:
        racing = [c for place, row in ordered if place[name] == value for c in row.candidates]
        here = {c.case.label: c for c in racing if c.is_valid}
        if not here:
            continue
        fastest = min(here, key=lambda label: here[label].median_s)
        if leader not in here:
            leader = fastest
        elif fastest != leader and _is_ahead(here, fastest, leader):
            led_at = next((at for at, there in seen if _is_ahead(there, leader, fastest)), None)
            if led_at is not None:
                changes.append(LeadChange(name, (led_at, value), leader, fastest))
            leader = fastest
        seen.insert(0, (value, here))
    return changes


def _is_ahead(found: Mapping[str, Candidate], one: str, other: str) -> bool:
    """Whether the steps of `one` are faster beyond doubt."""
    if one not in found or other not in found:
        return False
    ratio = ratios.ratio_between(found[one].step_rounds(), found[other].step_rounds())
    return ratio is not None and ratio.high < 1
