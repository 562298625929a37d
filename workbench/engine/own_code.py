"""The user's own code as the source of rows: examined once, raced, then advised on.

A command makes one row; a function or a torch module makes one at its own size or batch, and one
at another, where the answer may differ.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..advisor import crossover
from ..advisor.crossover import Measured
from ..advisor.limits import eligible
from ..advisor.own import overview
from ..advisor.own.candidates import CodeSpace, command_cases, function_cases
from ..advisor.own.snippet import lines, snippet
from ..contract import HALF, Case
from ..machine.host.isa import native
from ..planning.cases import gpu_devices
from ..planning.plan import CandidateSource, RowPlan, point_name
from ..planning.questions import OwnQuestion
from ..planning.scenario import Scenario
from ..planning.usage import UsageError
from ..pool.answers import SavedFiles
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.code import CodeAdvice, CodeFacts, SavedCode
from ..records.reason import Reason
from ..records.verdict import Crossover
from ..report.candidate import Row
from ..worker.code import COMMAND, FUNCTION, OWN, TORCH, Code, placeholders
from ..worker.session_options import ONNX_BACKENDS
from .context import RunContext
from .own_examination import BACKENDS, Examination
from .own_exports import EXPORTER, Exports, about, importing_meanwhile
from .own_search import OwnSearch
from .training_search import TrainingSearch

FIRST_WEIGHT = 2.0  # least weight of the row that finds the candidates, else the sum of the others
OTHER_BATCH, SMALL_BATCH = 8, 1  # the second batch: the large one if the user's is small
NO_BATCH = "it was not confirmed that the first axis of its inputs is a batch"
# Codes of reasons about the name that the user gave, not about what the code does.
NOT_USABLE = ("bad_target", "bad_input", "missing_package", "unsupported")
SAVE_S, SAVE_SHARE = 10.0, 0.2  # for --save-best: seconds, or share of the budget if smaller


@dataclass(frozen=True)
class FixedCases(CandidateSource):
    """The source of a row whose candidates are all known before it starts."""

    code: Code
    scenario: Scenario
    cases: list[Case]

    def start(self) -> list[Case]:
        return self.cases

    def files(self, case: Case) -> Mapping[str, str]:
        return {"code": self.code.as_text()}


@dataclass
class OwnCode:
    """The rows of `advise --torch`, `--function` and `--command`: a row source."""

    context: RunContext
    plan: RowPlan  # without candidates, before the code is examined
    question: OwnQuestion
    backends: tuple[str, ...]

    def __post_init__(self) -> None:
        self.request = request = self.context.request
        folder = self.context.pool.scratch / OWN
        folder.mkdir(exist_ok=True)
        code = self.question.code(str(folder), os.getcwd(), request.seed)  # noqa: PTH109
        code = replace(code, batch=next(iter(request.batch), None))
        self._exports: Exports | None = None
        cores = self.context.machine.cpu.effective_cores
        counts = set(request.threads) or {cores, max(1, cores // 2), 1}
        self._threads = tuple(sorted(counts, reverse=True))
        self._examination = Examination(self.context, code, self._threads[0])

    @property
    def _code(self) -> Code:
        return self._examination.code

    @property
    def reserved_s(self) -> float:
        """Seconds of the budget that the race leaves for `conclude`."""
        saves = self.question.save_best is not None
        return min(SAVE_S, SAVE_SHARE * self.request.budget) if saves else 0.0

    # ------------------------------------------------------------------ rows

    def rows(self) -> list[RowPlan]:
        """Examine the code, and return its rows with the candidates that start.

        If the code raised, hung or died, its row has one case, with the reason (`refused`).
        UsageError if the code or an option cannot be used.
        """
        context, gpus = self.context, tuple(gpu_devices(self.request, self.context.machine))
        try:
            with importing_meanwhile(context, self._early_exporter):
                found, load_s = self._examination.run(gpus)
        except WorkerFailed as failure:
            return [self._refused(failure.reason)]
        facts = self._checked(found)
        notes = [*facts.notes, *self._notes_on(facts, has_gpu=bool(gpus))]
        facts = msgspec.structs.replace(facts, notes=notes)
        context.record(ev.CodeExamined, facts=facts)
        space = CodeSpace(facts, context.machine.cpu, self._threads, gpus, self.request)
        return self._planned(space, load_s)

    def _refused(self, reason: Reason) -> RowPlan:
        """The row of code that raised, hung or died; UsageError if its name is wrong."""
        if reason.code in NOT_USABLE:
            raise UsageError(reason.one_line) from None
        kind = self.question.kind
        place = "cpu" if self.request.with_cpu else self._code.home
        case = Case(OWN, place, BACKENDS[kind], "fp32" if kind == TORCH else "")
        return replace(self.plan, cases=[case], refused=self._examination.why_failed(reason))

    def _planned(self, space: CodeSpace, load_s: float) -> list[RowPlan]:
        """The rows that have candidates; UsageError without any."""
        rows = [
            replace(self.plan, scenario=source.scenario, cases=cases, source=source)
            for source in self._sources(space, load_s)
            if (cases := source.start())  # code exported for one batch has no further row
        ]
        if not rows:
            why = self._exports.left_out.items() if self._exports else ()
            said = "".join(f"; {name}: {reason}" for name, reason in why)
            raise UsageError(f"no candidate is left with these filters{said}")
        return rows

    def _notes_on(self, facts: CodeFacts, *, has_gpu: bool) -> Iterator[str]:
        """Notes about code that cannot be given a GPU of this machine, or is slow on its CPU."""
        kind, own, runs_on_cpu = self.question.kind, facts.precision, facts.needs_gpu is None
        if has_gpu and kind == FUNCTION and not facts.takes_device and runs_on_cpu:
            yield "it has no parameter `device`, so it races on the CPU alone"
        if has_gpu and kind == COMMAND and "device" not in placeholders(self.question.target):
            yield "it has no {device}, so it chooses where to compute, and counts as CPU"
        is_slow = own in HALF and not native(own, self.context.machine.cpu)
        if is_slow and self.question.train and runs_on_cpu and self.request.with_cpu:
            yield f"its weights are {own.upper()}, which this CPU computes slowly: try .float() too"

    def _checked(self, facts: CodeFacts) -> CodeFacts:
        """The facts, with a note if the code may ignore --batch; UsageError if it surely does."""
        if self.request.batch and facts.batch is None:
            why = "its inputs share no first axis to change; name a builder with inputs(batch)"
            if self.question.kind == FUNCTION:
                why = "no parameter takes a size"
            raise UsageError(f"--batch: {facts.name} has no batch to change: {why}")
        is_own = set(self.request.batch) <= {facts.batch}
        if self.question.kind != TORCH or is_own or facts.resizable:
            return facts
        if facts.of_one_size and facts.data:
            raise UsageError(f"--batch: the loader of {facts.name} makes its own batches")
        if facts.of_one_size:
            if not facts.name.endswith(".pt2"):
                raise UsageError(f"--batch: {facts.name} takes batch {facts.batch} alone")
            fixed = f"--batch: {facts.name} was exported for batch {facts.batch} alone"
            raise UsageError(f"{fixed}; export it with dynamic_shapes")
        return msgspec.structs.replace(facts, notes=[*facts.notes, NO_BATCH])

    def _sources(self, space: CodeSpace, load_s: float) -> Sequence[FixedCases | OwnSearch]:
        """The sources of candidates, one for each row, in the order of `_batches`."""
        question, (first, *others) = self.question, self._batches(space.facts)
        own = msgspec.structs.replace(self.plan.scenario, batch=first)
        further = [_at_batch(own, batch) for batch in others if batch]
        if question.kind == COMMAND:
            return [FixedCases(self._code, own, command_cases(space, question))]
        if question.kind == FUNCTION:
            rows = (own, *further)
            return [FixedCases(self._code, at, function_cases(space, at)) for at in rows]
        batches = [first, *others]
        exports = Exports(self._code, batches, own, space, self.context, self.backends, load_s)
        search_in = TrainingSearch if question.train else OwnSearch
        own = msgspec.structs.replace(own, weight=max(FIRST_WEIGHT, len(others)))
        search, self._exports = search_in(space, own, exports), exports
        return [search, *(search_in(space, at, exports, search) for at in further)]

    def _batches(self, facts: CodeFacts) -> list[int | None]:
        """The batches of --batch; else the code's own and, if it can change, another one: smaller,
        or larger if its own is small already."""
        own = facts.batch
        if self.request.batch:
            return list(self.request.batch)
        if own is None or not facts.resizable or self.question.train:
            return [own]
        if self.question.kind == FUNCTION:
            return [own, own // OTHER_BATCH or OTHER_BATCH * own]
        return [own, OTHER_BATCH if own == SMALL_BATCH else SMALL_BATCH]

    @property
    def _early_exporter(self) -> WorkerKey | None:
        """The exporter, if it may start while a module is examined; not next to a script, which is
        timed while it is examined."""
        request, cores = self.request, self.context.machine.cpu.effective_cores
        is_asked = bool(self.backends) or not request.modes or request.names_compile
        is_module = self.question.kind == TORCH and not self._code.is_script
        is_early = is_module and is_asked and request.with_cpu and cores > 1
        return EXPORTER if is_early else None

    # ------------------------------------------------------------ afterwards

    def conclude(self, row: Row) -> None:
        """Report the advice after each row, from what is known by then."""
        context, report = self.context, self.context.report
        own, rows = report.rows[OWN], report.subject_rows
        best = overview.first_answered(rows)
        found = None if row is own else self._crossover(rows)
        if found is not None and found.between == "device":
            context.record(ev.CrossoverFound, scenario=OWN, crossover=found)
        exports, code = self._exports, report.code
        compiled = next(filter(overview.picks_compiled, rows), own)
        pick, advice, trains = best.picked, None, self.question.train
        if pick is not None and code is not None:
            facts, is_last = code.facts, row is rows[-1]  # `reserved_s` follows the last
            advice = CodeAdvice(
                snippet=snippet(facts, pick.case, self.question),
                flips=overview.flips(report, trains=trains),
                share=overview.script_gain(report, best, pick, trains=trains),
                saved=self._save(pick.case, facts) if is_last else None,
            )
        context.record(
            ev.CodeAdvised,
            advice=advice,
            left_out=exports.left_out if exports else {},
            breaks=exports.breaks if exports else [],
            compile_calls=overview.compile_calls(compiled),
        )

    def _crossover(self, rows: Sequence[Row]) -> Crossover | None:
        """The batch at which another candidate takes the lead, from the rows so far."""
        points = []
        for row in rows:
            able = eligible(row.candidates, self.plan.scenario)
            if able and (batch := able[0].case.batch) is not None:
                points.append(Measured(float(batch), able))
        return crossover.conclude(points, "batch", whole=True)

    def _save(self, case: Case, facts: CodeFacts) -> SavedCode | None:
        folder = self.question.save_best
        if folder is None:
            return None
        found = lines(facts, case, self.question)
        key = EXPORTER if case.backend in ONNX_BACKENDS else self._examination.key(self._code.home)
        files = self._exports.files(case) if self._exports else {}
        target = Path(folder).absolute()
        try:
            least_s = max(1.0, self.reserved_s)
            self.context.start(key, least_s)
            saved = self.context.pool.ask(
                key,
                max(least_s, self.context.deadline()),
                SavedFiles,
                **about(self._code, "save"),
                picked=case,
                destination=str(target),
                hidden=str(self.context.pool.folder_next_to(target)),
                onnx_file=files.get("model", ""),
                setup=found.setup,
                call=found.call,
                renews=bool(facts.mutated),
            ).result
        except WorkerFailed as failure:
            return SavedCode(folder, reason=failure.reason)
        return SavedCode(folder, saved.files)


def _at_batch(first: Scenario, batch: int) -> Scenario:
    name, title = point_name(OWN, {"batch": batch}), f"{first.title} at batch {batch}"
    return msgspec.structs.replace(first, id=name, title=title, batch=batch, weight=1.0)
