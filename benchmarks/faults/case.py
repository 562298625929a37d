"""A case of the campaign, what it may find, and how bad each kind of finding is."""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .room import Room

# H: harm to the machine, or code of others runs.  M: a user will meet it, or data, exit code or
# what stays behind is wrong.  L: odd input, or wording only.
SEVERITY = {
    "code executed": "H",
    "target destroyed": "H",
    "lost result": "M",
    "hang": "M",
    "leftover process": "M",
    "leftover file": "M",
    "traceback": "M",
    "internal error": "M",
    "wrong exit code": "M",
    "spoilt output": "M",
    "link replaced": "L",
    "campaign error": "M",  # the case itself broke: it judged nothing
    "late": "L",
    "wording": "L",
}


@dataclass
class Outcome:
    """The findings of a case, sent as JSON from its process to the campaign's."""

    tried: int = 1
    violations: list[tuple[str, str]] = field(default_factory=list)  # class, what happened
    skipped: str = ""
    second_ctrl_c: dict[str, float] = field(default_factory=dict)  # state -> seconds to the exit

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One thing to try."""

    name: str
    run: Callable[["Room"], None]
    bound_s: float = 120.0  # afterwards the campaign ends it: a hang


# The case of a number, or None after the last.  All that is random in it comes from the number and
# the campaign's seed, so that both repeat it.
CaseOf = Callable[[int, int], Case | None]


@dataclass(frozen=True)
class Part:
    """A part of the campaign."""

    name: str
    share: float  # share of the campaign's time
    case_of: CaseOf
    lanes: int = 2  # cases at once; 1 where times are judged
    least: int = 0  # things tried in a campaign of full length, even if they take longer


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
