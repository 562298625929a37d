"""One input of the form for a new run."""

from collections.abc import Iterable
from dataclasses import dataclass

CURVE = "64,100 or 64..4096 make a curve"
RACE = "1,2,4 compete with one another"


@dataclass(frozen=True)
class FormField:
    """`default` applies while the field is empty, `several` says what more than one value does,
    and the first of `choices` stands for the default."""

    key: str
    label: str
    default: str
    help: str
    allowed: str = ""
    several: str = ""
    choices: tuple[str, ...] = ()
    single: bool = False  # whether one choice excludes the others
    decides: bool = False  # whether other fields, or their defaults, depend on it

    @property
    def description(self) -> str:
        allowed = f" ({self.allowed})" if self.allowed else ""
        several = f"; {self.several}" if self.several else ""
        return f"{self.label}: {self.help}{allowed}{several}"


def choices(
    key: str, purpose: str, names: Iterable[str], empty: str = "all", *, decides: bool = False
) -> FormField:
    """A field whose choices compete with one another; `empty` names the default."""
    return FormField(key, key, empty, purpose, choices=(empty, *names), decides=decides)


def only_one(key: str, purpose: str, names: tuple[str, ...], *, decides: bool = False) -> FormField:
    """A field of which one choice applies, by default the first."""
    return FormField(key, key, names[0], purpose, choices=names, single=True, decides=decides)
