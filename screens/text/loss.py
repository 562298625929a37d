"""Loss curves: one line per candidate that trains, all on one scale of loss and of steps."""

from workbench.export.view import glyphs
from workbench.export.view.derived import RunView
from workbench.export.view.spans import Text
from workbench.export.view.words import device_tone
from workbench.report.candidate import Row
from workbench.text import units

WIDEST = 60
STRETCH = 4  # cells per value at most, while the values are few


def loss_lines(row: Row, run: RunView, width: int, most: int) -> list[Text]:
    """`cuda:0 torch bf16   2.31 ▇▆▄▃▂▁ 0.42`: first and last loss at the ends of the curve.

    Among more than `most` candidates the fastest of those still in the race are shown.
    """
    training = [candidate for candidate in run.ordered(row) if candidate.loss]
    shown = sorted(training, key=lambda candidate: candidate.eliminated)[:most]
    if not shown:
        return []
    names = [run.case_name(candidate.case.id) for candidate in shown]
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
        tone = device_tone(candidate.case)
        ends = (f"  {first:>6} ", (curve, tone), f" {last}")
        lines.append(Text.of((name.ljust(name_width), tone), *ends))
    return lines
