"""A chart of braille characters, its axes logarithmic unless the caller wants otherwise."""

import itertools
import math
from collections.abc import Callable, Sequence

import msgspec

from .spans import Span, Text

LABEL = 19  # columns before the plot
MOST_NAME = 26  # cells of a name at the end of a line
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a cell, row by row
BRAILLE = 0x2800

Place = tuple[float, float]  # horizontal and vertical value


class Series(msgspec.Struct, frozen=True):
    """A line with `name` at its end and, unless it is empty, `mark` at each point."""

    mark: Span
    places: Sequence[Place]
    name: str = ""


class Band(msgspec.Struct, frozen=True):
    """An interval of the horizontal axis, and its middle if known."""

    low: float
    high: float
    middle: float | None = None


def ticks(low: float, high: float, most: int, least: int = 2) -> list[float]:
    """About `most` ticks of a logarithmic axis, at 1, 2 and 5 times powers of ten, but at least
    two: a single one would not show the scale."""
    powers = range(math.floor(math.log10(low)) - 2, math.ceil(math.log10(high)) + 1)
    steps = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]

    def multiples(step: float) -> range:
        return range(math.ceil(low / step), math.floor(high / step) + 1)

    if high < 10 * low:
        able = [step for step in steps if len(multiples(step)) >= least] or steps[:1]
        step = next((each for each in able if (high - low) / each <= most), able[-1])
        return [step * n for n in multiples(step)]
    found = [step for step in steps if low <= step <= high]
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(found) > most and len(tens) >= least:
        return tens[:: math.ceil(len(tens) / most)]
    return found


def chart(
    series: Sequence[Series],
    labels: Sequence[tuple[float, Span]],
    level_text: Callable[[float], str],
    width: int,
    height: int,
    bands: Sequence[Band] = (),
    across: Callable[[float], float] = math.log10,
) -> list[Text]:
    """The series, later ones on top, with names at their ends, above an axis with as many of the
    first `labels` as fit.  `level_text` formats a tick of the vertical axis.  `width` and `height`
    are those of the plot; labels take `LABEL` more columns, the axis two more lines.  `across`
    scales the horizontal axis: `float` makes it linear."""
    longest = max(len(each.name) for each in series)
    name_room = longest + 3 if 0 < longest <= min(MOST_NAME, width // 3) - 3 else 0
    xs, ys = zip(*(place for each in series for place in each.places), strict=True)
    bounds = _bounds(list(map(across, xs))), _bounds(list(map(math.log10, ys)))
    scales = _Scales(across, *bounds, width - name_room, height)
    grid = [[(" ", "")] * width for _ in range(height)]
    for band in bands:
        _shade(grid, band, scales)
    for each in series:
        _draw_braille(grid, list(map(scales.dots, each.places)), each.mark[1])
    for each in series:
        for x, y in each.places if each.mark[0] else ():
            grid[scales.line(y)][scales.column(x)] = each.mark
    if name_room:
        _write_names(grid, series, scales)
    low, high = scales.vertical
    levels = ticks(10**low, 10**high, max(2, height // 2))
    texts = {scales.line(level): level_text(level) for level in levels}
    sides = [f"{texts.get(number, ''):>{LABEL - 2}} |" for number in range(height)]
    return [
        *(Text.of((side, "dim"), _row(cells)) for side, cells in zip(sides, grid, strict=True)),
        Text.of((" " * (LABEL - 1) + "+" + "-" * scales.width, "rule")),
        _row([*[(" ", "dim")] * LABEL, *_axis(labels, scales)]),
    ]


class _Scales(msgspec.Struct, frozen=True):
    """Maps values to places in a plot: to cells, and to dots, two by four in each cell."""

    across: Callable[[float], float]
    horizontal: tuple[float, float]  # lowest and highest value after `across`
    vertical: tuple[float, float]  # lowest and highest logarithm
    width: int
    height: int

    def dots(self, place: Place) -> tuple[int, int]:
        (left, right), (bottom, top) = self.horizontal, self.vertical
        along = (self.across(place[0]) - left) / (right - left)
        down = (top - math.log10(place[1])) / (top - bottom)
        return round(along * (2 * self.width - 1)), round(down * (4 * self.height - 1))

    def column(self, x: float) -> int:
        return self.dots((x, 1.0))[0] // 2

    def line(self, y: float) -> int:
        return self.dots((1.0, y))[1] // 4


def _shade(grid: list[list[Span]], band: Band, scales: _Scales) -> None:
    middle = None if band.middle is None else scales.column(band.middle)
    for column in range(max(0, scales.column(band.low)), scales.column(band.high) + 1):
        for row in grid:
            if column < len(row):
                row[column] = ("┆" if column == middle else "░", "rule")


def _bounds(numbers: Sequence[float]) -> tuple[float, float]:
    low, high = min(numbers), max(numbers)
    return (low, high) if high - low > 1e-9 else (low - 0.1, high + 0.1)


def _draw_braille(grid: list[list[Span]], line: Sequence[tuple[int, int]], tone: str) -> None:
    """Set the dots between the points, and keep dots of other lines in the same cells."""
    for (x, y), (to_x, to_y) in itertools.pairwise(line):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(steps + 1):
            column = round(x + (to_x - x) * step / steps)
            row = round(y + (to_y - y) * step / steps)
            cell = ord(grid[row // 4][column // 2][0])
            dots = cell - BRAILLE if cell >= BRAILLE else 0
            drawn = chr(BRAILLE | dots | DOTS[row % 4][column % 2])
            grid[row // 4][column // 2] = (drawn, tone)


def _write_names(grid: list[list[Span]], series: Sequence[Series], scales: _Scales) -> None:
    """Write each name where its series ends, or on the next free line.  If lines run out, the last
    names are left out."""
    named = sorted((each for each in series if each.name), key=lambda each: -each.places[-1][1])
    ends = [scales.line(each.places[-1][1]) for each in named]
    lowest, following, width = max(ends[-1], len(named) - 1), -1, scales.width
    for number, (each, end) in enumerate(zip(named, ends, strict=True)):
        following = max(following + 1, min(end, lowest - (len(named) - 1 - number)))
        if following >= len(grid):
            return
        row, (mark, tone) = grid[following], each.mark
        name = f" {each.name}" if row[width - 1] == each.mark else f" {mark} {each.name}"
        row[width:] = [(letter, tone) for letter in name.ljust(len(row))[: len(row) - width]]


def _axis(labels: Sequence[tuple[float, Span]], scales: _Scales) -> list[Span]:
    axis = [(" ", "dim")] * (scales.width + 10)
    for x, (text, tone) in labels:
        start = max(0, scales.column(x) - len(text) // 2)
        if all(cell == " " for cell, _ in axis[max(0, start - 2) : start + len(text) + 2]):
            axis[start : start + len(text)] = [(letter, tone) for letter in text]
    return axis


def _row(cells: Sequence[Span]) -> Text:
    """The cells up to the last one that is not blank, with equal tones joined into one span."""
    end = max((place for place, (text, _) in enumerate(cells, 1) if text != " "), default=0)
    runs = itertools.groupby(cells[:end], key=lambda cell: cell[1])
    return Text.of(*(("".join(text for text, _ in run), tone) for tone, run in runs))
