"""Sweeps as text: a table of rates over the points, what it shows, and a chart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..records.document import Curve, Sweep, Value
from ..text import units
from .tables import table

MARKS = "*o+x#@%&$~abcdefghijklmnpqrstuvwyz"  # one for each curve; further ones begin again
WIDTH, HEIGHT = 64, 14  # of the plot
LABEL = 19  # columns before it


def sweep_text(sweep: Sweep) -> str:
    """Rates over all points; of a single number the curves too."""
    header = (", ".join(sweep.axes), *(curve.candidate for curve in sweep.curves), "fastest")
    rows = [(*cells, leader) for cells, leader in _rows(sweep)]
    right = set(range(1, len(header) - 1))
    of = f"{sweep.scenario}, {sweep.workload}" if sweep.scenario else sweep.workload
    parts = [f"{of} over {header[0]}", table(header, rows, right), *findings(sweep)]
    if chart := chart_lines(sweep, WIDTH, HEIGHT):
        parts += ["", *chart]
    return "\n".join(parts)


def _rows(sweep: Sweep) -> Iterator[tuple[tuple[str, ...], str]]:
    places = [point.at for point in max(sweep.curves, key=lambda c: len(c.points)).points]
    for at in places:
        here = {c.candidate: point for c in sweep.curves for point in c.points if point.at == at}
        known = {label: point.rate for label, point in here.items() if point.rate is not None}
        cells = [
            units.rate(known[curve.candidate], curve.unit) if curve.candidate in known else "-"
            for curve in sweep.curves
        ]
        place = ", ".join(value_text(value) for value in at.values())
        able = [label for label in known if here[label].admissible]
        yield (place, *cells), max(able, key=known.__getitem__, default="-")


def value_text(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def findings(sweep: Sweep) -> Iterator[str]:
    """What the curves show, a sentence each."""
    for change in sweep.lead_changes:
        low, high = map(value_text, change.between)
        yield (
            f"between {change.parameter} {low} and {high} "
            f"{change.to_candidate} overtakes {change.from_candidate}"
        )
    for curve in sweep.curves:
        if curve.knee is not None:
            yield f"{curve.candidate} first reaches 90 % of its best rate at batch {curve.knee}"
    for curve in sweep.curves:
        for point in curve.points:
            if point.id == sweep.best and point.rate is not None:
                place = ", ".join(f"{k}={value_text(v)}" for k, v in point.at.items())
                rate = units.rate(point.rate, curve.unit)
                yield f"best: {rate}, {curve.candidate} at {place}"


def chart_lines(sweep: Sweep, width: int, height: int) -> list[str]:
    """The curves over one number, both axes logarithmic; empty where there is no such curve.

    `width` and `height` are of the plot alone; labels take `LABEL` columns more, the axis two
    lines, the legend one for each curve.
    """
    curves = [(mark, curve, _line(curve)) for mark, curve in marked(sweep)]
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
    return [*lines, *(f"  {mark} {curve.candidate}" for mark, curve, _ in curves)]


def marked(sweep: Sweep) -> list[tuple[str, Curve]]:
    """The curves with the marks that draw them."""
    return list(zip(itertools.cycle(MARKS), sweep.curves, strict=False))


def _units(sweep: Sweep) -> set[str]:
    return {curve.unit for curve in sweep.curves}


def _line(curve: Curve) -> list[tuple[float, float]]:
    """Its points as powers of ten; none where the parameter is no number above zero."""
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
    """The first and last values, and those between that have room."""
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
