"""A user's model as the source of a row, from its file to the recommendation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec

from ..advisor.model.candidates import Proposal, SearchSpace, first
from ..contract import kind_of
from ..machine.host.readings import package_energy_j
from ..planning.cases import gpu_devices
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..planning.threads import useful_thread_counts
from ..planning.usage import UsageError
from ..pool.control import Control
from ..pool.pool import Pool, WorkerFailed
from ..records import events as ev
from ..records.machine import Machine
from ..records.model import PreparationStep
from ..report.report import Report
from ..report.row import Row
from ..worker.recipe import ORIGINAL
from .model_builder import VariantBuilder
from .model_child import Child
from .model_conclusion import ModelRun, conclude
from .model_search import CandidateSearch, case_of
from .profiling import Profiling

CONCLUSION_S, CONCLUSION_SHARE = 6.0, 0.2  # seconds, and share of the budget; the less counts


class ModelLab:
    """The row of `advise --model`: a row source, as the engine asks one for rows."""

    profiled_steps = 20  # most steps of a candidate in the profiles that explain the race

    def __init__(
        self,
        request: Request,
        plan: RowPlan,
        *,
        pool: Pool,
        machine: Machine,
        backends: tuple[str, ...],
        control: Control,
        emit: Callable[[ev.AnyEvent], None],
    ) -> None:
        assert request.model is not None  # noqa: S101 - the caller has a model to race
        self._question = request.model
        self._request = request
        self._plan = plan  # planned before anything is known about the model
        self._machine = machine
        self._backends = backends
        self._control = control
        self._emit = emit
        self._child = Child(self._question, request, pool=pool, control=control)
        self._run: ModelRun | None = None  # once the model was read

    @property
    def reserved_s(self) -> float:
        """Seconds of the budget that the race leaves for `conclude`."""
        return min(CONCLUSION_S, CONCLUSION_SHARE * self._request.budget)

    def rows(self) -> list[RowPlan]:
        """Inspect and prepare the model; the row with the candidates that start.

        Where the worker died while it read the model, the row has one case and the reason
        (`refused`).  UsageError where the model or an option cannot be used.
        """
        if self._question.objective == "energy":
            _require_energy()
        child, control, request = self._child, self._control, self._request
        try:
            facts = child.inspect()
        except WorkerFailed as failure:  # it crashed, hung, or ran out of memory
            proposal = Proposal(ORIGINAL, threads=self._machine.cpu.effective_cores)
            cases = [case_of(proposal, self._plan.scenario)]
            return [replace(self._plan, cases=cases, refused=failure.reason)]
        left_out: dict[str, str] = {}
        products: dict[str, int] = {}
        try:
            facts, products = child.prepare(facts)
        except WorkerFailed as failure:
            left_out["int8"] = f"it could not be prepared: {failure.reason.message}"
            failed = PreparationStep("prepared", None, None, failure.reason)
            facts = msgspec.structs.replace(facts, steps=[*facts.steps, failed])
        self._emit(ev.ModelInspected(at_s=control.now(), facts=facts))
        providers = _providers(child, left_out)
        gpus = tuple(self._gpus(providers, left_out))
        space = SearchSpace(
            facts=facts,
            products=products,
            cpu=self._machine.cpu,
            threads=useful_thread_counts(self._machine.cpu, request.threads),
            gpus=gpus,
            on_cpu=not request.devices or "cpu" in request.devices,
            providers=tuple(word for word in providers if word != "cuda"),
            backends=self._backends,
            precisions=request.precisions,
            thorough=request.thorough,
            step_s=facts.step_s,
        )
        proposals, unpromising = first(space)
        left_out = {**unpromising, **left_out}
        scenario = msgspec.structs.replace(
            self._plan.scenario,
            precisions=tuple(dict.fromkeys((facts.precision, "fp16", "int8"))),
            batch=facts.batch,
        )
        builder = VariantBuilder(child, facts, left_out, control=control, emit=self._emit)
        search = CandidateSearch(
            proposals, space, scenario, builder, request=request, control=control
        )
        self._run = ModelRun(self._question, facts, providers, child, builder, search)
        cases = search.start()
        if not cases:
            raise UsageError("no variant of the model is left with these filters")
        return [replace(self._plan, scenario=scenario, cases=cases, source=search)]

    def conclude(self, row: Row, report: Report, profiling: Profiling) -> None:
        """Explain the race and save the best variant; nothing where nothing was picked."""
        run = self._run
        advice = None if run is None else conclude(run, row, report, profiling)
        if run is None or advice is None:
            return
        run.search.stop()
        left_out = run.builder.left_out
        self._emit(ev.ModelAdvised(at_s=self._control.now(), advice=advice, left_out=left_out))

    def _gpus(self, providers: Mapping[str, str], left_out: dict[str, str]) -> Iterator[str]:
        for gpu in gpu_devices(self._request, self._machine):
            if self._question.objective == "energy":
                left_out[gpu] = "only the energy of processors is measured for each candidate"
            elif not kind_of(gpu).on_host and "cuda" not in providers:
                left_out[gpu] = (
                    "onnxruntime here has no CUDAExecutionProvider: install onnxruntime-gpu and "
                    "uninstall onnxruntime"
                )
            else:
                yield gpu


def _providers(child: Child, left_out: dict[str, str]) -> dict[str, str]:
    """Execution providers other than the CPU's: the word of a mode to ONNX Runtime's name."""
    try:
        return child.providers()
    except WorkerFailed as failure:
        left_out["other providers"] = failure.reason.message
        return {}


def _require_energy() -> None:
    energy_j, why = package_energy_j()
    if energy_j is None:
        raise UsageError(f"--objective energy: {why}; the default is --objective latency")
