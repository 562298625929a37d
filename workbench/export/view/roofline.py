"""The candidates of a row under the measured limits of their devices, as a chart."""

from __future__ import annotations

import math
import string

from ...report.candidate import Candidate
from ...report.measurements import bandwidth, device_ceilings
from ...report.row import Row
from ...text import units
from .ceilings import HIGH, LOW, roof, roof_labels
from .chart import LABEL, Place, Series, chart
from .curves import MARKS
from .derived import RunView
from .facts import heading
from .spans import Text
from .words import case_text, device_tone

FLOPS = "FLOP/s"
LEAST = 4  # lines of the smallest useful plot
TITLE = "Rate over FLOP per byte of memory traffic, under the measured limits"
UNKNOWN = "The limits of this machine are not known: `workbench ceilings` measures them."
NOTHING = "No candidate of this row has both a known limit and a measured rate."


def roofline_lines(row: Row, run: RunView, width: int, height: int, *, fine: bool) -> list[Text]:
    """A line for each candidate and its mark, then the chart: roofs in braille, or in letters."""
    legend, points, roofs = list[Text](), list[Series](), dict[str, tuple[list[Place], str]]()
    marks = iter(MARKS)
    for candidate in run.ordered(row):
        case, measured = candidate.case, run.numbers(candidate).measurement
        rate, limit, over = measured.flops_per_s, measured.roofline, _roof(candidate, run)
        if not rate or limit is None or over is None or (mark := next(marks, None)) is None:
            continue
        strong = f"strong {device_tone(case)}"
        roofs[over[0]] = over[1], device_tone(case)
        x = min(max(limit.intensity_flops_per_byte, 2.0**LOW), 2.0**HIGH)
        points.append(Series((mark, strong), [(math.log10(x), math.log10(rate))]))
        top, share = units.rate(limit.attainable_flops_per_s, FLOPS), units.percent(limit.fraction)
        text = f"  {units.rate(rate, FLOPS)}, {share} of {top} (limited by {limit.limited_by})"
        legend.append(Text.of((f"{mark} ", strong), case_text(case.id, run), text).truncate(width))
    if not legend:
        return Text.of((NOTHING if run.report.ceilings else UNKNOWN, "dim")).wrap(width)
    lines = []
    for letter, (name, (places, tone)) in zip(string.ascii_uppercase, roofs.items(), strict=False):
        lines.append(Series(("" if fine else letter, tone), places, name))
        legend += [] if fine else [Text.of((f"{letter} limit of {name}", "dim"))]
    plot = height - len(legend) - 4
    if plot < LEAST or width < 3 * LABEL:
        return legend
    lines += points
    drawn = chart(lines, roof_labels("dim"), FLOPS, width - LABEL - 2, plot, fine=fine)
    return [*legend, Text(), heading(TITLE, width), *drawn]


def _roof(candidate: Candidate, run: RunView) -> tuple[str, list[Place]] | None:
    """The name and the line of the limit of a candidate, if it is known."""
    case, device = candidate.case, device_ceilings(candidate, run.report.ceilings)
    peak = device.peak_ops_per_s.get(case.precision) if device else None
    kind, bytes_per_s = bandwidth(candidate, device) if device else ("", None)
    if not peak or not bytes_per_s:
        return None
    return f"{case.device} {case.precision}" + " cache" * (kind == "cache"), roof(peak, bytes_per_s)
