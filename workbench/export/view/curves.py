"""The curves of a sweep: a table of rates, findings in sentences, and a chart."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ...contract import COLUMNS, ParameterValue, kind_of
from ...records.document import Curve, CurvePoint, LeadChange, Sweep
from ...records.verdict import Crossover
from ...report.names import place_text, value_text
from ...text import units
from .chart import LABEL, Band, Series, chart
from .spans import Span, Text, heading
from .table import Column, Line, table_lines

MARKS = "*o+x#@%&$~abcdefghijklmnpqrstuvwyz"  # one for each curve; more curves repeat them
LEAST_HEIGHT = 6  # lines of the smallest useful plot
AXIS_LINES = 2
SHADES = 4  # tones for each kind of device


def curve_name(curve: Curve) -> str:
    return curve.candidate.replace("/", " ")


def sweep_title(sweep: Sweep) -> str:
    name = f"{sweep.scenario}, {sweep.workload}" if sweep.scenario else sweep.workload
    return f"{name} over {', '.join(sweep.axes)}"


def rate_table(sweep: Sweep) -> tuple[list[Column], list[Line]]:
    """The rates at all points, a column for each curve, of which the last disappear first.  Points
    with several measured candidates also show the highest rate."""
    columns = [
        Column("at", ", ".join(sweep.axes)),
        *(
            Column(curve.candidate, curve_name(curve), rank, align="right")
            for rank, curve in enumerate(sweep.curves, 1)
        ),
        *([Column("highest", "Highest rate", minimum=34)] if len(sweep.curves) > 1 else []),
    ]
    lines = []
    axes, places = sweep.axes, [point.at for curve in sweep.curves for point in curve.points]
    ordered = sorted(places, key=lambda at: [axes[name].index(at[name]) for name in axes])
    for place, _ in itertools.groupby(ordered):
        here = [(c, point) for c in sweep.curves for point in c.points if point.at == place]
        at = ", ".join(map(value_text, place.values()))
        cells = {curve.candidate: Text.of(_rate(curve, point)) for curve, point in here}
        measured = [found for found in here if found[1].rate is not None]
        able = [found for found in measured if found[1].admissible and len(measured) > 1]
        best = max(able, key=lambda found: found[1].rate or 0.0, default=None)
        text = f"{_rate(*best)}  {curve_name(best[0])}" if best else "-"
        lines.append(Line(at, {"at": Text.of(at), **cells, "highest": Text.of(text)}))
    return columns, lines


def _rate(curve: Curve, point: CurvePoint) -> str:
    return "-" if point.rate is None else units.rate(point.rate, unit_of(curve))


def unit_of(curve: Curve) -> str:
    """The unit of the curve's rates; for INT8 it replaces the FLOP/s of the document."""
    _, _, precision, *_ = curve.candidate.split("/")
    return units.per_s(precision) if curve.unit == "FLOP/s" else curve.unit


def findings(sweep: Sweep) -> Iterator[str]:
    """The findings of a sweep, a sentence each."""
    for change in sweep.lead_changes:
        low, high = map(value_text, change.between)
        names = f"{change.to_candidate} overtakes {change.from_candidate}".replace("/", " ")
        yield f"{names} between {change.parameter} {low} and {high}"
    for curve in sweep.curves:
        if curve.knee is not None:
            yield f"{curve_name(curve)} first reaches 90% of its best rate at batch {curve.knee}"
    for curve in sweep.curves:
        for point in curve.points:
            if point.id == sweep.best and point.rate is not None:
                where = f"{curve_name(curve)} at {place_text(point.at)}"
                yield f"highest rate: {_rate(curve, point)}, {where}"


def chart_lines(
    sweep: Sweep,
    width: int,
    height: int,
    at: Mapping[str, ParameterValue] = {},
    chosen: str | None = None,
    bands: Sequence[Band] = (),
    whole: Sweep | None = None,
) -> list[Text]:
    """The curves over one numeric size; [] if there are none.  `at` is the point of the row on the
    screen, `chosen` the label of the candidate under the cursor, whose curve is drawn on top.
    `whole` includes hidden curves, so that marks stay."""
    curves = sorted(sweep.curves, key=lambda curve: curve.candidate == chosen)
    marks, series = curve_marks(whole or sweep), []
    for curve in curves:
        mark, tone = marks[curve.candidate]
        tone = tone if curve.candidate == chosen else tone.removeprefix("strong ")
        if line := [(x, rate) for x, rate, _ in drawn_points(curve)]:
            series.append(Series((mark, tone), line, curve_name(curve)))
    places = sorted({x for each in series for x, _ in each.places})
    if len(sweep.axes) != 1 or len(places) < 2 or len({curve.unit for curve in curves}) != 1:
        return []
    labels = [
        (x, (value_text(x), "strong command" if x in at.values() else "dim"))
        for x in (places[0], places[-1], *places[1:-1])
    ]
    rate = partial(units.rate, unit=curves[0].unit)
    return chart(series, labels, rate, width, height, bands)


def curve_marks(sweep: Sweep) -> dict[str, Span]:
    """The mark of each curve and its shade of the device's tone, by the curve's label."""
    found, seen = {}, dict.fromkeys(COLUMNS, 0)
    for mark, curve in zip(itertools.cycle(MARKS), sweep.curves, strict=False):
        kind = kind_of(curve.candidate.partition("/")[0]).column
        found[curve.candidate] = mark, f"strong {kind}-{seen[kind] % SHADES}"
        seen[kind] += 1
    return found


def drawn_points(curve: Curve) -> Iterator[tuple[float, float, CurvePoint]]:
    """Size, rate and point, where both are positive numbers, as logarithmic axes need."""
    for point in curve.points:
        size = next(iter(point.at.values()))
        if not isinstance(size, str) and size > 0 and point.rate:
            yield size, point.rate, point


def crossings(sweep: Sweep, found: Crossover | None = None) -> tuple[list[Band], str]:
    """The sizes between which the lead changes to another device, or else to another candidate, and
    a word for which of the two."""
    if found is not None and found.value is not None:
        low, high = found.ci95 or (found.value, found.value)
        bands = [Band(low, high, found.value)]
        bands += [Band(*found.back)] if found.back is not None else []
        return bands, "changes device" if found.between == "device" else "changes"
    moves = [change for change in sweep.lead_changes if _moves(change)]
    bands = [
        Band(low, high)
        for low, high in (change.between for change in moves or sweep.lead_changes)
        if not isinstance(low, str) and not isinstance(high, str) and low > 0
    ]
    return bands, "changes device" if moves else "changes"


def _moves(change: LeadChange) -> bool:
    """Whether the lead changes to another kind of device."""
    names = change.from_candidate, change.to_candidate
    return len({kind_of(name.partition("/")[0]).column for name in names}) == 2


def curve_lines(
    sweep: Sweep,
    at: Mapping[str, ParameterValue],
    chosen: str | None,
    width: int,
    height: int,
    found: Crossover | None = None,
    whole: Sweep | None = None,
) -> list[Text]:
    """The plot first, then as many findings as fit; for the arguments see `chart_lines`."""
    bands, change = crossings(sweep, found)
    shaded = f", shaded where the lead {change}" if bands else ""
    title = heading(f"Rate over {', '.join(sweep.axes)}{shaded}", width)
    found_out = [Text.of(sentence) for sentence in findings(sweep)]
    sentences = [sentence.truncate(width) for sentence in found_out]
    wrapped = [line for sentence in found_out for line in sentence.wrap(width)]
    room, plot_width = height - AXIS_LINES, width - LABEL - 1
    plot_height = max(LEAST_HEIGHT, room * 3 // 4, room - 1 - len(sentences))
    drawn: list[Text] = []
    if plot_width >= LABEL:
        drawn = chart_lines(sweep, plot_width, plot_height, at, chosen, bands, whole)
    if not drawn:
        return [title, *sentences, *table_lines(*rate_table(sweep), width)][:height]
    if len(drawn) > height:
        return wrapped if len(wrapped) <= height else sentences[:height]
    room = height - len(drawn)
    if len(wrapped) <= room:  # a cut finding would lose its numbers, which come last
        sentences = wrapped
    return [*([title] if room > len(sentences) else []), *drawn, *sentences[:room]]
