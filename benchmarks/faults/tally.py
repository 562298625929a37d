"""The campaign's table: what was tried in each part, and the violations by severity and class."""

from collections import Counter
from dataclasses import dataclass, field

from .case import SEVERITY
from .runner import Ended

REPEATED_BY = " (seed "  # what follows names one file of many


@dataclass
class PartTally:
    """What a part found so far."""

    tried: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Tally:
    """Takes the cases as they end."""

    def __init__(self) -> None:
        self.parts: dict[str, PartTally] = {}
        self._slowest: dict[str, float] = {}
        self._seen: set[tuple[str, str, str]] = set()

    def take(self, part: str, ended: Ended) -> list[tuple[str, str]]:
        """Count a case; returns its violations that no earlier case of the part had: thousands of
        files may end at the same line of the program."""
        tally, outcome = self.parts.setdefault(part, PartTally()), ended.outcome
        if outcome.skipped:
            tally.skipped[outcome.skipped] += 1
        else:
            tally.tried += outcome.tried
        fresh = []
        for kind, text in outcome.violations:
            place = (part, kind, text.partition(REPEATED_BY)[0])
            if place not in self._seen:
                self._seen.add(place)
                fresh.append((kind, text))
        tally.classes.update(kind for kind, _ in fresh)
        for state, seconds in outcome.second_ctrl_c.items():
            self._slowest[state] = max(seconds, self._slowest.get(state, 0.0))
        return fresh

    @property
    def violations(self) -> int:
        return sum(sum(tally.classes.values()) for tally in self.parts.values())

    def text(self) -> str:
        """The table in Markdown, so that it can be copied into a report."""
        lines = [
            "| part | tried | skipped | H | M | L | by class | s |",
            "|---|--:|--:|--:|--:|--:|---|--:|",
        ]
        total = PartTally()
        for name, tally in self.parts.items():
            lines.append(_row(name, tally))
            total.tried += tally.tried
            total.skipped.update(tally.skipped)
            total.classes.update(tally.classes)
            total.seconds += tally.seconds
        lines.append(_row("all", total))
        if self._slowest:
            lines.append(
                "\nFrom the second Ctrl-C to the end of the program, the slowest of each state:"
            )
            lines += [
                f"  {seconds:6.2f} s  {state}" for state, seconds in sorted(self._slowest.items())
            ]
        for name, tally in self.parts.items():
            lines += [f"skipped in {name}: {why} ({n})" for why, n in tally.skipped.items()]
        return "\n".join(lines)


def _row(name: str, tally: PartTally) -> str:
    by = Counter[str]()
    for kind, count in tally.classes.items():
        by[SEVERITY[kind]] += count
    classes = ", ".join(f"{count} {kind}" for kind, count in tally.classes.most_common())
    counts = " | ".join(str(by[severity]) for severity in "HML")
    skipped = sum(tally.skipped.values())
    return f"| {name} | {tally.tried} | {skipped} | {counts} | {classes} | {tally.seconds:.0f} |"
