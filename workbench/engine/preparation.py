"""Prepares the candidates of a row before their first turn, and ends them after their last."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import msgspec

from ..contract import Case
from ..planning import admission
from ..planning.questions import OwnQuestion
from ..pool.answers import Prepared, SmallProbe
from ..pool.pool import WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.document import WarmUp
from ..records.reason import BUDGET, NO_TIME, NOT_READY, Reason
from ..stats.ratios import ProvenSlower
from ..worker.code import COMMAND
from ..worker.launcher import launch_of
from .overhead import PREPARING, STARTING
from .refusals import Refusals
from .schedule import PreparedCase, RowTime
from .workers import NO_TURN, outcome, to_prepare

WARM_UP_S = (0.02, 1.0)  # bounds of one case's warm-up
WARM_UP_SHARE = 0.12  # share of the row's time left for the warm-ups of all its cases
# A case that hangs must not use up the time of the others.  It may take PREPARE_SHARES times what
# is left to its row, up to half of what is left to all rows, but PREPARE_DEADLINE_S in any case.
PREPARE_SHARES = 1.5
PREPARE_DEADLINE_S = 5.0
LIKE_OTHERS = 1.2  # times the longest earlier preparation, which a case may always take
HANGS_S = 20.0  # a case that is not ready after this hangs; with less, its share may be too short
AFTER_COMPILING_S = 3.0  # left for rounds after a case of a candidate source has been compiled
PROBE_DEADLINE_S = 10.0  # generous, since a build for a GPU takes seconds to start
RELEASE_DEADLINE_S = 5.0

COMMAND_HINT = "raise --budget, or time it until it prints a line: --until REGEX"
DISTRUST = "do not use this combination; report it with the output of workbench doctor --json"
FEWER = "others hold memory too: race fewer (--precision, --mode), or a smaller batch or size"


class Refused(Exception):
    """A case does not race, for a reason that is not a failure."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class Preparation:
    """Loads the cases of one row into workers and reports how each case ended."""

    def __init__(self, row_time: RowTime) -> None:
        self._time, self._plan, self._context = row_time, row_time.plan, row_time.context
        self.refusals = Refusals(self._plan, self._context)
        self._key, self.holds = self.refusals.key, self.refusals.holds
        self._probed: set[str] = set()  # ids of cases that were tried at a small size
        self._start_s: dict[WorkerKey, float] = {}  # seconds of starts not yet part of a result
        self.longest_s = 0.0  # the longest preparation so far, without compiled cases
        self._reserve_s = 0.0  # set by `_ending`

    def prepare(
        self, case: Case, need_s: float = 0.0, *, reserve_s: float = 0.0
    ) -> PreparedCase | None:
        """Load one case into its worker, by `reserve_s` seconds before the end of the run, which
        are for the turns of the others.  A worker that already holds cases has until the end.

        None, and the reason in the report, if it cannot race or only `need_s` seconds are left.
        """
        # To end a worker early would take the cases that it holds out of the race.
        holds_others = bool(self._context.pool.held(self._key(case)))
        with self._ending(case, 0.0 if holds_others else max(0.0, reserve_s)):
            return self._load(case, need_s)
        return None

    def is_worth_it(self, case: Case) -> bool:
        """False, with the reason in the report, if it is far slower than FP32 at a small size."""
        if self._time.left_s <= 0:
            return True  # no time to probe it
        with self._ending(case):
            self._probe_small(case)
            return True
        return False

    def expected_s(self, case: Case) -> float:
        """Seconds that preparing a case may take, including the start of its worker."""
        pool, key = self._context.pool, self._key(case)
        took_s = [s for other, s in pool.import_s.items() if other.backend == key.backend]
        import_s = 0.0 if pool.is_alive(key) else max(took_s, default=0.0)
        return import_s + (self.longest_s or PREPARE_DEADLINE_S)

    @contextmanager
    def _ending(self, case: Case, reserve_s: float = 0.0) -> Iterator[None]:
        """Count the block as preparing, which leaves `reserve_s` at the end of the run to others,
        and end the case if it is refused or fails there."""
        self._reserve_s = reserve_s
        try:
            with self._context.overhead.spending(PREPARING):
                yield
        except Refused as refused:
            self.finish(case, "skipped", refused.reason)
        except WorkerFailed as failure:
            self.fail(case, failure)
        finally:
            self._reserve_s = 0.0

    def _load(self, case: Case, need_s: float) -> PreparedCase | None:
        left_s, left_to_all_s = self._time.left_s, self._time.left_to_all_s
        # A preparation that is cut off ends the worker with all the cases that it holds.
        is_risky = left_to_all_s < self.longest_s and any(map(self.holds, self._plan.cases))
        if left_s <= need_s or is_risky:
            raise Refused(self.refusals.untried(case))
        if reason := self.refusals.of(case, left_s):
            raise Refused(reason)
        self._context.record(ev.CasePreparing, case=case.id)
        self._probe_small(case)
        self._start(self._key(case))
        least, most = WARM_UP_S
        warm_up_s = min(max(WARM_UP_SHARE * left_s / len(self._plan.cases), least), most)
        return self._accept(case, self._ask_worker(case, warm_up_s))

    def _start(self, key: WorkerKey) -> None:
        """Start a worker; Refused if no time is left to ask it anything."""
        context, began_s = self._context, self._context.now()
        is_new = not context.pool.is_alive(key)
        with context.overhead.spending(STARTING):
            context.start(key, reserve_s=self._reserve_s)
        if is_new:
            self._start_s[key] = context.now() - began_s
        if context.now() >= self._end_s:
            raise Refused(NO_TURN)

    def _probe_small(self, case: Case) -> None:
        """Try a reduced precision at a small size, since an emulated one can be 200x slower, unless
        another mode of it has already shown that; Refused if it is slower.

        Never in a worker of the case's own, which reports the memory of the first case it loads.
        """
        cpu, candidates = self._context.machine.cpu, self._context.report.candidates
        if refusal := admission.slower_in_any_mode(case, candidates, cpu):
            raise Refused(refusal)
        pair = admission.small_probe_of(case, self._plan.workload, cpu)
        if pair is None or case.id in self._probed:
            return
        self._probed.add(case.id)
        small, like = pair
        key = replace(self._key(case), alone="")
        self._start(key)
        seed, deadline_s = self._context.request.seed, self._deadline_s(PROBE_DEADLINE_S)
        try:
            answer = self._context.pool.ask(
                key, deadline_s, SmallProbe, op="probe_small", case=small, other=like, seed=seed
            )
        except WorkerFailed as failure:
            if failure.reason.code != "timeout" or deadline_s >= PROBE_DEADLINE_S:
                raise  # it hangs
            text = "no time was left to try it at a small size"
            raise Refused(self.refusals.untried(case, text)) from None
        factor = answer.result.case_s / answer.result.other_s
        where = f"in {small.id.partition('/')[0]}"
        if slower := admission.slower_precision(case, factor, where, cpu):
            raise Refused(slower)

    def _ask_worker(self, case: Case, warm_up_s: float) -> Prepared:
        """Have the worker build, check and warm up one case.

        After a pause a fresh worker repeats it, since start-up times would include the pause.
        """
        context = self._context
        began_s, deadline_s = context.now(), self._deadline_s(self._prepare_deadline_s(case))
        key, wanted = self._key(case), to_prepare(case, self._plan, context, warm_up_s)
        try:
            answer = context.pool.ask(key, deadline_s, Prepared, **wanted)
            while answer.interrupted and launch_of(os.environ) is None:
                context.pool.end(key)
                self._start(key)
                began_s, deadline_s = context.now(), self._deadline_s(deadline_s)
                answer = context.pool.ask(key, deadline_s, Prepared, **wanted)
        except WorkerFailed as failure:
            # A compiler, an emulated precision or a command may well take longer.
            is_slow = case.is_compiled or deadline_s < HANGS_S or case.backend == COMMAND
            is_slow |= self.refusals.emulates(case) is not None
            if failure.reason.code == "timeout" and is_slow:
                raise Refused(self._late(case, deadline_s)) from None
            raise
        if not case.is_compiled:
            # Libraries are loaded once, unless each case has a process of its own.
            once_s = answer.result.loading_s if key.alone != case.id else 0.0
            self.longest_s = max(self.longest_s, context.now() - began_s - once_s)
        return answer.result

    def _late(self, case: Case, deadline_s: float) -> Reason:
        """Why a case that took too long to prepare does not race, with a matching remedy."""
        source, asked = self._plan.source, self._context.request.question
        text = f"{NOT_READY} its {deadline_s:.0f} s of the budget"
        if isinstance(asked, OwnQuestion) and asked.kind == COMMAND:
            if asked.until is None:
                return Reason(BUDGET, text, COMMAND_HINT)
            text = f"it printed no line that matches {asked.until!r} within {deadline_s:.0f} s"
            return Reason(BUDGET, text, "correct the pattern, or raise --budget")
        if source is not None and case.id in source.extra:
            return Reason(NO_TIME, text, NO_TURN.hint)
        return self.refusals.untried(case, text)

    def _accept(self, case: Case, loaded: Prepared) -> PreparedCase | None:
        """Report the preparation; None if the result of the case is wrong."""
        pool, key, warmed = self._context.pool, self._key(case), loaded.warmup
        speed = self._context.speed(case.device)
        accuracy = loaded.accuracy
        pool.held(key).add(case.id)
        if self._plan.scenario.counts_start_up and accuracy.passed:  # they are part of the result
            overhead = self._context.overhead
            overhead.count_as_measured(loaded.cold_s, PREPARING)
            overhead.count_as_measured(self._start_s.pop(key, 0.0), STARTING)
        self._context.record(
            ev.CasePrepared,
            case=case.id,
            setup=msgspec.structs.replace(
                loaded.setup,
                import_s=pool.import_s.get(key),  # absent if the first import failed
                transfer_out_s=loaded.transfer_out_s,
            ),
            accuracy=accuracy,
            warmup=WarmUp(
                n=warmed.n,
                seconds=warmed.seconds,
                first_s=warmed.first_s / speed,
                steady=warmed.steady,
                step_s=warmed.step_s / speed,
            ),
            iterations_per_sample=warmed.iterations,
            memory_peak_bytes=loaded.memory_peak_bytes,
            call_overhead_s=loaded.call_overhead_s / speed,
        )
        if accuracy.passed:
            return PreparedCase(case, key, warmed.step_s, warmed.iterations, warmed.restore_s)
        text = f"its {accuracy.metric.replace('_', ' ')} is {accuracy.value:.3g}, "
        text += f"the limit is {accuracy.limit:.3g} (against {accuracy.reference})"
        self.finish(case, "failed", Reason("wrong_result", text, DISTRUST))
        return None

    @property
    def _end_s(self) -> float:
        return self._time.end_s - self._reserve_s

    def _deadline_s(self, at_most_s: float) -> float:
        return self._context.deadline(at_most_s, self._reserve_s)

    def _prepare_deadline_s(self, case: Case) -> float:
        row_s, rows_s = self._time.left_s, self._time.left_to_all_s
        if launch_of(os.environ) is not None:  # ranks that end with their worker cannot come back
            return rows_s
        # The source has checked the time before it proposed the case.
        if case.is_compiled and self._plan.source is not None:
            return max(PREPARE_DEADLINE_S, row_s - AFTER_COMPILING_S)
        fair_s = min(PREPARE_SHARES * row_s, rows_s / 2)
        if case.is_compiled:
            fair_s = max(fair_s, min(self.refusals.compile_s(case), rows_s))
        return max(PREPARE_DEADLINE_S, fair_s, min(LIKE_OTHERS * self.longest_s, rows_s))

    def release(self) -> None:
        """Give back what the row's cases hold, before the next row needs it."""
        context = self._context
        if context.left_s <= 0 and context.request.extension_s <= context.report.extended_s:
            return  # no further row races
        held: defaultdict[WorkerKey, list[str]] = defaultdict(list)
        for case in self._plan.cases:
            key = self._key(case)
            if key.alone:
                context.pool.end(key)  # it holds nothing but cases of this row
            elif self.holds(case):
                held[key].append(case.id)
        for key, cases in held.items():
            with suppress(WorkerFailed):  # the pool has already reported that the worker ended
                context.pool.ask(key, RELEASE_DEADLINE_S, dict[str, str], op="release", cases=cases)
            context.pool.held(key).difference_update(cases)

    def fail(self, case: Case, failure: WorkerFailed) -> None:
        """End a case whose worker failed or refused it."""
        is_late, reason = self._context.now() >= self._end_s, failure.reason
        if reason.code == "no_memory" and self.refusals.neighbours(case):
            reason = msgspec.structs.replace(reason, hint=FEWER)
        self.finish(case, *outcome(reason, is_late=is_late))

    def skip(self, case: Case) -> None:
        self.finish(case, "skipped", self.refusals.untried(case))

    def finish(
        self, case: Case, status: str, reason: Reason | None, proof: ProvenSlower | None = None
    ) -> None:
        """Report the end of a case; `proof` shows that another candidate is faster.

        Blocks that were measured count even if it is skipped after them.
        """
        if status == "skipped" and self._context.report.candidates[case.id].blocks:
            status = "ok"
        self._context.record(
            ev.CaseFinished,
            case=case.id,
            scenario=self._plan.scenario.id,
            status=status,
            reason=reason,
            telemetry=self._context.telemetry.of_case(case.id, case.device),
            beaten_by=proof.by if proof else None,
            ratio=proof.ratio.value if proof else None,
            ratio_bounds=proof.ratio.interval if proof else None,
        )
        key, left = self._key(case), reason is not None and self._context.request.trace is None
        if left and case.device_kind == "gpu" and key.alone == case.id:
            self._context.pool.end(key)  # others need the memory that it holds
