"""A finding: what a card should show, where that is from, and how its figure is read.

B, W, M and S are the findings of a reading of the CUDA code (breaks, wrong number, misleading,
slow).  "cause" is what the card does by itself; the bare id is what workbench makes of it since
the finding was mended.  The others are predictions of the same reading.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from .evidence import Evidence, NotTried, number

DEVICES = Path(__file__).resolve().parents[2] / "assets" / "devices.toml"
H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
HOPPER = (H200, H100)
READING, SHEET = "reading, section F", "assets/devices.toml"


@dataclass(frozen=True)
class Range:
    """The figures that confirm a finding."""

    low: float
    high: float
    unit: str = ""

    def holds(self, figure: float | str) -> bool:
        return self.low <= number(figure) <= self.high

    def __str__(self) -> str:
        if self.low == self.high:
            words = f"{self.low:g}"
        elif inf in (self.high, -self.low):
            words = f"at least {self.low:g}" if self.high == inf else f"at most {self.high:g}"
        else:
            words = f"{self.low:g} to {self.high:g}"
        return f"{words} {self.unit}".rstrip()


@dataclass(frozen=True)
class Word:
    """The words that confirm a finding."""

    word: str

    def holds(self, figure: float | str) -> bool:
        return figure == self.word

    def __str__(self) -> str:
        return self.word


Expected = Range | Word
Reader = Callable[[Evidence], float | str]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `read` returns its figure or raises NotTried."""

    id: str
    what: str
    expected: Expected | dict[str, Expected]  # for any card, or by card
    read: Reader
    source: str = READING

    def expectation(self, card: str) -> Expected | None:
        return self.expected.get(card) if isinstance(self.expected, dict) else self.expected

    @property
    def expected_of_all(self) -> str:
        """The expectation in words, or those of each card."""
        if not isinstance(self.expected, dict):
            return str(self.expected)
        cards: dict[str, list[str]] = {}
        for card, each in self.expected.items():
            cards.setdefault(str(each), []).append(card.removeprefix("NVIDIA ").split()[0])
        return "; ".join(f"{words} ({', '.join(names)})" for words, names in cards.items())


class Findings(list[Finding]):
    """Findings in the order of the report, each written above its reader."""

    def __call__(self, *described: Any, **more: Any) -> Callable[[Reader], Reader]:
        def add(read: Reader) -> Reader:
            self.append(Finding(*described, read=read, **more))
            return read

        return add

    def untried(self, name: str, what: str, reason: str) -> None:
        """A finding that no card of this kind can show."""

        def read(_: Evidence) -> float | str:
            raise NotTried(reason)

        self.append(Finding(name, what, Word("no figure"), read))


def on(cards: Sequence[str], expected: Expected) -> dict[str, Expected]:
    return dict.fromkeys(cards, expected)


def hopper(low: float, high: float, unit: str = "") -> dict[str, Expected]:
    return on(HOPPER, Range(low, high, unit))


@cache
def datasheet(card: str | None) -> dict[str, Any]:
    """The datasheet figures of a card; empty for one that is not listed."""
    listed = tomllib.loads(DEVICES.read_text())["device"]
    return next((device for device in listed if card in device["names"]), {})
