"""A report as sections, for HTML and Markdown."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..advisor import whatif
from ..advisor.subject import snippet
from ..records.document import Sweep
from ..report.candidate import Row
from ..report.report import Report
from .plots import roofline_plots, row_plot, sweep_plots
from .view.answers import notes, result_facts
from .view.curves import findings, rate_table, sweep_title
from .view.derived import RunView, row_title
from .view.details import largest_facts
from .view.events import warning_text
from .view.section import Section
from .view.spans import Fact, Text, fact, listed
from .view.table import Column, Line
from .view.tables import advisor_columns, advisor_line, has_gpu, raced_lines, result_columns
from .view.words import provenance, provenance_on

ORIGIN = Column("origin", "Provenance")


def _origin(*names: str) -> list[str]:
    """The provenance of numbers that do not name theirs; [] without devices."""
    return [f"Provenance: {provenance_on(*names)}."] if names else []


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
        origin = _origin(report.candidates[found.case].case.device)
        yield Section(title, origin, facts=largest_facts(found))
    for sweep in report.sweeps if not report.largest_batches else ():
        yield _sweep(sweep, report)
    if roofline := roofline_plots(report):
        yield Section("Roofline", plots=roofline)


def _about(run: RunView) -> Iterator[Fact]:
    yield fact("machine", run.machine_line())
    if (started := run.report.started) is not None:
        when = started.started_at[:16].replace("T", " ")
        yield fact("run", f"{started.id}, {when} UTC, {run.report.status}: {started.tool.command}")
    yield from listed("warning", map(warning_text, run.report.warnings))


def _verdicts(rows: Sequence[Row], run: RunView) -> Section:
    """The table of verdicts, with the answer to each row in a sentence, and its confidence."""
    lines, facts, gpu = [], list(_about(run)), has_gpu(rows)
    for row, verdict in ((row, row.verdict) for row in rows if row.verdict is not None):
        answer, origin = next(iter(verdict.reasons), ""), provenance(verdict.basis)
        lines.append(_with(advisor_line(row, run, gpu=gpu), answer=answer, origin=origin))
        for found in verdict.what_if:
            text = f"{row_title(row)}: {whatif.sentence(found, verdict.objective)}"
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
        row_title(row),
        _origin(*(c.case.device for c in measured)),
        [*result_columns(row), ORIGIN],
        lines,
        [*result_facts(row, run), *notes([row], run)],
        row.plan.reproduce,
        [row_plot(row_title(row), measured, run)] if measured else [],
    )


def _sweep(sweep: Sweep, report: Report) -> Section:
    """The rate of each candidate at every point, and the curves."""
    columns, lines = rate_table(sweep)
    origins = {curve.candidate: provenance_on(curve.candidate) for curve in sweep.curves}
    lines.append(_with(Line("", {}), at=ORIGIN.title, **origins))
    row = report.rows.get(sweep.scenario or "")
    crossover = row.verdict.crossover if row is not None and row.verdict is not None else None
    facts, plots = listed("", findings(sweep)), sweep_plots(sweep, crossover)
    return Section(sweep_title(sweep), _origin(*origins), columns, lines, facts, plots=plots)
