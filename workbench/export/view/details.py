"""Everything known about a candidate, as labelled facts."""

import msgspec

from ...advisor.model.overview import bound_text, brief, untimed_text
from ...advisor.ranking import error_text
from ...contract import OutputAccuracy
from ...records import document as doc
from ...report.candidate import Candidate
from ...report.report import Report
from ...text import units
from .derived import RunView
from .lead import samples_text
from .spans import Fact, Text, fact, listed, warning_fact
from .tables import accuracy_text
from .words import case_text, largest_texts

INDENT = 12  # cells of the labels, the longest of which is `break-even`
TOP_OPERATORS = 8
BARS = 24  # most bars of the histogram, which fits into 60 columns


def candidate_facts(candidate: Candidate, run: RunView) -> list[Fact]:
    """Everything known about one candidate, for terminals too narrow for all columns."""
    found, reason, accuracy = run.measured(candidate), candidate.reason, candidate.accuracy
    name = case_text(candidate.case.id, run).spans
    facts = [Fact("", Text(tuple((text, f"{tone} strong".strip()) for text, tone in name)))]
    facts += [fact("times", _times(found)), *_speed(found)] if found.n else []
    facts += [fact(candidate.objective, value)] if (value := untimed_text(candidate)) else []
    facts += [Fact("samples", samples_text(candidate, BARS))] if candidate.ordered_s else []
    facts += [fact("metrics", metrics_text(found))] if found.metrics else []
    if (largest := run.largest(candidate)) is not None:
        facts += largest_facts(largest)
    facts.append(fact("set-up", setup_text(candidate.setup)))
    if accuracy is not None:
        error = ", ".join(filter(None, (accuracy_text(candidate), bound_text(accuracy))))
        text = f"{accuracy.metric.replace('_', ' ')} {error} against {accuracy.reference}"
        text = accuracy.reference if accuracy.metric == "none" else text
        facts.append(fact("checked", text, "" if accuracy.passed else "error"))
        for each in accuracy.listed:
            facts.append(fact("  output", f"{each.name}: {output_text(each)}"))
    if candidate.eliminated:
        facts.append(fact("eliminated", run.elimination_text(candidate)))
    elif reason is not None:
        facts.append(fact(candidate.state, reason.message, "warning"))
    facts += [fact("  remedy", reason.hint)] if reason is not None and reason.hint else []
    return facts + [warning_fact(w.one_line) for w in found.warnings]


def _times(found: doc.Measurement) -> str:
    named = (("median", found.median_s), ("min", found.min_s), ("p99", found.p99_s))
    times = [f"{name} {units.duration(value)}" for name, value in named if value is not None]
    if found.ci95_s is not None:
        times.insert(1, "95% {} to {}".format(*map(units.duration, found.ci95_s)))
    outliers = f", {units.counted(found.outliers, 'outlier')}" if found.outliers else ""
    return ", ".join([*times, f"n {found.n}{outliers}"])


def setup_text(setup: doc.SetupTimes) -> str:
    """`import 1.93 s, build 12.0 ms`: the parts that were measured."""
    seconds = msgspec.structs.asdict(setup).items()
    known = [(name.removesuffix("_s"), value) for name, value in seconds if value is not None]
    parts = [f"{name.replace('_', ' ')} {units.duration(value)}" for name, value in known]
    return ", ".join(parts) or units.NOT_AVAILABLE


def output_text(found: OutputAccuracy) -> str:
    """The error of one output of a model."""
    where = f" in {found.part}" if found.part else ""
    parts = [f"error {error_text(found.relative_error)}{where}"]
    if found.cosine is not None:
        parts.append(f"cosine {found.cosine:.5f}")
    if found.top1_agreement is not None:
        parts.append(f"top-1 {found.top1_agreement:.1%}")
    if found.worst_error != found.relative_error:  # equal for a single sample
        parts.append(f"worst sample {error_text(found.worst_error)}")
    return ", ".join(parts)


def _speed(found: doc.Measurement) -> list[Fact]:
    """The peak rate, and its share of the machine's ceilings."""
    facts, roof, clocks = [], found.roofline, found.clocks
    if found.capability is not None:
        peak = units.rate(found.capability.value, found.capability.unit)
        facts.append(fact("peak", f"{peak} (fastest 10% of samples)"))
    if roof is not None:
        intensity = units.significant(roof.intensity_flops_per_byte)
        limit = f"{units.percent(roof.fraction)} of the {roof.limited_by} ceiling at {intensity}"
        attainable = units.rate(roof.attainable_flops_per_s, units.per_s(found.case.precision))
        kind = ", burst" if roof.limited_by == "compute" else ""
        facts.append(fact("roofline", f"{limit} FLOP/byte ({attainable}{kind})"))
    elif found.peak_fraction is not None:
        facts.append(fact("of peak", f"{units.percent(found.peak_fraction)} (burst)"))
    if clocks is not None:
        named = (("device", clocks.device_s), ("host", clocks.host_s), ("queueing", clocks.issue_s))
        parts = [f"{name} {units.duration(value)}" for name, value in named if value is not None]
        facts.append(fact("clocks", f"{', '.join(parts)}; the {clocks.counted} clock counts"))
    if found.telemetry is not None:
        facts.append(fact("sensors", telemetry_text(found.telemetry)))
    return facts


def metrics_text(found: doc.Measurement) -> str:
    """The workload's own metrics: `waiting 12 %, epochs 3`."""
    return ", ".join(units.named(name, value) for name, value in found.metrics.items())


def largest_facts(found: doc.LargestBatch) -> list[Fact]:
    """The largest batch that fitted, and every attempt on the way."""
    largest = fact("largest", largest_texts(found)[0])
    return [largest, *listed("tried", map(_attempt, found.attempts))]


def _attempt(attempt: doc.BatchAttempt) -> str:
    if attempt.reason is not None:
        return f"batch {attempt.batch:,}: {attempt.reason.dashed}"
    step, memory = units.duration(attempt.step_s), units.size(attempt.memory_peak_bytes)
    return f"batch {attempt.batch:,}: a step in {step}, peak memory {memory}"


def why_facts(candidate: Candidate, report: Report) -> list[Fact]:
    """Why this variant of a user's model won or lost."""
    found = report.explained.get(candidate.case.id)
    return [fact("", brief(text)) for text in found.sentences] if found else []


def profile_facts(candidate: Candidate, trace: doc.Trace | None) -> list[Fact]:
    """The operators that took most of a profiled pass, and the file with the whole trace."""
    top = []
    for found in candidate.operators[:TOP_OPERATORS]:
        share, calls = f"{units.percent(found.share):>6}", units.counted(found.calls, "call")
        top.append(f"{share}  {found.name}, {calls}, {units.duration(found.self_s)}")
    return [*listed("top", top), *trace_facts(trace)]


def trace_facts(trace: doc.Trace | None) -> list[Fact]:
    """The files of a trace, and the programs that open them."""
    if trace is None:
        return []
    facts = [fact("trace", f"{trace.file}, for ui.perfetto.dev or chrome://tracing")]
    return [*facts, fact("nsys", trace.nsys)] if trace.nsys is not None else facts


def telemetry_text(found: doc.Telemetry) -> str:
    """The sensor readings while it ran; a clock that did not move is shown once."""
    clocks = found.clock_mhz, found.clock_before_mhz, found.clock_after_mhz
    has_moved = len({f"{mhz:.0f}" for mhz in clocks if mhz is not None}) > 1
    readings = (
        ("{:.0f} MHz", found.clock_mhz),
        ("{:.0f} MHz before", found.clock_before_mhz if has_moved else None),
        ("{:.0f} MHz after", found.clock_after_mhz if has_moved else None),
        ("{:.0f} W by its counter", found.counted_power_w),
        ("{:.0f} W", found.power_w if found.counted_power_w is None else None),
        ("{:.0f} °C", found.temperature_c),
    )
    parts = [text.format(value) for text, value in readings if value is not None]
    for cause, share in found.slowed.items():
        parts.append(f"{cause.replace('_', ' ')} {units.percent(share)} of the time")
    return ", ".join(parts) or "no reading while it ran"
