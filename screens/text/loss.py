"""Loss curves: one line per contender that trains, all on one scale of loss and of steps."""

from __future__ import annotations

from textual.content import Content

from workbench.report.candidate import Contender
from workbench.report.row import Row
from workbench.text import units

from ..state.derived import Figures
from . import glyphs
from .styles import device_style

WIDEST = 60
STRETCH = 4  # cells per value at most, while the values are few


def loss_lines(row: Row, figures: Figures, width: int, most: int) -> list[Content]:
    """`cuda:0 torch bf16   2.31 ▇▆▄▃▂▁ 0.42`: first and last loss at the ends of the curve.

    Of more than `most` contenders those still in the race, and those measured longest, are shown.
    """
    training = [contender for contender in row.contenders if contender.loss]
    chosen = sorted(training, key=_interest)[:most]
    shown = [contender for contender in training if contender in chosen]
    if not shown:
        return []
    names = [figures.case_name(contender.case.id) for contender in shown]
    name_width = max(len(name) for name in names)
    room = max(1, min(WIDEST, width - name_width - 18))
    longest = max(len(contender.loss) for contender in shown)
    scale = min(STRETCH, room / longest)
    low = min(min(contender.loss) for contender in shown)
    high = max(max(contender.loss) for contender in shown)
    lines = []
    for contender, name in zip(shown, names, strict=True):
        first, last = units.significant(contender.loss[0]), units.significant(contender.loss[-1])
        cells = max(1, int(len(contender.loss) * scale))
        curve = glyphs.sparkline(contender.loss, cells, low, high)
        style = device_style(contender.case)
        lines.append(
            Content.assemble(
                (name.ljust(name_width), style), f"  {first:>6} ", (curve, style), f" {last}"
            )
        )
    return lines


def _interest(contender: Contender) -> tuple[bool, int]:
    return contender.dropped is not None, -len(contender.loss)
