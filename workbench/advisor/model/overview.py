"""A model's run for all front ends: its candidates in order, their gains, and what to ship."""

import re
from collections.abc import Iterable, Iterator

from ...contract import Accuracy, Case
from ...records.model import Explanation, ModelFacts
from ...report.candidate import Candidate, Row, in_order, ranked
from ...report.names import candidate_name
from ...report.report import Report
from ...stats.objectives import UNTIMED
from ...stats.ratios import TOLERANCE
from ...text import units
from ...worker.session_options import EXTENDED, NO_SPIN, OPENVINO
from ..ranking import RankedCandidate, error_text, gain_over, gain_text, no_pick, ties

OPTIONS = {NO_SPIN: "spinning off", EXTENDED: "extended optimisations only"}
UNFUSED = (
    "Its weights are inputs too, so ONNX Runtime optimises less, and the model as given is slower"
    " than necessary. Remove them (python -m onnxruntime.tools.remove_initializer_from_input), then"
    " ask again."
)
_BACKEND = re.compile(r"\b(cpu|\w+:\d+)([ /])onnxruntime[ /]([^\s,;:]+)")


def how(case: Case) -> str:
    threads = None if case.threads is None else f"t{case.threads}"
    device = None if case.device == "cpu" else case.device
    library = case.backend if case.backend == OPENVINO else None
    return " ".join(filter(None, (device, library, case.mode, threads)))


def short_name(case: Case | str) -> str:
    return brief(candidate_name(case))


def brief(text: str) -> str:
    """`text` without the parts that all candidates of a model share: `int8-static t2` for
    `cpu onnxruntime int8-static t2` or `cpu/onnxruntime/int8-static/t2`."""

    def shortened(found: re.Match[str]) -> str:
        device, divider, rest = found.groups()
        where = "" if device == "cpu" else f"{device} "
        return where + (rest.replace("/", " ") if divider == "/" else rest)

    return _BACKEND.sub(shortened, text)


def bound_text(accuracy: Accuracy) -> str:
    """`at most 2.31% on unseen inputs (95%)`; "" without such a bound."""
    bound = accuracy.error_bound
    return "" if bound is None else f"at most {error_text(bound)} on unseen inputs (95%)"


def agreement(candidate: Candidate) -> float | None:
    """The share of rows whose largest entry stays the same, in the output where it is smallest."""
    outputs = candidate.accuracy.outputs if candidate.accuracy else []
    shares = [o.top1_agreement for o in outputs if o.top1_agreement is not None]
    return min(shares, default=None)


def untimed_text(candidate: Candidate) -> str:
    """The measured memory or energy: `61.0 MiB`, `0.0123 J`; "" where the objective is time."""
    value = candidate.value
    if value is None or candidate.objective not in UNTIMED:
        return ""
    return units.size(value) if candidate.objective == "memory" else f"{units.significant(value)} J"


def is_too_far_off(candidate: Candidate, facts: ModelFacts) -> bool:
    accuracy, limit = candidate.accuracy, facts.max_error
    return accuracy is not None and limit is not None and accuracy.worst > limit


def is_as_given(case: Case, facts: ModelFacts) -> bool:
    return case.precision == facts.precision and case.quantization is None


def original(candidates: Iterable[Candidate], facts: ModelFacts, kind: str) -> Candidate | None:
    """The fastest valid candidate of the model as given, on this kind of device if it ran there."""
    found = [c for c in candidates if c.blocks and is_as_given(c.case, facts)]
    found = [c for c in found if not is_too_far_off(c, facts)] or found
    alike = [c for c in found if c.case.device_kind == kind]
    return next(iter(ranked(alike or found)), None)


def ranked_candidates(report: Report) -> list[RankedCandidate]:
    """All candidates: the measured ones from best to worst, then the others as planned."""
    row, model = report.subject_row, report.model
    if row is None or model is None:
        return []
    sizes = {built.recipe: built.size_bytes for built in model.built}
    facts, found = model.facts, []
    given = original(row.candidates, facts, "cpu")
    over = f"above the limit of {error_text(facts.max_error or 0.0)}"
    for candidate in in_order(row.candidates):
        case, as_given = candidate.case, is_as_given(candidate.case, facts)
        above = over if is_too_far_off(candidate, facts) else ""
        size = facts.size_bytes if as_given else sizes.get(case.variant)
        shown = {"variant": case.variant, "how": how(case), "size_bytes": size}
        found.append(RankedCandidate.of(candidate, row, given, above, given=as_given, **shown))
    return found


def recommendation(report: Report) -> list[str]:
    """The variant to ship, its gain and any tie, or why there is no recommendation."""
    row, model = report.subject_row, report.model
    if row is None or model is None:
        return []
    verdict, pick, facts = row.verdict, row.picked, model.facts
    if verdict is None or pick is None:
        return [brief(no_pick(row))]
    further = [*_failed(row, facts), *_refuted(pick, row, facts), *ties(verdict, short_name)]
    if (unmade := facts.unquantisable) is not None:
        further.insert(0, units.as_sentence(f"INT8 was not tried, since {unmade.dashed}"))
    if facts.weights_are_inputs:
        further.append(UNFUSED)
    return [_ship(pick, row, facts), *further]


def _ship(pick: Candidate, row: Row, facts: ModelFacts) -> str:
    ways = _ways(pick.case)
    if is_as_given(pick.case, facts):
        others = any(not is_as_given(c.case, facts) and c.blocks for c in row.candidates)
        why = ": no other variant was shown to be better within the error limit" if others else ""
        return f"Ship {facts.file} as it is{ways}{why}."
    given, gain = original(row.candidates, facts, pick.case.device_kind), ""
    if given is not None and (gained := gain_over(given, pick)) is not None:
        other = f"the model as given ({short_name(given.case)})"
        gain = f": {gain_text(gained, row.plan.objective, other)}"
    return f"Ship {pick.case.variant}{ways}{gain}{_error(pick, facts)}."


def _ways(case: Case) -> str:
    """` on cuda:0`, ` with 2 threads, spinning off`."""
    ways = []
    if case.device != "cpu":
        ways.append(f"on {case.device}")
    if case.threads is not None:
        ways.append(f"with {units.counted(case.threads, 'thread')}")
    if case.backend == OPENVINO:
        ways.append("in OpenVINO")
    ways += [OPTIONS.get(word, f"by {word}") for word in case.mode_words if word]
    return f" {', '.join(ways)}" if ways else ""


def _error(pick: Candidate, facts: ModelFacts) -> str:
    accuracy = pick.accuracy
    if accuracy is None:
        return ""
    metric = "error" if accuracy.metric == "relative_error" else "disagreement"
    allowed = "" if facts.max_error is None else f" of {error_text(facts.max_error)} allowed"
    values = ", ".join(filter(None, (error_text(accuracy.value), bound_text(accuracy))))
    return f"; {metric} {values}{allowed}"


def _failed(row: Row, facts: ModelFacts) -> Iterator[str]:
    """Why every other variant failed, by the first of them."""
    others = [c for c in row.candidates if not is_as_given(c.case, facts)]
    if others and all(c.state == "failed" for c in others) and (reason := others[0].reason):
        yield f"All other variants failed. {others[0].case.variant}: {reason.one_line}."


def _refuted(pick: Candidate, row: Row, facts: ModelFacts) -> Iterator[str]:
    """The faster variants that are not recommended because of the held-out inputs alone."""
    found: dict[str, str] = {}
    for candidate in row.candidates:
        accuracy = candidate.accuracy
        if accuracy is None or not accuracy.held_out or not is_too_far_off(candidate, facts):
            continue
        gained = gain_over(pick, candidate)
        if gained is not None and gained.least is None and gained.factor > 1 + TOLERANCE:
            found.setdefault(candidate.case.variant, error_text(accuracy.worst))
    for variant, bound in found.items():
        kept = f"{variant} looked better and kept the limit on the selection inputs"
        yield f"{kept}. On the held-out inputs its error may reach {bound}, which exceeds it."


def compared(report: Report, case: str | None = None) -> Explanation | None:
    """The explanation with operators to compare: of `case`, else of the pick, else of the best
    other variant; None where no two were profiled."""
    verdict = report.subject_verdict
    known = {
        each.case: each
        for each in report.explained.values()
        if any(o.fp32_s for o in each.operators) and any(o.int8_s for o in each.operators)
    }
    order = [case, verdict.pick if verdict else None]
    order += [entry.candidate.case.id for entry in ranked_candidates(report)]
    return next((known[each] for each in order if each in known), None)


def unprofiled(report: Report) -> str | None:
    """Why there are no operators to compare."""
    for case in report.explained if compared(report) is None else ():
        candidate = report.candidates[case]
        if not candidate.operators:
            why = f": {candidate.unprofiled.message}" if candidate.unprofiled else ""
            return f"{short_name(candidate.case)} was not profiled{why}"
    return None
