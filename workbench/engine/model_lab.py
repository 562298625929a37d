"""The model lab as the engine sees it: a row whose candidates are the forms worth racing, who come
as they are built."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ..advisor.limits import exceeds_error_limit, is_admissible
from ..advisor.model.candidates import Entrant, Field, convolves, first, neighbours, thread_counts
from ..advisor.model.overview import form_of
from ..contract import Case, is_cuda
from ..machine.host.readings import package_energy_j
from ..planning.cases import gpu_devices
from ..planning.model_question import ModelQuestion
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..planning.usage import UsageError
from ..pool.control import Control
from ..pool.pool import Pool, WorkerFailed
from ..records import events as ev
from ..records.machine import Machine
from ..records.model import Advice, Built, Form, ModelFacts, Saved
from ..report.candidate import Candidate
from ..stats import ratios
from ..worker.recipe import ORIGINAL, Recipe
from .model_child import Child
from .preparation import worker_key

BUILDS_SHARE = 0.4  # of the budget, for a form without which there is no race
JOIN_SHARE = 0.2  # of the budget that must be left for a new form
JOIN_LEAST_SHARE = 0.08  # ... for another way to run a form that there is
MIX_SHARE = 0.5  # of the race's time left, for the search of nodes to leave in FP32
NEAR = 1.25  # times the least error: forms as good to begin a mix from
MIX_GAIN = 0.95  # of the leader's time: what a form over the limit must beat to be worth it
SETTLED_ROUNDS = 2  # that a leader must have before its neighbours are tried
MOST_CANDIDATES = 16  # of a default run
RIVALS = 3  # the next best, tried with the leader's threads
PROFILE_S, PROFILE_STEPS = 5.0, 5
KERNEL = "_kernel_time"  # what ONNX Runtime's profile adds to a node's name
NO_TIME = "the budget left no time to build it; give it a larger --budget"


class ModelLab:
    """One model from its file to what enters the race."""

    def __init__(
        self,
        question: ModelQuestion,
        request: Request,
        row: RowPlan,
        *,
        pool: Pool,
        machine: Machine,
        control: Control,
        emit: Callable[[ev.AnyEvent], None],
    ) -> None:
        self._question = question
        self._request = request
        self._pool = pool
        self._machine = machine
        self._control = control
        self._emit = emit
        self._child = Child(question, request, pool=pool, control=control)
        self._forms: dict[str, str] = {}  # precision and quantisation to a file
        self._failed: set[Recipe] = set()
        self._entrants: dict[str, Entrant] = {}  # by case id
        self._mixed = False
        self._waiting: list[Entrant] = []
        self._providers: dict[str, str] = {}  # usable beside the CPU's: word to its name
        self.left_out: dict[str, str] = {}
        self.facts: ModelFacts | None = None
        self._asked = row  # before anything was known of the model
        self.scenario = row.scenario

    # ------------------------------------------------------------- the row

    def open(self) -> RowPlan:
        """Inspect, prepare and build; the row of those who start.

        UsageError where the model or an option cannot be used, Refused where the child died of it.
        """
        if self._question.objective == "energy":
            _require_energy()
        facts = self._child.inspect()
        products: dict[str, int] = {}
        try:
            facts, products = self._child.prepare(facts)
        except WorkerFailed as failure:
            form = Form("prepared", None, None, failure.reason)
            facts = msgspec.structs.replace(facts, forms=[*facts.forms, form])
            self.left_out["int8"] = f"it could not be prepared: {failure.reason.message}"
        self.facts = facts
        self.scenario = msgspec.structs.replace(
            self.scenario,
            precisions=tuple(dict.fromkeys((facts.precision, "fp16", "int8"))),
            batch=facts.batch,
        )
        self._forms[facts.precision] = self._child.file
        self._emit(ev.ModelInspected(at_s=self._control.now(), facts=facts))
        self._field = self._found(facts, products)
        entrants, left_out = first(self._field)
        self.left_out = {**left_out, **self.left_out}
        row = self._row()
        row.cases = self._admit([e for e in entrants if e.recipe == ORIGINAL], 0.0)
        self._waiting = [e for e in entrants if e.recipe != ORIGINAL]
        if not row.cases:
            row.cases = self._next(BUILDS_SHARE * self._request.budget)
        if not row.cases:
            raise UsageError("no form of the model is left with these filters")
        return row

    def _next(self, seconds: float) -> list[Case]:
        """The next of those who wait, if it is built within `seconds`.

        One at a time: what was measured so far is an answer already, should time run out.
        """
        until_s = self._control.now() + seconds
        cases: list[Case] = []
        while self._waiting and not cases:
            cases = self._admit([self._waiting.pop(0)], until_s)
        return cases

    def refused(self) -> RowPlan:
        """The row of a model that nothing could be made of."""
        row = self._row()
        row.cases = [self._case(Entrant(ORIGINAL, threads=self._machine.cpu.effective_cores))]
        return row

    def _row(self) -> RowPlan:
        return replace(self._asked, scenario=self.scenario, entries=self)

    def _found(self, facts: ModelFacts, products: Mapping[str, int]) -> Field:
        request, machine = self._request, self._machine
        gpus: list[str] = []
        try:
            self._providers = self._child.providers()
        except WorkerFailed as failure:
            self.left_out["other providers"] = failure.reason.message
        for gpu in gpu_devices(request, machine):
            if self._question.objective == "energy":
                self.left_out[gpu] = "only the processors' energy is read for each candidate"
                continue
            if is_cuda(gpu) and "cuda" not in self._providers:
                self.left_out[gpu] = (
                    "onnxruntime here has no CUDAExecutionProvider: install onnxruntime-gpu, "
                    "and not onnxruntime beside it"
                )
                continue
            gpus.append(gpu)
        providers = [word for word in self._providers if word != "cuda"]
        on_cpu = not request.devices or "cpu" in request.devices
        return Field(
            facts=facts,
            products={} if "int8" in self.left_out else products,
            cpu=machine.cpu,
            threads=thread_counts(machine.cpu, request.threads),
            gpus=tuple(gpus),
            on_cpu=on_cpu,
            providers=tuple(providers),
            precisions=request.precisions,
            thorough=request.thorough,
            step_s=facts.step_s,
        )

    # --------------------------------------------------------------- forms

    def _admit(self, entrants: Sequence[Entrant], until_s: float) -> list[Case]:
        """The cases of those whose form there is, or can be built before `until_s`."""
        found = []
        for entrant in entrants:
            if self._is_built(entrant.recipe, until_s):
                case = self._case(entrant)
                self._entrants[case.id] = entrant
                found.append(case)
        return found

    def _is_built(self, recipe: Recipe, until_s: float) -> bool:
        if self._label(recipe) in self._forms:
            return True
        if recipe in self._failed:
            return False
        began = time.monotonic()
        if self._control.now() >= until_s:
            self.left_out.setdefault(recipe.label, NO_TIME)
            return False
        self._emit(ev.ModelBuilding(at_s=self._control.now(), recipe=recipe.label))
        try:
            self._keep(recipe, self._child.build(recipe), began)
        except WorkerFailed as failure:
            self._failed.add(recipe)
            spent_s = time.monotonic() - began
            built = Built(recipe.label, spent_s, reason=failure.reason)
            self._emit(ev.ModelBuilt(at_s=self._control.now(), built=built))
            if failure.reason.code == "timeout":  # the others would take as long
                self._leave_out(self._waiting)
            return False
        return True

    def _leave_out(self, waiting: list[Entrant]) -> None:
        """Tell of the forms that nobody got to: others wait for a second way to run one."""
        for recipe in (entrant.recipe for entrant in waiting):
            if self._label(recipe) not in self._forms and recipe not in self._failed:
                self.left_out.setdefault(recipe.label, NO_TIME)
        waiting.clear()

    def _keep(self, recipe: Recipe, told: Mapping[str, Any], began: float) -> None:
        self._forms[recipe.label] = told["file"]
        self.left_out.pop(recipe.label, None)  # there may have been no time for it at first
        built = Built(
            recipe=recipe.label,
            seconds=time.monotonic() - began,
            size_bytes=told["size_bytes"],
            operators=told["operators"],
            coverage=told["coverage"],
            excluded=list(recipe.excluded),
        )
        self._emit(ev.ModelBuilt(at_s=self._control.now(), built=built))

    def _label(self, recipe: Recipe) -> str:
        return self.scenario.precisions[0] if recipe == ORIGINAL else recipe.label

    def _case(self, entrant: Entrant) -> Case:
        recipe = entrant.recipe
        precision = self.scenario.precisions[0] if recipe == ORIGINAL else recipe.precision
        return Case(
            workload="model",
            device=entrant.device,
            backend="onnxruntime",
            precision=precision,
            quantization=recipe.quantization,
            threads=entrant.threads,
            batch=self.scenario.batch,
            params=self.scenario.params,
            mode=entrant.mode,
        )

    # ------------------------------------------------------------- the race

    def files(self, case: Case) -> Mapping[str, str]:
        """What `workloads.lab.workload` needs to run `case`."""
        return {
            "model": self._forms[form_of(case)],
            "folder": self._child.folder,
            "metric": self._question.metric,
        }

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """The neighbours of the leader, and a mixed form where INT8 is faster but too far off."""
        if left_s >= JOIN_SHARE * self._request.budget and (cases := self._next(left_s / 2)):
            return cases
        measured = [c for c in candidates if c.blocks and c.case.device == "cpu"]
        valid = {c.case.id: c for c in measured if is_admissible(c, self.scenario)}
        order = ratios.ranking({case: c.rounds() for case, c in valid.items()})
        if not order or left_s < JOIN_LEAST_SHARE * self._request.budget:
            return []
        leader = valid[order[0]]
        until_s = self._control.now() + left_s / 2
        if not self._mixed and (base := self._worth_mixing(measured, leader)) is not None:
            self._mixed = True
            recipe = self._mix(self._entrants[base.case.id].recipe, MIX_SHARE * left_s)
            if recipe is not None:
                threads = base.case.threads
                return self._admit([Entrant(recipe, threads=threads)], until_s)
        if self._request.thorough or len(leader.blocks) < SETTLED_ROUNDS:
            return []
        known = set(self._entrants.values())
        first_of_all = self._entrants[order[0]]
        beside = [e for e in neighbours(first_of_all, self._field) if e not in known]
        # What lost with other threads may win with the leader's.
        for case in order[1 : 1 + RIVALS]:
            rival = replace(self._entrants[case], threads=first_of_all.threads, mode=None)
            if rival not in known and rival not in beside:
                beside.append(rival)
        return self._admit(beside[: max(0, MOST_CANDIDATES - len(candidates))], until_s)

    def baseline(self, candidates: Sequence[Candidate]) -> str | None:
        """The fastest run of the model as given, on the CPU."""
        given = {
            c.case.id: c.rounds()
            for c in candidates
            if c.case.device == "cpu" and self._entrants[c.case.id].recipe == ORIGINAL
        }
        return next(iter(ratios.ranking(given)), None)

    def _worth_mixing(self, measured: Sequence[Candidate], leader: Candidate) -> Candidate | None:
        """The static form that would lead were it not too far off: of those about as near, the
        fastest."""
        best_s = min(leader.samples_s)
        fast = [
            c
            for c in measured
            if (c.case.quantization or "").startswith("static")
            and c.accuracy is not None
            and exceeds_error_limit(c, self.scenario)
            and min(c.samples_s) < MIX_GAIN * best_s
        ]
        least = min((c.accuracy.value for c in fast if c.accuracy), default=0.0)
        near = [c for c in fast if c.accuracy and c.accuracy.value <= NEAR * least]
        if not convolves(self._field):  # in a chain of products what lies between costs more
            near = [c for c in near if "products" in (c.case.quantization or "")] or near
        return min(near, key=lambda c: min(c.samples_s), default=None)

    def _mix(self, recipe: Recipe, seconds: float) -> Recipe | None:
        """`recipe` with the nodes left out that take it over the limit; None: no such mix."""
        began = time.monotonic()
        self._emit(ev.ModelBuilding(at_s=self._control.now(), recipe=recipe.label, search=True))
        try:
            mixed, told = self._child.mix(recipe, seconds, self._node_seconds())
        except WorkerFailed as failure:
            built = Built(f"{recipe.label}-mixed", time.monotonic() - began, reason=failure.reason)
            self._emit(ev.ModelBuilt(at_s=self._control.now(), built=built))
            return None
        self._keep(mixed, told, began)
        return mixed

    def _node_seconds(self) -> dict[str, float] | None:
        """What each node of the model as given takes; None where its profile cannot be had."""
        case = self._case(Entrant(ORIGINAL, threads=self._field.threads[0]))
        key = worker_key(case, self.scenario)
        if case.id not in self._entrants or not self._pool.is_alive(key):
            return None
        wanted = {"case": case.id, "steps": PROFILE_STEPS, "events": True}
        try:
            answer = self._pool.ask(key, PROFILE_S, op="profile", **wanted)
        except WorkerFailed:
            return None
        found: dict[str, float] = {}
        for event in answer.result["events"]:
            if event.get("cat") == "Node":
                name, seconds = event["name"].removesuffix(KERNEL), event["dur"] * 1e-6
                found[name] = min(found.get(name, seconds), seconds)
        return found

    # -------------------------------------------------------------- the end

    def save(self, case: Case) -> Saved:
        """The form that `case` runs, written to --save-best."""
        assert self._question.save_best is not None  # noqa: S101 - asked by who knows
        target = Path(self._question.save_best)
        try:
            told = self._child.save(self.files(case)["model"], target)
        except WorkerFailed as failure:
            return Saved(target.name, None, None, failure.reason)
        return msgspec.convert({**told, "file": str(target)}, Saved)

    def provider(self, case: Case) -> str:
        """ONNX Runtime's name of what ran `case`."""
        if is_cuda(case.device) and case.mode is None:
            return self._providers.get("cuda", "CUDAExecutionProvider")
        return self._providers.get(case.mode or "", "CPUExecutionProvider")

    def advise(self, advice: Advice) -> None:
        """Tell what was found out."""
        self._leave_out(self._waiting)
        self._emit(ev.ModelAdvised(at_s=self._control.now(), advice=advice, left_out=self.left_out))


def _require_energy() -> None:
    energy_j, why = package_energy_j()
    if energy_j is None:
        raise UsageError(f"--objective energy: {why}; latency counts without it")
