"""A report as sections with plots, for HTML, Markdown and `--svg`."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..advisor import whatif
from ..advisor.crossover import number
from ..advisor.subject import answer, snippet
from ..records.document import Sweep
from ..records.verdict import Crossover
from ..report.candidate import Candidate, Row
from ..report.names import place_text, value_text
from ..report.report import Report
from ..text import units
from .view import curves as view
from .view.answers import notes, result_facts
from .view.derived import RunView
from .view.details import largest_facts
from .view.machine import run_warnings
from .view.model import subject_facts
from .view.roofline import FLOPS, limits
from .view.section import Section
from .view.spans import Fact, Text, fact, listed
from .view.svg import Curve, Plot, Strip
from .view.table import Column, Line
from .view.tables import advisor_columns, advisor_line, raced_lines, result_columns
from .view.words import device_tone, provenance, provenance_on

ORIGIN = Column("origin", "Provenance")
MOST_SAMPLES = 150  # drawn for one candidate, evenly spaced in sorted order
TIMES = "seconds per step: samples, median and its 95% interval"


def _with(line: Line, **cells: str) -> Line:
    return replace(line, cells={**line.cells, **{key: Text.of(cells[key]) for key in cells}})


def sections(report: Report) -> Iterator[Section]:
    """The whole report, the verdicts first."""
    run = RunView(report)
    decided = [row for row in report.rows.values() if row.verdict is not None]
    yield _verdicts(decided, run) if decided else Section("Run", facts=list(_about(run)))
    if code := snippet(report):
        yield Section("To run it as it was measured", code=code)
    for row in report.rows.values():
        if not row.plan.point:
            yield _row(row, run)
    for found in report.largest_batches:
        title = f"Largest batch, {run.case_name(found.case)}"
        origin = provenance_on(report.candidates[found.case].case.device)
        yield Section(title, [f"Provenance: {origin}."], facts=largest_facts(found))
    for sweep in report.sweeps if not report.largest_batches else ():
        yield _sweep(sweep, report)
    if roofline := roofline_plots(report):
        yield Section("Roofline", plots=roofline)


def _about(run: RunView) -> Iterator[Fact]:
    yield fact("machine", run.machine_line())
    if (started := run.report.started) is not None:
        when = started.started_at[:16].replace("T", " ")
        yield fact("run", f"{started.id}, {when} UTC, {run.report.status}: {started.tool.command}")
    yield from subject_facts(run.report)
    yield from run_warnings(run.report)


def _verdicts(rows: Sequence[Row], run: RunView) -> Section:
    """The table of verdicts, with the answer to each row in a sentence, and its confidence."""
    lines, facts = [], list(_about(run))
    for row, verdict in ((row, row.verdict) for row in rows if row.verdict is not None):
        said = next(iter([*answer(row, run.report), *verdict.reasons]), "")
        line = replace(advisor_line(row, run), span=None)  # the answer says it
        lines.append(_with(line, answer=said, origin=provenance(verdict.basis)))
        for found in verdict.what_if:
            text = f"{row.title}: {whatif.sentence(found, verdict.objective)}"
            facts.append(fact(provenance(found.basis), text))
    first, *others = advisor_columns(rows)
    columns = [first, Column("answer", "Answer"), *others, ORIGIN]
    return Section("Verdicts", (), columns, lines, facts)


def _row(row: Row, run: RunView) -> Section:
    """The candidates of a row from fastest to slowest, and its facts."""
    measured = [candidate for candidate in run.ordered(row) if candidate.blocks]
    origins = {c.case.id: provenance_on(c.case.device) for c in measured}
    lines = [_with(line, origin=origins.get(line.key, "")) for line in raced_lines(row, run)]
    return Section(
        row.title,
        [row.plan.question] if row.plan.question else (),
        [*result_columns(row), ORIGIN],
        lines,
        [*result_facts(row, run), *notes([row], run)],
        row.plan.reproduce,
        [row_plot(row.title, measured, run)] if measured else [],
    )


def _sweep(sweep: Sweep, report: Report) -> Section:
    """The rate of each candidate at every point, and the curves."""
    columns, lines = view.rate_table(sweep)
    origins = {curve.candidate: provenance_on(curve.candidate) for curve in sweep.curves}
    lines.append(_with(Line("", {}), at=ORIGIN.title, **origins))
    row = report.rows.get(sweep.scenario or "")
    crossover = row.verdict.crossover if row is not None and row.verdict is not None else None
    facts, plots = listed("", view.findings(sweep)), sweep_plots(sweep, crossover)
    return Section(view.sweep_title(sweep), (), columns, lines, facts, plots=plots)


def row_plot(title: str, found: Sequence[Candidate], run: RunView) -> Plot:
    """The samples of measured candidates, with their medians and intervals."""
    strips = []
    for candidate in found:
        case, measured = candidate.case, run.measured(candidate)
        name, median_s = run.case_name(case.id), measured.median_s or 0.0
        low, high = measured.ci95_s or (median_s, median_s)
        text = f"{name}: median {units.duration(median_s)}, "
        if measured.ci95_s is not None:
            text += f"95% CI {units.duration(low)} to {units.duration(high)}, "
        text += f"{units.counted(measured.n, 'sample')}, {provenance_on(case.device)}"
        some = candidate.ordered_s[:: -(-measured.n // MOST_SAMPLES)]
        strips.append(Strip(name, device_tone(case), text, median_s, (low, high), some))
    origin = provenance_on(*(candidate.case.device for candidate in found))
    return Plot(title, origin, TIMES, units.duration, strips=strips)


def sweep_plots(sweep: Sweep, crossover: Crossover | None) -> list[Plot]:
    """The rates over one numeric size, with the crossover; [] over words or several sizes."""
    curves = []
    for curve in sweep.curves:
        name, origin, points = view.curve_name(curve), provenance_on(curve.candidate), []
        for x, rate, point in view.drawn_points(curve):
            text = f"{place_text(point.at)}: {units.rate(rate, view.unit_of(curve))}"
            points.append((x, rate, f"{name}, {text}, {origin}"))
        curves += [Curve(name, points)] if points else []
    if len(sweep.axes) != 1 or len({x for curve in curves for x, _, _ in curve.points}) < 2:
        return []
    if crossover is not None and crossover.value is not None:
        top = max(rate for curve in curves for _, rate, _ in curve.points)
        low, high = crossover.ci95 or (crossover.value, crossover.value)
        text = f"crossover at {crossover.parameter} {number(crossover.value)}"
        text += " with its 95% interval" if crossover.ci95 else ""
        curves.append(Curve(text, [(x, top, text) for x in (low, crossover.value, high)]))
    (unit, *_), (axis,) = (curve.unit for curve in sweep.curves), sweep.axes
    origin = provenance_on(*(curve.candidate for curve in sweep.curves))
    return [Plot(view.sweep_title(sweep), origin, axis, value_text, unit, curves=curves)]


def roofline_plots(report: Report) -> list[Plot]:
    """The ceilings of each device in the precisions that ran, and the candidates under them."""
    run = RunView(report)
    roofs, under = limits(report.candidates.values(), run)
    curves = [Curve(n, [(x, y, n) for x, y in line]) for n, (line, _) in roofs.items()]
    points = []
    for candidate, (x, y) in under:
        name, origin = run.case_name(candidate.case.id), provenance_on(candidate.case.device)
        unit = units.per_s(candidate.case.precision)
        points.append((x, y, f"{name}, {candidate.scenario}: {units.rate(y, unit)}, {origin}"))
    if not points:
        return []
    origin = provenance_on(*(candidate.case.device for candidate, _ in under))
    axis, curves = "FLOP per byte of memory traffic", [*curves, Curve("candidates", points, False)]
    return [Plot("Roofline", origin, axis, units.significant, FLOPS, curves=curves)]
