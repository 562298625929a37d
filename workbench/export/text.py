"""Plain text: a run, its summary, and its use of time."""

import math
from collections.abc import Iterator, Sequence

from ..advisor.subject import is_refused, recommendation
from ..records.document import PHASES, Sweep
from ..report import journal
from ..report.candidate import Row
from ..report.cut_run import refusal
from ..report.report import Report
from ..text.sanitize import shown
from .view.answers import notes, rest_text, result_lines
from .view.curves import findings, rate_table, sweep_title
from .view.derived import RunView
from .view.details import INDENT, largest_facts, trace_facts
from .view.machine import run_warnings
from .view.model import model_parts
from .view.spans import PROSE, Fact, Text, fact, facts_lines, heading, plain_lines
from .view.table import UNLIMITED, plain_cells, table_lines
from .view.tables import advisor_columns, advisor_line


def run_text(report: Report, width: int | None = None) -> str:
    """A whole run for a terminal of `width` cells, or for a file, where tables keep all columns."""
    run = RunView(report)
    prose, wide = width or PROSE, width or UNLIMITED
    parts = [*model_parts(run, prose, wide), *_results(run, prose, wide, brief=False)]
    parts.append(facts_lines(trace_facts(report.trace), prose, INDENT))
    carried = report.started.carried.items() if report.started else ()
    origins = [fact("measured by", f"run {r}: {row}") for row, r in carried if row in report.rows]
    parts.append(facts_lines(origins, prose))
    parts.append(facts_lines(run_warnings(report), prose))
    nothing = f"Nothing was measured: no candidate was planned; the run is {report.status}."
    nothing += "".join(f"\nwarning: {warning.message}" for warning in report.warnings)
    text, ending = _joined(parts) or nothing, _ending(report)
    return f"{text}\n\n{plain_lines(facts_lines(ending, prose))}" if ending else text


def _ending(report: Report) -> list[Fact]:
    """For a run without an end: where the rest is, or how to measure it, if its journal is here."""
    if report.status != "incomplete" or report.started is None:
        return []
    rest = rest_text(report)
    if not rest and journal.is_kept(report.started.id) and refusal(report):
        rest = f"run it again: `{report.started.tool.command}`"
    return [fact("incomplete", rest or "the run was cut short")]


def summary_text(report: Report, width: int | None = None) -> str:
    """Only the answers of a run; "" if nothing was measured."""
    run = RunView(report)
    prose, wide = width or PROSE, width or UNLIMITED
    ship = recommendation(report) if report.has_results else []
    advice = facts_lines([fact("", text) for text in ship], prose)
    return _joined([advice, *_results(run, prose, wide, brief=True)])


def _results(run: RunView, prose: int, width: int, *, brief: bool) -> Iterator[list[Text]]:
    """The table of verdicts and the largest batches, then each row and sweep; if `brief`, only
    those without a verdict."""
    report = run.report
    yield _verdicts(run, width)
    for found in report.largest_batches:
        facts = facts_lines(largest_facts(found), prose, INDENT)
        yield [heading(run.case_name(found.case), prose), *facts]
    for row in _rows(report):
        raced = any(c.blocks for c in row.candidates) or not (brief or report.largest_batches)
        if raced and not row.plan.point and not (brief and row.verdict):
            yield result_lines(row, run, prose, width)
    for sweep in report.sweeps if not report.largest_batches else ():
        if not (brief and sweep.scenario):
            yield _sweep(sweep, run, prose, width, brief=brief)


def _joined(parts: Sequence[Sequence[Text]]) -> str:
    texts = (plain_lines(part).rstrip("\n") for part in parts)
    return "\n\n".join(filter(None, texts))


def _rows(report: Report) -> list[Row]:
    """All rows except those of the user's model or code."""
    known = report.subject or is_refused(report)
    subject = [row.plan.scenario for row in report.subject_rows] if known else []
    return [row for name, row in report.rows.items() if name not in subject]


def _verdicts(run: RunView, width: int) -> list[Text]:
    rows = [row for row in _rows(run.report) if row.verdict is not None]
    lines = [advisor_line(row, run) for row in rows]
    return table_lines(advisor_columns(rows, width), lines, width) if rows else []


def _sweep(sweep: Sweep, run: RunView, prose: int, width: int, *, brief: bool) -> list[Text]:
    """The rates and findings of a sweep and, unless `brief`, the remarks on its candidates."""
    rows = [r for r in run.report.rows.values() if r.sweep == (sweep.scenario or sweep.workload)]
    facts = [*(fact("", text) for text in findings(sweep)), *([] if brief else notes(rows, run))]
    head, table = heading(sweep_title(sweep), prose), table_lines(*rate_table(sweep), width)
    return [head, *table, *facts_lines(facts, prose, INDENT)]


def where_lines(report: Report) -> list[str]:
    """The output of `--where`: a line for each row, one for the rest, and one for the whole run."""
    spent = report.finished.overhead if report.finished is not None else None
    if spent is None or spent.starting_s is None:
        return ["this run does not record how it spent its time: it is older, or did not end"]
    phases = [f"{phase}_s" for phase in PHASES]
    rows = {n: [getattr(part, each, 0.0) for each in phases] for n, part in spent.rows.items()}
    whole = [getattr(spent, each) for each in phases]
    within = [math.fsum(row[n] for row in rows.values()) for n in range(len(phases))]
    outside = [max(0.0, all_s - row_s) for all_s, row_s in zip(whole, within, strict=True)]
    table = []
    for name, seconds in [*rows.items(), ("outside rows", outside), ("the run", whole)]:
        table.append((shown(name), *(f"{each:.1f}" for each in (sum(seconds), *seconds))))
    lines = table_lines(*plain_cells(("Seconds", "all", *PHASES), table, range(1, 7)))
    return [line.plain.rstrip() for line in lines]
