"""Plain text: what a run found out about a user's model, from the advice down to the code."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..advisor.model.overview import (
    LESS,
    RankedCandidate,
    agreement,
    brief,
    compared,
    counted,
    error_text,
    is_as_given,
    name_of,
    original,
    ranked_candidates,
    recommendation,
    row_of,
    unprofiled,
)
from ..machine import no_gpu
from ..records.model import Built, Explanation, ModelFacts, Port, PreparationStep, Saved
from ..records.reason import Reason, Warning
from ..records.verdict import Verdict
from ..report.candidate import Candidate
from ..report.report import Report
from ..stats import samples as stats
from ..text import units
from ..text.units import as_sentence
from .tables import race_lines, table, wrapped

TIMES = "Where the time of one run goes"
RACED = "a whole run, raced"
MOST_NAMED = 4  # nodes left in FP32 that are listed by name


def model_text(report: Report) -> str:
    """Everything about the model of this run; "" where there is none."""
    model, row = report.model, row_of(report)
    if model is None:
        return ""
    advice, verdict = model.advice, row.verdict if row else None
    found = ranked_candidates(report)
    parts = [
        "\n".join(_advised(report)),
        "\n".join(map(_filled, facts_lines(model.facts))),
        _candidates(found, report),
        _section("Why", _why(advice.explanations) if advice else ()),
        _operators(report),
        _section("Forms that were made", _built(model.built)),
        _section("Not tried", _left_out(report, verdict)),
        _section("Preparation for INT8", forms_lines(model.facts.steps)),
        _outputs(report, verdict),
        _section("Saved", saved_lines(advice.saved) if advice and advice.saved else ()),
    ]
    if verdict:
        parts.append("\n".join(race_lines(verdict)))
    if advice:
        parts.append(f"To run it as it was measured:\n\n{advice.snippet}")
    if verdict and verdict.reproduce:
        parts.append(f"$ {verdict.reproduce}")
    return "\n\n".join(part for part in parts if part)


def _filled(line: str, *, inner: bool = False) -> str:
    """Wrapped, what follows the first line set in; `inner` lines stand below a title."""
    margin = "  " * inner
    return wrapped(line, first=margin, rest=f"{margin}  ")


def _section(title: str, lines: Sequence[str] | Iterator[str]) -> str:
    told = [_filled(line, inner=True) for line in lines]
    return "\n".join([title, *told]) if told else ""


def _advised(report: Report) -> Iterator[str]:
    for sentence in recommendation(report):
        yield _filled(sentence)
    advice = report.model.advice if report.model else None
    if advice and advice.weak_evidence:
        yield _filled(f"! {advice.weak_evidence[0].upper()}{advice.weak_evidence[1:]}.")


# --------------------------------------------------------------- the model


def facts_lines(facts: ModelFacts) -> Iterator[str]:
    """The model in a line, and a line for each of its inputs."""
    told = [
        units.size(facts.size_bytes),
        f"opset {facts.opset}",
        f"{count_text(facts.parameters)} parameters",
        "already quantised" if facts.quantised else facts.precision,
    ]
    if facts.multiply_adds is not None:
        told.append(f"{count_text(facts.multiply_adds)} multiply-adds a run")
    if facts.batch is not None:
        told.append(f"batch {facts.batch}")
    yield f"{facts.file}: {', '.join(told)}"
    for port in facts.inputs:
        yield f"  input {port_text(port)}"
    if facts.uncompared:
        yield f"  no tensors, so not compared: {', '.join(facts.uncompared)}"
    if facts.control_flow:
        inside = ", ".join(facts.control_flow)
        yield f"  graphs inside of {inside}, which the static quantiser skips"


def count_text(count: int) -> str:
    """`3.01 M`, `496 M`, `812`."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{units.significant(count / scale)} {prefix}"
    return str(count)


def port_text(port: Port) -> str:
    """`images float32 [1,3,224,224], random normal`."""
    shape = ",".join(map(str, port.run_shape))
    values = f", {port.values}" if port.values else ""
    return f"{port.name} {port.type} [{shape}]{values}"


# ---------------------------------------------------------- the candidates


def _candidates(found: Sequence[RankedCandidate], report: Report) -> str:
    if not found:
        return ""
    metrics = {c.accuracy.metric for entry in found if (c := entry.candidate).accuracy}
    error = "differs" if metrics == {"disagreement"} else "error"
    row = row_of(report)
    asked = [row.plan.objective] if row is not None and row.plan.objective in LESS else []
    header = ("form", "run", "median", "+-", *asked, "gain", error, "top-1", "size", "")
    rows = [_cells(entry, report) for entry in found]
    lines = [table(header, rows, set(range(2, len(header) - 1)))]
    lines += [
        _filled(f"{name_of(entry.candidate.case)}: {entry.why}")
        for entry in found
        if entry.word not in ("", "pick", "slower", "error")
    ]
    lines += [_filled(f"! {text}") for text in _warnings(found, report)]
    return "\n".join(lines)


def _cells(entry: RankedCandidate, report: Report) -> tuple[str, ...]:
    candidate = entry.candidate
    samples = candidate.samples_s
    center = stats.median(samples) if samples else None
    width = stats.relative_half_width(center or 0.0, candidate.interval)
    share, accuracy = agreement(candidate), candidate.accuracy
    mark = "!" if report.measurement_warnings(candidate) else ""
    return (
        entry.variant,
        entry.how,
        units.duration(center) if samples else "-",
        "-" if width is None else f"{width:.0%}{mark}",
        *([counted(candidate) or "-"] if candidate.objective in LESS else []),
        "-" if entry.gain is None else units.ratio(entry.gain),
        "-" if accuracy is None else error_text(accuracy.value),
        "-" if share is None else f"{share:.0%}",
        "-" if entry.size_bytes is None else units.size(entry.size_bytes),
        entry.word,
    )


def _warnings(found: Sequence[RankedCandidate], report: Report) -> Iterator[str]:
    """What weakens the verdict; of what weakens others each kind once, since the table marks it."""
    row = row_of(report)
    own: list[Warning] = row.verdict.warnings if row and row.verdict else []
    for warning in own:
        candidate = report.candidates.get(warning.subject or "")
        about = f"{name_of(candidate.case)}: " if candidate else ""
        yield f"{about}{brief(warning.message)}; {warning.remedy}"
    told = {warning.code for warning in own}
    for entry in found:
        for warning in report.measurement_warnings(entry.candidate):
            if warning.code not in told:
                told.add(warning.code)
                yield f"{name_of(entry.candidate.case)}: {warning.message}; {warning.remedy}"


def _why(explanations: Sequence[Explanation]) -> Iterator[str]:
    for each in explanations:
        yield brief(" ".join(each.sentences))


def _operators(report: Report) -> str:
    """Where the time of one run goes, as given and in the form that is told about."""
    found, row, model = compared(report), row_of(report), report.model
    if found is None or row is None or model is None:
        return _section(TIMES, [why]) if (why := unprofiled(report)) else ""
    candidate = report.candidates[found.case]
    case = candidate.case
    given = original(row, model.facts, case.device_kind)
    rows = [
        (
            each.operator,
            units.duration(each.fp32_s) if each.fp32_s else "-",
            units.duration(each.int8_s) if each.int8_s else "-",
            units.ratio(each.fp32_s / each.int8_s) if each.fp32_s and each.int8_s else "",
        )
        for each in found.operators
    ]
    if given is not None:  # for a profiled run is slower, and may mislead
        raced = [stats.median(c.samples_s) for c in (given, candidate)]
        times = [units.duration(seconds) for seconds in raced]
        rows.append((RACED, times[0], times[1], units.ratio(raced[0] / raced[1])))
    header = ("operator", name_of(given.case) if given else "as given", name_of(case), "gain")
    lines = table(header, rows, {1, 2, 3})
    return f"{TIMES}\n" + textwrap.indent(lines, "  ")


# ------------------------------------------------------- what was made of it


def _built(built: Sequence[Built]) -> Iterator[str]:
    for each in built:
        yield f"{each.recipe}: {built_text(each)}"


def built_text(built: Built) -> str:
    """`3.43 MiB in 2.46 s, products 98% INT8`, or why it could not be made."""
    if built.reason is not None:
        hint = f" - {built.reason.hint}" if built.reason.hint else ""
        return f"could not be made: {built.reason.message}{hint}"
    told = f"{units.size(built.size_bytes)} in {units.duration(built.seconds)}"
    if built.coverage is not None:
        told += f", products {built.coverage:.0%} INT8"
    if built.excluded:
        named = ", ".join(built.excluded[:MOST_NAMED])
        more = f" and {rest} more" if (rest := len(built.excluded) - MOST_NAMED) > 0 else ""
        told += f", in FP32 {named}{more}"
    return told


def _left_out(report: Report, verdict: Verdict | None) -> Iterator[str]:
    for name, why in left_out(report, verdict).items():
        yield f"{name}: {why}"


def left_out(report: Report, verdict: Verdict | None) -> dict[str, str]:
    """What was not tried to the reason why."""
    model, machine = report.model, report.machine
    if model is None:
        return {}
    found = dict(model.left_out)
    if verdict is not None and verdict.pick is not None and verdict.best_gpu is None:
        absent = no_gpu(machine) if machine is not None else None
        # Where there is one, the first reason says why it took no part.
        found["GPU"] = verdict.reasons[0].rstrip(".") if absent is None else _absent(absent)
    if model.facts.unquantisable is not None:
        found.setdefault("int8", model.facts.unquantisable.message)
    return found


def _absent(reason: Reason) -> str:
    message = reason.message.replace("no GPU found", "none found")
    told = f"{message}: {reason.hint}" if reason.hint else message
    return told if reason.code == "no_gpu" else as_sentence(told).rstrip(".")


def forms_lines(forms: Sequence[PreparationStep]) -> Iterator[str]:
    """The steps of the preparation that changed something, or failed."""
    before: PreparationStep | None = None
    for form in forms:
        if form.reason is not None:
            yield f"{form.step}: left out, {form.reason.message}"
            continue
        if before is not None and _form(form) != _form(before):
            yield f"{form.step}: {_form(before)} -> {_form(form)}"
        before = form


def _form(form: PreparationStep) -> str:
    nodes = "" if form.nodes is None else f", {form.nodes} nodes"
    return f"{units.size(form.size_bytes)}{nodes}"


def _outputs(report: Report, verdict: Verdict | None) -> str:
    """The pick's error of each output, where there are several."""
    pick = report.candidates.get(verdict.pick or "") if verdict else None
    accuracy = pick.accuracy if pick else None
    if pick is None or accuracy is None or len(accuracy.outputs) < 2 or _is_given(pick, report):
        return ""
    rows = [
        (
            each.name,
            error_text(each.relative_error),
            "-" if each.cosine is None else f"{each.cosine:.5f}",
            "-" if each.top1_agreement is None else f"{each.top1_agreement:.1%}",
            f"{each.worst_sample + 1} ({error_text(each.worst_error)})",
        )
        for each in accuracy.outputs
    ]
    header = ("output", "error", "cosine", "top-1", "worst sample")
    lines = table(header, rows, {1, 2, 3})
    title = f"Outputs of {name_of(pick.case)} against {accuracy.reference}"
    return f"{title}\n" + textwrap.indent(lines, "  ")


def _is_given(pick: Candidate, report: Report) -> bool:
    return report.model is not None and is_as_given(pick.case, report.model.facts)


def saved_lines(saved: Saved) -> Iterator[str]:
    if saved.reason is not None:
        hint = f" - {saved.reason.hint}" if saved.reason.hint else ""
        yield f"{saved.file} was not written: {saved.reason.message}{hint}"
        return
    size = f", {units.size(saved.size_bytes)}" if saved.size_bytes is not None else ""
    again = ""
    if saved.difference is not None:
        differs = f"differs by {error_text(saved.difference)}"
        again = f"; loaded again it {differs if saved.difference else 'answers the same'}"
    yield f"{saved.file}{size}{again}"
