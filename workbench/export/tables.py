"""Columns of text, and the lines that every verdict ends in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ..advisor.race_summary import summary_text
from ..records.verdict import Verdict

WIDTH = 100


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: set[int]) -> str:
    """Columns padded to their widest cell; those numbered in `right` are right-aligned."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def render(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return "\n".join(render(line) for line in lines)


def wrapped(text: str, *, first: str = "", rest: str = "  ", width: int = WIDTH) -> str:
    """Lines of `width`, the first one and the rest set in; commands and paths in it are broken at
    their spaces only."""
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def race_lines(verdict: Verdict) -> Iterator[str]:
    """How its race went, and what to try next."""
    told = {"race": summary_text(verdict.race) if verdict.race else "", "next": verdict.next_best}
    for word, text in told.items():
        if text:
            yield wrapped(f"{word}: {text}", width=WIDTH - 2)  # they are set in by two
