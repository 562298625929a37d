"""A user's model as the source of a row, from its file to the recommendation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from ..advisor.model.candidates import Proposal, SearchSpace, first
from ..contract import kind_of
from ..machine.host.readings import package_energy_j
from ..planning.cases import gpu_devices, usable_by, useful_thread_counts
from ..planning.plan import RowPlan
from ..planning.questions import ModelQuestion
from ..planning.usage import UsageError
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.model import PreparationStep
from ..report.candidate import Row
from ..report.report import Report
from ..worker.recipe import ORIGINAL
from .context import RunContext
from .model_conclusion import ModelRun, conclude
from .model_search import CandidateSearch
from .model_variants import ModelVariants
from .profiling import Profiling
from .variant_search import case_of

CONCLUSION_S, CONCLUSION_SHARE = 6.0, 0.2  # seconds, and share of the budget; the less counts


@dataclass(eq=False)
class ModelLab:
    """The row of `advise --model`: a row source, as the engine asks one for rows."""

    context: RunContext
    plan: RowPlan  # planned before anything is known about the model
    backends: tuple[str, ...]
    run: ModelRun | None = None  # once the model was read
    profiled_steps = 20  # most steps of a candidate in the profiles that explain the race

    @property
    def _question(self) -> ModelQuestion:
        assert self.context.request.model is not None  # the caller has one to race
        return self.context.request.model

    @property
    def reserved_s(self) -> float:
        """Seconds of the budget that the race leaves for `conclude`."""
        return min(CONCLUSION_S, CONCLUSION_SHARE * self.context.request.budget)

    def rows(self) -> list[RowPlan]:
        """Inspect and prepare the model; the row with the candidates that start.

        Where the worker died while it read the model, the row has one case and the reason
        (`refused`).  UsageError where the model or an option cannot be used.
        """
        context, left_out = self.context, dict[str, str]()
        request, cpu = context.request, context.machine.cpu
        variants = ModelVariants(self._question, context, left_out)
        if self._question.objective == "energy":
            energy_j, why = package_energy_j()
            if energy_j is None:
                raise UsageError(f"--objective energy: {why}; the default is --objective latency")
        try:
            facts = variants.inspect()
        except WorkerFailed as failure:  # it crashed, hung, or ran out of memory
            proposal = Proposal(ORIGINAL, threads=cpu.effective_cores)
            cases = [case_of(proposal, self.plan.scenario)]
            return [replace(self.plan, cases=cases, refused=failure.reason)]
        products: dict[str, int] = {}
        try:
            if facts.unquantisable is None:
                facts, products = variants.prepare(facts)
        except WorkerFailed as failure:
            steps = [*facts.steps, PreparationStep("prepared", None, None, failure.reason)]
            message = f"it could not be prepared: {failure.reason.message}"
            unmade = msgspec.structs.replace(failure.reason, message=message)
            facts = msgspec.structs.replace(facts, steps=steps, unquantisable=unmade)
        context.emit(ev.ModelInspected(at_s=context.now(), facts=facts))
        providers = variants.providers()
        space = SearchSpace(
            facts=facts,
            products=products,
            cpu=cpu,
            threads=useful_thread_counts(cpu, request.threads),
            gpus=tuple(self._gpus(providers, left_out)),
            on_cpu=request.with_cpu,
            providers=tuple(word for word in providers if word != "cuda"),
            backends=self.backends,
            precisions=request.precisions,
            thorough=request.thorough,
        )
        proposals, unpromising = first(space)
        left_out |= {**unpromising, **left_out}
        scenario = msgspec.structs.replace(
            self.plan.scenario,
            precisions=tuple(dict.fromkeys((facts.precision, "fp16", "int8"))),
            batch=facts.batch,
        )
        search = CandidateSearch(proposals, space, variants, scenario=scenario)
        self.run = ModelRun(self._question, facts, providers, variants, search)
        cases = search.start()
        if not cases:
            raise UsageError("no variant of the model is left with these filters")
        return [replace(self.plan, scenario=scenario, cases=cases, source=search)]

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """Explain the race and save the best variant; nothing where nothing was picked."""
        run = self.run
        advice = None if run is None else conclude(run, row, report, profiling)
        if run is None or advice is None:
            return
        run.search.stop()
        context, left_out = self.context, run.variants.left_out
        context.emit(ev.ModelAdvised(at_s=context.now(), advice=advice, left_out=left_out))

    def _gpus(self, providers: Mapping[str, str], left_out: dict[str, str]) -> Iterator[str]:
        machine = self.context.machine
        for gpu in gpu_devices(self.context.request, machine):
            if gpu not in usable_by("onnxruntime", machine):
                left_out[gpu] = "the lab runs models on NVIDIA GPUs only"
            elif self._question.objective == "energy":
                left_out[gpu] = "only the energy of processors is measured for each candidate"
            elif not kind_of(gpu).on_host and "cuda" not in providers:
                left_out[gpu] = (
                    "onnxruntime here has no CUDAExecutionProvider: install onnxruntime-gpu and "
                    "uninstall onnxruntime"
                )
            else:
                yield gpu
