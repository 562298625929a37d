"""Time against error of the candidates of a model or code, as a chart."""

import math
from collections.abc import Sequence

from ...advisor.ranking import NEGLIGIBLE, RankedCandidate
from ...report.candidate import Candidate
from ...text import units
from .chart import LABEL, Series, chart, ticks
from .spans import Text, heading

TITLE = "Error over the time of a run"
HEIGHT, LEAST = 10, 3  # lines of the plot; candidates that make one worth its room
FLOOR = NEGLIGIBLE / 2  # smaller errors are drawn here
CHOSEN, PICK, WITHIN, BEYOND = "◆", "●", "○", "!"


def tradeoff_lines(
    found: Sequence[RankedCandidate], chosen: Candidate | None, width: int
) -> list[Text]:
    """A mark for each measured candidate with an error; [] where too few have one."""
    points, times = list[Series](), list[float]()
    marks: dict[str, tuple[str, str]] = {}  # by what they mean, in the order of the legend
    for ranked in reversed(found):  # the best is drawn last, so that no other hides it
        accuracy, samples = ranked.candidate.accuracy, ranked.candidate.ordered_s
        if not samples or accuracy is None or accuracy.metric != "relative_error":
            continue
        meaning, mark = _mark(ranked, ranked.candidate is chosen)
        marks[meaning] = mark
        time_s = ranked.candidate.median_s
        times.append(time_s)
        place = math.log10(time_s), math.log10(max(accuracy.value, FLOOR))
        points.append(Series(mark, [place]))
    is_level = len({y for series in points for _, y in series.places}) < 2
    if len(points) < LEAST or is_level or width < 3 * LABEL:
        return []
    labels = [
        (math.log10(step), (units.duration(step), "dim"))
        for step in ticks(min(times), max(times), max(2, (width - LABEL) // 16))
    ]
    drawn = chart(points, labels, _level, width - LABEL - 4, HEIGHT)
    legend = Text.of(*(part for name, mark in marks.items() for part in (mark, f" {name}  ")))
    return [heading(TITLE, width), *drawn, legend.truncate(width)]


def _mark(ranked: RankedCandidate, is_chosen: bool) -> tuple[str, tuple[str, str]]:
    if is_chosen:
        return "selected", (CHOSEN, "strong")
    if ranked.outcome == "pick":
        return "pick", (PICK, "strong good")
    if ranked.exceeds_limit:
        return "above its limit", (BEYOND, "error")
    return "within its limit", (WITHIN, "dim")


def _level(error: float) -> str:
    return f"{100 * error:.3g}%"
