"""What stands under a verdict in text: crossover, break-even, hardware elsewhere, yardsticks."""

from __future__ import annotations

import textwrap

from ..advisor import break_even_text, crossover_text, whatif
from ..records.verdict import Verdict
from . import costs
from .tables import table, wrapped


def advice_text(verdict: Verdict) -> str:
    """Indented lines; empty where the verdict says it all."""
    found = [] if verdict.crossover is None else [crossover_text.sentence(verdict.crossover)]
    found += break_even_text.sentences(verdict)
    found += [f"what if: {whatif.sentence(w, verdict.objective)}" for w in verdict.what_if]
    parts = [_wrapped(sentence) for sentence in found]
    parts += costs_lines(verdict)
    return "\n".join(parts)


def costs_lines(verdict: Verdict) -> list[str]:
    """The table of yardsticks, why one of them has no pick, and what to know of the most frugal."""
    rows = costs.rows(verdict)
    if not rows:
        return []
    shown = textwrap.indent(table(costs.HEADER, rows, set()), "  ")
    told = [*costs.unknowns(verdict), *costs.notes(verdict)]
    return [shown, *map(_wrapped, told)]


def _wrapped(sentence: str) -> str:
    return wrapped(sentence, first="  ", rest="    ")
