"""A run of the user's own code for all front ends: its candidates in order, and what to do."""

from collections.abc import Sequence

from ...contract import WAITING_FRACTION, Case
from ...records.code import CodeReport
from ...report.candidate import Candidate, Row, in_order
from ...report.names import LIBRARIES, candidate_name, settings_in_words
from ...report.report import Report
from ...stats import ratios
from ...text import units
from ...worker.code import COMMAND, TORCH
from ..break_even import plain, whole
from ..comparison import as_written
from ..ranking import RankedCandidate, error_text, gain_over, gain_text, no_pick, ties

AS_WRITTEN = "the code as written"
RESIDENT = "resident_s"  # metric of a candidate: seconds of a call whose inputs are on the GPU
TRAINS = (
    "The script trains it, but inference was raced: "
    "for training add --train, which may ask for a builder."
)
MOST_LISTED = 2  # graph breaks, or candidates that had no turn


def first_answered(rows: Sequence[Row]) -> Row:
    return next((row for row in rows if row.picked), rows[0])


def given_name(code: CodeReport, first: Case) -> str:
    """The first candidate in words: "eager" where the user's calls differ from it, because they
    compile, run in a context such as autocast, load data, or use settings of a GPU such as TF32."""
    facts = code.facts
    altered = any(module.chosen and module.altered for module in facts.modules)
    on_gpu = facts.kind == TORCH and first.computes_on != "cpu"
    return "eager" if altered or facts.compiled or facts.data or on_gpu else AS_WRITTEN


def ranked_candidates(report: Report, row: Row) -> list[RankedCandidate]:
    """The candidates of a row: the measured ones from best to worst, then the others."""
    code = report.code
    if code is None or not row.candidates:
        return []
    given, found = as_written(row, code), []
    for candidate in in_order(row.candidates):
        accuracy, above = candidate.accuracy, ""
        if accuracy is not None and accuracy.value > accuracy.limit:
            above = f"above the limit of {error_text(accuracy.limit)}"
        shown = {"variant": candidate.name, "given": candidate is given}
        found.append(RankedCandidate.of(candidate, row, given, above, **shown))
    return found


def recommendation(report: Report) -> list[str]:
    """The device and the way to run the code, the gain, and all that qualifies it."""
    rows, code = report.subject_rows, report.code
    if code is None or not rows:
        return []
    found = answer(rows[0], report)
    if (answered := first_answered(rows)) is not rows[0]:
        found += answer(answered, report)
    if code.facts.trains:
        found.append(TRAINS)
    if code.advice is not None:
        found += filter(None, [*code.advice.flips, code.advice.share])
    found += gap_sentences(report, rows)
    compiled = next(filter(picks_compiled, rows), None)
    if compiled is not None and code.compile_calls is not None:
        where = "" if compiled is rows[0] else f" at batch {compiled.candidates[0].case.batch}"
        calls = units.counted(whole(code.compile_calls), "call")
        found.append(f"Compiling breaks even after {calls}{where}.")
    if compiled is not None:
        sizes = next((module.sizes for module in code.facts.modules if module.chosen), 0)
        used = f", and the script uses {sizes} sizes" if sizes > 1 else ""
        found.append(f"It compiles again for inputs of every other size{used}.")
    if code.breaks:
        found.append(f"Graph breaks: {units.listed(code.breaks, MOST_LISTED)}.")
    return found


def gap_sentences(report: Report, rows: Sequence[Row]) -> list[str]:
    """Sentences about candidates that were not measured for lack of time, each only once."""
    found: dict[str, str] = {}  # sentence to the first batch that it is about
    for row in rows:
        where = "" if row is rows[0] else f"At batch {row.candidates[0].case.batch} "
        for gap in report.gaps(row):
            found.setdefault(f"{gap.one_line}.", where)
    texts = (f"{where}{text}" for text, where in found.items())
    return [text[0].upper() + text[1:] for text in texts]


def answer(row: Row, report: Report) -> list[str]:
    """The answer for one batch, or why nothing is recommended."""
    verdict, pick, code = row.verdict, row.picked, report.code
    if verdict is None or pick is None or code is None:
        return [no_pick(row)]
    text = _run(pick, row, code)
    if row is not report.subject_rows[0]:
        text = f"At batch {pick.case.batch}: r{text[1:]}"
    sentences, metrics = [text], pick.metrics
    if RESIDENT in metrics:
        call, resident = units.duration(pick.median_s), units.duration(metrics[RESIDENT])
        sentences.append(f"A call takes {call}, {resident} with its inputs resident on the GPU.")
    if WAITING_FRACTION in metrics:
        waits = units.percent(metrics[WAITING_FRACTION])
        sentences.append(f"It waits for data {waits} of the time.")
    sentences += ties(verdict)
    if missed := [each.name for each in row.candidates if each.was_missed]:
        sentences.append(f"Not measured, for lack of time: {units.listed(missed, MOST_LISTED)}.")
    return sentences


def _run(pick: Candidate, row: Row, code: CodeReport) -> str:
    """`Run it on the CPU with 2 threads: 1.92x faster than the code as written (...).`"""
    given, case, accuracy = as_written(row, code), pick.case, pick.accuracy
    known_as = given_name(code, row.candidates[0].case)
    where = " on the CPU" if case.device == "cpu" else f" on {case.device}"
    where = "" if case.backend == COMMAND else where
    ways = f" with {units.listed(found)}" if (found := _ways(case, code.facts.precision)) else ""
    if pick is given:
        others = any(c is not pick and c.blocks for c in row.candidates)
        more = f"more than {ratios.TOLERANCE:.0%} better"
        why = f": no other measured candidate was shown to be {more}" if others else ""
        how = "as it is" if known_as == AS_WRITTEN else "eager"
        return f"Run it {how}{where}{ways}{why}."
    text = f"Run it{where}{ways}"
    gained = gain_over(given, pick)
    if given is not None and gained is not None:
        other = f"{known_as} ({given.name})"
        text += f": {gain_text(gained, row.plan.objective, other)}"
    if accuracy is not None and accuracy.metric == "relative_error":
        text += f"; error {error_text(accuracy.value)} of {error_text(accuracy.limit)} allowed"
    elif accuracy is not None and accuracy.reference.startswith("not checked"):
        text += "; its results could not be checked"
    return f"{text}."


def _ways(case: Case, own: str) -> list[str]:
    """The differences from eager code of precision `own`: `BF16 autocast`, `2 threads`."""
    precision = case.precision.upper()
    way = precision if precision in ("TF32", "FP32") else f"{precision} autocast"
    parts = [] if case.precision in (own, "") else [way]
    if case.backend in ("onnxruntime", "openvino"):  # the module is exported
        quantised = "-".join(filter(None, (precision, case.quantization)))
        parts = [f"{LIBRARIES[case.backend]} {quantised}"]
    return parts + settings_in_words(case)


def flips(report: Report, *, trains: bool = False) -> list[str]:
    """Whether the first pick stays the best at other batches; of a training, the fastest batch."""
    known = [(row, pick) for row in report.subject_rows if (pick := row.picked) is not None]
    if not known:
        return []
    (_, own), *others = known
    found = [_flip(own.case, best, row) for row, best in others]
    return [*found, _fastest_batch([pick for _, pick in known])] if trains and found else found


def _fastest_batch(picks: Sequence[Candidate]) -> str:
    """The batch with the highest rate, without a ratio, since each batch is a race of its own."""
    rates = {pick.case.batch: pick.work.items / pick.median_s for pick in picks}
    best, *others = sorted(rates, key=lambda batch: -rates[batch])
    shown = {batch: units.rate(rate, "samples/s") for batch, rate in rates.items()}
    slower = units.listed([f"{shown[batch]} at batch {batch}" for batch in others])
    if rates[best] < (1 + ratios.TOLERANCE) * rates[others[0]]:
        return f"No batch clearly trains the most samples: {shown[best]} at batch {best}, {slower}."
    return f"Batch {best} trains the most samples: {shown[best]}, against {slower}."


def _flip(pick: Case, best: Candidate, row: Row) -> str:
    batch, name, other = best.case.batch, best.name, candidate_name(pick)
    if best.case.label == pick.label:
        return f"The same candidate is the pick at batch {batch}."
    same = next((c for c in row.candidates if c.case.label == pick.label), None)
    if same is not None and (same.state == "failed" or row.is_barred(same)):
        return f"At batch {batch} the pick is {name}; {other} could not be picked there."
    ratio = ratios.ratio_between(same.rounds(), best.rounds()) if same else None
    if ratio is None:
        return f"At batch {batch} the pick is {name}; {other} raced too little there to compare."
    if ratio.low <= 1 or ratios.is_close(ratio):
        return f"At batch {batch} {name} and {other} cannot be distinguished."
    measured = units.times(ratio.value, ratio.interval)
    return f"The answer flips at batch {batch}: {name} is {measured} faster than {other} there."


def picks_compiled(row: Row) -> bool:
    pick = row.picked
    return pick is not None and pick.case.is_compiled


def compile_calls(row: Row) -> float | None:
    """The calls after which compiling pays off beyond doubt; None if no number is that sure."""
    uncompiled = {c.case.id: plain(c.case) for c in row.candidates if c.case.is_compiled}
    for found in row.verdict.payoffs if row.verdict else ():
        case = uncompiled.get(found.id)
        if case is not None and case.id == found.over and found.steps and found.steps_ci95:
            return found.steps
    return None


def script_gain(report: Report, row: Row, pick: Candidate, *, trains: bool = False) -> str:
    """The effect of the pick on the whole script; "" for other code, without a proven gain, for a
    script that was cut short, whose total time is unknown, and for one that trains the module, as
    the share has no backward passes."""
    module = next((m for m in report.code.facts.modules if m.chosen), None) if report.code else None
    if report.code is None or module is None:
        return ""
    if report.code.facts.cut or trains or report.code.facts.trains:
        return ""
    given = as_written(row, report.code)
    gained = gain_over(given, pick)
    if gained is None or gained.least or gained.ratio is None or gained.ratio.low <= 1:
        return ""
    taken = f"{module.name} takes {units.percent(module.share)} of the script's time"
    if module.altered:
        return f"{taken}, but the script calls it in another way than this race does."
    if module.sizes > 1:
        return f"{taken}, in calls with {module.sizes} input sizes, of which one was raced."
    # Amdahl, AFIPS Spring Joint Computer Conference 1967, pp. 483-485.
    script = units.lead(1 / (1 - module.share + module.share / gained.factor))
    return f"{taken}: {units.lead(gained.factor)} faster there makes the script {script} faster."
