"""The result of `workbench ab`."""

from ..records.ab import ABReport, ABResult
from ..stats.samples import median
from ..text.units import NOT_AVAILABLE, duration
from .view.section import Section

HEADINGS = ("Word", "Case", "B/A", "95% CI", "A", "B", "Pairs of processes")


def ab_section(report: ABReport) -> Section:
    """The sides, what there is to say about the results, and the table of these."""
    notes = [f"{side.name}: {side.label}" for side in report.sides]
    notes += [f"{each.case}: {each.reason.message}" for each in report.results if each.reason]
    posed = [each.case for each in report.results if each.basis == "simulated"]
    notes += [f"{case}: simulated, a CPU worker poses as this GPU" for case in posed]
    notes.append(f"SAME: the whole interval is within {report.tolerance:.2%}")
    return Section.of("B against A", notes, HEADINGS, map(_cells, report.results))


def _cells(result: ABResult) -> list[str]:
    """The cells of a result under HEADINGS."""
    ratio = NOT_AVAILABLE if result.ratio is None else f"{result.ratio:.3f}"
    interval = NOT_AVAILABLE if result.ci95 is None else "{:.3f}-{:.3f}".format(*result.ci95)
    times = [duration(median(each) if each else None) for each in (result.a_s, result.b_s)]
    word = result.word or "NO RESULT"
    return [word, result.case, ratio, interval, *times, str(len(result.ratios))]
