"""After the race: who is explained, by which evidence, and what the user takes home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..advisor.model.explain import Evidence, explain
from ..advisor.model.overview import form_of, is_as_given, original
from ..advisor.model.snippet import snippet
from ..planning.model_question import ModelQuestion
from ..records.model import Advice, Explanation, ModelFacts
from ..records.verdict import Verdict
from ..report.candidate import Candidate
from ..report.report import Report
from ..report.row import Row
from ..stats.samples import median
from .model_lab import ModelLab
from .profiling import Profiling

MOST_EXPLAINED = 8
PROFILED_STEPS = 20
FEW_SAMPLES = 32  # inputs of the user's own below which an error says little about the next


def conclude(
    question: ModelQuestion, lab: ModelLab, row: Row, report: Report, profiling: Profiling
) -> None:
    """Profile, explain, save, and tell; nothing where nothing was picked."""
    verdict, facts = row.verdict, lab.facts
    if verdict is None or facts is None or verdict.pick is None:
        return
    pick = report.candidates[verdict.pick]
    saved = lab.save(pick.case) if question.save_best is not None else None  # before time runs out
    told = _told(row, pick, facts)
    for candidate in told:
        if not profiling.has_time_for(candidate):
            break
        profiling.profile(candidate)
    ready = saved is not None and saved.reason is None
    file = saved.file if saved is not None and ready else _file_of(question, pick, facts)
    lab.advise(
        Advice(
            explanations=_explanations(told, verdict, lab, report, question),
            snippet=snippet(facts, pick.case, file, lab.provider(pick.case)),
            weak_evidence=weak_evidence(facts),
            saved=saved,
        )
    )


def _file_of(question: ModelQuestion, pick: Candidate, facts: ModelFacts) -> str:
    """The user's file where it is picked as it is, otherwise a name for what --save-best writes."""
    if is_as_given(pick.case, facts):
        return question.file
    name = Path(facts.file)
    return f"{name.stem}.{form_of(pick.case)}{name.suffix}"


def _told(row: Row, pick: Candidate, facts: ModelFacts) -> list[Candidate]:
    """The pick, the model as given, and the fastest run of each INT8 form."""
    found = [pick]
    given = original(row, facts, pick.case.device_kind)
    if given is not None and given is not pick:
        found.append(given)
    best: dict[str, Candidate] = {}
    for candidate in row.candidates:
        form = candidate.case.quantization
        if form is None or not candidate.blocks:
            continue
        known = best.get(form)
        if known is None or median(candidate.samples_s) < median(known.samples_s):
            best[form] = candidate
    found += [candidate for candidate in best.values() if candidate is not pick]
    return found[:MOST_EXPLAINED]


def _explanations(
    told: Sequence[Candidate],
    verdict: Verdict,
    lab: ModelLab,
    report: Report,
    question: ModelQuestion,
) -> list[Explanation]:
    facts, machine = lab.facts, report.machine
    row = report.rows[verdict.scenario]
    if facts is None or machine is None:
        return []
    devices = report.ceilings.devices if report.ceilings else []
    memory = next((d.memory_bytes_per_s for d in devices if d.device == "cpu"), None)
    known = Evidence(
        facts=facts,
        cpu=machine.cpu,
        limit=question.limit,
        built={each.recipe: each for each in report.model.built} if report.model else {},
        memory_bytes_per_s=memory,
    )
    pick = told[0]
    beside = original(row, facts, pick.case.device_kind) or pick
    return [explain(each, beside, each is pick, known) for each in told]


def weak_evidence(facts: ModelFacts) -> str | None:
    """Why the measured error says little about the user's own data."""
    if facts.inputs_from == "random":
        return (
            "the error was seen on random inputs, which is weak evidence: give real ones with "
            "--inputs data.npz"
        )
    count = facts.samples * (facts.batch or 1)
    if facts.same_samples:
        return f"the same {count} inputs set the ranges and were checked: give more than three"
    if count < FEW_SAMPLES:
        return f"the error was seen on {count} inputs only"
    return None
