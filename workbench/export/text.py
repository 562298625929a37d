"""Plain text: the tables that end a run, and what `detect` and `list` print."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ..advisor.model.overview import WORKLOAD
from ..contract import Parameter, Workload, WorkloadError
from ..planning.scenario import Scenario
from ..records.document import LargestBatch, Trace
from ..records.machine import CudaDriver, Gpu, Machine, Nvml, Software
from ..records.verdict import Verdict
from ..report.candidate import Candidate
from ..report.measurements import metrics_of
from ..report.names import name_of, short
from ..report.report import Report
from ..report.row import Row
from ..report.warnings import measurement_warnings
from ..stats import samples as stats
from ..text import units
from .advice import advice_text, costs_lines
from .curves import sweep_text, value_text
from .model import model_text
from .tables import race_lines, table, wrapped

TOP_OPERATORS = 5


def rate_text(candidate: Candidate) -> str:
    """FLOP/s where they are counted, items per second otherwise; `n/a` before any sample."""
    samples = candidate.samples_s
    if samples and candidate.work.flops:
        return units.rate(candidate.work.flops / stats.median(samples), "FLOP/s")
    return units.rate(candidate.rate, f"{candidate.work.item}/s")


# ------------------------------------------------------------------- a run


def run_text(report: Report) -> str:
    """Everything a run found, for a terminal or a mail."""
    told = model_text(report)
    rows = [row for row in report.rows.values() if not told or row.plan.workload != WORKLOAD]
    parts = [told] if told else []
    if told:
        parts += ["\n".join(found) for v in report.verdicts if (found := costs_lines(v))]
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if verdicts:
        parts += [verdict_table(verdicts), *map(_reasons, verdicts)]
    if report.largest_batches:
        parts.append(largest_batch_table(report.largest_batches))
    for row in rows:
        raced = not report.largest_batches or any(c.blocks for c in row.candidates)
        if raced and not row.plan.point:
            parts.append(_row_text(row, report))
    for sweep in report.sweeps if not report.largest_batches else ():
        name = sweep.scenario or sweep.workload
        rows = [row for row in report.rows.values() if row.sweep == name]
        parts.append("\n".join([sweep_text(sweep), *_sweep_notes(rows, report)]))
    if report.trace is not None:
        parts.append("\n".join(trace_lines(report.trace)))
    return "\n\n".join(parts)


def trace_lines(trace: Trace) -> Iterator[str]:
    yield f"trace: {trace.file}, for ui.perfetto.dev or chrome://tracing"
    if trace.nsys is not None:
        yield f"the same with Nsight Systems: {trace.nsys}"


def largest_batch_table(found: Sequence[LargestBatch]) -> str:
    """Per candidate the largest batch that fitted, and what ended the search."""
    header = ("candidate", "largest batch", "step", "memory", "ended by", "")
    rows = []
    for each in found:
        fitted = [attempt for attempt in each.attempts if attempt.batch == each.batch]
        at_least = "" if each.ended_by in ("memory", "bad_input") else ">= "
        reason = next((a.reason for a in reversed(each.attempts) if a.reason), None)
        rows.append(
            (
                each.case,
                "-" if each.batch is None else f"{at_least}{each.batch:,}",
                units.duration(fitted[0].step_s) if fitted else "-",
                units.size(fitted[0].memory_peak_bytes) if fitted else "-",
                each.ended_by,
                "" if reason is None else reason.message,
            )
        )
    return "\n".join([table(header, rows, {1, 2, 3}), *map(_memory_over_batch, found)])


def _memory_over_batch(found: LargestBatch) -> str:
    peaks = {a.batch: a.memory_peak_bytes for a in found.attempts if a.memory_peak_bytes}
    listed = ", ".join(f"{units.size(peaks[batch])} ({batch:,})" for batch in sorted(peaks))
    return wrapped(f"memory over batch, {found.case}: {listed}")


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    header = ("Scenario", "Textbook", "Here", "GPU / CPU (95 %)", "Pick", "ahead by", "Basis")
    rows = [
        (
            v.title,
            v.textbook.upper() or "-",
            _choice(v),
            units.ratio(v.device_ratio, v.device_ratio_ci95) or "-",
            v.pick.partition("/")[2] if v.pick else "-",
            "tie" if v.tie else units.ratio(v.pick_ratio, v.pick_ratio_ci95) or "-",
            v.basis + (" !" if v.warnings else ""),
        )
        for v in verdicts
    ]
    return table(header, rows, set())


def _choice(verdict: Verdict) -> str:
    if verdict.choice in ("cpu", "gpu"):
        return verdict.choice.upper() + (" (no GPU)" if verdict.no_gpu else "")
    return verdict.choice


def _reasons(verdict: Verdict) -> str:
    lines = [wrapped(f"{verdict.title}: {' '.join(verdict.reasons)}")]
    for warning in verdict.warnings:
        name = name_of(warning.subject or "")
        about = f"{name}: " if name else ""
        text = f"! {about}{warning.message}; {warning.remedy}"
        lines.append(wrapped(text, first="  ", rest="    "))
    told = [textwrap.indent(line, "  ") for line in race_lines(verdict)]
    further = filter(None, [advice_text(verdict)])
    return "\n".join([*lines, *further, *told, f"  $ {verdict.reproduce}"])


def _row_text(row: Row, report: Report) -> str:
    header = ("candidate", "median", "+-", "rate", "n", "accuracy", "")
    rows = [_candidate_cells(c, row, report.machine) for c in row.candidates]
    inner = row.candidates[0].case.id.partition("/")[0] if row.candidates else ""
    lines = [table(header, rows, {1, 2, 3, 4})]
    if row.verdict is None:  # whose reasons tell it above
        lines += _fastest(row, report)
        lines += [f"! {w.message}; {w.remedy}" for w in report.disturbances(row)]
    lines += [_operators(candidate) for candidate in row.candidates if candidate.operators]
    return f"{row.plan.title} ({inner})\n" + textwrap.indent("\n".join(lines), "  ")


def _operators(candidate: Candidate) -> str:
    top = candidate.operators[:TOP_OPERATORS]
    listed = ", ".join(f"{found.name} {units.percent(found.share)}" for found in top)
    return f"profile of {short(candidate.case)}: {listed}"


def _fastest(row: Row, report: Report) -> Iterator[str]:
    """The first of a plain run, and how far it is ahead of the next."""
    measured = [report.measurement(c) for c in row.candidates if c.blocks and c.state != "failed"]
    behind = {m.against.ratio: m for m in measured if m.against is not None}
    if not behind:
        return
    second = behind[min(behind)]
    lead = second.against
    assert lead is not None  # noqa: S101 - so it was chosen
    first = report.candidates[lead.id].case
    ahead = f"{units.ratio(lead.ratio, lead.ci95)} ahead of {short(second.case)}"
    close = f"no telling it from {short(second.case)}"
    yield f"fastest: {short(first)}, {ahead if lead.word == 'slower' else close}"


def _sweep_notes(rows: Sequence[Row], report: Report) -> Iterator[str]:
    """What a table of rates leaves out: each candidate's own figures, memory and operators over
    the points, and what was not measured or weakens the rest, each remark once."""
    figures: dict[tuple[str, str], list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for row in sorted(rows, key=_place_of):
        place = ", ".join(f"{name}={value_text(v)}" for name, v in row.plan.point.items())
        for warning in report.disturbances(row):
            remarks.setdefault(f"{warning.message}; {warning.remedy}", []).append(place)
        for candidate in row.candidates:
            name = short(candidate.case)
            told = dict(units.named_parts(*found) for found in _own_figures(candidate, row))
            for label, text in told.items():
                figures.setdefault((name, label), []).append(f"{text} ({place})")
            if candidate.operators:
                yield f"at {place}: {_operators(candidate)}"
            if remark := "; ".join(_remarks(candidate, report.machine)):
                remarks.setdefault(f"{name}: {remark}", []).append(place)
    for (name, label), texts in figures.items():
        yield wrapped(f"{name}, {label}: {', '.join(texts)}")
    for remark, places in remarks.items():
        yield f"! {remark} (at {', '.join(places[:3])}{' ...' if places[3:] else ''})"


def _place_of(row: Row) -> list[tuple[float, str]]:
    return [
        (0.0, value) if isinstance(value, str) else (float(value), "")
        for value in row.plan.point.values()
    ]


def _own_figures(candidate: Candidate, row: Row) -> Iterator[tuple[str, float]]:
    yield from metrics_of(candidate, row.candidates).items()
    if "batch" in row.plan.point and candidate.memory_peak_bytes is not None:
        yield "memory_bytes", float(candidate.memory_peak_bytes)


def _candidate_cells(candidate: Candidate, row: Row, machine: Machine | None) -> tuple[str, ...]:
    samples = candidate.samples_s
    center = stats.median(samples) if samples else None
    width = stats.relative_half_width(center or 0.0, candidate.interval)
    accuracy = candidate.accuracy
    return (
        short(candidate.case),
        units.duration(center),
        units.percent(width) if width is not None else "-",
        rate_text(candidate),
        str(len(samples)),
        units.figure(accuracy.value) if accuracy else "-",
        "; ".join([*_figures(candidate, row), *_remarks(candidate, machine)]),
    )


def _figures(candidate: Candidate, row: Row) -> list[str]:
    return [units.named(*item) for item in metrics_of(candidate, row.candidates).items()]


def _remarks(candidate: Candidate, machine: Machine | None) -> list[str]:
    words = [w.message for w in measurement_warnings(candidate, machine)]
    if candidate.reason is not None:
        state = "" if candidate.state == "ok" else f"{candidate.state}: "
        words.insert(0, state + candidate.reason.message)
    if candidate.simulated:
        words.insert(0, "simulated")
    return words


# --------------------------------------------------------- detect and list


def gpu_line(gpu: Gpu) -> str:
    memory = f" {units.size(gpu.memory_total_bytes)}" if gpu.memory_total_bytes else ""
    hidden = "" if gpu.visible else " (hidden from CUDA)"
    return f"{gpu.name or 'unknown GPU'}{memory}{hidden}"


def machine_text(machine: Machine, software: Software) -> str:
    """What `workbench detect` prints."""
    cpu, memory = machine.cpu, machine.memory
    present = [name for name, there in _isa(cpu.isa) if there]
    limits = ", ".join(f"{limit.name} {limit.cores:g}" for limit in cpu.limits)
    pairs = [
        ("CPU", f"{cpu.model or 'unknown'} ({cpu.architecture})"),
        ("cores", f"{cpu.effective_cores} effective, set by {cpu.limited_by} ({limits})"),
        ("instructions", " ".join(present) or "could not be read"),
        (
            "memory",
            f"{units.size(memory.available_bytes)} of {units.size(memory.total_bytes)} free",
        ),
    ]
    pairs += [(gpu.device or "GPU", gpu_line(gpu)) for gpu in machine.gpus]
    pairs += [("NVML", _door(machine.nvml)), ("CUDA", _door(machine.cuda))]
    pairs.append(("python", f"{software.python} ({software.executable})"))
    for name, package in software.packages.items():
        version = package.version or "not installed"
        pairs.append((name, f"{version} ({package.detail})" if package.detail else version))
    pairs += software.environment.items()
    return table(("", ""), pairs, set()).lstrip("\n")


def _door(part: Nvml | CudaDriver) -> str:
    """Whether a library let us in, else why not and what helps."""
    if part.available or part.reason is None:
        return "available" if part.available else "not available"
    hint = f" - {part.reason.hint}" if part.reason.hint else ""
    return f"{part.reason.message}{hint}"


def _isa(isa: object) -> list[tuple[str, bool | None]]:
    return [(name, getattr(isa, name)) for name in isa.__struct_fields__]  # type: ignore[attr-defined]


def catalogue_text(
    workloads: Mapping[str, Workload],
    broken: Mapping[str, WorkloadError],
    scenarios: Mapping[str, Scenario],
) -> str:
    """What `workbench list` prints."""
    lines = ["Scenarios (workbench advise NAME; those on request by name or with --all)"]
    lines.append(
        textwrap.indent(
            table(
                ("name", "textbook", "workload", "", "question"),
                [
                    (
                        s.id,
                        (s.textbook or "").upper(),
                        s.workload,
                        "on request" if s.on_request else "",
                        s.question,
                    )
                    for s in scenarios.values()
                ],
                set(),
            ),
            "  ",
        )
    )
    lines.append("\nWorkloads (workbench run NAME --set name=value)")
    for workload in workloads.values():
        lines.append(f"  {workload.name}: {workload.teaches}")
        lines += [f"      {_parameter(parameter)}" for parameter in workload.parameters]
        if workload.default_batch is not None:
            lines.append(f"      --batch: {workload.default_batch} unless given")
    lines += [f"  {name}: cannot be used: {error}" for name, error in broken.items()]
    return "\n".join(lines)


def _parameter(parameter: Parameter) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    allowed = ", ".join(parameter.choices) or parameter.range_text()
    return f"{parameter.name}={parameter.default}{unit}: {parameter.help} ({allowed})"
