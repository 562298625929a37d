"""Makes an ONNX file of a user's module and its INT8 forms, and predicts the time to compile it.

Exporting has a worker of its own, so a hang or crash there ends no candidate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ..advisor.model.candidates import ModelSpace, Proposal, first
from ..advisor.own import candidates as ways
from ..contract import Case
from ..planning.questions import ModelQuestion
from ..planning.scenario import Scenario
from ..planning.usage import UsageError
from ..pool.answers import ExportedCode, GraphBreaks
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey, knows_compiler
from ..records import events as ev
from ..records.reason import Reason
from ..report.candidate import Candidate
from ..worker.code import OWN, Code
from ..worker.recipe import ORIGINAL
from ..worker.session_options import BFLOAT, ONNX_BACKENDS, OPENVINO
from .context import START_S, RunContext
from .model_variants import LAB, LATE, ModelVariants
from .variant_search import VariantSearch, case_of

EXPORTER = WorkerKey("cpu", "torch", alone="export")
# Shares of the row's time left: the longest export and probe for graph breaks once the code is
# loaded, and the time within which INT8 forms, and neighbours of a leader, may start to be built.
EXPORT, PROBE, BUILD, NEIGHBOURS = 0.8, 0.25, 0.5, 0.25

T = TypeVar("T")


def about(code: Code, question: str) -> dict[str, str]:
    """The request to a worker to answer a question about the code."""
    return {"op": "consult", "workload": OWN, "question": question, "code": code.as_text()}


@contextmanager
def importing_meanwhile(
    context: RunContext, key: WorkerKey | None, end_s: float = math.inf
) -> Iterator[None]:
    """Let the worker `key` import its libraries on another core during the block, and then wait for
    it until `end_s` on the run's clock.  Without a key, do nothing."""
    early = [key] if key else []
    with context.pool.starting(early):
        yield
        for each in early:
            with suppress(WorkerFailed):  # the first question to it raises again
                context.pool.start(each, min(context.deadline(START_S), end_s - context.now()))


@dataclass
class Exports:
    """The exported forms of one module; why others are missing is in `left_out`."""

    code: Code
    batches: Sequence[int | None]  # one for each row; the first is that of `scenario`
    scenario: Scenario  # the first row's
    space: ways.CodeSpace
    context: RunContext
    backends: tuple[str, ...] = ("onnxruntime",)  # libraries that run the exported model
    load_s: float = 0.0  # time for a worker to import, build and call the code
    left_out: dict[str, str] = field(default_factory=dict)
    exported: ExportedCode | None = None
    breaks: list[str] = field(default_factory=list)
    _probed: bool = False  # for graph breaks
    _graph: GraphBreaks | None = None  # None until it is probed
    _uncompilable: str = ""  # why torch.compile cannot help
    late: set[str] = field(default_factory=set)  # keys of `left_out` that only lacked time
    _end_s: float = 0.0  # when the row that is searched ends, on the run's clock
    _search: VariantSearch | None = None  # once the lab has prepared the exported model

    def allow(self, left_s: float) -> None:
        """Give everything that follows this much time."""
        self._end_s = self.context.now() + left_s

    @property
    def left_s(self) -> float:
        return self._end_s - self.context.now()

    def leave_out(self, name: str, why: str, *, late: bool = False) -> None:
        self.left_out.setdefault(name, why)
        if late:
            self.late.add(name)

    def take_in(self, name: str) -> None:
        """Forget why something was left out, since it races after all."""
        self.left_out.pop(name, None)
        self.late.discard(name)

    def late_forms(self) -> str:
        """After a race: the exported forms that lacked time, in words; "" if none did."""
        if "onnx" in self.late:
            return "its ONNX form"
        if self._search is not None:
            return self._search.gap()
        is_possible = self.exported is not None and self.admits_int8
        if is_possible and ("int8" not in self.left_out or "int8" in self.late):
            self.leave_out("int8", LATE, late=True)
            return "its INT8 forms"
        return ""

    def export(self) -> bool:
        """Whether the module has an ONNX file, after exporting it in time if necessary."""
        if self.exported is None and "onnx" not in self.left_out:
            self.context.record(ev.ModelBuilding, recipe="onnx")
            # Exporting takes one core: the lab imports its libraries on another.
            lab = LAB if self.admits_int8 and self.space.cpu.effective_cores > 1 else None
            try:
                with importing_meanwhile(self.context, lab, self._end_s):
                    asked = {"batches": self.batches}
                    self.exported = self._ask("export", ExportedCode, EXPORT, **asked)
            except WorkerFailed as failure:
                why = failure.reason
                self.leave_out("onnx", why.message, late=why.code == "timeout")
            if self.exported and not self.exported.dynamic and len(self.batches) > 1:
                self.left_out["ONNX Runtime at other batches"] = "its graph takes one batch only"
        return self.exported is not None

    def takes(self, batch: int | None) -> bool:
        """Whether the exported model runs at this batch."""
        return batch == self.batches[0] or (self.exported is not None and self.exported.dynamic)

    def files(self, case: Case) -> Mapping[str, str]:
        """The files and options that a worker needs for `case`."""
        found = {"code": self.code.as_text()}
        if case.backend not in ONNX_BACKENDS or self.exported is None:
            return found
        search = self._search if case.quantization is not None else None
        found |= {"model": self.exported.model, "folder": self._folder(case.batch)}
        if search is None:
            return found
        return {**found, "model": search.variants.file(case), "lab": str(self.context.pool.scratch)}

    def _folder(self, batch: int | None) -> str:
        """The folder of the module's inputs and reference outputs at `batch`."""
        return str(Path(self.code.folder, f"b{batch or 0}"))

    def next_quantised(self, measured: Sequence[Candidate]) -> list[Case]:
        """The next INT8 form of the exported model; [] if there are no more or no time is left."""
        is_possible = self.admits_int8 and "int8" not in self.left_out
        if self._search is None and self.exported and is_possible:
            self._search = self._quantisable(self.exported)
        return self._search.next(measured, self._until(BUILD)) if self._search else []

    def mixed(self, measured: Sequence[Candidate], leader: Candidate) -> list[Case]:
        """Once, a variant without the nodes that take a fast INT8 form over its error limit."""
        if self._search is None:
            return []
        return self._search.mix(measured, leader, self._until(BUILD) - self.context.now())

    def neighbours(self, leader: Case) -> list[Case]:
        """Cases of the exported model that differ from the leader in one respect."""
        if self._search is None:
            return []
        if leader.precision == BFLOAT:  # as the lab calls it
            leader = replace(leader, mode=BFLOAT)
        found = self._search.neighbours(leader)
        return self._search.admit(found, self._until(NEIGHBOURS))

    def _until(self, share: float) -> float:
        """The end of `share` of the time, when the last build may start; none outlasts the row."""
        if self._search is not None:
            self._search.variants.end_s = self._end_s
        return self.context.now() + share * self.left_s

    def _case_of(self, proposal: Proposal, scenario: Scenario) -> Case:
        case = case_of(proposal, scenario)
        if case.backend == OPENVINO and case.mode == BFLOAT:  # the error limit is BF16's
            return replace(case, precision=BFLOAT, mode=None)
        if proposal.recipe == ORIGINAL:
            return replace(case, precision=self.space.exported_precision(case.backend))
        return case

    def _quantisable(self, exported: ExportedCode) -> VariantSearch | None:
        """The search for INT8 forms, once the lab has prepared the model; None without a form."""
        question = ModelQuestion(exported.model, max_error=self.code.max_error)
        variants = ModelVariants(question, self.context, self.left_out, self._until(BUILD))
        try:
            given = self._folder(self.batches[0])
            facts, products = variants.prepare(variants.inspect(given=given))
        except (WorkerFailed, UsageError) as error:
            late = isinstance(error, WorkerFailed) and error.reason.code == "timeout"
            self.leave_out("int8", LATE if late else str(error), late=late)
            return None
        asked = self.space.request.precisions
        may_round = not asked or BFLOAT in asked  # products of the exported FP32 model
        space = ModelSpace(
            facts=facts,
            products=products,
            cpu=self.space.cpu,
            threads=self.space.threads,
            backends=self.backends,
            precisions=("int8", BFLOAT) if may_round else ("int8",),
            thorough=self.space.request.thorough,
        )
        found, unpromising = first(space)
        self.left_out |= unpromising
        return VariantSearch(found, space, variants, self.scenario, self._case_of)

    def may_compile(self, share: float = 1.0) -> bool:
        """Whether torch.compile finds something to compile, and `share` of its longest time fits
        into the time left, else `left_out` has the reason; the first call probes the module."""
        self._probed = self._probed or self.code.home != "cpu"  # the probe sees no GPU
        probe_s = 0.0 if self._is_loaded else self.load_s
        # The size of a training is unknown, since none is exported.
        need_s = self.compile_s((0, 0) if self.code.train else ways.UNKNOWN)
        if not self._probed and share * need_s + probe_s <= self.left_s:
            self._probed = True
            self._probe()
        left_s = self.left_s
        if self._uncompilable:
            self.leave_out("compile", self._uncompilable)
        elif share * (need_s := self.compile_s()) > left_s:
            why = f"compiling may take {need_s:.0f} s, but only {max(0.0, left_s):.0f} s were left"
            # The first reason stays, since later ones name less time.
            self.leave_out("compile", f"{why}; raise --budget", late=True)
        else:
            self.take_in("compile")
            return self._probed
        return False

    def _probe(self) -> None:
        try:
            found = self._ask("breaks", GraphBreaks, PROBE, batch=self.batches[0])
            self.breaks, self._graph = found.reasons, found
        except WorkerFailed as failure:
            why = failure.reason.message
            if failure.reason.code == "unsupported":
                self._uncompilable = why
            else:
                self.leave_out("graph breaks", why)

    def compile_s(self, unknown: tuple[int, int] = ways.UNKNOWN) -> float:
        """Seconds for a new worker to load and compile the code, of `unknown` size before it is
        probed or exported; infinite if torch cannot."""
        if self._uncompilable:
            return math.inf
        if (graph := self._graph or self.exported) is not None:
            size = graph.operations, graph.convolutions
        else:
            operations, convolutions = unknown
            size = operations, convolutions if self.space.facts.convolves else 0
        # The fastest import, since the first may have read from a cold disk.
        starts = self.context.pool.import_s.items()
        import_s = min((s for key, s in starts if key.backend == EXPORTER.backend), default=0.0)
        cold, trains = not knows_compiler(), self.code.train
        return self.load_s + ways.compile_s(*size, cold=cold, trains=trains, import_s=import_s)

    @property
    def _is_loaded(self) -> bool:
        """Whether the exporter lives and has loaded the code."""
        return OWN in self.context.pool.held(EXPORTER)

    @property
    def admits_int8(self) -> bool:
        request = self.space.request
        is_plain = not request.modes or "plain" in request.modes
        return is_plain and (not request.precisions or "int8" in request.precisions)

    def _ask(self, question: str, kind: type[T], share: float, **details: object) -> T:
        """Ask the exporter, which has `share` of the time left, plus the time to load the code if
        it is not loaded; WorkerFailed may be raised."""
        context, pool, left_s = self.context, self.context.pool, self.left_s
        context.start(EXPORTER)
        loading_s = 0.0 if self._is_loaded else self.load_s - pool.import_s.get(EXPORTER, 0.0)
        seconds = loading_s + share * (left_s - loading_s)
        deadline_s = max(0.5, min(context.deadline(seconds), self.left_s))
        pool.held(EXPORTER).add(OWN)
        try:
            asked = about(self.code, question)
            return pool.ask(EXPORTER, deadline_s, kind, **asked, **details).result
        except WorkerFailed as failure:
            if failure.reason.code != "timeout":
                raise
            text = f"it was not done within its {deadline_s:.0f} s of the budget; raise --budget"
            raise WorkerFailed(Reason("timeout", text)) from None
