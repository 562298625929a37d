"""Plain text: a run, its summary, the machine, and the catalogue of scenarios and workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..advisor.model.overview import recommendation, row_of
from ..contract import Parameter, Workload, WorkloadError
from ..planning.scenario import Scenario
from ..records.document import Sweep
from ..records.machine import Machine, Software
from ..report.report import Report
from ..report.row import Row
from ..text import units
from .view.curves import HEIGHT, WIDTH, chart_lines, findings, place_text, rate_lines, sweep_title
from .view.derived import Finished, RunView, is_eliminated
from .view.details import INDENT, candidate_notes, result_lines, trace_facts
from .view.facts import PROSE, fact, facts_lines, heading
from .view.machine import accelerator_sections, processor_sections, section_lines
from .view.model import model_lines
from .view.spans import Text, plain_lines
from .view.table import UNLIMITED, plain_table, table_lines
from .view.tables import (
    LARGEST_COLUMNS,
    advisor_columns,
    advisor_line,
    candidate_line,
    has_gpu,
    largest_line,
    result_columns,
)

# ------------------------------------------------------------------- a run


def run_text(report: Report, width: int | None = None) -> str:
    """Everything about a run, for a terminal of `width` cells; without one, for a file, in which
    no table loses a column."""
    run = Finished(report)
    prose, wide = width or PROSE, width or UNLIMITED
    parts = [model_lines(run, prose, wide)]
    parts += [_verdicts(run, wide), _largest_batches(run, wide)]
    for row in _rows(report):
        raced = not report.largest_batches or any(c.blocks for c in row.candidates)
        if raced and not row.plan.point:
            parts.append(result_lines(row, run, prose, wide))
    for sweep in report.sweeps if not report.largest_batches else ():
        parts.append(_sweep(sweep, run, prose, wide))
    parts.append(facts_lines(trace_facts(report.trace), prose, INDENT))
    return _joined(parts)


def summary_text(report: Report, width: int | None = None) -> str:
    """The answers of a run alone: the variant to ship, the table of verdicts, the candidates of
    plain runs and the findings of sweeps; "" where nothing was measured."""
    run = Finished(report)
    prose, wide = width or PROSE, width or UNLIMITED
    measured = any(c.blocks for row in report.rows.values() for c in row.candidates)
    ship = recommendation(report) if measured else []
    parts = [facts_lines([fact("", text) for text in ship], prose)]
    parts += [_verdicts(run, wide), _largest_batches(run, wide)]
    for row in _rows(report):
        if row.verdict is None and not row.plan.point and any(c.blocks for c in row.candidates):
            found = [candidate_line(candidate, row, run) for candidate in row.candidates]
            title = Text.of(row.plan.title)
            parts.append([title, *table_lines(result_columns(row), found, wide)])
    for sweep in report.sweeps:
        if sweep.scenario is None and (sentences := list(findings(sweep))):
            facts = [fact("", text) for text in (sweep_title(sweep), *sentences)]
            parts.append(facts_lines(facts, prose))
    return _joined(parts)


def _joined(parts: Sequence[Sequence[Text]]) -> str:
    return "\n\n".join(plain_lines(part) for part in parts if part)


def _rows(report: Report) -> list[Row]:
    """All rows but that of a user's model."""
    model = row_of(report) if report.model is not None else None
    return [row for row in report.rows.values() if row is not model]


def _verdicts(run: RunView, width: int) -> list[Text]:
    rows = [row for row in _rows(run.report) if row.verdict is not None]
    gpu = has_gpu(rows)
    lines = [advisor_line(row, run, gpu=gpu) for row in rows]
    return table_lines(advisor_columns(rows, width, lead=True), lines, width) if rows else []


def _largest_batches(run: RunView, width: int) -> list[Text]:
    """The largest batch of each candidate that fitted, and the memory on the way to it."""
    found = run.report.largest_batches
    if not found:
        return []
    lines = table_lines(LARGEST_COLUMNS, [largest_line(each, run.derived) for each in found], width)
    for each in found:
        peaks = {a.batch: a.memory_peak_bytes for a in each.attempts if a.memory_peak_bytes}
        listed = ", ".join(f"{units.size(peaks[batch])} ({batch:,})" for batch in sorted(peaks))
        text = f"{run.derived.case_name(each.case)}, memory by batch: {listed}"
        lines += facts_lines([fact("", text)], min(width, PROSE)) if listed else []
    return lines


# ----------------------------------------------------------------- sweeps


def _sweep(sweep: Sweep, run: RunView, prose: int, width: int) -> list[Text]:
    """A sweep: the rates, the findings, the remarks on its candidates, and the chart."""
    rows = [r for r in run.report.rows.values() if r.sweep == (sweep.scenario or sweep.workload)]
    sentences = [*findings(sweep), *_remarks(rows, run)]
    return [
        heading(sweep_title(sweep), prose),
        *rate_lines(sweep, width),
        *facts_lines([fact("", sentence) for sentence in sentences], prose),
        *_chart(sweep),
    ]


def _chart(sweep: Sweep) -> list[Text]:
    chart = chart_lines(sweep, WIDTH, HEIGHT)
    return [Text(), *map(Text.of, chart)] if chart else []


def _remarks(rows: Sequence[Row], run: RunView) -> Iterator[str]:
    """The metrics, operators and warnings of each candidate, and its memory where the batch
    varies; each text once, with its points."""
    places: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for row in sorted(rows, key=_place_of):
        place = place_text(row.plan.point)
        for warning in run.report.disturbances(row):
            places.setdefault(f"! {warning.message}; {warning.remedy}", []).append(place)
        for candidate in row.candidates:
            name = run.derived.case_name(candidate.case.id)
            metrics = dict(run.derived.numbers(candidate).measurement.figures)
            if "batch" in row.plan.point and candidate.memory_peak_bytes is not None:
                metrics["memory_bytes"] = float(candidate.memory_peak_bytes)
            for label, text in (units.named_parts(*item) for item in metrics.items()):
                values.setdefault(f"{name}, {label}", []).append(f"{text} ({place})")
            notes = [n for n in candidate_notes(candidate, run.derived) if n[0] != "metrics"]
            if candidate.reason is not None:
                state = "eliminated" if is_eliminated(candidate) else candidate.state
                notes.append((state, candidate.reason.message))
            for label, text in notes:
                places.setdefault(f"{label}: {name}: {text}", []).append(place)
    yield from (f"{label}: {', '.join(texts)}" for label, texts in values.items())
    for remark, where in places.items():
        yield f"{remark} (at {', '.join(where[:3])}{' ...' if where[3:] else ''})"


def _place_of(row: Row) -> list[tuple[float, str]]:
    return [
        (0.0, value) if isinstance(value, str) else (float(value), "")
        for value in row.plan.point.values()
    ]


# --------------------------------------------------------- detect and list


def machine_text(machine: Machine, software: Software, width: int | None = None) -> str:
    """The output of `workbench detect`."""
    sections = [
        *processor_sections(machine, software, None, None),
        *accelerator_sections(machine, None),
    ]
    return plain_lines(section_lines(sections, width or PROSE)[:-1])


def catalogue_text(
    workloads: Mapping[str, Workload],
    broken: Mapping[str, WorkloadError],
    scenarios: Mapping[str, Scenario],
) -> str:
    """The output of `workbench list`."""
    header = ("name", "usual advice", "workload", "", "question")
    rows = [
        (
            s.id,
            (s.textbook or "").upper(),
            s.workload,
            "on request" if s.on_request else "",
            s.question,
        )
        for s in scenarios.values()
    ]
    lines = ["Scenarios (workbench advise NAME; those on request by name or with --all)"]
    lines += [f"  {line.plain.rstrip()}" for line in plain_table(header, rows)]
    lines.append("\nWorkloads (workbench run NAME --set name=value)")
    for workload in workloads.values():
        lines.append(f"  {workload.name}: {workload.teaches}")
        lines += [f"      {_parameter(parameter)}" for parameter in workload.parameters]
        if workload.default_batch is not None:
            lines.append(f"      --batch: default {workload.default_batch}")
    lines += [f"  {name}: cannot be used: {error}" for name, error in broken.items()]
    return "\n".join(lines)


def _parameter(parameter: Parameter) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    allowed = ", ".join(parameter.choices) or parameter.range_text()
    return f"{parameter.name}={parameter.default}{unit}: {parameter.help} ({allowed})"
