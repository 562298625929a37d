"""A crossover in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..records.verdict import Crossover
from ..text import units
from ..text.units import as_sentence
from .crossover import GAP, KINDS


def sentence(found: Crossover) -> str:
    """`The GPU leads from batch 12 (95% CI 9-16), the CPU below it.`, and what limits that."""
    if found.value is None or found.ci95 is None or found.below is None:
        sentences = _without_value(found)
    else:
        sentences = _with_value(found, found.value, found.ci95)
    return " ".join(map(as_sentence, [*sentences, *_gaps(found)]))


def _with_value(found: Crossover, value: float, ci95: tuple[float, float]) -> Iterator[str]:
    size, (low, high) = found.parameter, map(number, ci95)
    below, above = _subject(found.below), _subject(found.above)
    yield f"{above} leads from {size} {number(value)} (95% CI {low}-{high}), {below} below it."
    if found.points and all(p.ratio == p.ratio_with_transfers for p in found.points):
        yield "Transfers are included."
    elif found.value_with_transfers is not None:
        yield f"With transfers in every step it leads from {number(found.value_with_transfers)}."
    if found.back is not None:
        last, again = map(number, found.back)
        yield f"Between {size} {last} and {again} {below} takes the lead again."
    if found.then is not None:
        yield f"At {size} {number(found.then[0])} {_subject(found.then[1])} leads."


def _without_value(found: Crossover) -> Iterator[str]:
    size, (low, high) = found.parameter, map(number, found.searched)
    if found.below is None or found.leads is None:
        yield f"From {size} {low} to {high} there is no clear lead."
        return
    first, last = map(number, found.leads)
    who = _subject(found.below)
    if first == last:
        yield f"{who} leads at {size} {first}."
    else:
        yield f"{who} leads at every measured size from {size} {first} to {last}."
    if found.leads != found.searched:
        yield f"Elsewhere between {size} {low} and {high} its lead is not clear."


def _gaps(found: Crossover) -> Iterator[str]:
    """The wide gaps between measured sizes, in which another change may hide."""
    wide = [f"{number(a)} and {number(b)}" for a, b in pairwise(found.sizes) if b / a > GAP]
    if wide:
        yield f"No size was measured between {', or between '.join(wide)}."


def number(value: float) -> str:
    """A size: `12`, `1,024`, `0.75`."""
    return f"{value:,.0f}" if value >= 100 or value == round(value) else units.significant(value)


def _subject(name: str | None) -> str:
    """`the GPU`, or a candidate's name."""
    return f"the {name.upper()}" if name in KINDS else (name or "none").replace("/", " ")
