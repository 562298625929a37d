"""The user's own code as the source of rows: examined once, raced, then advised on.

A command makes one row; a function or a torch module makes one at its own size or batch, and one
at another, where the answer may differ.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..advisor import crossover
from ..advisor.crossover import Measured
from ..advisor.limits import eligible
from ..advisor.own.candidates import Space, command_cases, function_cases, is_first
from ..advisor.own.overview import (
    compile_calls,
    first_answered,
    flips,
    picks_compiled,
    script_gain,
)
from ..advisor.own.snippet import lines, snippet
from ..contract import MOST_THREADS, Case, kind_of
from ..planning.cases import gpu_devices
from ..planning.plan import RowPlan, point_name
from ..planning.questions import OwnQuestion
from ..planning.scenario import Scenario
from ..planning.usage import UsageError
from ..pool.answers import SavedFiles
from ..pool.pool import HINTS, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.code import CodeAdvice, CodeFacts, SavedCode
from ..records.reason import Reason
from ..records.verdict import Crossover
from ..report.candidate import Row
from ..worker.code import COMMAND, FUNCTION, IMPORTING, MODULES, OWN, TORCH
from ..worker.session_options import ONNX_BACKENDS
from .context import RunContext
from .own_exports import EXPORTER, Exports, consult, importing_meanwhile
from .own_search import FixedCases, OwnSearch
from .profiling import Profiling
from .training_search import TrainingSearch

EXAMINE_SHARE = 0.5  # most of the budget that may go into importing, building and one call
SCRIPT_SHARE = 1 / 3  # share of the budget after which a script is stopped
FIRST_WEIGHT = 2.0  # least weight of the row that finds the candidates, else the sum of the others
OTHER_BATCH, SMALL_BATCH = 8, 1  # the second batch: the large one if the user's is small
NO_BATCH = "it was not confirmed that the first axis of its inputs is a batch"
BACKENDS = {TORCH: "torch", FUNCTION: "python", COMMAND: "command"}
# Codes of reasons about the name that the user gave, not about what the code does.
NOT_USABLE = ("bad_target", "bad_input", "missing_package", "unsupported")
# Failures on the CPU after which code is examined on a GPU: its operators may be CUDA's alone.
NOT_ON_A_CPU = ("needs_gpu", "user_code", "no_memory", "timeout", "worker_died")
HANGS = "make it return sooner, or raise --budget"
IMPORTS = "let its import do less, or raise --budget"
SLOW = "pass a smaller batch after --, or raise --budget"
UNSTOPPED = f"{SLOW}; a bare `except:` in the script catches the signal to stop"
SAVE_S, SAVE_SHARE = 10.0, 0.2  # for --save-best: seconds, or share of the budget if smaller


@dataclass
class OwnCode:
    """The rows of `advise --torch`, `--function` and `--command`: a row source."""

    context: RunContext
    plan: RowPlan  # without candidates, before the code is examined
    backends: tuple[str, ...]

    def __post_init__(self) -> None:
        self.request = request = self.context.request
        assert request.own is not None  # the caller has code to race
        self._question: OwnQuestion = request.own
        folder = self.context.pool.scratch / OWN
        folder.mkdir(exist_ok=True)
        code = self._question.code(str(folder), os.getcwd(), request.seed)  # noqa: PTH109
        self._code = replace(code, batch=next(iter(request.batch), None))
        self._facts: CodeFacts | None = None
        self._exports: Exports | None = None
        self._last = OWN  # id of the row that races last
        cores = self.context.machine.cpu.effective_cores
        counts = set(request.threads) or {cores, max(1, cores // 2), 1}
        self._threads = tuple(sorted(counts, reverse=True))

    @property
    def reserved_s(self) -> float:
        """Seconds of the budget that the race leaves for `conclude`."""
        saves = self._question.save_best is not None
        return min(SAVE_S, SAVE_SHARE * self.request.budget) if saves else 0.0

    # ------------------------------------------------------------------ rows

    def rows(self) -> list[RowPlan]:
        """Examine the code, and return its rows with the candidates that start.

        If the code raised, hung or died, its row has one case, with the reason (`refused`).
        UsageError if the code or an option cannot be used.
        """
        context, gpus = self.context, tuple(gpu_devices(self.request, self.context.machine))
        began_s = context.now()
        try:
            with importing_meanwhile(context, self._early_exporter):
                found = self._examine(gpus)
                took_s = context.now() - began_s
        except WorkerFailed as failure:
            return [self._refused(failure.reason)]
        facts = self._facts = self._checked(self._with_imports(_with_threads(found)))
        context.record(ev.CodeExamined, facts=facts)
        space = Space(facts, context.machine.cpu, self._threads, gpus, self.request)
        return self._planned(space, load_s=max(0.0, took_s - _script_s(found)))

    def _refused(self, reason: Reason) -> RowPlan:
        """The row of code that raised, hung or died; UsageError if its name is wrong."""
        if reason.code in NOT_USABLE:
            raise UsageError(reason.one_line) from None
        kind = self._question.kind
        place = "cpu" if self.request.with_cpu else self._code.home
        case = Case(OWN, place, BACKENDS[kind], "fp32" if kind == TORCH else "")
        what, hint = self._code.name, reason.hint
        if reason.hint == HINTS["timeout"]:
            hint = UNSTOPPED if self._code.is_script else HANGS
            if Path(self._code.folder, MODULES).exists():  # the script itself is cut in time
                what, hint = "the calls that examine its module", SLOW
            if Path(self._code.folder, IMPORTING).exists():
                what, hint = f"import of {self._code.target.partition(':')[0]}", IMPORTS
        if reason.code in ("timeout", "worker_died"):
            text = f"{what}: {reason.message}"
            reason = msgspec.structs.replace(reason, message=text, hint=hint)
        return replace(self.plan, cases=[case], refused=reason)

    def _planned(self, space: Space, load_s: float) -> list[RowPlan]:
        """The rows that have candidates; UsageError without any."""
        sources = self._sources(space, load_s)
        found = [(source, source.start()) for source in sources]
        rows = [
            replace(self.plan, scenario=each.scenario, cases=cases, source=each, after=each.after)
            for each, cases in found
            if cases  # code exported for one batch has no further row
        ]
        if not rows:
            why = self._exports.left_out.items() if self._exports else ()
            said = "".join(f"; {name}: {reason}" for name, reason in why)
            raise UsageError(f"no candidate is left with these filters{said}")
        self._last = rows[-1].scenario.id
        return rows

    def _checked(self, facts: CodeFacts) -> CodeFacts:
        """The facts, with a note if the code may ignore --batch; UsageError if it certainly has no
        batch to change."""
        if self.request.batch and facts.batch is None:
            why = "no parameter takes a size, or its inputs share no first axis that may change"
            raise UsageError(f"--batch: {facts.name} has no batch to change: {why}")
        is_own = set(self.request.batch) <= {facts.batch}
        if self._question.kind != TORCH or is_own or facts.resizable:
            return facts
        if facts.of_one_size and facts.data:
            raise UsageError(f"--batch: the loader of {facts.name} makes its own batches")
        if facts.of_one_size:
            if not facts.name.endswith(".pt2"):
                raise UsageError(f"--batch: {facts.name} takes batch {facts.batch} alone")
            fixed = f"--batch: {facts.name} was exported for batch {facts.batch} alone"
            raise UsageError(f"{fixed}; export it with dynamic_shapes")
        return msgspec.structs.replace(facts, notes=[*facts.notes, NO_BATCH])

    def _sources(self, space: Space, load_s: float) -> Sequence[FixedCases | OwnSearch]:
        """The sources of candidates, one for each row, in the order of `_batches`."""
        question, (first, *others) = self._question, self._batches(space.facts)
        own = msgspec.structs.replace(self.plan.scenario, batch=first)
        further = [_at_batch(own, batch) for batch in others if batch]
        if question.kind == COMMAND:
            return [FixedCases(self._code, own, command_cases(space, question))]
        if question.kind == FUNCTION:
            rows = (own, *further)
            return [FixedCases(self._code, at, function_cases(space, at)) for at in rows]
        batches = [first, *others]
        exports = Exports(self._code, batches, space, self.context, self.backends, load_s)
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
        if own is None or not facts.resizable or self._question.train:
            return [own]
        if self._question.kind == FUNCTION:
            return [own, own // OTHER_BATCH or OTHER_BATCH * own]
        return [own, OTHER_BATCH if own == SMALL_BATCH else SMALL_BATCH]

    @property
    def _early_exporter(self) -> WorkerKey | None:
        """The exporter, if it may start while a module is examined; not next to a script, which is
        timed while it is examined."""
        request, cores = self.request, self.context.machine.cpu.effective_cores
        is_asked = bool(self.backends) or not request.modes or request.names_mode("compile")
        is_module = self._question.kind == TORCH and not self._code.is_script
        is_early = is_module and is_asked and request.with_cpu and cores > 1
        return EXPORTER if is_early else None

    def _examine(self, gpus: Sequence[str]) -> CodeFacts:
        """The facts, found on the CPU, or on a GPU if the code needs one.

        A script chooses its device itself, so its worker sees a GPU if torch can use one.
        """
        place = "cpu"
        if gpus and self._code.is_script:
            with suppress(WorkerFailed):
                self.context.start(self._key(gpus[0]))
                place = gpus[0]
        in_torch = self._question.kind == TORCH
        is_command = self._question.kind == COMMAND
        real = [] if is_command else [gpu for gpu in gpus if not kind_of(gpu).simulated]
        if real and in_torch and not self.request.with_cpu:
            return self._examine_for(real[0])
        try:
            return self._ask(place)
        except WorkerFailed as failure:
            if failure.reason.code not in NOT_ON_A_CPU or not real:
                raise
            if self._code.is_script and not Path(self._code.folder, MODULES).exists():
                raise  # the script failed before it called a module, and it runs only once
            with suppress(WorkerFailed):  # a failure on the GPU too is not the CPU's fault
                found = self._ask_at_home(real[0])
                # A function without a parameter for the device computes on the first GPU if on any.
                on_first = failure.reason.code == "needs_gpu" and is_first(real[0])
                if self._question.kind == FUNCTION and not (found.takes_device or on_first):
                    raise failure
                notes = [*found.notes, f"it did not run on the CPU: {failure.reason.one_line}"]
                return msgspec.structs.replace(found, needs_gpu=failure.reason, notes=notes)
            raise

    def _examine_for(self, gpu: str) -> CodeFacts:
        """The facts of a module that races on this GPU alone.  To examine it takes several copies:
        if the GPU has no room for those, the CPU does it, since one copy may still fit."""
        try:
            return self._ask_at_home(gpu)
        except WorkerFailed as failure:
            if failure.reason.code != "no_memory" or self._code.is_script:
                raise
            cramped, at_home = failure, self._code
        self.context.pool.end(self._key(gpu))
        self._code = replace(at_home, home="cpu")
        try:
            return self._ask("cpu")
        except WorkerFailed:
            self._code = at_home
            raise cramped from None

    def _with_imports(self, facts: CodeFacts) -> CodeFacts:
        """The facts, with each module's share of the time that the script takes alone, when it has
        to import torch itself."""
        import_s = max(self.context.pool.import_s.values(), default=0.0)
        whole = {each.name: each.seconds / each.share for each in facts.modules if each.share}
        modules = [
            msgspec.structs.replace(each, share=each.seconds / (whole[each.name] + import_s))
            if each.name in whole
            else each
            for each in facts.modules
        ]
        return msgspec.structs.replace(facts, modules=modules)

    def _ask_at_home(self, gpu: str) -> CodeFacts:
        """The facts from a GPU, which also answers all later questions to the code."""
        self._code = replace(self._code, home=gpu)
        return self._ask(gpu)

    def _key(self, device: str) -> WorkerKey:
        """The worker that answers questions; for a function it is that of its first candidate."""
        of_function = self._question.kind == FUNCTION and device == "cpu"
        threads = self._threads[0] if of_function else None
        return WorkerKey(device, BACKENDS[self._question.kind], threads)

    def _ask(self, device: str) -> CodeFacts:
        context, key, budget = self.context, self._key(device), self.request.budget
        context.start(key)
        share = EXAMINE_SHARE + SCRIPT_SHARE * self._code.is_script
        deadline_s = max(1.0, context.deadline(share * budget))
        # A script is stopped early enough for the calls that follow.
        seconds = min(SCRIPT_SHARE * budget, 2 / 3 * deadline_s)
        self._code = replace(self._code, seconds=seconds)
        found = consult(context.pool, key, self._code, "examine", CodeFacts, deadline_s)
        if found.lingers:
            context.pool.end(key)
        return found

    # ------------------------------------------------------------ afterwards

    def conclude(self, row: Row, profiling: Profiling) -> None:
        """Report the advice after each row, from what is known by then."""
        context, report = self.context, self.context.report
        own, rows = report.rows[OWN], report.subject_rows
        best = first_answered(rows)
        found = None if row is own else self._crossover(rows)
        if found is not None and found.between == "device":
            context.record(ev.CrossoverFound, scenario=OWN, crossover=found)
        exports, facts = self._exports, self._facts
        pick, advice = best.picked, None
        if pick is not None and facts is not None:
            is_last = row.plan.scenario == self._last  # `reserved_s` follows it
            advice = CodeAdvice(
                snippet=snippet(facts, pick.case, self._question),
                flips=flips(report, trains=self._question.train),
                share=script_gain(report, best, pick),
                saved=self._save(pick.case, facts) if is_last else None,
            )
        context.record(
            ev.CodeAdvised,
            advice=advice,
            left_out=exports.left_out if exports else {},
            breaks=exports.breaks if exports else [],
            compile_calls=compile_calls(next(filter(picks_compiled, rows), own)),
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
        """Write the model and the script of --save-best."""
        folder = self._question.save_best
        if folder is None:
            return None
        found = lines(facts, case, self._question)
        key = EXPORTER if case.backend in ONNX_BACKENDS else self._key(self._code.home)
        files = self._exports.files(case) if self._exports else {}
        target = Path(folder).absolute()
        hidden = target.with_name(f".{self.context.pool.scratch.name}")
        self.context.pool.own_folder(hidden)
        try:
            least_s = max(1.0, self.reserved_s)
            self.context.start(key, least_s)
            saved = consult(
                self.context.pool,
                key,
                self._code,
                "save",
                SavedFiles,
                max(least_s, self.context.deadline()),
                picked=case,
                destination=str(target),
                hidden=str(hidden),
                onnx_file=files.get("model", ""),
                setup=found.setup,
                call=found.call,
                renews=bool(facts.mutated),
            )
        except WorkerFailed as failure:
            return SavedCode(folder, reason=failure.reason)
        return SavedCode(folder, saved.files)


def _at_batch(first: Scenario, batch: int) -> Scenario:
    name, title = point_name(OWN, {"batch": batch}), f"{first.title} at batch {batch}"
    return msgspec.structs.replace(first, id=name, title=title, batch=batch, weight=1.0)


def _with_threads(facts: CodeFacts) -> CodeFacts:
    """The facts, with the threads that OMP_NUM_THREADS gives torch where the code sets none."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    if facts.kind != TORCH or facts.threads or not value.isdecimal() or value == "0":
        return facts
    return msgspec.structs.replace(facts, threads=min(int(value), MOST_THREADS))


def _script_s(facts: CodeFacts) -> float:
    """Seconds that a script ran, which only the first worker has to do; 0 for other code."""
    return min((each.seconds / each.share for each in facts.modules if each.share), default=0.0)
