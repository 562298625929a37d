"""Bars, gauges and curves made of characters."""

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"


def _halves(share: float, width: int) -> tuple[int, int]:
    """Whole and half cells of a bar; any share above 0 is visible, and only 1 is full."""
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    if share > 0:
        halves = max(1, halves)
    if share < 1:
        halves = min(halves, width * 2 - 1)
    return divmod(halves, 2)


def bar(share: float, width: int) -> str:
    """A thin bar, with a gap to those of neighbouring lines."""
    whole, half = _halves(share, width)
    return "━" * whole + "╸" * half


def gauge(share: float, width: int) -> str:
    """A filled part and a visible rest: the used share of a whole."""
    whole, half = _halves(share, width)
    drawn = "█" * whole + "▌" * half
    return drawn + "░" * (width - len(drawn))


def sparkline(values: Sequence[float], width: int, low: float, high: float) -> str:
    """A curve of `values` over `width` cells, scaled from `low` to `high`; "" without values."""
    if not values:
        return ""
    drawn = []
    for cell in range(width):
        start, end = (place * len(values) // width for place in (cell, cell + 1))
        part = values[start : max(start + 1, end)]
        share = (sum(part) / len(part) - low) / (high - low) if high > low else 0.0
        drawn.append(_LEVELS[round(min(1.0, max(0.0, share)) * (len(_LEVELS) - 1))])
    return "".join(drawn)
