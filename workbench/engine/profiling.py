"""Profiles a few steps of each candidate after its race; these steps are never timed."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import kind_of
from ..planning.plan import RowPlan
from ..pool.answers import Profile
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.document import OperatorShare
from ..records.reason import Reason
from ..report.candidate import Candidate
from ..stats import samples as stats
from .context import GRACE_S, RunContext
from .preparation import worker_key
from .trace import TraceFile

PROFILED_S, PROFILED_STEPS = 0.2, 5  # limits of one pass, in seconds and steps
PROFILE_DEADLINE_S = 20.0
OPENING = 3.0  # opening a session with its profiler, in times of opening it without
OPENING_S = 0.5  # minimum for opening it

GONE = Reason(
    "worker_died",
    "its worker ended with another candidate",
    "profile it alone with --mode or --precision",
)


class Profiling:
    """Profiles one row after its race, while the workers still hold its cases."""

    def __init__(
        self,
        plan: RowPlan,
        holders: Mapping[str, int],
        context: RunContext,
        *,
        most_steps: int = PROFILED_STEPS,
    ) -> None:
        self._plan = plan
        self._holders = holders  # case id to the generation of the worker that has it
        self._pool = context.pool
        self._control = context.control
        self._report = context.report
        self._emit = context.emit
        self._end_s = context.end_s
        self._most_steps = most_steps

    def run(self, trace: TraceFile) -> None:
        """Profile each measured candidate into `trace`."""
        for case in self._plan.cases:
            candidate = self._report.candidates[case.id]
            if candidate.blocks and candidate.state == "ok":
                self.profile(candidate, trace)
        for key in {worker_key(case, self._plan.scenario) for case in self._plan.cases}:
            if kind_of(key.device).nsight:
                self._pool.end(key)  # CUPTI stays attached and slows every launch

    def has_time_for(self, candidate: Candidate) -> bool:
        """Whether its pass would end in time; a worker that overruns is killed."""
        opening_s = OPENING * (candidate.setup.compile_s or 0.0)
        needed_s = OPENING_S + opening_s + 2 * (PROFILED_S + 2 * stats.median(candidate.samples_s))
        return needed_s <= self._end_s - self._control.now()

    def profile(self, candidate: Candidate, trace: TraceFile | None = None) -> None:
        """Profile one candidate for the report, and for `trace` if given."""
        case, key = candidate.case.id, worker_key(candidate.case, self._plan.scenario)
        steps = round(PROFILED_S / stats.median(candidate.samples_s))
        steps = min(max(steps, 1), self._most_steps)
        left_s = max(0.0, self._end_s + GRACE_S - self._control.now())
        deadline = min(PROFILE_DEADLINE_S, left_s)
        operators: list[OperatorShare] = []
        reason, fallback = None, 0.0
        try:
            if self._holders[case] != self._pool.generation.get(key, 0):
                raise WorkerFailed(GONE)
            wanted = {"case": case, "steps": steps, "events": trace is not None}
            found = self._pool.ask(key, deadline, Profile, op="profile", **wanted).result
            if trace is not None:
                trace.add(case, found.events)
            whole = found.total_s or 1.0
            fallback = found.fallback_s / whole
            operators = [
                OperatorShare(each.name, each.calls, each.self_s, share=each.self_s / whole)
                for each in found.operators
            ]
        except WorkerFailed as failure:
            reason = failure.reason
        now = self._control.now()
        self._emit(
            ev.CaseProfiled(
                at_s=now,
                case=case,
                operators=operators,
                reason=reason,
                steps=steps,
                fallback_fraction=fallback,
            )
        )
