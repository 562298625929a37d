"""A run of the user's own code for all front ends: its candidates in order, and what to do.

Pure functions of a report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...contract import Case
from ...records.code import CodeReport
from ...report.candidate import Candidate
from ...report.measurements import metrics_of
from ...report.report import Report
from ...report.row import Row
from ...stats.samples import median
from ...text import units
from ...worker.code import COMMAND, TORCH, WORKLOAD
from ..exclusions import listed
from ..model.overview import RankedCandidate, error_text, gain_text, in_order, outcome, ratio_of

RESIDENT = "resident_s"  # metric of a candidate: seconds of a call whose inputs are on the GPU
WAITING = "waiting_fraction"  # metric of a training: share of the time that waits for data
MOST_BREAKS = 2  # graph breaks that are listed
MODES = {
    "nhwc": "channels_last",
    "compile": "torch.compile",
    "reduce-overhead": "reduce-overhead mode",
    "graph": "a CUDA graph",
    "fused": "a fused optimizer",
}
BACKENDS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
PLAIN = ("python", COMMAND)  # backends without a precision of their own
_PLAIN = re.compile(rf"\b({'|'.join(PLAIN)})[ /](fp32[ /])?")


def rows_of(report: Report) -> list[Row]:
    """The row of the code, then those of its other batches."""
    return [row for row in report.rows.values() if row.plan.workload == WORKLOAD]


def brief(text: str) -> str:
    """`text` without words that say nothing: `cpu workers=2` for `cpu command fp32 workers=2`."""
    return _PLAIN.sub("", text)


def as_written(row: Row, code: CodeReport) -> Candidate | None:
    """The code as the user runs it today: eager with all threads, or the first command.  It is
    planned first; None where an option left it out."""
    first = row.candidates[0]
    plain = first.case.backend in PLAIN or _is_eager(first.case, code.facts.precision)
    return first if plain else None


def _is_eager(case: Case, precision: str) -> bool:
    """Whether it is plain PyTorch in the `precision` of the weights."""
    return case.backend == TORCH and case.precision == precision and case.mode is None


def exceeds_limit(candidate: Candidate) -> bool:
    """Whether its outputs differ too much for it to be picked."""
    reason, accuracy = candidate.reason, candidate.accuracy
    wrong = accuracy is not None and accuracy.value > accuracy.limit
    return wrong or (reason is not None and reason.code == "error_limit")


def way(case: Case) -> str:
    """`bf16 nhwc`, `onnxruntime int8-static`, `device=cpu,workers=2`: a candidate in a table."""
    tuning = ",".join(f"{name}={value}" for name, value in case.tuning.items())
    if case.backend in PLAIN:
        return tuning or "as written"
    precision = "-".join(filter(None, (case.precision, case.quantization)))
    backend = "" if case.backend == TORCH else case.backend
    return " ".join(filter(None, (backend, precision, (case.mode or "").replace("+", " "), tuning)))


def ranked_candidates(report: Report, row: Row) -> list[RankedCandidate]:
    """The candidates of a row: the measured ones from best to worst, then the others."""
    code = report.code
    if code is None or not row.candidates:
        return []
    given, found = as_written(row, code), []
    for candidate in in_order(row):
        case, accuracy = candidate.case, candidate.accuracy
        over, gained = exceeds_limit(candidate), ratio_of(given, candidate)
        above = f"above the limit{f' of {error_text(accuracy.limit)}' if accuracy else ''}"
        word, why = outcome(candidate, row, above if over else "", brief)
        found.append(
            RankedCandidate(
                candidate=candidate,
                variant=way(case),
                how=case.device if case.threads is None else f"{case.device} t{case.threads}",
                gain=gained[0] if gained else None,
                size_bytes=None,
                over=over,
                given=candidate is given,
                word=word,
                why=why,
            )
        )
    return found


# ------------------------------------------------------------- what to do


def recommendation(report: Report) -> list[str]:
    """The device and the way to run the code, the gain, and all that qualifies it."""
    rows = rows_of(report)
    if report.code is None or not rows:
        return []
    return [*answer(rows[0], report), *_further(report.code)]


def answer(row: Row, report: Report) -> list[str]:
    """Sentences on one batch, or why nothing is recommended."""
    verdict, code = row.verdict, report.code
    if verdict is None or code is None:
        return ["No recommendation: the run ended too early."]
    pick = report.candidates.get(verdict.pick or "")
    if pick is None:
        return [f"No recommendation. {brief(' '.join(verdict.reasons[:1]))}".rstrip()]
    sentences = [_run(pick, row, code)]
    if row is not rows_of(report)[0] and pick.case.batch is not None:
        sentences = [f"At batch {pick.case.batch}: {sentences[0].replace('Run', 'run', 1)}"]
    metrics = metrics_of(pick)
    if RESIDENT in metrics:
        whole, alone = units.duration(median(pick.ordered_s)), units.duration(metrics[RESIDENT])
        sentences.append(f"A call takes {whole}, {alone} with its inputs resident on the GPU.")
    if WAITING in metrics:
        sentences.append(f"{units.percent(metrics[WAITING])} of its time waits for data.")
    if verdict.device_ratio is not None:
        sentences.append(brief(verdict.reasons[0]))
    runner_up = report.candidates.get(verdict.runner_up or "")
    if verdict.tie and runner_up is not None:
        sentences.append(
            f"Tied with {_named(runner_up.case, code.facts.precision)}{_on(runner_up.case)}."
        )
    return sentences


def _run(pick: Candidate, row: Row, code: CodeReport) -> str:
    given, case, accuracy = as_written(row, code), pick.case, pick.accuracy
    own = code.facts.precision
    ways = f" with {inner}" if (inner := _ways(case, own)) else ""
    if pick is given:
        others = any(c is not pick and c.blocks for c in row.candidates)
        why = ": no other way was better" if others else ""
        return f"Run it as it is{_on(case)}{ways}{why}."
    text = f"Run it{_on(case)}{ways}"
    gained = ratio_of(given, pick)
    if given is not None and gained is not None:
        there = "" if given.case.device == case.device else _on(given.case)
        text += f": {gain_text(gained, row, f'{_named(given.case, own)}{there}', _ratio)}"
    if accuracy is not None and accuracy.metric == "relative_error":
        text += f"; error {error_text(accuracy.value)} of {error_text(accuracy.limit)} allowed"
    return f"{text}."


def _ratio(value: float, interval: tuple[float, float]) -> str:
    ratio, bounds = units.ratio_parts(value, interval)
    return f"{ratio} ({bounds})"


def _on(case: Case) -> str:
    if case.backend == COMMAND:
        return ""
    return " on the CPU" if case.device == "cpu" else f" on {case.device}"


def _named(case: Case, own: str) -> str:
    """`eager with 2 threads`, `BF16 autocast, channels_last and 2 threads`."""
    parts = ["eager"[: 5 * _is_eager(case, own)], _ways(case, own)]
    return " with ".join(filter(None, parts)) or "the code as written"


def _ways(case: Case, own: str) -> str:
    """What a way to run code whose precision is `own` takes: `BF16 autocast and 2 threads`."""
    precision = case.precision.upper()
    parts = [] if case.precision == own else [precision + " autocast" * (precision != "TF32")]
    if case.backend in BACKENDS:
        form = "-".join(filter(None, (precision, case.quantization)))
        parts = [f"{BACKENDS[case.backend]} {form}"]
    parts += [MODES.get(word, word) for word in (case.mode or "").split("+") if word]
    parts += [f"{name}={value}" for name, value in case.tuning.items()]
    if case.threads is not None:
        parts.append(f"{case.threads} thread{'s'[: case.threads != 1]}")
    return listed(parts) if parts else ""


def _further(code: CodeReport) -> Iterator[str]:
    """How the answer changes with the batch, what it means for the script, and for compiling."""
    if code.advice is not None:
        yield from filter(None, [*code.advice.flips, code.advice.share])
    if code.compile_calls is not None:
        yield f"Compiling pays off after {code.compile_calls:,.0f} calls."
    if count := len(code.breaks):
        breaks = f"{count} graph break{'s'[: count != 1]}"
        yield f"{breaks}: {listed(code.breaks, MOST_BREAKS)}."


def whole_gain(share: float, gain: float) -> float:
    """How many times as fast a program is if a `share` of it, up to 1, is `gain` times as fast.

    Source: Amdahl, AFIPS Spring Joint Computer Conference 1967, pp. 483-485.
    """
    return 1 / (1 - share + share / gain)


def share_sentence(name: str, share: float, gain: float) -> str:
    """What a gain in one module means for its script."""
    return (
        f"{name} is {units.percent(share)} of the script's time: {units.ratio(gain)} faster there "
        f"makes the script {units.ratio(whole_gain(share, gain))} faster."
    )
