"""The candidates of a row under the measured ceilings of their devices, as a chart."""

from collections.abc import Iterable
from functools import partial

from ...report.candidate import Candidate, Row
from ...report.measurements import bounds_of, gpus_of
from ...text import units
from .chart import LABEL, Place, Series, chart
from .curves import MARKS
from .derived import RunView
from .spans import Span, Text, heading
from .words import case_text, device_tone

FLOPS = "FLOP/s"
LOW, HIGH = -4, 12  # powers of two of the arithmetic intensity, FLOP/byte
AXIS = range(LOW, HIGH + 1, 4)
LEAST = 4  # lines of the smallest useful plot
TITLE = "Rate over FLOP per byte of memory traffic, under the measured ceilings"
SHORT_TITLE = "Rate over FLOP/byte, under the measured ceilings"
UNKNOWN = "This run knew no ceilings. `workbench ceilings` measures them for later runs."
NOTHING = "No candidate of this row has both a known ceiling and a measured rate."
UNCOUNTED = "The operations of this row are not counted, so no ceiling applies to it."
ENDS = (" (limited by {})", " ({})", "")  # each line ends with the longest that fits all


def roofline_lines(row: Row, run: RunView, width: int, height: int) -> list[Text]:
    """A line for each candidate and its mark, then the chart."""
    roofs, under = limits(run.ordered(row), run)
    if not under:
        why = NOTHING if run.report.ceilings else UNKNOWN
        if row.candidates and not any(candidate.work.flops for candidate in row.candidates):
            why = UNCOUNTED
        return Text.of((why, "dim")).wrap(width)
    marked = [
        ((mark, f"strong {device_tone(candidate.case)}"), candidate, place)
        for mark, (candidate, place) in zip(MARKS, under, strict=False)
    ]
    for end in ENDS:
        legend = [_legend_line(mark, candidate, run, end) for mark, candidate, _ in marked]
        if all(line.cell_length <= width for line in legend):
            break
    legend = [line.truncate(width) for line in legend]
    missing = sum(candidate.is_valid for candidate in row.candidates) - len(under)
    verb = "have" if missing > 1 else "has"
    said = [f"{missing} more {verb} no known ceiling or rate"] if missing > 0 else []
    room = max(1, height - len(said))
    if len(under) > min(len(legend), room):
        legend = legend[: room - 1]
        said.insert(0, f"{len(under) - len(legend)} more do not fit")
    legend += [Text.of((text, "dim")).truncate(width) for text in said]
    plot = height - len(legend) - 4
    if plot < LEAST or width < 3 * LABEL:
        return legend
    lines = [Series(("", tone), places, name) for name, (places, tone) in roofs.items()]
    lines += [Series(mark, [place]) for mark, _, place in reversed(marked)]  # the best on top
    powers = [(2.0**n, f"1/{2**-n}" if n < 0 else f"{2**n}") for n in AXIS]
    labels = [(x, (text, "dim")) for x, text in powers]
    drawn = chart(lines, labels, partial(units.rate, unit=FLOPS), width - LABEL - 2, plot)
    return [*legend, Text(), heading(TITLE if width > len(TITLE) else SHORT_TITLE, width), *drawn]


def _legend_line(mark: Span, candidate: Candidate, run: RunView, end: str) -> Text:
    """The mark, the name, the rate, and its share of the ceiling that limits it."""
    case, measured = candidate.case, run.measured(candidate)
    unit, limit = units.per_s(case.precision), measured.roofline
    assert limit is not None  # see `limits`
    share = f"{units.percent(limit.fraction)} of {units.rate(limit.attainable_flops_per_s, unit)}"
    text = f"  {units.rate(measured.flops_per_s, unit)}, {share}{end.format(limit.limited_by)}"
    return Text.of((f"{mark[0]} ", mark[1]), case_text(case.id, run), text)


Roofs = dict[str, tuple[list[Place], str]]  # by name: the line of the limit, and its tone


def limits(found: Iterable[Candidate], run: RunView) -> tuple[Roofs, list[tuple[Candidate, Place]]]:
    """The roofs of the devices that ran, and the valid candidates with a known roof and rate."""
    roofs, under = Roofs(), []
    for candidate in filter(lambda each: each.is_valid, found):
        case, measured = candidate.case, run.measured(candidate)
        peak, kind, bytes_per_s = bounds_of(candidate, run.report.ceilings)
        rate, limit, gpus = measured.flops_per_s, measured.roofline, gpus_of(candidate)
        if peak and bytes_per_s and rate and limit and min(peak, bytes_per_s, rate) >= 1:
            name = f"{case.device} {case.precision}" + (" cache" if kind == "cache" else "")
            name += f" x{gpus}" if gpus > 1 else ""
            ends = sorted((2.0**LOW, min(peak / bytes_per_s, 2.0**HIGH), 2.0**HIGH))
            roofs[name] = [(x, min(peak, x * bytes_per_s)) for x in ends], device_tone(case)
            x = min(max(limit.intensity_flops_per_byte, 2.0**LOW), 2.0**HIGH)
            under.append((candidate, (x, rate)))
    return roofs, under
