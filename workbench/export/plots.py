"""The plots of a report: the samples of each row, the curves of sweeps, the roofline."""

from collections.abc import Sequence

from ..advisor.crossover import number
from ..records.document import Sweep
from ..records.verdict import Crossover
from ..report.candidate import Candidate
from ..report.report import Report
from ..text import units
from .view.curves import curve_name, place_text, sweep_title, unit_of, value_text
from .view.derived import RunView
from .view.roofline import FLOPS, limits
from .view.svg import Curve, Plot, Strip
from .view.words import device_tone, provenance_on

MOST_SAMPLES = 150  # drawn for one candidate, evenly spaced in sorted order
TIMES = "seconds per step: samples, median and its 95% interval"


def row_plot(title: str, found: Sequence[Candidate], run: RunView) -> Plot:
    """The samples of measured candidates, with their medians and intervals."""
    strips = []
    for candidate in found:
        case, measured = candidate.case, run.measured(candidate)
        name, median_s = run.case_name(case.id), measured.median_s or 0.0
        low, high = measured.ci95_s or (median_s, median_s)
        text = f"{name}: median {units.duration(median_s)}, "
        if measured.ci95_s is not None:
            text += f"95% CI {units.duration(low)} to {units.duration(high)}, "
        text += f"{units.counted(measured.n, 'sample')}, {provenance_on(case.device)}"
        some = candidate.ordered_s[:: -(-measured.n // MOST_SAMPLES)]
        strips.append(Strip(name, device_tone(case), text, median_s, (low, high), some))
    origin = provenance_on(*(candidate.case.device for candidate in found))
    return Plot(title, origin, TIMES, units.duration, strips=strips)


def sweep_plots(sweep: Sweep, crossover: Crossover | None) -> list[Plot]:
    """The rates over one numeric size, with the crossover; [] over words or several sizes."""
    curves = []
    for curve in sweep.curves:
        points = []
        for point in curve.points:
            x, rate = next(iter(point.at.values())), units.rate(point.rate, unit_of(curve))
            if point.rate and not isinstance(x, str) and x > 0:
                text = f"{curve_name(curve)}, {place_text(point.at)}: {rate}, "
                points.append((x, point.rate, text + provenance_on(curve.candidate)))
        curves += [Curve(curve_name(curve), points)] if points else []
    if len(sweep.axes) != 1 or len({x for curve in curves for x, _, _ in curve.points}) < 2:
        return []
    if crossover is not None and crossover.value is not None:
        top = max(rate for curve in curves for _, rate, _ in curve.points)
        low, high = crossover.ci95 or (crossover.value, crossover.value)
        text = f"crossover at {crossover.parameter} {number(crossover.value)}"
        text += " with its 95% interval" if crossover.ci95 else ""
        curves.append(Curve(text, [(x, top, text) for x in (low, crossover.value, high)]))
    (unit, *_), (axis,) = (curve.unit for curve in sweep.curves), sweep.axes
    origin = provenance_on(*(curve.candidate for curve in sweep.curves))
    return [Plot(sweep_title(sweep), origin, axis, value_text, unit, curves=curves)]


def roofline_plots(report: Report) -> list[Plot]:
    """The ceilings of each device in the precisions that ran, and the candidates under them."""
    run = RunView(report)
    roofs, under = limits(report.candidates.values(), run)
    curves = [Curve(n, [(x, y, n) for x, y in line]) for n, (line, _) in roofs.items()]
    points = []
    for candidate, (x, y) in under:
        name, origin = run.case_name(candidate.case.id), provenance_on(candidate.case.device)
        unit = units.per_s(candidate.case.precision)
        points.append((x, y, f"{name}, {candidate.scenario}: {units.rate(y, unit)}, {origin}"))
    if not points:
        return []
    origin = provenance_on(*(candidate.case.device for candidate, _ in under))
    axis, curves = "FLOP per byte of memory traffic", [*curves, Curve("candidates", points, False)]
    return [Plot("Roofline", origin, axis, units.significant, FLOPS, curves=curves)]
