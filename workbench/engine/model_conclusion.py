"""After the race of a user's model: explanations, the saved file, and the code to run it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from ..advisor.model.explain import ModelContext, explain
from ..advisor.model.overview import is_as_given, original, variant_of
from ..advisor.model.snippet import snippet
from ..contract import Case, kind_of
from ..planning.questions import ModelQuestion
from ..records.model import Advice, ModelFacts
from ..report.candidate import Candidate, Row
from ..report.report import Report
from ..text import units
from ..worker.onnx_gpu import CPU, CUDA
from .model_search import CandidateSearch
from .model_variants import ModelVariants
from .profiling import Profiling

MOST_EXPLAINED = 8  # candidates


@dataclass(frozen=True)
class ModelRun:
    """A model that was read, and the parts of the lab that work on it."""

    question: ModelQuestion
    facts: ModelFacts
    providers: Mapping[str, str]  # the word of a case's mode to ONNX Runtime's name
    variants: ModelVariants
    search: CandidateSearch

    def provider(self, case: Case) -> str:
        """ONNX Runtime's name of the provider that ran `case`."""
        return self.providers.get(case.mode or "", CPU if kind_of(case.device).on_host else CUDA)


def conclude(run: ModelRun, row: Row, report: Report, profiling: Profiling) -> Advice | None:
    """Save the pick, profile candidates and explain them; None where nothing was picked."""
    pick, question, saved = row.picked, run.question, None
    if pick is None:
        return None
    if question.save_best is not None:  # before time runs out
        saved = run.variants.save(pick.case, Path(question.save_best))
    given = original(row, run.facts, pick.case.device_kind)
    explained = _to_explain(row, pick, given) if given else []  # a filter may leave it out
    for candidate in takewhile(profiling.has_time_for, explained):
        profiling.profile(candidate)
    is_saved = saved is not None and saved.size_bytes is not None
    file = saved.file if saved is not None and is_saved else _file_of(question, pick, run.facts)
    context = _context(run, report)
    return Advice(
        explanations=[explain(each, given, each is pick, context) for each in explained if given],
        snippet=snippet(run.facts, pick.case, file, run.provider(pick.case)),
        weak_evidence=weak_evidence(run.facts, pick),
        saved=saved,
    )


def _file_of(question: ModelQuestion, pick: Candidate, facts: ModelFacts) -> str:
    """The user's file where it is picked unchanged, otherwise a name for --save-best to write."""
    if is_as_given(pick.case, facts):
        return question.file
    name = Path(facts.file)
    return f"{name.stem}.{variant_of(pick.case)}{name.suffix}"


def _to_explain(row: Row, pick: Candidate, given: Candidate) -> list[Candidate]:
    """The pick, the model as given, and the fastest run of each INT8 variant."""
    best: dict[str, Candidate] = {}
    for each in row.candidates:
        if each.blocks and (form := each.case.quantization) is not None:
            best[form] = min(best.get(form, each), each, key=lambda c: c.median_s)
    found = {each.case.id: each for each in (pick, given, *best.values())}
    return list(found.values())[:MOST_EXPLAINED]


def _context(run: ModelRun, report: Report) -> ModelContext:
    assert report.machine is not None and report.model is not None  # it has raced
    devices = report.ceilings.devices if report.ceilings else []
    return ModelContext(
        facts=run.facts,
        cpu=report.machine.cpu,
        limit=run.question.limit,
        built={each.recipe: each for each in report.model.built},
        memory_bytes_per_s=next((d.memory_bytes_per_s for d in devices if d.device == "cpu"), None),
    )


def weak_evidence(facts: ModelFacts, pick: Candidate) -> str | None:
    """Why the measured error of the pick says little about the user's own data."""
    if facts.inputs_from == "random":
        return "accuracy was checked on random inputs only; pass real ones with --inputs data.npz"
    why, found = facts.no_promise, pick.accuracy
    if facts.check_samples:
        if found is None or not found.held_out or found.error_bound is not None:
            return None
        why = "it is too slow to be checked on enough held-out inputs"
    elif why is None and facts.needed_inputs is None:
        return "no number of inputs can promise an agreement of 100% on unseen ones"
    elif why is None:
        how = f"the {facts.samples} inputs that also calibrated it"
        how = how if facts.same_samples else f"only {units.counted(facts.samples, 'input')}"
        why = f"it was checked on {how}; pass at least {facts.needed_inputs} samples"
    return f"nothing is promised about its error on unseen inputs: {why}"
