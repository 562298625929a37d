"""A user's model as the source of a row, from its file to the recommendation."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import msgspec

from ..advisor.model.candidates import ModelSpace, Proposal, first
from ..advisor.model.explain import explain
from ..advisor.model.overview import is_as_given, original
from ..advisor.model.snippet import snippet
from ..advisor.ranking import NEGLIGIBLE
from ..contract import Case, kind_of
from ..machine.host.readings import package_energy_j
from ..machine.packages import onnx_cuda
from ..planning.cases import gpu_devices, usable_by, useful_thread_counts
from ..planning.plan import RowPlan
from ..planning.questions import ModelQuestion
from ..planning.usage import UsageError
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.model import Advice, ModelFacts, PreparationStep
from ..report.candidate import Candidate, Row
from ..stats.objectives import UNTIMED
from ..text import units
from ..worker.onnx_gpu import CPU, CUDA
from ..worker.recipe import ORIGINAL
from .context import RunContext
from .model_variants import ModelVariants
from .profiling import Profiling
from .variant_search import CandidateSearch, case_of

CONCLUSION_S, CONCLUSION_SHARE = 6.0, 0.2  # seconds and share of the budget; the smaller counts
MOST_EXPLAINED = 8  # candidates
SLOW = "raise --budget: reading the model and running it once may take 40% of it"


@dataclass(eq=False)
class ModelLab:
    """The row source of `advise --model`."""

    context: RunContext
    plan: RowPlan  # without candidates until the model is read
    question: ModelQuestion
    backends: tuple[str, ...]
    search: CandidateSearch | None = None  # once the model was read

    def __post_init__(self) -> None:
        self.variants = ModelVariants(self.question, self.context, {})
        self._providers: dict[str, str] = {}  # the word of a case's mode to ONNX Runtime's name

    @property
    def reserved_s(self) -> float:
        """Seconds of the budget that the race leaves for `conclude`."""
        return min(CONCLUSION_S, CONCLUSION_SHARE * self.context.request.budget)

    def rows(self) -> list[RowPlan]:
        """Inspect and prepare the model, and return its row with the candidates that start.

        If the worker died while it read the model, the row has one case, with the reason
        (`refused`).  UsageError if the model or an option cannot be used.
        """
        variants = self.variants
        if self.question.objective == "energy":
            energy_j, why = package_energy_j()
            if energy_j is None:
                raise UsageError(f"--objective energy: {why}; the default is --objective latency")
        try:
            facts = variants.inspect()
        except WorkerFailed as failure:  # it crashed, hung, or ran out of memory
            proposal = Proposal(ORIGINAL, threads=self.context.machine.cpu.effective_cores)
            cases, reason = [case_of(proposal, self.plan.scenario)], failure.reason
            if reason.code == "timeout":
                reason = msgspec.structs.replace(reason, hint=SLOW)
            return [replace(self.plan, cases=cases, refused=reason)]
        facts, products = self._prepared(facts)
        self.context.record(ev.ModelInspected, facts=facts)
        self._providers = variants.providers()
        space = self._space(facts, products)
        proposals, unpromising = first(space)
        variants.left_out |= {**unpromising, **variants.left_out}
        scenario = msgspec.structs.replace(
            self.plan.scenario,
            precisions=tuple(dict.fromkeys((facts.precision, "fp16", "int8"))),
            batch=facts.batch,
        )
        self.search = CandidateSearch(proposals, space, variants, scenario)
        cases = self.search.start()
        if not cases:
            raise UsageError("no variant of the model is left with these filters")
        self.plan = replace(self.plan, scenario=scenario, cases=cases, source=self.search)
        return [self.plan]

    def _prepared(self, facts: ModelFacts) -> tuple[ModelFacts, dict[str, int]]:
        """The facts after preparation, and the number of nodes that can be quantised, by type; if
        it fails, the facts say why no variant can be built."""
        if facts.unquantisable is not None:
            return facts, {}
        try:
            return self.variants.prepare(facts)
        except WorkerFailed as failure:
            steps = [*facts.steps, PreparationStep("prepared", None, None, failure.reason)]
            message = f"it could not be prepared: {failure.reason.message}"
            unmade = msgspec.structs.replace(failure.reason, message=message)
            return msgspec.structs.replace(facts, steps=steps, unquantisable=unmade), {}

    def _space(self, facts: ModelFacts, products: dict[str, int]) -> ModelSpace:
        request, cpu = self.context.request, self.context.machine.cpu
        return ModelSpace(
            facts=facts,
            products=products,
            cpu=cpu,
            threads=useful_thread_counts(cpu, request.threads),
            gpus=tuple(self._gpus()),
            on_cpu=request.with_cpu,
            providers=tuple(word for word in self._providers if word != "cuda"),
            backends=self.backends,
            precisions=request.precisions,
            thorough=request.thorough,
        )

    def _gpus(self) -> Iterator[str]:
        """The GPUs on which the model races; why others are missing is in `left_out`."""
        machine, left_out = self.context.machine, self.variants.left_out
        for gpu in gpu_devices(self.context.request, machine):
            if gpu not in usable_by("onnxruntime", machine):
                left_out[gpu] = "the lab runs models on NVIDIA GPUs only"
            elif (objective := self.question.objective) in UNTIMED:
                left_out[gpu] = f"only the {objective} of candidates on the CPU is compared"
            elif not kind_of(gpu).on_host and "cuda" not in self._providers:
                remedy = onnx_cuda.remedy(machine, self.context.software)
                left_out[gpu] = f"onnxruntime here has no CUDAExecutionProvider: {remedy}"
            else:
                yield gpu

    def conclude(self, row: Row) -> None:
        """Explain the race and save the best variant, if there is a pick."""
        pick, search = row.picked, self.search
        if pick is None or search is None:
            return
        advice = self._advice(pick, row)
        search.stop()
        self.context.record(ev.ModelAdvised, advice=advice, left_out=self.variants.left_out)

    def _advice(self, pick: Candidate, row: Row) -> Advice:
        """Save the pick, profile candidates and explain them."""
        report, saved = self.context.report, None
        assert report.model is not None  # it has raced
        facts = report.model.facts
        if self.question.save_best is not None:  # before time runs out
            saved = self.variants.save(pick.case, Path(self.question.save_best))
        given = original(row.candidates, facts, pick.case.device_kind)
        explained = _to_explain(row, pick, given) if given else []  # a filter may leave it out
        profiling = Profiling(self.plan, self.context)
        for candidate in takewhile(profiling.has_time_for, explained):
            profiling.profile(candidate)
        is_saved = saved is not None and saved.size_bytes is not None
        file = saved.file if saved and is_saved else self._file_of(pick, facts)
        return Advice(
            explanations=[
                explain(each, given, report, won=each is pick) for each in explained if given
            ],
            snippet=snippet(facts, pick.case, file, self.provider(pick.case)),
            weak_evidence=weak_evidence(facts, pick, row.candidates),
            saved=saved,
        )

    def provider(self, case: Case) -> str:
        """ONNX Runtime's name of the provider that ran `case`."""
        return self._providers.get(case.mode or "", CPU if kind_of(case.device).on_host else CUDA)

    def _file_of(self, pick: Candidate, facts: ModelFacts) -> str:
        """The user's file if it is picked unchanged, otherwise the file for --save-best."""
        if is_as_given(pick.case, facts):
            return self.question.target
        name = Path(facts.file)
        return f"{name.stem}.{pick.case.variant}{name.suffix}"


def _to_explain(row: Row, pick: Candidate, given: Candidate) -> list[Candidate]:
    """The pick, the model as given, and the fastest candidate of each INT8 variant."""
    best: dict[str, Candidate] = {}
    for each in row.candidates:
        if each.blocks and (form := each.case.quantization) is not None:
            best[form] = min(best.get(form, each), each, key=lambda c: c.median_s)
    found = {each.case.id: each for each in (pick, given, *best.values())}
    return list(found.values())[:MOST_EXPLAINED]


def weak_evidence(
    facts: ModelFacts, pick: Candidate, candidates: Iterable[Candidate]
) -> str | None:
    """Why measured errors say little about the user's own data; None where no error counts."""
    if all(is_as_given(each.case, facts) for each in candidates):
        return None
    if facts.inputs_from == "random":
        return "accuracy was checked on random inputs only; pass real ones with --inputs data.npz"
    why, found = facts.no_promise, pick.accuracy
    if found is None or (is_as_given(pick.case, facts) and found.value < NEGLIGIBLE):
        return None
    if facts.check_samples:
        if not found.held_out or found.error_bound is not None:
            return None
        why = "it is too slow to be checked on enough held-out inputs"
        if found.inputs == facts.check_samples:
            why = "few inputs make the error of its probabilities; use --min-agreement"
    elif why is None and facts.needed_inputs is None:
        return "no number of inputs can promise an agreement of 100% on unseen ones"
    elif why is None:
        how = units.counted(facts.samples, "input")
        how = f"the {how} that also calibrated it" if facts.same_samples else f"only {how}"
        unit = "samples" if facts.batch in (None, 1) else f"batches of {facts.batch}"
        why = f"it was checked on {how}; pass at least {facts.needed_inputs} {unit}"
    return f"nothing is promised about its error on unseen inputs: {why}"
