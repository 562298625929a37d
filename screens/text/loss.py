"""Loss curves: one line per candidate that trains, all on one scale of loss and of steps."""

from __future__ import annotations

from textual.content import Content

from workbench.report.candidate import Candidate
from workbench.report.row import Row
from workbench.text import units

from ..state.derived import Figures
from . import glyphs
from .styles import device_style

WIDEST = 60
STRETCH = 4  # cells per value at most, while the values are few


def loss_lines(row: Row, figures: Figures, width: int, most: int) -> list[Content]:
    """`cuda:0 torch bf16   2.31 ▇▆▄▃▂▁ 0.42`: first and last loss at the ends of the curve.

    Of more than `most` candidates those still in the race, and those measured longest, are shown.
    """
    training = [candidate for candidate in row.candidates if candidate.loss]
    chosen = sorted(training, key=_interest)[:most]
    shown = [candidate for candidate in training if candidate in chosen]
    if not shown:
        return []
    names = [figures.case_name(candidate.case.id) for candidate in shown]
    name_width = max(len(name) for name in names)
    room = max(1, min(WIDEST, width - name_width - 18))
    longest = max(len(candidate.loss) for candidate in shown)
    scale = min(STRETCH, room / longest)
    low = min(min(candidate.loss) for candidate in shown)
    high = max(max(candidate.loss) for candidate in shown)
    lines = []
    for candidate, name in zip(shown, names, strict=True):
        first, last = units.significant(candidate.loss[0]), units.significant(candidate.loss[-1])
        cells = max(1, int(len(candidate.loss) * scale))
        curve = glyphs.sparkline(candidate.loss, cells, low, high)
        style = device_style(candidate.case)
        lines.append(
            Content.assemble(
                (name.ljust(name_width), style), f"  {first:>6} ", (curve, style), f" {last}"
            )
        )
    return lines


def _interest(candidate: Candidate) -> tuple[bool, int]:
    return candidate.eliminated, -len(candidate.loss)
