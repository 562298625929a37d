"""A forest plot: each candidate's time over that of the best with its interval, on one log axis."""

import math
from collections.abc import Callable, Mapping

from ...stats.paired import Ratio
from ...text import units
from .chart import ticks
from .spans import Text

VALUE = 8  # cells for the ratio as text, with a blank
LEAST = 8  # cells of the smallest plot
LEAST_TOP = 1.25  # end of the axis if all candidates are level


def _place(value: float, all_: Mapping[str, Ratio], width: int) -> int:
    """The cell of a ratio on an axis from the lowest to the highest of the row."""
    low = min([1.0, *(behind.low for behind in all_.values())])
    high = max([LEAST_TOP, *(behind.high for behind in all_.values())])
    share = math.log(value / low) / math.log(high / low)
    return max(0, min(width - 1, round(share * (width - 1))))


def _short(text: str, ratio: float) -> str:
    """The ratio as `text`, or as `2.5e6x` where its digits would not fit."""
    return text if len(text) < VALUE else f"{units.figure(ratio)}x"


def axis(all_: Mapping[str, Ratio]) -> Callable[[str, int], Text]:
    """The head of the column: as many ticks as fit."""

    def draw(title: str, width: int) -> Text:
        if width < VALUE + LEAST:  # no candidate has a ratio yet, or there is no room for the plot
            return Text.of((title.rjust(min(width, VALUE - 1)), "dim"))
        width -= VALUE
        drawn = [" "] * width
        high = max([LEAST_TOP, *(behind.high for behind in all_.values())])
        for tick in (1.0, *ticks(1.0, high, max(2, width // 7), least=1)):
            text = _short(f"{tick:.12g}x", tick)
            start = min(_place(tick, all_, width), width - len(text))
            if all(cell == " " for cell in drawn[max(0, start - 1) : start + len(text) + 1]):
                drawn[start : start + len(text)] = text
        return Text.of((f"{title:>{VALUE - 1}} " + "".join(drawn), "dim"))

    return draw


def cell(key: str, all_: Mapping[str, Ratio], tone: str) -> Callable[[int], Text]:
    """`1.59x ┃  ├─●─┤`: the ratio, the best as a line at 1, and the interval around the ratio."""

    def draw(width: int) -> Text:
        found = all_[key]
        value = f"{_short(units.gain(found.value), found.value):>{VALUE - 1}}"
        if width < VALUE + LEAST:
            return Text.of(value)
        width -= VALUE
        low, at, high = (
            _place(value, all_, width) for value in (found.low, found.value, found.high)
        )
        drawn = [(" ", "")] * width
        drawn[_place(1.0, all_, width)] = ("│", "rule")
        drawn[low : high + 1] = [("─", tone)] * (high + 1 - low)
        if low < at:
            drawn[low] = ("├", tone)
        if high > at:
            drawn[high] = ("┤", tone)
        drawn[at] = ("●", tone)
        return Text.of(f"{value} ", *drawn)

    return draw
