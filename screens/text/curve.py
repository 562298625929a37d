"""The curves of a sweep beside the candidates' table: the same marks, the same colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from textual.content import Content

from workbench.contract import ParameterValue, kind_of
from workbench.export.curves import LABEL, chart_lines, findings, marked, value_text
from workbench.records.document import Curve, Sweep
from workbench.text import units

from .facts import heading
from .table import Column, Line, table_lines

LEAST_HEIGHT = 6  # of a plot worth looking at
AXIS_LINES = 2
COLOURS = 4  # of each kind of device, see theme.py


def curve_lines(
    sweep: Sweep, at: Mapping[str, ParameterValue], chosen: str | None, width: int, height: int
) -> list[Content]:
    """As much as fits: the plot first, then what it shows.

    `at` is the point looked at, `chosen` the label of the candidate under the cursor.
    """
    title = heading(f"{sweep.workload} over {', '.join(sweep.axes)}", width)
    told = [Content(text).truncate(width, ellipsis=True) for text in findings(sweep)]
    room = height - AXIS_LINES
    plot_height = max(LEAST_HEIGHT, room * 3 // 4, room - 1 - len(told))
    drawn = _plot(sweep, at, chosen, width - LABEL - 1, plot_height)
    if not drawn:
        return [title, *told, *_best_lines(sweep, width)][:height]
    if len(drawn) > height:
        return told[:height]
    room = height - len(drawn)
    return [*([title] if room > len(told) else []), *drawn, *told[:room]]


def _plot(
    sweep: Sweep, at: Mapping[str, ParameterValue], chosen: str | None, width: int, height: int
) -> list[Content]:
    """The curves and their axis, the chosen one over the others; empty where there are none."""
    curves = sorted(sweep.curves, key=lambda curve: curve.candidate == chosen)
    if width < LABEL or not curves:
        return []
    layered = msgspec.structs.replace(sweep, curves=curves)
    lines = chart_lines(layered, width, height)[: -len(curves)]
    if not lines:
        return []
    marks = {curve.candidate: mark for mark, curve in marked(sweep)}
    own = str.maketrans({mark: marks[curve.candidate] for mark, curve in marked(layered)})
    styles = {marks[label]: style for label, style in curve_styles(sweep).items()}
    if chosen in marks:
        styles[marks[chosen]] += " bold"
    *plot, rule, axis = lines
    return [
        *(_coloured(line[:LABEL], line[LABEL:].translate(own), styles) for line in plot),
        Content.styled(rule, "$rule"),
        _axis(axis, at),
    ]


def curve_styles(sweep: Sweep) -> dict[str, str]:
    """By label: shades of its device's colour, in the order of the curves."""
    seen = {"cpu": 0, "gpu": 0}
    styles = {}
    for curve in sweep.curves:
        kind = _kind(curve)
        styles[curve.candidate] = f"${kind}-{seen[kind] % COLOURS}"
        seen[kind] += 1
    return styles


def curve_marks(sweep: Sweep) -> dict[str, Content]:
    """By label: the mark that draws the curve, in its colour."""
    styles = curve_styles(sweep)
    return {
        curve.candidate: Content.styled(mark, f"bold {styles[curve.candidate]}")
        for mark, curve in marked(sweep)
    }


def _kind(curve: Curve) -> str:
    return kind_of(curve.candidate.partition("/")[0]).column


def _coloured(label: str, drawn: str, styles: Mapping[str, str]) -> Content:
    """A line of the plot, each run of marks in its colour."""
    runs = (found.group() for found in re.finditer(r"(.)\1*", drawn))
    return Content.assemble((label, "dim"), *((run, styles.get(run[0], "")) for run in runs))


def _axis(axis: str, at: Mapping[str, ParameterValue]) -> Content:
    """The values under the plot; the one looked at stands out."""
    (value,) = at.values()
    pattern = rf"(?<!\S){re.escape(value_text(value))}(?!\S)"
    found = re.search(pattern, axis)
    text = Content.styled(axis, "dim")
    return text if found is None else text.stylize("bold $primary not dim", *found.span())


_COLUMNS = (
    Column("at", "At"),
    Column("rate", "Best rate", align="right"),
    Column("candidate", "Fastest", minimum=20),
)


def _best_lines(sweep: Sweep, width: int) -> list[Content]:
    """The fastest at each point, where no curve can be drawn."""
    lines = [
        Line(place, {"at": Content(place), "rate": Content(rate), "candidate": Content(label)})
        for place, rate, label in _best(sweep)
    ]
    return table_lines(_COLUMNS, lines, width) if lines else []


def _best(sweep: Sweep) -> Iterator[tuple[str, str, str]]:
    fastest: dict[str, tuple[float, str, str]] = {}
    for curve in sweep.curves:
        for point in curve.points:
            place = ", ".join(f"{name}={value_text(value)}" for name, value in point.at.items())
            known = fastest.get(place)
            if point.rate is None or not point.admissible:
                continue
            if known is None or point.rate > known[0]:
                fastest[place] = (
                    point.rate,
                    units.rate(point.rate, curve.unit),
                    curve.candidate.replace("/", " "),
                )
    for place, (_, rate, label) in fastest.items():
        yield place, rate, label
