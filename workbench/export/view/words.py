"""Values of a report in words, and the one place that gives each word its tone."""

from collections.abc import Callable, Sequence

from ...advisor.ranking import has_equal
from ...contract import Case, kind_of
from ...records.document import LargestBatch
from ...records.verdict import OPEN, SURE, Verdict
from ...report.candidate import BARRED, CANCELLED, WITHOUT_RESULT, Candidate
from ...report.names import in_words
from . import glyphs
from .derived import RunView
from .spans import Text, join

ENDED_BY = {  # why the search for the largest batch ended, by its code
    "memory": "lack of memory",
    "shared_memory": "lack of shared memory, see docker run --shm-size",
    "bad_input": "the workload's own limit",
    "range": "the largest allowed batch",
    "budget": "lack of time",
}
MARK = Text.of((" !", "strong warning"))  # follows a time with a warning
CONFIDENCE_TONES = {SURE: "good", OPEN: "warning"}
# By the basis of a verdict, or of a comparison with another device.
PROVENANCE = {"measured": "measured here", "recorded": "recorded elsewhere"}
# By the state of a candidate: the one at work, and the others.
_AT_WORK = {"preparing": "loading", "prepared": "ready", "measuring": "trying batches"}
_WAITING = {"prepared": "ready", "measuring": "in the race"}


def device_tone(case: Case) -> str:
    return "cpu" if case.device_kind == "cpu" else "gpu"


def choice_word(choice: str, best_gpu: str | None = None) -> str:
    """A choice between CPU and GPU in words; `best_gpu` is a case, which may be on a TPU."""
    device = (best_gpu or "").partition("/")[2]
    return {"cpu": "CPU", "gpu": kind_of(device).word}.get(choice, choice)


def choice_text(verdict: Verdict) -> Text:
    tones = {"cpu": "strong cpu", "gpu": "strong gpu", "either": "strong"}
    word = choice_word(verdict.choice, verdict.best_gpu)
    return Text.of((word, tones.get(verdict.choice, "dim")))


def provenance(basis: str | None) -> str:
    """The origin of a number: "measured here", "recorded elsewhere", "estimated", "simulated"."""
    return PROVENANCE.get(basis or "", basis or "none")


def provenance_on(*names: str) -> str:
    """The provenance of measurements of these devices, or of candidates with these labels."""
    kinds = {kind_of(name.partition("/")[0]) for name in names}
    bases = {"simulated" if kind.simulated else "measured" for kind in kinds}
    return ", ".join(map(provenance, sorted(bases)))


def case_text(case_id: str | None, run: RunView) -> Text:
    """A candidate's name with its device in the device's tone."""
    candidate, name = run.report.candidates.get(case_id or ""), run.case_name(case_id)
    if candidate is None:
        return Text.of(name)
    device = candidate.case.device
    return Text.of((device, device_tone(candidate.case)), name[len(device) :])


def case_texts(case_id: str, run: RunView) -> list[Text]:
    return with_short(case_text(case_id, run))


def with_short(name: Text) -> list[Text]:
    """The name, and the same with `ort` for ONNX Runtime."""
    return [name, name.replace(" onnxruntime ", " ort ")]


def pick_texts(verdict: Verdict, run: RunView, *, words: bool = False) -> list[Text]:
    """Texts for the pick, longest first, with the first in `words` if asked.  An equal runner-up is
    shown too, or dots, unless it was eliminated; the shortest texts lack tuning and device."""
    if verdict.pick is None:
        return [Text.of(("none", "dim"))]
    picks = _pick_names(verdict.pick, run, words=words)
    second = run.report.candidates.get(verdict.runner_up or "")
    is_beaten = second is not None and second.beaten_by is not None
    if not has_equal(verdict) or verdict.runner_up is None or is_beaten:
        return [*picks[:-2], *picks[-3:], picks[-1]]  # as many as a tie has: rows share a form
    equals = _pick_names(verdict.runner_up, run, words=words)
    both = [join(pair, " / ") for pair in zip(picks[:-2], equals[:-2], strict=True)]
    return [*both, *(Text.of(pick, (" / ...", "dim")) for pick in picks[-3:]), picks[-1]]


def _pick_names(case_id: str, run: RunView, *, words: bool) -> list[Text]:
    names, candidate = case_texts(case_id, run), run.report.candidates.get(case_id)
    if candidate is None:
        return [*names, names[-1], names[-1]]
    untuned = names[-1]
    for name, value in candidate.case.tuning.items():
        untuned = untuned.replace(f" {name}={value}", "")
    said = [Text.of((in_words(candidate.case), device_tone(candidate.case)))] if words else []
    (device, _), *rest = untuned.spans
    return [*said, *names, untuned, Text.of("".join(text for text, _ in rest).strip() or device)]


def state_texts(candidate: Candidate, run: RunView) -> list[Text]:
    """The state of a candidate, longest text first; every text begins with a word."""
    state = candidate.state if run.going else candidate.status
    largest = run.largest(candidate)
    if state == CANCELLED and not (run.going or run.report.finished):
        # Another program may still be at work on it.
        return [Text.of(("not finished" if candidate.blocks else "not measured", "warning"))]
    if state == "ok" and candidate.reason and candidate.reason.code in BARRED:
        is_counted = candidate.reason.code != "not_counted"
        short = ["over the limit", "over limit"] if is_counted else ["not counted"]
        return marked([f"{short[0]}: {candidate.reason.message}", *short], "dim", candidate, run)
    if candidate.eliminated and state == "ok":
        texts = [f"eliminated: {run.elimination_text(candidate)}", "eliminated"]
        return marked(texts, "dim", candidate, run)
    if state in WITHOUT_RESULT:
        tone = "error" if state == "failed" else "warning"
        long = [f"{state}: {candidate.reason.message}"] if candidate.reason else []
        return [Text.of((text, tone)) for text in (*long, state)]
    if state == "ok" and largest is not None and largest.batch is not None:
        return [Text.of(f"largest {text}") for text in largest_texts(largest)]
    if state == "ok":
        return marked(["done"], "", candidate, run)
    word = _AT_WORK.get(state, "ready")
    word = "measuring" if candidate.blocks and state != "preparing" else word
    if run.going and (state == "preparing" or run.report.current_case == candidate.case.id):
        return [Text.of((f"> {word}", "strong")), Text.of(("> now", "strong"))]
    return [Text.of((_WAITING.get(state, state), "dim"))]


def largest_texts(found: LargestBatch) -> list[str]:
    """`batch 128, ended by lack of memory`, or `batch >= 128` if time ran out; longest first."""
    is_known = found.ended_by in ("memory", "shared_memory", "bad_input")
    why = ENDED_BY.get(found.ended_by, found.ended_by.replace("_", " "))
    if found.batch is None and not is_known:
        return [f"not {'found' if found.attempts else 'tried'}: {why}"]
    number = "none" if found.batch is None else f"{'' if is_known else '>= '}{found.batch:,}"
    return [f"batch {number}, ended by {why}", f"batch {number}"]


def marked(texts: Sequence[str], tone: str, candidate: Candidate, run: RunView) -> list[Text]:
    """The texts, marked if a warning makes the time of the candidate less certain."""
    mark = MARK if run.measured(candidate).warnings else ""
    return [Text.of((text, tone), mark) for text in texts]


def confidence_text(verdict: Verdict) -> Text:
    return Text.of((verdict.confidence, CONFIDENCE_TONES.get(verdict.confidence, "")))


def bar(text: str, share: float, tone: str) -> Callable[[int], Text]:
    """`0.42x ████`: a text, and a bar in the remaining cells."""

    def draw(width: int) -> Text:
        drawn = glyphs.bar(share, max(1, width - len(text) - bool(text)))
        return Text.of(f"{text} " if text else "", (drawn, tone))

    return draw
