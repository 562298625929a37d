"""Plots: ticks that people can read, and marks that stay on the drawing."""

import math
import re
from xml.etree import ElementTree as ET

from hypothesis import given, strategies as st

from workbench.export.view.svg import LEFT, WIDTH, Curve, Plot, Strip, drawing
from workbench.text import units

times = st.floats(1e-9, 1e5)


def texts(svg: ET.Element) -> list[str]:
    return [element.text or "" for element in svg.iter("text")]


@given(st.lists(times, min_size=1, max_size=9))
def test_every_strip_is_on_the_drawing_and_the_axis_has_readable_ticks(samples) -> None:
    low, high = min(samples), max(samples)
    strip = Strip("cpu torch", "cpu", "hover", samples[0], (low, high), samples)
    svg = drawing(Plot("title", "measured here", "s", units.duration, strips=[strip]))
    places = [float(x) for x in re.findall(r"M([-\d.]+) ", svg.find(".//path").get("d"))]
    assert len(places) == len(samples)
    assert all(4 <= x <= WIDTH - 4 for x in places)
    assert sorted(places) == [x for _, x in sorted(zip(samples, places, strict=True))]
    assert 1 <= len(svg.findall("line")) <= 7
    assert {"title", "measured here", "cpu torch"} <= set(texts(svg))


def test_ticks_are_decades_on_a_long_axis_and_even_steps_on_a_short_one() -> None:
    def ticks(low: float, high: float) -> list[str]:
        points = [(low, 1.0, "a"), (high, 2.0, "b")]
        svg = drawing(Plot("t", "simulated", "n", str, "FLOP/s", curves=[Curve("c", points)]))
        return [t.text for t in svg.iter("text") if t.get("class") == "soft middle"][:-1]

    assert ticks(1, 1000) == ["1.0", "10.0", "100.0", "1000.0"]
    assert ticks(100, 200) == ["100.0", "120.0", "140.0", "160.0", "180.0", "200.0"]


def test_curves_rise_with_their_values_and_say_theirs_to_a_pointer() -> None:
    points = [(1, 10.0, "one"), (10, 1000.0, "two")]
    svg = drawing(Plot("t", "estimated", "n", str, "B/s", curves=[Curve("c", points)]))
    (one, two) = [circle for circle in svg.iter("circle") if circle.find("title") is not None]
    assert [one.find("title").text, two.find("title").text] == ["one", "two"]
    assert float(one.get("cx")) >= LEFT
    assert float(one.get("cy")) > float(two.get("cy"))
    assert math.isclose(float(svg.get("viewBox").split()[2]), WIDTH)
