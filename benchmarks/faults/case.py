"""A case of the campaign, and the numbers by which each part makes its own."""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .room import Room


@dataclass
class Outcome:
    """The findings of a case, sent as JSON from its process to pytest's."""

    violations: list[tuple[str, str]] = field(default_factory=list)  # kind, what happened
    skipped: str = ""


@dataclass(frozen=True)
class Case:
    """One thing to try."""

    name: str
    run: Callable[["Room"], None]
    bound_s: float = 120.0  # afterwards it is killed: a hang
    alone: bool = False  # while no other case runs, since times are judged


# The case of a number, or None after the last.  All that is random in it comes from the number and
# the campaign's seed, so that both repeat it.
CaseOf = Callable[[int, int], Case | None]


def generator(number: int, seed: int) -> random.Random:
    """The source of everything random in the case of a number."""
    return random.Random(f"{seed}:{number}")


def batch(number: int, size: int) -> tuple[int, int]:
    """First member and size of a batch: the first two are small, for short campaigns."""
    small = size // 10
    return (number * small, small) if number < 2 else (2 * small + (number - 2) * size, size)


def listed(cases: Callable[[], Iterator[Case]], first: Collection[str]) -> CaseOf:
    """The cases of a list, one for each number: first those with the names `first`, which have
    hurt before, then the others in an order of the seed's own, so that the beginning is always a
    cross-section."""
    orders: dict[int, list[Case]] = {}

    def case_of(number: int, seed: int) -> Case | None:
        if seed not in orders:
            known = {case.name: case for case in cases()}
            orders[seed] = [known.pop(name) for name in first]
            orders[seed] += generator(0, seed).sample(list(known.values()), len(known))
        return orders[seed][number] if number < len(orders[seed]) else None

    return case_of
