"""Report values as coloured text: which word gets which accent is decided here and only here."""

from __future__ import annotations

from textual.content import Content

from workbench.contract import Case
from workbench.records.document import LargestBatch
from workbench.records.verdict import Verdict
from workbench.report.candidate import Candidate
from workbench.report.row import Row
from workbench.text import units

from ..state.derived import Figures, choice_word

TONES = {"": "", "good": "$success", "warn": "$warning", "bad": "$error"}


def device_style(case: Case) -> str:
    return "$cpu" if case.device_kind == "cpu" else "$gpu"


def choice_style(choice: str) -> str:
    return {"cpu": "bold $cpu", "gpu": "bold $gpu", "either": "bold"}.get(choice, "dim")


def case_text(case_id: str | None, figures: Figures, *, short: bool = False) -> Content:
    """A candidate's name with its device in the device's colour."""
    candidate = figures.report.candidates.get(case_id or "")
    name = figures.case_name(case_id, short=short)
    if candidate is None:
        return Content(name)
    device = candidate.case.device
    return Content.assemble((device, device_style(candidate.case)), name[len(device) :])


def case_texts(case_id: str, figures: Figures) -> list[Content]:
    """The name, longest form first."""
    return [case_text(case_id, figures, short=short) for short in (False, True)]


def pick_texts(verdict: Verdict, figures: Figures, *, mark: bool = True) -> list[Content]:
    """The pick, longest form first; where it is too close to call, with its equal, or where that
    takes too much room with a `mark`."""
    if verdict.pick is None:
        return [Content.styled("none", "dim")]
    picks = case_texts(verdict.pick, figures)
    if not verdict.tie or verdict.runner_up is None:
        return picks
    equals = case_texts(verdict.runner_up, figures)
    both = [Content(" / ").join(pair) for pair in zip(picks, equals, strict=True)]
    return [*both, Content.assemble(picks[-1], (" (tie)", "dim")) if mark else picks[-1]]


def state_texts(candidate: Candidate, row: Row, figures: Figures, *, racing: bool) -> list[Content]:
    """What a candidate is doing or how it ended, longest form first; a word always leads."""
    case_id = candidate.case.id
    if candidate.eliminated:
        ratio = candidate.ratio
        slower = f"dropped: {units.ratio(ratio)} slower" if ratio else "dropped"
        long = f"dropped: {figures.elimination_text(candidate)}"
        dropped = [Content.styled(text, "dim") for text in (long, slower, "dropped")]
        return [marked(text, candidate, figures) for text in dropped]
    if candidate.state in ("failed", "skipped", "cancelled"):
        style = "$error" if candidate.state == "failed" else "$warning"
        message = candidate.reason.message if candidate.reason else ""
        texts = [f"{candidate.state}: {message}"] if message else []
        return [Content.styled(text, style) for text in (*texts, candidate.state)]
    largest = figures.largest(candidate)
    if candidate.state == "ok" and largest is not None and largest.batch is not None:
        text = f"largest batch {largest_text(largest)}"
        return [Content(f"{text}, ended by {largest.ended_by}"), Content(text)]
    if candidate.state == "ok":
        return [marked(Content("done"), candidate, figures)]
    if racing and candidate.state == "preparing":
        return [Content.styled("> loading", "bold"), Content.styled("> now", "bold")]
    if racing and figures.report.current_case == case_id:
        word = "measuring" if candidate.blocks else "ready"
        if candidate.state == "measuring" and not candidate.blocks:
            word = "trying batches"
        return [Content.styled(f"> {word}", "bold"), Content.styled("> now", "bold")]
    words = {"prepared": "ready", "measuring": "in the race"}
    return [Content.styled(words.get(candidate.state, candidate.state), "dim")]


def largest_text(found: LargestBatch) -> str:
    """`128`, or `>= 128` where the search ended before memory did."""
    if found.batch is None:
        return "none"
    at_least = ">= " if found.ended_by in ("budget", "range") else ""
    return f"{at_least}{found.batch:,}"


def marked(text: Content, candidate: Candidate, figures: Figures) -> Content:
    """With the mark of a result that something weakens."""
    if figures.numbers(candidate).measurement.warnings:
        return Content.assemble(text, (" !", "bold $warning"))
    return text


def basis_text(verdict: Verdict) -> Content:
    """What the verdict rests on; a simulated GPU is loud, in capitals."""
    if verdict.basis == "simulated":
        return Content.styled("SIMULATED", "$warning")
    return Content(verdict.basis)


def here_text(verdict: Verdict) -> Content:
    """The choice with its marks, so that no narrow terminal parts it from its warnings."""
    word = Content.styled(choice_word(verdict.choice), choice_style(verdict.choice))
    if verdict.basis == "simulated":
        word = Content.assemble(word, (" sim", "$warning"))
    return Content.assemble(word, (" !", "bold $warning")) if verdict.warnings else word
