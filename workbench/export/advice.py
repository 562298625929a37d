"""What stands under a verdict in text: time to result, and who is best by which yardstick."""

from __future__ import annotations

import textwrap

from ..advisor import economics, payoff
from ..document import Verdict
from .tables import table

WIDTH = 100


def advice_text(verdict: Verdict) -> str:
    """Indented lines; empty where the verdict says it all."""
    parts = [_wrapped(sentence) for sentence in payoff.sentences(verdict)]
    parts += costs_lines(verdict)
    return "\n".join(parts)


def costs_lines(verdict: Verdict) -> list[str]:
    """The table of yardsticks, and why one of them has no pick."""
    rows = economics.rows(verdict)
    if not rows:
        return []
    shown = textwrap.indent(table(economics.HEADER, rows, set()), "  ")
    return [shown, *map(_wrapped, economics.unknowns(verdict))]


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="    ")
