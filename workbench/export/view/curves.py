"""The curves of a sweep: a table of rates, findings in sentences, and a chart of characters."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ...contract import COLUMNS, ParameterValue, kind_of
from ...records.document import Curve, CurvePoint, Sweep, Value
from ...text import units
from .facts import heading
from .spans import Text
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


def chart_lines(sweep: Sweep, width: int, height: int) -> list[str]:
    """The curves over one number, both axes logarithmic; empty where there is no such curve.

    `width` and `height` count the plot alone; labels take `LABEL` columns more, the axis two
    lines, the legend one line for each curve.
    """
    curves = [(mark, curve, _line(curve)) for mark, curve in marked_curves(sweep)]
    places = [place for _, _, line in curves for place in line]
    if len(sweep.axes) != 1 or len({x for x, _ in places}) < 2 or len(_units(sweep)) != 1:
        return []
    (left, right), (bottom, top) = (_bounds(numbers) for numbers in zip(*places, strict=True))
    grid = [[" "] * width for _ in range(height)]
    for mark, _, line in curves:
        for x, y in _drawn(line, width):
            column = round((x - left) / (right - left) * (width - 1))
            row = round((top - y) / (top - bottom) * (height - 1))
            grid[row][column] = mark
    (unit,) = _units(sweep)
    lines = []
    for number, cells in enumerate(grid):
        rate = 10 ** (top - number * (top - bottom) / max(1, height - 1))
        label = units.rate(rate, unit) if number % 4 == 0 else ""
        lines.append(f"{label:>{LABEL - 2}} |{''.join(cells).rstrip()}")
    lines += [" " * (LABEL - 1) + "+" + "-" * width]
    lines += [" " * LABEL + _axis(sweep, left, right, width)]
    return [*lines, *(f"  {mark} {curve_name(curve)}" for mark, curve, _ in curves)]


def marked_curves(sweep: Sweep) -> list[tuple[str, Curve]]:
    """The curves with the marks that draw them."""
    return list(zip(itertools.cycle(MARKS), sweep.curves, strict=False))


def _units(sweep: Sweep) -> set[str]:
    return {curve.unit for curve in sweep.curves}


def _line(curve: Curve) -> list[tuple[float, float]]:
    """The points of a curve as powers of ten, without those whose parameter is not positive."""
    found = []
    for point in curve.points:
        (value,) = list(point.at.values())[:1]
        if not isinstance(value, str) and value > 0 and point.rate:
            found.append((math.log10(value), math.log10(point.rate)))
    return found


def _bounds(numbers: Sequence[float]) -> tuple[float, float]:
    low, high = min(numbers), max(numbers)
    return (low, high) if high - low > 1e-9 else (low - 0.1, high + 0.1)


def _drawn(line: Sequence[tuple[float, float]], width: int) -> Iterator[tuple[float, float]]:
    """The points, and the straight lines between them."""
    yield from line
    for (x, y), (to_x, to_y) in itertools.pairwise(line):
        for step in range(1, width):
            share = step / width
            yield x + share * (to_x - x), y + share * (to_y - y)


def _axis(sweep: Sweep, left: float, right: float, width: int) -> str:
    """The first and last values, and as many in between as there is room for."""
    ((_, values),) = sweep.axes.items()
    numbers = [
        value
        for value in values
        if not isinstance(value, str) and value > 0
        if left - 1e-9 <= math.log10(value) <= right + 1e-9  # others were not measured
    ]
    cells = [" "] * (width + 10)
    places: Mapping[float, str] = {
        (math.log10(value) - left) / (right - left) * (width - 1): value_text(value)
        for value in (numbers[0], numbers[-1], *numbers[1:-1])
    }
    for place, text in places.items():
        start = max(0, round(place) - len(text) // 2)
        if all(cell == " " for cell in cells[max(0, start - 2) : start + len(text) + 2]):
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


# ------------------------------------------------------ chart with tones


def curve_lines(
    sweep: Sweep, at: Mapping[str, ParameterValue], chosen: str | None, width: int, height: int
) -> list[Text]:
    """The plot first, then as many findings as fit.

    `at` is the point of the row on the screen, `chosen` the label of the candidate under the
    cursor.
    """
    title = heading(f"{sweep.workload} over {', '.join(sweep.axes)}", width)
    sentences = [Text.of(sentence).truncate(width) for sentence in findings(sweep)]
    room = height - AXIS_LINES
    plot_height = max(LEAST_HEIGHT, room * 3 // 4, room - 1 - len(sentences))
    drawn = _plot(sweep, at, chosen, width - LABEL - 1, plot_height)
    if not drawn:
        return [title, *sentences, *best_lines(sweep, width)][:height]
    if len(drawn) > height:
        return sentences[:height]
    room = height - len(drawn)
    return [*([title] if room > len(sentences) else []), *drawn, *sentences[:room]]


def _plot(
    sweep: Sweep, at: Mapping[str, ParameterValue], chosen: str | None, width: int, height: int
) -> list[Text]:
    """The curves and their axis, the chosen one over the others; empty where there are none."""
    curves = sorted(sweep.curves, key=lambda curve: curve.candidate == chosen)
    if width < LABEL or not curves:
        return []
    layered = msgspec.structs.replace(sweep, curves=curves)
    lines = chart_lines(layered, width, height)[: -len(curves)]
    if not lines:
        return []
    marks = {curve.candidate: mark for mark, curve in marked_curves(sweep)}
    own = str.maketrans({mark: marks[curve.candidate] for mark, curve in marked_curves(layered)})
    tones = {marks[label]: tone for label, tone in _tones(sweep).items()}
    if chosen in marks:
        tones[marks[chosen]] += " strong"
    *plot, rule, axis = lines
    return [
        *(_toned(line[:LABEL], line[LABEL:].translate(own), tones) for line in plot),
        Text.of((rule, "rule")),
        _toned_axis(axis, at),
    ]


def _tones(sweep: Sweep) -> dict[str, str]:
    """By label: shades of its device's tone, in the order of the curves."""
    seen = dict.fromkeys(COLUMNS, 0)
    tones = {}
    for curve in sweep.curves:
        kind = kind_of(curve.candidate.partition("/")[0]).column
        tones[curve.candidate] = f"{kind}-{seen[kind] % SHADES}"
        seen[kind] += 1
    return tones


def curve_marks(sweep: Sweep) -> dict[str, Text]:
    """By label: the mark that draws the curve, in its tone."""
    tones = _tones(sweep)
    return {
        curve.candidate: Text.of((mark, f"strong {tones[curve.candidate]}"))
        for mark, curve in marked_curves(sweep)
    }


def _toned(label: str, drawn: str, tones: Mapping[str, str]) -> Text:
    """A line of the plot, each run of marks in its tone."""
    runs = (found.group() for found in re.finditer(r"(.)\1*", drawn))
    return Text.of((label, "dim"), *((run, tones.get(run[0], "")) for run in runs))


def _toned_axis(axis: str, at: Mapping[str, ParameterValue]) -> Text:
    """The values under the plot; the value of the row on the screen stands out."""
    (value,) = at.values()
    found = re.search(rf"(?<!\S){re.escape(value_text(value))}(?!\S)", axis)
    start, end = found.span() if found else (len(axis), len(axis))
    return Text.of((axis[:start], "dim"), (axis[start:end], "strong command"), (axis[end:], "dim"))
