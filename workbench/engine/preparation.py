"""Getting the candidates of one row ready, and saying of each how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from ..contract import DEFAULT_CACHE_BYTES, Case
from ..planning import admission
from ..planning.plan import RowPlan
from ..planning.scenario import Scenario
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.document import AccuracyResult, SetupTimes, WarmUp
from ..records.reason import Reason
from .context import GRACE_S, RunContext

WARM_UP_S = (0.02, 1.0)  # bounds of one case's warm-up
START_DEADLINE_S = 120.0  # importing a CUDA build from a cold network disk takes most of a minute
PREPARE_DEADLINE_S = 5.0  # at least; one case cannot eat what the others live on:
PREPARE_SHARES = 1.5  # of the row's time that is left, and never more than half of the run's
PROBE_DEADLINE_S = 10.0  # a build for a GPU takes seconds to start
RELEASE_DEADLINE_S = 5.0

# What a workload says it cannot do on this machine, as opposed to what went wrong.
CANNOT_HERE = (
    "missing_package",
    "no_compiler",
    "no_device",
    "not_quantised",
    "provider_fallback",
    "unsupported",
    "unsupported_precision",
)
BUDGET = Reason(
    "budget", "the budget left no time for its turn", "give it a larger --budget, or fewer rows"
)


@dataclass
class PreparedCase:
    """A candidate still in the race, with what the scheduler needs to know of it."""

    case: Case
    key: WorkerKey
    generation: int = -1  # of the worker that holds it prepared
    step_s: float = 0.0
    iterations: int = 1
    lead_in_s: float | None = None  # of its last turn

    @property
    def sample_s(self) -> float:
        return self.step_s * self.iterations


def worker_key(case: Case, scenario: Scenario | None = None) -> WorkerKey:
    alone = ""
    if scenario is not None and scenario.weighs_memory:
        alone = case.id
    elif scenario is not None and scenario.counts_start_up:
        alone = scenario.id
    return WorkerKey(*case.process, alone)


class Preparation:
    """What the candidates of one row go through before their first turn, and after the last."""

    def __init__(
        self,
        plan: RowPlan,
        context: RunContext,
        *,
        until_s: float,
        end_s: float,
    ) -> None:
        self._plan = plan
        self._scenario = plan.scenario
        self._pool = context.pool
        self._control = context.control
        self._report = context.report
        self._emit = context.emit
        self._seed = context.request.seed
        self._speeds = context.speeds
        self._telemetry = context.telemetry
        self._until_s = until_s  # of this row, on the run's clock
        self._end_s = end_s  # of all rows
        self._run_end_s = context.end_s
        self.holders: dict[str, int] = {}  # case id to the generation of the worker that has it
        self._probed: set[str] = set()
        self.longest_s = 0.0  # that anybody took, compiling left out

    def prepare(self, runner: PreparedCase, need_s: float = 0.0) -> bool:
        """Load one case; False, with the reason in the report, if it cannot race, as where no more
        than `need_s` is left."""
        left = self._until_s - self._control.now()
        if left <= need_s:
            return self._leave(runner, BUDGET)
        machine, software = self._report.machine, self._report.software
        price = self._report.candidates[runner.case.id].price_per_hour
        refusal = admission.unpriced(runner.case, self._scenario.objective, price)
        refusal = refusal or admission.too_long_to_compile(runner.case, left)
        if machine is not None and refusal is None:
            held = sum(
                self._report.candidates[case.id].work.memory_bytes
                for case, _ in self._held()
                if case.device == runner.case.device and case != runner.case
            )
            refusal = admission.beforehand(
                runner.case, self._plan.workload, machine, software, held_bytes=held
            )
        if refusal is not None:
            return self._leave(runner, refusal)
        warm_up_s = min(max(left / (4 * len(self._plan.cases)), WARM_UP_S[0]), WARM_UP_S[1])
        self._emit(ev.CasePreparing(at_s=self._control.now(), case=runner.case.id))
        try:
            if slower := self._probe_small(runner):
                return self._leave(runner, slower)
            self._pool.start(runner.key, self.deadline(START_DEADLINE_S))
            began_s = self._control.now()
            if began_s >= self._end_s:
                return self._leave(runner, BUDGET)
            answer = self._pool.ask(
                runner.key,
                self.deadline(self._prepare_deadline_s()),
                op="prepare",
                case=runner.case,
                seed=self._seed,
                latency=self._scenario.objective not in ("throughput", "cost"),
                warm_up_s=warm_up_s,
                cache_bytes=self._cache_bytes(),
                from_start=self._scenario.counts_start_up,
                files=self._plan.source.files(runner.case) if self._plan.source else {},
            )
        except WorkerFailed as failure:
            self.fail(runner, failure)
            return False
        if not runner.case.is_compiled:
            self.longest_s = max(self.longest_s, self._control.now() - began_s)
        return self._take_preparation(runner, answer.result)

    def _held(self) -> Iterator[tuple[Case, WorkerKey]]:
        """The cases that a living worker has prepared; those that left the race are among them."""
        for case in self._plan.cases:
            key = worker_key(case, self._scenario)
            if self.holders.get(case.id) == self._pool.generation.get(key, 0):
                yield case, key

    def is_worth_it(self, runner: PreparedCase) -> bool:
        """Whether a reduced precision is not far slower at a small size; if it is, the report has
        the reason."""
        if self._until_s <= self._control.now():
            return True  # as far as is known
        try:
            slower = self._probe_small(runner)
        except WorkerFailed as failure:
            self.fail(runner, failure)
            return False
        return slower is None or self._leave(runner, slower)

    def _prepare_deadline_s(self) -> float:
        now = self._control.now()
        fair = PREPARE_SHARES * (self._until_s - now)
        return max(PREPARE_DEADLINE_S, min(fair, (self._end_s - now) / 2))

    def _cache_bytes(self) -> int:
        machine = self._report.machine
        sizes = [cache.size_bytes for cache in machine.cpu.caches] if machine else []
        return max(sizes, default=DEFAULT_CACHE_BYTES)

    def _probe_small(self, runner: PreparedCase) -> Reason | None:
        """Try a reduced precision small before it is prepared: emulated, it is 200x slower.  Never
        in a worker of its own, whose memory is told only of the first case it sees."""
        cpu = self._report.machine.cpu if self._report.machine else None
        pair = admission.small_probe_of(runner.case, self._plan.workload, cpu)
        if pair is None or runner.case.id in self._probed:
            return None
        self._probed.add(runner.case.id)
        small, like = pair
        key = replace(runner.key, alone="")
        self._pool.start(key, self.deadline(START_DEADLINE_S))
        if self._control.now() >= self._end_s:
            return None  # nor is there time to prepare it
        deadline = self.deadline(PROBE_DEADLINE_S)
        answer = self._pool.ask(
            key, deadline, op="probe_small", case=small, beside=like, seed=self._seed
        )
        factor = answer.result["case_s"] / answer.result["beside_s"]
        where = f"in {small.id.partition('/')[0]}"
        return admission.slower_precision(runner.case, factor, where, cpu)

    def _take_preparation(self, runner: PreparedCase, result: dict[str, Any]) -> bool:
        warmed = result["warmup"]
        setup = SetupTimes(
            import_s=self._pool.import_s.get(runner.key),  # None: it failed at first
            transfer_out_s=result["transfer_out_s"],
            **result["setup"],
        )
        accuracy = msgspec.convert(result["accuracy"], AccuracyResult)
        runner.generation = self._pool.generation.get(runner.key, 0)
        self.holders[runner.case.id] = runner.generation
        runner.step_s, runner.iterations = warmed["step_s"], warmed["iterations"]
        self._emit(
            ev.CasePrepared(
                at_s=self._control.now(),
                case=runner.case.id,
                setup=setup,
                accuracy=accuracy,
                warmup=WarmUp(
                    n=warmed["n"],
                    seconds=warmed["seconds"],
                    first_s=warmed["first_s"] / self._speeds.get(runner.case.device, 1.0),
                    steady=warmed["steady"],
                    step_s=warmed["step_s"] / self._speeds.get(runner.case.device, 1.0),
                ),
                iterations_per_sample=warmed["iterations"],
                memory_peak_bytes=result["memory_peak_bytes"],
                call_overhead_s=result["call_overhead_s"],
            )
        )
        if accuracy.passed:
            return True
        reason = Reason(
            "wrong_result",
            f"its {accuracy.metric.replace('_', ' ')} is {accuracy.value:.3g}, "
            f"the limit is {accuracy.limit:.3g} (against {accuracy.reference})",
            "do not use this combination; report it with workbench detect --json",
        )
        self.finish(runner, "failed", reason)
        return False

    # ---------------------------------------------------------------- ends

    def release(self) -> None:
        """Give back what the row's cases hold, before the next row needs it."""
        if self._control.now() >= self._run_end_s:
            return  # no row needs it any more
        held: dict[WorkerKey, list[str]] = {}
        for case, key in self._held():
            held.setdefault(key, []).append(case.id)
        for key in dict.fromkeys(worker_key(case, self._scenario) for case in self._plan.cases):
            if key.alone:
                self._pool.end(key)  # nobody else lives there
            elif key in held:
                with suppress(WorkerFailed):  # the pool has already said that the worker ended
                    deadline_s = self.deadline(RELEASE_DEADLINE_S)
                    self._pool.ask(key, deadline_s, op="release", cases=held[key])
        self.holders.clear()

    def deadline(self, at_most_s: float) -> float:
        """Seconds a request may take: past the end of these rows if need be, for a worker that is
        killed has to import its backend again, but never past the end of the run."""
        return max(0.0, min(at_most_s, self._run_end_s + GRACE_S - self._control.now()))

    def fail(self, runner: PreparedCase, failure: WorkerFailed) -> None:
        reason = failure.reason
        if reason.code == "timeout" and self._control.now() >= self._end_s:
            self._leave(runner, BUDGET)
        elif reason.code in CANNOT_HERE:
            self._leave(runner, reason)
        else:
            self.finish(runner, "failed", reason)

    def _leave(self, runner: PreparedCase, reason: Reason) -> Literal[False]:
        """Refused, or out of time: skipped, but what was measured before stands."""
        measured = bool(self._report.candidates[runner.case.id].blocks)
        self.finish(runner, "ok" if measured else "skipped", reason)
        return False

    def finish(self, runner: PreparedCase, status: str, reason: Reason | None) -> None:
        self._emit(
            ev.CaseFinished(
                at_s=self._control.now(),
                case=runner.case.id,
                scenario=self._scenario.id,
                status=status,
                reason=reason,
                telemetry=self._telemetry.of_case(runner.case.id, runner.case.device),
            )
        )
