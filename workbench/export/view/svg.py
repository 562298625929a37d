"""Plots as SVG: samples of candidates in strips, and curves over one number; all axes logarithmic.

ElementTree builds every element, so texts of others cannot inject any.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from ... import assets
from ...text import units
from ...text.sanitize import clean, shown
from .chart import ticks

WIDTH, CURVES = 420.0, 200.0  # units of the drawing, such that letters are readable on a phone
TOP, LEFT, AXIS = 38.0, 66.0, 34.0  # room for the title and for the labels of both axes
STRIP, LINE = 32.0, 15.0  # heights of a strip with its label, and of a line of the legend
COLOURS = 6  # classes c0 to c5 of the style sheet
STYLE = assets.path("report.css")
MOST_TICKS, LONGEST = 6, 64  # ticks of an axis, characters of a title

Element = ET.Element
Scale = Callable[[float], float]  # from a value to its position


@dataclass(frozen=True)
class Strip:
    """The samples of a candidate, their median and its interval."""

    label: str
    tone: str  # class of the style sheet
    title: str  # shown on hover
    middle: float
    interval: tuple[float, float]
    samples: Sequence[float]


@dataclass(frozen=True)
class Curve:
    """Points (x, y, title), `joined` by a line or alone."""

    label: str
    points: Sequence[tuple[float, float, str]]
    joined: bool = True


@dataclass(frozen=True)
class Plot:
    """Strips or curves."""

    title: str
    provenance: str
    x_label: str
    x_text: Callable[[float], str]
    y_unit: str = ""
    strips: Sequence[Strip] = ()
    curves: Sequence[Curve] = ()


def add(parent: Element, tag: str, text: str = "", **attributes: float | str) -> Element:
    """A new element at the end of `parent`; `_` in the names of attributes stands for `-`."""
    element = ET.SubElement(parent, tag)
    for name, value in attributes.items():
        written = clean(value) if isinstance(value, str) else f"{value:.1f}"
        element.set(name.rstrip("_").replace("_", "-"), written)
    element.text = clean(text)
    return element


def svg_file(plot: Plot) -> str:
    """A plot as a file of its own."""
    svg = drawing(plot)
    svg.set("xmlns", "http://www.w3.org/2000/svg")
    ET.SubElement(svg, "style").text = STYLE.read_text()
    return ET.tostring(svg, encoding="unicode")


def drawing(plot: Plot) -> Element:
    """The plot with its title, its provenance and, for curves, a legend."""
    bottom = TOP + (CURVES if plot.curves else STRIP * len(plot.strips))
    height = bottom + AXIS + LINE * len(plot.curves)
    svg = ET.Element("svg", {"viewBox": f"0 0 {WIDTH} {height}", "role": "img"})
    add(svg, "text", shown(plot.title, LONGEST), class_="name", x=4, y=14)
    add(svg, "text", plot.provenance, class_="soft", x=4, y=29)
    add(svg, "text", plot.y_unit, class_="soft end", x=WIDTH, y=29)
    (_draw_curves if plot.curves else _draw_strips)(svg, plot, bottom)
    return svg


def _scale(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """The scale of an axis over `values`, and its ticks at 1, 2 and 5 times powers of ten."""
    low, high = min(values) / 1.05, max(values) * 1.05
    span = math.log(high / low)
    found = ticks(low, high, MOST_TICKS)
    return lambda value: start + math.log(value / low) / span * (end - start), found


def _x_axis(svg: Element, plot: Plot, place: Scale, ticks: list[float], y: float) -> None:
    for tick in ticks:
        add(svg, "line", class_="grid", x1=place(tick), x2=place(tick), y1=TOP, y2=y)
        add(svg, "text", plot.x_text(tick), class_="soft middle", x=place(tick), y=y + 13)
    add(svg, "text", plot.x_label, class_="soft middle", x=WIDTH / 2, y=y + 28)


def _draw_strips(svg: Element, plot: Plot, bottom: float) -> None:
    values = [v for strip in plot.strips for v in (*strip.samples, *strip.interval, strip.middle)]
    place, ticks = _scale(values, 4, WIDTH - 4)
    _x_axis(svg, plot, place, ticks, bottom)
    for number, strip in enumerate(plot.strips):
        y = TOP + STRIP * number
        group = add(svg, "g", class_=strip.tone)
        add(group, "title", strip.title)
        add(group, "text", shown(strip.label, LONGEST), x=4, y=y + 11)
        add(group, "text", plot.x_text(strip.middle), class_="end", x=WIDTH - 4, y=y + 11)
        marks = "".join(f"M{place(sample):.1f} {y + 15:.0f}v13" for sample in strip.samples)
        add(group, "path", class_="samples", d=marks)
        (left, right), x = map(place, strip.interval), place(strip.middle)
        width = max(right - left, 1)
        add(group, "rect", class_="interval", x=left, y=y + 18, width=width, height=7)
        add(group, "line", class_="median", x1=x, x2=x, y1=y + 14, y2=y + 29)


def _draw_curves(svg: Element, plot: Plot, bottom: float) -> None:
    points = [point for curve in plot.curves for point in curve.points]
    across, ticks = _scale([x for x, _, _ in points], LEFT, WIDTH - 20)
    up, levels = _scale([y for _, y, _ in points], bottom, TOP)
    _x_axis(svg, plot, across, ticks, bottom)
    for level in levels:
        y, text = up(level), units.rate(level, plot.y_unit).removesuffix(plot.y_unit)
        add(svg, "line", class_="grid", x1=LEFT, x2=WIDTH, y1=y, y2=y)
        add(svg, "text", text, class_="soft end", x=LEFT - 4, y=y + 4)
    for number, curve in enumerate(plot.curves):
        group = add(svg, "g", class_=f"c{number % COLOURS} turn{number // COLOURS}")
        places = [(across(x), up(y), title) for x, y, title in curve.points]
        if curve.joined:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
            add(group, "path", class_="curve", d=f"M{path}")
        for x, y, title in places:
            add(add(group, "circle", cx=x, cy=y, r=3.5), "title", title)
        y = bottom + AXIS + LINE * number + 4
        add(group, "circle", cx=12, cy=y, r=4)
        add(group, "text", shown(curve.label, LONGEST), x=22, y=y + 4)
