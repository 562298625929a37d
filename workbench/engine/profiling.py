"""Profiles a few steps of each candidate after its race; these steps are never timed."""

from dataclasses import dataclass

from ..contract import kind_of
from ..planning.plan import RowPlan
from ..pool.answers import Profile
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.document import OperatorShare
from ..records.reason import Reason
from ..report.candidate import Candidate
from .context import RunContext
from .preparation import Preparation
from .trace import TraceFile
from .workers import worker_key

PROFILED_S = 0.2  # for one pass, unless its number of steps ends it earlier
MOST_STEPS, MOST_STEPS_OF_OWN = 5, 20  # more for own code and models, which the profile explains
PROFILE_DEADLINE_S = 20.0
OPENING = 3.0  # times as long to open a session with its profiler as without
OPENING_S = 0.5  # least time to open it

GONE = Reason(
    "worker_died",
    "its worker ended with another candidate",
    "profile it alone with --mode or --precision",
)
UNSEEN = Reason("no_profiler", "its profiler does not time operators on this device")


@dataclass
class Profiling:
    """Profiles one row after its race, while the workers still hold its cases."""

    _plan: RowPlan
    _preparation: Preparation
    _context: RunContext

    def run(self, trace: TraceFile) -> None:
        """Profile each measured candidate into `trace`."""
        for case in self._plan.cases:
            candidate = self._context.report.candidates[case.id]
            if candidate.blocks and candidate.state == "ok":
                self.profile(candidate, trace)
        for key in {worker_key(case, self._plan.scenario) for case in self._plan.cases}:
            if kind_of(key.device).nsight:
                self._context.pool.end(key)  # CUPTI stays attached and slows every launch

    def has_time_for(self, candidate: Candidate) -> bool:
        """Whether its pass would end in time; a worker that overruns is killed."""
        opening_s = OPENING * (candidate.setup.compile_s or 0.0)
        needed_s = OPENING_S + opening_s + 2 * (PROFILED_S + 2 * candidate.median_s)
        return needed_s <= self._context.end_s - self._context.now()

    def profile(self, candidate: Candidate, trace: TraceFile | None = None) -> None:
        """Profile one candidate for the report, and for `trace` if given."""
        context, case = self._context, candidate.case
        key = worker_key(case, self._plan.scenario)
        most_steps = MOST_STEPS if self._plan.source is None else MOST_STEPS_OF_OWN
        steps = min(max(round(PROFILED_S / candidate.median_s), 1), most_steps)
        operators: list[OperatorShare] = []
        reason, fallback = None, 0.0
        try:
            if not self._preparation.holds(case):
                raise WorkerFailed(GONE)
            deadline_s = context.deadline(PROFILE_DEADLINE_S)
            wanted = {"case": case.id, "steps": steps, "events": trace is not None}
            found = context.pool.ask(key, deadline_s, Profile, op="profile", **wanted).result
            if trace is not None:
                trace.add(case.id, found.events)
            whole = found.total_s or 1.0
            fallback = found.fallback_s / whole
            operators = [
                OperatorShare(each.name, each.calls, each.self_s, share=each.self_s / whole)
                for each in found.operators
            ]
            reason = None if operators else UNSEEN
        except WorkerFailed as failure:
            reason = failure.reason
        context.record(
            ev.CaseProfiled,
            case=case.id,
            operators=operators,
            reason=reason,
            steps=steps,
            fallback_fraction=fallback,
        )
