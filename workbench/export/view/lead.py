"""The course of a race: the lead of the best by round, its samples, and losses of a training."""

import itertools
import math
from bisect import bisect_left

from ...report.candidate import Candidate, Row
from ...text import units
from . import glyphs
from .chart import LABEL, Series, chart
from .derived import Lead, RunView
from .spans import Text, heading
from .words import device_tone

HEIGHT, MOST_BARS = 6, 40  # lines of the plot, cells of the histogram
MOST_LOSS, STRETCH = 60, 4  # cells of a curve of losses, and of each value while there are few


def course_lines(row: Row, run: RunView, width: int) -> list[Text]:
    """The plot of the lead, if there is one, and the histogram in one line."""
    lead = run.lead(row) if width > 3 * LABEL else None  # narrower only while the layout changes
    plot = lead_lines(lead, run, width) if lead and len(lead.course) > 1 else []
    best = run.best(row)
    if best is None or not best.ordered_s:
        return plot
    name = f"{units.counted(len(best.ordered_s), 'sample')} of {run.case_name(best.case.id)}  "
    return [*plot, Text.of((name, "dim"), samples_text(best)).truncate(width)]


def lead_lines(lead: Lead, run: RunView, width: int) -> list[Text]:
    """The ratio of the runner-up to the best after each round, with its interval."""
    middle, low, high = (
        [(float(number), getattr(ratio, part)) for number, ratio in lead.course]
        for part in ("value", "low", "high")
    )
    (first, _), *_, (last, ratio) = lead.course
    lines = [
        Series(("", "rule"), [(x, 1.0) for x in (first, last)], "level"),
        Series(("", "dim"), low),
        Series(("", "dim"), high),
        Series(("", device_tone(lead.best.case)), middle, "lead"),
    ]
    labels = [(float(number), (f"round {number + 1}", "dim")) for number in (last, first)]
    now = units.times(ratio.value, ratio.interval)
    title = f"Lead by round, now {now} over {run.case_name(lead.other.case.id)}"
    drawn = chart(lines, labels, units.ratio, width - LABEL - 5, HEIGHT, across=float)
    return [heading(title, width), *drawn]


def samples_text(candidate: Candidate, most: int = MOST_BARS) -> Text:
    """A histogram of its samples, in steps of equal ratio between the shortest and the longest."""
    samples = candidate.ordered_s
    low, high = samples[0], samples[-1]
    bars = min(most, round(2 * math.sqrt(len(samples)))) if low < high else 1
    edges = [low * (high / low) ** (n / bars) for n in range(bars)]
    places = [*(bisect_left(samples, edge) for edge in edges), len(samples)]
    counts = [after - before for before, after in itertools.pairwise(places)]
    drawn = zip(glyphs.sparkline(counts, bars, 0, max(counts)), counts, strict=True)
    line = ("".join(bar if count else " " for bar, count in drawn), device_tone(candidate.case))
    return Text.of(f"{units.duration(low)} ", line, f" {units.duration(high)}")


def loss_lines(row: Row, run: RunView, width: int, most: int) -> list[Text]:
    """A heading, and for each candidate a line with its first loss, curve and last loss:
    `cuda:0 torch bf16   2.31 ▇▆▄▃▂▁ 0.42`.  All curves share one scale.  Of more than `most`
    candidates, the fastest still in the race are shown."""
    training = [candidate for candidate in run.ordered(row) if candidate.loss]
    shown = sorted(training, key=lambda candidate: candidate.eliminated)[:most]
    if not shown:  # the only losses are those of a candidate without a rank
        return []
    names = [run.case_name(candidate.case.id) for candidate in shown]
    name_width = max(len(name) for name in names)
    room = max(1, min(MOST_LOSS, width - name_width - 18))
    longest = max(len(candidate.loss) for candidate in shown)
    scale = min(STRETCH, room / longest)
    low = min(min(candidate.loss) for candidate in shown)
    high = max(max(candidate.loss) for candidate in shown)
    lines = [heading("Loss", width)]
    for candidate, name in zip(shown, names, strict=True):
        first, last = units.significant(candidate.loss[0]), units.significant(candidate.loss[-1])
        cells = max(1, int(len(candidate.loss) * scale))
        curve = glyphs.sparkline(candidate.loss, cells, low, high)
        tone = device_tone(candidate.case)
        ends = (f"  {first:>6} ", (curve, tone), f" {last}")
        lines.append(Text.of((name.ljust(name_width), tone), *ends))
    return lines
