"""Why candidates of a row are not tried."""

from dataclasses import replace

import msgspec

from ..contract import HALF, Case
from ..machine.host.isa import lacking
from ..planning import admission
from ..planning.plan import RowPlan
from ..pool.worker_process import WorkerKey
from ..records.reason import BUDGET, NO_TIME, Reason
from ..worker.failures import SHARE_GPU, UNCAPTURED
from .context import RunContext
from .workers import NO_TURN, worker_key

ELSEWHERE = " (in another form)"  # follows the failure of a candidate that refuses another one


class Refusals:
    """Reasons against the cases of one row, from what the run has shown so far."""

    def __init__(self, plan: RowPlan, context: RunContext) -> None:
        self._plan, self._context = plan, context

    def of(self, case: Case, left_s: float) -> Reason | None:
        """Why a case is not tried with `left_s` seconds left to its row; None if it may be."""
        if known := self._occupied(case) or self._uncaptured(case) or self._never_ready(case):
            return known
        report, pool, machine = self._context.report, self._context.pool, self._context.machine
        price = report.candidates[case.id].price_per_hour
        if refusal := admission.unpriced(case, self._plan.scenario.objective, price):
            return refusal
        # A source knows how long its own candidates take to compile.
        if self._plan.source is None:
            took_s = [s for key, s in pool.import_s.items() if key.device == case.device]
            left_s -= 0.0 if pool.is_alive(self.key(case)) else max(took_s, default=0.0)
            needed_s = admission.compiling_s(case, self.compile_s(case))
            if case.is_compiled and left_s < needed_s:
                text = f"compiling takes up to {needed_s:.0f} s, but {left_s:.0f} s are left"
                return Reason(NO_TIME, text, "raise --budget")
        held = [report.candidates[other.id].work.memory_bytes for other in self.neighbours(case)]
        return admission.beforehand(
            case, self._plan.workload, machine, self._context.software, held_bytes=sum(held)
        )

    def untried(self, case: Case, text: str = NO_TURN.message) -> Reason:
        """Why a case had no turn: it can never run here, or no time was left.  A precision that the
        CPU emulates is slower (docs/measurement.md), so the evidence has no gap without it."""
        machine, software = self._context.machine, self._context.software
        if never := admission.beforehand(case, self._plan.workload, machine, software):
            return never
        if (missing := self.emulates(case)) is None:
            return Reason(BUDGET, text, NO_TURN.hint)
        return Reason(NO_TIME, f"{text}; this CPU has no {missing}", NO_TURN.hint)

    def emulates(self, case: Case) -> str | None:
        """The instructions for its precision that this CPU lacks; None if it lacks none."""
        if case.device_kind != "cpu" or case.precision not in HALF:
            return None
        return lacking(case.precision, self._context.machine.cpu)

    def neighbours(self, case: Case) -> list[Case]:
        """The other cases that workers hold on its device, eliminated ones included."""
        others = (other for other in self._plan.cases if other.device == case.device)
        return [other for other in others if other != case and self.holds(other)]

    def key(self, case: Case) -> WorkerKey:
        return worker_key(case, self._plan)

    def holds(self, case: Case) -> bool:
        """Whether a living worker has the case prepared; it may have died with another case."""
        return case.id in self._context.pool.held(self.key(case))

    def compile_s(self, case: Case) -> float:
        """Seconds that compiling a case may take, from other cases of its workload in this run."""
        others = self._context.report.candidates.values()
        took_s = [c.setup.compile_s or 0.0 for c in others if c.case.workload == case.workload]
        return max(admission.COMPILE_S, *took_s)

    def _occupied(self, case: Case) -> Reason | None:
        """Why the case cannot use a GPU that admits one process at a time and has one already."""
        names = {self.key(other).name for other in self.neighbours(case)}
        if not (others := names - {self.key(case).name}):
            return None
        remedy = f"{SHARE_GPU}, or race it alone: --backend, --mode, --precision"
        why = f"{min(others)} races on it"
        return admission.taken(case.device, self._context.machine, why, remedy)

    def _uncaptured(self, case: Case) -> Reason | None:
        """Why a CUDA graph is not tried after one in another precision failed and cost a worker."""
        if "graph" not in case.mode_words:
            return None
        candidates = self._context.report.candidates
        like = [o for o in self._plan.cases if (o.mode, o.device) == (case.mode, case.device)]
        reasons = (candidates[other.id].reason for other in like)
        return next((why for why in reasons if why and why.hint == UNCAPTURED), None)

    def _never_ready(self, case: Case) -> Reason | None:
        """Why a reduced precision that was not ready in time on the CPU is not tried in another
        mode or with other loaders: each attempt costs its time and the shared worker."""
        if case.device_kind != "cpu" or case.precision not in HALF:
            return None
        of_all = replace(case, mode=None, tuning={})
        like = [o for o in self._plan.cases if replace(o, mode=None, tuning={}) == of_all]
        reasons = [self._context.report.candidates[o.id].reason for o in like if not o.is_compiled]
        for why in filter(None, reasons):
            if why.code == "timeout" or why.is_unready:
                message = why.message.removesuffix(ELSEWHERE) + ELSEWHERE
                return msgspec.structs.replace(why, message=message)
        return None
