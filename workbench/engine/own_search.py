"""The search for candidates of the user's module while its row races.

The code as written starts, since it is ready first.  The rest joins round by round, quick ones
first: other precisions and layouts, ONNX Runtime, INT8 forms, torch.compile, other numbers of
threads.  If torch leads ONNX Runtime by far, torch.compile comes before the INT8 forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ..advisor.limits import eligible
from ..advisor.model.candidates import on_threads, rivals
from ..advisor.own import candidates as ways
from ..advisor.own.candidates import CodeSpace, way
from ..advisor.refinements import SETTLED_ROUNDS
from ..contract import FAULTING_FRACTION, Case
from ..planning.plan import CandidateSource
from ..planning.scenario import Scenario
from ..report.candidate import FAULTING, Candidate, ranked
from ..text.units import listed
from ..worker.session_options import NO_SPIN, ONNX_BACKENDS
from .own_exports import Exports

LEAST_SHARE = 0.08  # share of the budget that must be left for another candidate
THREADS_SHARE = 0.02  # the same for other numbers of threads, which need no preparation
EXPORT_SHARE = 0.15  # share of the budget that must be left to export the module
LEADERS, MOST_REPEATED = 3, 7  # candidates that race at another batch too: the best, and in all
NEAR = 2.0  # times the leader's time, up to which another number of threads may still win
MOST_CANDIDATES = 24  # in a row, up to which each new leader is varied
# Times in FP32 of ONNX Runtime over eager torch: from LAGS compiling promises more than INT8, from
# HOPELESS INT8 cannot make up for it.
LAGS, HOPELESS = 1.5, 3.5
FAR_AHEAD = 2.5  # lead over the best eager candidate that compiling does not make up for
# A lead that it may well make up for: it gained 1.3 to 1.7x in BF16 with AMX (`make own`).
WITHIN_REACH = 1.4
COMPILED = "its compiled form"
NO_EXPORT = "the budget left no time to export it; raise --budget"
TRIED = 0.6  # share of the longest time to compile that must be left for a last attempt

Stage = Callable[[], list[Case] | None]


class OwnSearch(CandidateSource):
    """The candidate source of one row.  `first` is the search at the user's own batch, whose best
    candidates race in this row too; by default this is that search."""

    def __init__(
        self, space: CodeSpace, scenario: Scenario, exports: Exports, first: OwnSearch | None = None
    ) -> None:
        self.scenario = scenario
        self.follows = first is not None
        self.candidates: Sequence[Candidate] = ()  # as of the latest round
        self._ranked: list[Candidate] = []  # the admissible ones, fastest first
        self._eager: list[Candidate] = []  # those of torch that are not compiled, fastest first
        self.extra: set[str] = set()  # compiled last, though less time was left than it may take
        self._space = space
        self._exports = exports
        self._request = space.request
        self._known: set[str] = set()  # ids of all cases so far
        self._varied: set[str] = set()  # ids of leaders whose neighbours were tried
        self._first = first or self
        self._stages = self._plan()
        self._started: list[Case] = []

    def start(self) -> list[Case]:
        """The cases that race from the beginning; the same in a further row as in the first."""
        if self.follows:
            return self._new(c for c in self._first._started if self._runs(c))
        self._exports.allow(self._request.budget)
        self._started = self._start()
        return self._started

    def _start(self) -> list[Case]:
        """The code as written, or if the filters leave that out, the next kind they admit."""
        space = self._space
        plain = [
            way(device, precision, None, threads)
            for device, threads in space.devices.items()
            for precision in ways.precisions(device, space)
        ]
        return (
            self._new(ways.as_written(space))
            or self._new(ways.quick_changes(space))
            or self._new(ways.compiled(space, plain))
            or self._export()
            or self._quantise()
        )

    def _plan(self) -> list[Stage]:
        """The stages of this row; a further one begins with the best of the first."""
        if self.follows:
            return [self._repeat_best, self._keep, self._mix, self._compile_first, self._vary]
        found = [self._change, self._export, self._keep, self._quantise, self._mix]
        return [*found, self._compile, self._vary]

    # --------------------------------------------------------- the race asks

    def _see(self, candidates: Sequence[Candidate], left_s: float) -> None:
        """Note the state of the race, and how much time is left for what follows."""
        self.candidates, self._ranked = candidates, ranked(eligible(candidates, self.scenario))
        torch = (each for each in self._ranked if each.case.backend == "torch")
        self._eager = [each for each in torch if not each.case.is_compiled]
        self._exports.allow(left_s)

    def files(self, case: Case) -> Mapping[str, str]:
        return self._exports.files(case)

    def gap(self, candidates: Sequence[Candidate]) -> str:
        """In words: other precisions, exported forms, or compiled code that lacked time."""
        # The race may not have reached some stages; without time they note what they lacked.
        self._see(candidates, 0.0)
        names = []
        if not self.follows:
            if self._change():
                names.append("its other precisions")
            self._export()
        if forms := self._exports.late_forms():
            names.append(forms)
        if self._may_win_compiled and not has_compiled([*candidates, *self._first.candidates]):
            self._compile()
            if "compile" in self._exports.late:
                names.append(COMPILED)
        return listed(names) if names else ""

    def join(self, candidates: Sequence[Candidate], left_s: float) -> list[Case]:
        """The cases of the next stage that has some.  A stage that returns [] is over; one that
        returns None waits for more rounds."""
        self._see(candidates, left_s)
        while self._stages and self._exports.left_s >= THREADS_SHARE * self._request.budget:
            if self._is_short:
                del self._stages[:-1]  # only `_vary` has candidates that are ready in time
            if self._compiles_first():
                self._stages.remove(self._compile)
                self._stages.insert(0, self._compile)
            cases = self._stages[0]()
            if cases is None:
                return []
            if cases:
                return cases
            self._stages.pop(0)
        return []

    def lacks_s(self, candidates: Sequence[Candidate], left_s: float) -> float:
        """Seconds more to compile, once time or other candidates run out."""
        self._see(candidates, left_s)
        if not self._may_win_compiled or has_compiled(candidates):
            return 0.0
        if left_s > 0 and len(self._ranked[0].blocks) < SETTLED_ROUNDS:
            return 0.0
        is_possible = self._to_compile() and not self._space.facts.stateful
        return self._exports.compile_s() - left_s if is_possible else 0.0

    def join_late(self, left_s: float) -> list[Case]:
        self._exports.allow(left_s)
        return self._compile(TRIED)

    def _compiles_first(self) -> bool:
        """Whether INT8 forms are next, but compiling promises more."""
        if self._stages[0] != self._quantise or self._compile not in self._stages:
            return False
        lag = self._lag()
        return lag > LAGS and (lag <= HOPELESS or self._request.thorough)

    # ---------------------------------------------------------------- stages

    def _change(self) -> list[Case]:
        return self._new(ways.quick_changes(self._space))

    def _keep(self) -> list[Case]:
        """Eager torch that would lead without its page faults, in a process that keeps freed
        memory; one at a time, since each starts a worker."""
        ranked = [] if self._is_short else self._ranked
        faulting = [c.case for c in self._eager if ranked and loses_by_faults(c, ranked[0])]
        return self._new(map(ways.keeping, faulting), most=1)

    def _export(self) -> list[Case]:
        is_done = self._exports.exported is not None or "onnx" in self._exports.left_out
        if is_done or not self._exports.backends:
            return []
        found = self._as_exported()
        if not (self._exports.admits_int8 or any(map(self._request.admits, found))):
            return []
        facts, why = self._space.facts, ""
        if facts.stateful or (facts.mutated and not facts.returns_changes):
            why = "a call changes its state or inputs, which an exported graph does not"
        elif not facts.inputs:
            why = "its inputs hold no tensors, so its graph would be a constant"
        elif not self._space.on_cpu:
            why = "exported models race on the CPU only"
        elif self._exports.left_s < EXPORT_SHARE * self._request.budget:
            why = NO_EXPORT
        if why:
            self._exports.leave_out("onnx", why, late=why == NO_EXPORT)
            return []
        return self._new(found) if self._exports.export() else []

    def _as_exported(self) -> list[Case]:
        """The exported model without further changes: with all threads in each library, with the
        fewest in the first library, and without spinning."""
        most, least = self._space.threads[0], self._space.threads[-1]
        pairs = dict.fromkeys((name, most) for name in self._exports.backends)
        pairs[self._exports.backends[0], least] = None
        found = [
            replace(way("cpu", self._space.exported_precision(name), None, n), backend=name)
            for name, n in pairs
        ]
        return [*found, *_unspun(found[0])]

    def _quantise(self) -> list[Case]:
        """The next INT8 form; one at a time, since time may run out after each."""
        lag = self._lag()
        if lag > HOPELESS and not self._request.thorough:
            text = f"the exported model in FP32 takes {lag:.1f}x the time of eager torch"
            self._exports.leave_out("int8", f"{text}; --thorough tries INT8 anyway")
            return []
        return self._new(self._exports.next_quantised(self.candidates))

    def _mix(self) -> list[Case]:
        """A fast INT8 form that exceeds the error limit, mixed with FP32 nodes.

        In a further row only forms within the limit race, so the first row shows which are fast.
        """
        labels, measured = [c.case.label for c in self._ranked[:1]], self._first.candidates
        leader = next((c for c in measured if c.blocks and c.case.label in labels), None)
        if leader is None or not self._exports.takes(self.scenario.batch):
            return []
        return self._new(self._exports.mixed(measured, leader))

    def _compile(self, share: float = 1.0) -> list[Case]:
        if self._space.facts.stateful:
            why = "a call changes its state, and compiled code would keep that of one call"
            self._exports.leave_out("compile", why)
            return []
        found = self._to_compile()
        if not found or self._is_far_ahead() or not self._exports.may_compile(share):
            return []
        return self._new(found)

    def _to_compile(self) -> list[Case]:
        """The forms of `_compiled`; [] if all are known."""
        found = self._compiled()
        return [] if all(self._here(case).id in self._known for case in found) else found

    def _compiled(self) -> list[Case]:
        """The compiled forms of the best eager candidate on each device."""
        best: dict[str, Case] = {}  # by device
        for case in (candidate.case for candidate in self._ranked):
            if case.backend == "torch":
                best.setdefault(case.device, case)
        return ways.compiled(self._space, best.values())

    def _compile_first(self) -> list[Case]:
        """torch.compile at a further batch, if the first row skipped it: because another library
        was too far ahead, which may differ here, or for lack of time while it may win here.
        With two devices, their turns need that time."""
        if has_compiled(self._first.candidates):
            return []
        if self._first._is_far_ahead():
            return self._compile()
        if len(self._space.devices) > 1 or not self._may_win_compiled:
            return []
        return self._compile(TRIED)

    def _vary(self) -> list[Case] | None:
        """The leader with other numbers of threads, and other options of its library."""
        ranked = self._ranked
        if not ranked or len(self.candidates) >= MOST_CANDIDATES:
            return []
        if len(ranked[0].blocks) < SETTLED_ROUNDS:
            return None
        if joining := (self._vary_leader() or self._vary_compiled() or self._keep()):
            return joining
        if self.follows or has_compiled(self.candidates):
            return None  # another candidate may take the lead
        at_last = self._compile(TRIED)
        if not self._may_win_compiled:
            self.extra |= {each.id for each in at_last}
        return at_last or None

    def _vary_leader(self) -> list[Case]:
        """The leader and those near it with other numbers of threads, else the leader with other
        options of its library; none for compiled code."""
        ranked, case = self._ranked, self._ranked[0].case
        if case.is_compiled:
            return []
        near = [c.case for c in ranked[:LEADERS] if c.min_s <= NEAR * ranked[0].min_s]
        if quick := self._new([*_unspun(case), *self._on_other_threads(case), *rivals(near)]):
            return quick
        is_done = case.id in self._varied or case.backend not in ONNX_BACKENDS
        if is_done or self._is_short:
            return []
        self._varied.add(case.id)
        return self._new(self._exports.neighbours(case))

    def _vary_compiled(self) -> list[Case]:
        """Another number of threads or precision of the best compiled candidate, if it is near, or
        itself in a process that keeps freed memory."""
        ranked = self._ranked
        compiled = next((c for c in ranked if c.case.is_compiled), None)
        if compiled is None or compiled.min_s > NEAR * ranked[0].min_s:
            return []
        case = compiled.case
        others = [ways.keeping(case)] if loses_by_faults(compiled, ranked[0]) else []
        others += self._on_other_threads(case)
        raced = dict.fromkeys(c.case.precision for c in ranked if c.case.backend == "torch")
        others += [replace(case, precision=precision) for precision in raced]
        is_done = all(each.id in self._known for each in others)
        if is_done or not self._exports.may_compile():
            self._exports.take_in("compile")  # one of them has raced
            return []
        return self._new(others, most=1)

    def _on_other_threads(self, case: Case) -> list[Case]:
        """The case with each other number of threads; none on a GPU."""
        return [on_threads(n, case) for n in self._space.threads if case.threads not in (n, None)]

    def _repeat_best(self) -> list[Case]:
        """The best candidates of the first row at this row's batch, without compiled ones that were
        far behind the best on their device."""
        ranked = self._first._ranked
        best_s = {c.case.device: c.min_s for c in reversed(ranked)}
        ranked = [
            c for c in ranked if not c.case.is_compiled or c.min_s <= NEAR * best_s[c.case.device]
        ]
        # The best of each kind, fastest first: a kind may gain by the batch, as BF16 does with AMX.
        kinds: dict[tuple[str, ...], Case] = {}
        for case in (c.case for c in ranked):
            # The cost of dynamic quantisation depends on the batch.
            form = (case.quantization or "").partition("-")[0]
            kinds.setdefault((case.device, case.backend, case.precision, form), case)
        chosen = dict.fromkeys([*kinds.values(), *(c.case for c in ranked[:LEADERS])])
        kept = list(filter(self._runs, chosen))
        return self._new(self._affordable(kept[:MOST_REPEATED]))

    # --------------------------------------------------------------- helpers

    def _here(self, case: Case) -> Case:
        """The case with the batch and parameters of this row."""
        return replace(case, batch=self.scenario.batch, params=self.scenario.params)

    def _runs(self, case: Case) -> bool:
        """Whether the candidate of another row can run at the batch of this one."""
        return case.backend not in ONNX_BACKENDS or self._exports.takes(self.scenario.batch)

    @property
    def _is_short(self) -> bool:
        return self._exports.left_s < LEAST_SHARE * self._request.budget

    @property
    def _lead(self) -> float | None:
        """The leader's lead over the best eager candidate; None without one."""
        return self._eager[0].min_s / self._ranked[0].min_s if self._eager else None

    @property
    def _may_win_compiled(self) -> bool:
        """Whether eager torch leads, or is as near to the leader as compiling may make up for."""
        return self._lead is not None and self._lead <= WITHIN_REACH

    def _lag(self) -> float:
        """The exported model's FP32 time over that of the best eager candidate; 1 if unknown."""
        own = ("fp32", self._space.facts.precision)
        plain = [
            c.min_s
            for c in self.candidates
            if c.blocks and c.case.backend in ONNX_BACKENDS and c.case.precision in own
        ]
        return min(plain) / self._eager[0].min_s if self._eager and plain else 1.0

    def _is_far_ahead(self) -> bool:
        """Whether another library leads eager torch by too much for compiling to win."""
        lead = self._lead
        if lead is None or self._request.thorough or self._request.names_compile:
            return False
        if lead > FAR_AHEAD:
            text = f"the leader is {lead:.1f}x as fast as eager torch"
            self._exports.leave_out("compile", f"{text}; --thorough compiles it anyway")
        return lead > FAR_AHEAD

    def _affordable(self, cases: Sequence[Case]) -> list[Case]:
        """The cases, without compiled ones if no time is left to compile."""
        return [c for c in cases if not c.is_compiled or self._exports.may_compile()]

    def _new(self, cases: Iterable[Case], most: int | None = None) -> list[Case]:
        """The cases that this row has not had and the request admits, the first `most` of them."""
        here = map(self._here, cases)
        new = {c.id: c for c in here if c.id not in self._known and self._request.admits(c)}
        found = dict(islice(new.items(), most))
        self._known.update(found)
        return list(found.values())


def _unspun(case: Case) -> list[Case]:
    """ONNX Runtime's case without spinning threads, which needs no preparation either."""
    spins = case.backend == "onnxruntime" and case.mode is None and (case.threads or 0) > 1
    return [replace(case, mode=NO_SPIN)] if spins else []


def has_compiled(candidates: Iterable[Candidate]) -> bool:
    return any(candidate.case.is_compiled for candidate in candidates)


def loses_by_faults(candidate: Candidate, leader: Candidate) -> bool:
    """Whether a candidate would lead if its page faults took no time."""
    most = candidate.blocks[-1].metrics.get(FAULTING_FRACTION, 0.0)
    least = most / (candidate.case.threads or 1)  # its threads may fault at the same time
    return most > FAULTING and candidate.min_s * (1 - least) < leader.min_s
