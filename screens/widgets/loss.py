"""Loss curves: one line per contender that trains, on one common scale of steps."""

from __future__ import annotations

from textual.content import Content

from workbench.report import Row

from .. import format as fmt
from ..figures import Figures
from ..styled import device_style


def loss_lines(row: Row, figures: Figures, width: int) -> list[Content]:
    """`cuda:0 torch bf16   2.31 ▇▆▄▃▂▁ 0.42`, first and last loss at the ends of the curve."""
    training = [contender for contender in row.contenders if contender.loss]
    names = [figures.case_name(contender.case.id) for contender in training]
    name_width = max((len(name) for name in names), default=0)
    lines = []
    for contender, name in zip(training, names, strict=True):
        first, last = fmt.significant(contender.loss[0]), fmt.significant(contender.loss[-1])
        room = min(60, width - name_width - 18)
        curve = fmt.sparkline(contender.loss, room)
        lines.append(
            Content.assemble(
                (name.ljust(name_width), device_style(contender.case)),
                f"  {first:>6} ",
                (curve, device_style(contender.case)),
                f" {last}",
            )
        )
    return lines
