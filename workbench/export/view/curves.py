"""The curves of a sweep: a table of rates, findings in sentences, and a chart of characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from ...contract import COLUMNS, ParameterValue, kind_of
from ...records.document import Curve, CurvePoint, Sweep, Value
from ...records.verdict import Crossover
from ...text import units
from .chart import LABEL, Band, Place, Series, chart
from .facts import heading
from .spans import Span, Text
from .table import UNLIMITED, Column, Line, fit, table_lines

MARKS = "*o+x#@%&$~abcdefghijklmnpqrstuvwyz"  # one for each curve; further ones begin again
WIDTH, HEIGHT = 64, 14  # cells of the plot in plain text
AXIS_ROOM = 5  # columns after it, for the last value on the axis
LEAST_HEIGHT = 6  # lines of the smallest useful plot
AXIS_LINES = 2
SHADES = 4  # tones for each kind of device


def value_text(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def place_text(at: Mapping[str, ParameterValue]) -> str:
    """`n=512, batch=8`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in at.items())


def curve_name(curve: Curve) -> str:
    return curve.candidate.replace("/", " ")


def sweep_title(sweep: Sweep) -> str:
    name = f"{sweep.scenario}, {sweep.workload}" if sweep.scenario else sweep.workload
    return f"{name} over {', '.join(sweep.axes)}"


# ------------------------------------------------------- tables, findings


def rate_table(sweep: Sweep) -> tuple[list[Column], list[Line]]:
    """The rates at all points, a column for each curve."""
    columns = [
        Column("at", ", ".join(sweep.axes)),
        *(Column(c.candidate, curve_name(c), align="right") for c in sweep.curves),
        Column("fastest", "Fastest"),
    ]
    lines = []
    for at, here in _points(sweep):
        place = ", ".join(map(value_text, at.values()))
        cells = {curve.candidate: Text.of(_rate(curve, point)) for curve, point in here}
        best = _best(here)
        cells["fastest"] = Text.of(curve_name(best[0]) if best else "-")
        lines.append(Line(place, {"at": Text.of(place), **cells}))
    return columns, lines


def rate_lines(sweep: Sweep, width: int = UNLIMITED) -> list[Text]:
    """The table of rates; only the fastest if that is too wide."""
    columns, lines = rate_table(sweep)
    natural = sum(least + 2 for _, least in fit(columns, lines, UNLIMITED)) - 2
    return table_lines(columns, lines) if natural <= width else best_lines(sweep, width)


_BEST_COLUMNS = (
    Column("at", "At"),
    Column("rate", "Best rate", align="right"),
    Column("candidate", "Fastest", minimum=20),
)


def best_lines(sweep: Sweep, width: int) -> list[Text]:
    """The fastest at each point; empty where nothing was measured."""
    lines = []
    for at, here in _points(sweep):
        place = place_text(at)
        if (best := _best(here)) is not None:
            cells = {"rate": Text.of(_rate(*best)), "candidate": Text.of(curve_name(best[0]))}
            lines.append(Line(place, {"at": Text.of(place), **cells}))
    return table_lines(_BEST_COLUMNS, lines, width) if lines else []


Here = list[tuple[Curve, CurvePoint]]  # the point of every curve at one place


def _points(sweep: Sweep) -> Iterator[tuple[Mapping[str, Value], Here]]:
    longest = max(sweep.curves, key=lambda curve: len(curve.points), default=None)
    for place in longest.points if longest else ():
        at = place.at
        yield at, [(c, point) for c in sweep.curves for point in c.points if point.at == at]


def _rate(curve: Curve, point: CurvePoint) -> str:
    return "-" if point.rate is None else units.rate(point.rate, curve.unit)


def _best(here: Here) -> tuple[Curve, CurvePoint] | None:
    """The fastest curve that may be picked."""
    able = [found for found in here if found[1].rate is not None and found[1].admissible]
    return max(able, key=lambda found: found[1].rate or 0.0, default=None)


def findings(sweep: Sweep) -> Iterator[str]:
    """The findings of a sweep, a sentence each."""
    for change in sweep.lead_changes:
        low, high = map(value_text, change.between)
        winner, loser = (
            name.replace("/", " ") for name in (change.to_candidate, change.from_candidate)
        )
        yield f"{winner} overtakes {loser} between {change.parameter} {low} and {high}"
    for curve in sweep.curves:
        if curve.knee is not None:
            yield f"{curve_name(curve)} first reaches 90% of its best rate at batch {curve.knee}"
    for curve in sweep.curves:
        for point in curve.points:
            if point.id == sweep.best and point.rate is not None:
                yield f"best: {_rate(curve, point)}, {curve_name(curve)} at {place_text(point.at)}"


# ----------------------------------------------------------------- chart


def chart_lines(
    sweep: Sweep,
    width: int,
    height: int,
    at: Mapping[str, ParameterValue] | None = None,
    chosen: str | None = None,
    *,
    fine: bool = False,
    band: Band | None = None,
) -> list[Text]:
    """The curves over one number; empty where there is no such curve.

    `at` is the point of the row on the screen, `chosen` the label of the candidate under the
    cursor, whose curve lies over the others.
    """
    curves = sorted(sweep.curves, key=lambda curve: curve.candidate == chosen)
    lines = [(curve, _line(curve)) for curve in curves]
    places = {x for _, line in lines for x, _ in line}
    one_unit = len({curve.unit for curve in curves}) == 1
    if len(sweep.axes) != 1 or len(places) < 2 or not one_unit:
        return []
    marks, series = _marks(sweep), []
    for curve, line in lines:
        mark, tone = marks[curve.candidate]
        strong = " strong" if curve.candidate == chosen else ""
        series += [Series((mark, tone + strong), line, curve_name(curve))] if line else []
    ((_, values),) = sweep.axes.items()
    numbers = [
        value
        for value in values
        if not isinstance(value, str) and value > 0
        if min(places) <= math.log10(value) <= max(places)  # others were not measured
    ]
    here = at.values() if at is not None else ()
    labels = [
        (math.log10(value), (value_text(value), "strong command" if value in here else "dim"))
        for value in (numbers[0], numbers[-1], *numbers[1:-1])
    ]
    unit = curves[0].unit
    return chart(series, labels, unit, width, height, fine=fine, band=band)


def _marks(sweep: Sweep) -> dict[str, Span]:
    """By label: the mark that draws the curve, and its shade of the device's tone."""
    found, seen = {}, dict.fromkeys(COLUMNS, 0)
    for mark, curve in zip(itertools.cycle(MARKS), sweep.curves, strict=False):
        kind = kind_of(curve.candidate.partition("/")[0]).column
        found[curve.candidate] = mark, f"{kind}-{seen[kind] % SHADES}"
        seen[kind] += 1
    return found


def curve_marks(sweep: Sweep) -> dict[str, Text]:
    """By label: the mark that draws the curve, in its tone."""
    marks = _marks(sweep).items()
    return {label: Text.of((mark, f"strong {tone}")) for label, (mark, tone) in marks}


def legend(sweep: Sweep) -> list[Text]:
    """The marks with the names of their curves."""
    return [
        Text.of(mark, f" {label.replace('/', ' ')}") for label, mark in curve_marks(sweep).items()
    ]


def _line(curve: Curve) -> list[Place]:
    """The points of a curve, without those whose parameter is not positive."""
    found = []
    for point in curve.points:
        value = next(iter(point.at.values()))
        if not isinstance(value, str) and value > 0 and point.rate:
            found.append((math.log10(value), math.log10(point.rate)))
    return found


def crossing(sweep: Sweep, found: Crossover | None = None) -> Band | None:
    """The sizes between which the lead goes to the other device."""
    if found is not None and found.value is not None:
        low, high = found.ci95 or (found.value, found.value)
        return Band(math.log10(low), math.log10(high), math.log10(found.value))
    for change in sweep.lead_changes:
        names = change.from_candidate, change.to_candidate
        from_, to = change.between
        sides = {kind_of(name.partition("/")[0]).column for name in names}
        if len(sides) > 1 and not isinstance(from_, str) and not isinstance(to, str) and from_ > 0:
            return Band(math.log10(from_), math.log10(to))
    return None


def curve_lines(
    sweep: Sweep,
    at: Mapping[str, ParameterValue],
    chosen: str | None,
    width: int,
    height: int,
    *,
    fine: bool = False,
    found: Crossover | None = None,
) -> list[Text]:
    """The plot first, then as many findings as fit; for `at` and `chosen` see `chart_lines`."""
    band = crossing(sweep, found)
    shaded = ", shaded where the lead goes to the other device" if fine and band else ""
    title = heading(f"{sweep.workload} over {', '.join(sweep.axes)}{shaded}", width)
    sentences = [Text.of(sentence).truncate(width) for sentence in findings(sweep)]
    room, plot_width = height - AXIS_LINES, width - LABEL - 1
    plot_height = max(LEAST_HEIGHT, room * 3 // 4, room - 1 - len(sentences))
    drawn: list[Text] = []
    if plot_width >= LABEL:
        drawn = chart_lines(sweep, plot_width, plot_height, at, chosen, fine=fine, band=band)
    if not drawn:
        return [title, *sentences, *best_lines(sweep, width)][:height]
    if len(drawn) > height:
        return sentences[:height]
    room = height - len(drawn)
    return [*([title] if room > len(sentences) else []), *drawn, *sentences[:room]]
