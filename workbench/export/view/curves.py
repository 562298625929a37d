"""The curves of a sweep: a table of rates, findings in sentences, and a chart of characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ...contract import COLUMNS, ParameterValue, kind_of
from ...records.document import Curve, CurvePoint, Sweep, Value
from ...text import units
from .facts import heading
from .spans import Span, Text
from .table import UNLIMITED, Column, Line, fit, table_lines

MARKS = "*o+x#@%&$~abcdefghijklmnpqrstuvwyz"  # one for each curve; further ones begin again
WIDTH, HEIGHT = 64, 14  # cells of the plot in plain text
LABEL = 19  # columns before the plot
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


Place = tuple[float, float]  # logarithms of a value and a rate


def chart_lines(
    sweep: Sweep,
    width: int,
    height: int,
    at: Mapping[str, ParameterValue] | None = None,
    chosen: str | None = None,
) -> list[Text]:
    """The curves over one number; empty where there is no such curve.

    `at` is the point of the row on the screen, `chosen` the label of the candidate under the
    cursor, whose curve lies over the others.
    """
    curves = sorted(sweep.curves, key=lambda curve: curve.candidate == chosen)
    places = {x for curve in curves for x, _ in _line(curve)}
    one_unit = len({curve.unit for curve in curves}) == 1
    if len(sweep.axes) != 1 or len(places) < 2 or not one_unit:
        return []
    marks, lines = _marks(sweep), []
    for curve in curves:
        mark, tone = marks[curve.candidate]
        strong = " strong" if curve.candidate == chosen else ""
        lines.append(((mark, tone + strong), _line(curve)))
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
    return chart(lines, labels, curves[0].unit, width, height)


def chart(
    lines: Sequence[tuple[Span, Sequence[Place]]],
    labels: Sequence[tuple[float, Span]],
    unit: str,
    width: int,
    height: int,
) -> list[Text]:
    """Lines, each drawn with its mark, over an axis with as many labels as there is room for, the
    first ones first; both axes are logarithmic.

    `width` and `height` count the plot alone; labels take `LABEL` columns more, the axis two lines.
    """
    together = [place for _, line in lines for place in line]
    (left, right), (bottom, top) = (_bounds(numbers) for numbers in zip(*together, strict=True))

    def column(x: float) -> int:
        return round((x - left) / (right - left) * (width - 1))

    grid = [[(" ", "")] * width for _ in range(height)]
    for mark, line in lines:
        for x, y in _drawn(line, width):
            grid[round((top - y) / (top - bottom) * (height - 1))][column(x)] = mark
    found = []
    for number, cells in enumerate(grid):
        rate = 10 ** (top - number * (top - bottom) / max(1, height - 1))
        label = units.rate(rate, unit) if number % 4 == 0 else ""
        found.append(Text.of((f"{label:>{LABEL - 2}} |", "dim"), _row(cells)))
    axis = [(" ", "dim")] * (width + 10)
    for x, (text, tone) in labels:
        start = max(0, column(x) - len(text) // 2)
        if all(cell == " " for cell, _ in axis[max(0, start - 2) : start + len(text) + 2]):
            axis[start : start + len(text)] = [(letter, tone) for letter in text]
    rule = Text.of((" " * (LABEL - 1) + "+" + "-" * width, "rule"))
    return [*found, rule, _row([*[(" ", "dim")] * LABEL, *axis])]


def _row(cells: Sequence[Span]) -> Text:
    """The cells up to the last that is not blank, each run of a tone in one span."""
    end = max((place for place, (text, _) in enumerate(cells, 1) if text != " "), default=0)
    runs = itertools.groupby(cells[:end], key=lambda cell: cell[1])
    return Text.of(*(("".join(text for text, _ in run), tone) for tone, run in runs))


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


def _bounds(numbers: Sequence[float]) -> tuple[float, float]:
    low, high = min(numbers), max(numbers)
    return (low, high) if high - low > 1e-9 else (low - 0.1, high + 0.1)


def _drawn(line: Sequence[Place], width: int) -> Iterator[Place]:
    """The points, and the straight lines between them."""
    yield from line
    for (x, y), (to_x, to_y) in itertools.pairwise(line):
        for step in range(1, width):
            share = step / width
            yield x + share * (to_x - x), y + share * (to_y - y)


def curve_lines(
    sweep: Sweep, at: Mapping[str, ParameterValue], chosen: str | None, width: int, height: int
) -> list[Text]:
    """The plot first, then as many findings as fit; for `at` and `chosen` see `chart_lines`."""
    title = heading(f"{sweep.workload} over {', '.join(sweep.axes)}", width)
    sentences = [Text.of(sentence).truncate(width) for sentence in findings(sweep)]
    room, plot_width = height - AXIS_LINES, width - LABEL - 1
    plot_height = max(LEAST_HEIGHT, room * 3 // 4, room - 1 - len(sentences))
    has_room = plot_width >= LABEL
    drawn = chart_lines(sweep, plot_width, plot_height, at, chosen) if has_room else []
    if not drawn:
        return [title, *sentences, *best_lines(sweep, width)][:height]
    if len(drawn) > height:
        return sentences[:height]
    room = height - len(drawn)
    return [*([title] if room > len(sentences) else []), *drawn, *sentences[:room]]
