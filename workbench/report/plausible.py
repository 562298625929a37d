"""Refuses impossible numbers in files, before anything divides by them or prints them.

Within these bounds every product and quotient of a few numbers is finite.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ..contract import LARGEST, SMALLEST, Work
from ..records.events import BlockMeasured
from ..records.fleet import FleetCell, NodeAnswer
from ..records.verdict import Crossover, Payoff, Verdict

# The least value of fields that cannot be negative, or that are divisors.
LEAST: dict[tuple[type, str], float] = {
    (Work, "flops"): 0.0,
    (Work, "bytes_moved"): 0.0,
    (Work, "memory_bytes"): 0.0,
    (Work, "items"): SMALLEST,
    (Work, "ranks"): SMALLEST,
    (Verdict, "device_ratio"): SMALLEST,
    (Verdict, "device_ratio_ci95"): SMALLEST,
    (Payoff, "step_s"): SMALLEST,
    (Payoff, "over_step_s"): SMALLEST,
    (Crossover, "sizes"): SMALLEST,
    (Crossover, "value"): SMALLEST,
    (Crossover, "ci95"): SMALLEST,
    (NodeAnswer, "value_s"): SMALLEST,
    (NodeAnswer, "value_ci95_s"): SMALLEST,
    (FleetCell, "value_s"): SMALLEST,
    (FleetCell, "value_ci95_s"): SMALLEST,
}


def absurdity(record: object) -> str | None:
    """A sentence about the first impossible number of a record; None if there is none."""
    if isinstance(record, BlockMeasured) and _is_plain(record):
        return None
    waiting: list[tuple[str, object, float]] = [("", record, -LARGEST)]
    while waiting:
        name, value, least = waiting.pop()
        if isinstance(value, int | float):
            if not _is_plausible(value) or value < least:
                shown = f"{value:g}" if isinstance(value, float) else f"{str(value)[:20]}"
                return f"{name} cannot be {shown}"
        elif isinstance(value, list | tuple):
            kinds = set(map(type, value))
            if len(kinds) == 1 and issubclass(kind := kinds.pop(), msgspec.Struct):
                # Field by field, since a document has as many blocks as rounds.
                for part in kind.__struct_fields__:
                    column = [getattr(each, part) for each in value]
                    waiting.append((part, column, LEAST.get((kind, part), -LARGEST)))
            else:
                waiting += [(name, inner, least) for inner in _telling(value)]
        else:
            for part, inner in _parts(value):
                waiting.append((part, inner, LEAST.get((type(value), part), -LARGEST)))
    return None


def _is_plausible(number: float) -> bool:
    return number == 0 or SMALLEST <= abs(number) <= LARGEST


def _is_plain(block: BlockMeasured) -> bool:
    """Whether a block's only numbers are these and its samples, which are checked elsewhere."""
    numbers = block.at_s, block.round, block.loss or 0.0
    return block.clocks is None and not block.metrics and all(map(_is_plausible, numbers))


def _telling(values: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The smallest and the largest of many numbers, to save time; other values unchanged."""
    known = [value for value in values if value is not None]
    if len(known) > 2 and set(map(type, known)) in ({float}, {int}):
        return [min(known), max(known)]
    return known


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The named parts of a record."""
    if isinstance(value, dict):
        yield from ((str(name), inner) for name, inner in value.items())
    names = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
    yield from ((name, getattr(value, name)) for name in names)
