"""Several values in one word: `64,100`, or `64..4096` for all doublings in that range."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from .usage import UsageError

if TYPE_CHECKING:
    from ..contract import Parameter, ParameterValue

MOST_VALUES = 64  # in one word

V = TypeVar("V")


def numbers(name: str, text: str, kind: type[int] | type[float]) -> list[ParameterValue]:
    """The numbers in `text`, in its order and without repeats; UsageError names `name`."""
    noun = "whole numbers" if kind is int else "numbers"
    found: list[ParameterValue] = []
    for part in text.split(","):
        low_text, dots, high_text = part.partition("..")
        try:
            low = kind(low_text)
            high = kind(high_text) if dots else low
        except (ValueError, OverflowError):
            example = "64 or 64,100 or 64..4096"
            raise UsageError(f"{name} takes {noun} such as {example}, not {text!r}") from None
        if not (dots == "" or 0 < low < high < float("inf")):
            raise UsageError(f"{name} takes a rising range above 0 such as 64..4096, not {part!r}")
        while low < high and len(found) <= MOST_VALUES:
            found.append(low)
            low *= 2
        found.append(high)
    if len(found) > MOST_VALUES:
        raise UsageError(f"{name} takes at most {MOST_VALUES} values")
    return list(dict.fromkeys(found))


def parse(parameter: Parameter, text: str) -> list[ParameterValue]:
    """The values of `parameter` in `text`, within its range; a path with commas is one value."""
    if isinstance(parameter.default, str):
        parts = text.split(",") if parameter.choices else [text]
        return list(dict.fromkeys(parameter.parse(part) for part in parts))
    if "," not in text and ".." not in text:
        return [parameter.parse(text)]
    found = numbers(parameter.name, text, type(parameter.default))
    return [parameter.parse(str(value)) for value in found]


def coarse_to_fine(axes: Mapping[str, Sequence[V]]) -> list[dict[str, V]]:
    """Every combination of the values, coarse first, so that a grid cut short spans its range.

    On each axis the ends come first, then the middle, then the middles of the remaining gaps.
    """
    spread = [[values[i] for i in _spread(len(values))] for values in axes.values()]
    places = itertools.product(*(range(len(values)) for values in spread))
    by_fineness = sorted(places, key=lambda place: (max(place, default=0), place))
    return [
        {name: found[i] for name, found, i in zip(axes, spread, place, strict=True)}
        for place in by_fineness
    ]


def _spread(count: int) -> list[int]:
    """0 .. count - 1, each as far as possible from those before it."""
    found, gaps = list(dict.fromkeys([0, count - 1]))[:count], [(0, count - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if low < middle:
            found.append(middle)
            gaps += [(low, middle), (middle, high)]
    return found


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """One number or several: `8`, `1,8,64` or `1..256`; UsageError names the option."""
    return tuple(int(number) for number in numbers(option, text, int))


def words(texts: Iterable[str]) -> tuple[str, ...]:
    """The values of an option that is repeated or takes a list with commas, or both."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(part for part in parts if part)
