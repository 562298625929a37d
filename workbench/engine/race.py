"""Racing the candidates of one row: prepare, take turns, drop the beaten, stop in time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from ..advisor import elimination
from ..advisor.crossover import MOST_POINTS
from ..contract import Case
from ..machine.host.disturbance import DisturbanceMonitor
from ..planning import admission
from ..planning.plan import RowPlan
from ..pool.control import Cancelled
from ..records import events as ev
from ..records.reason import Reason
from ..report.candidate import Candidate
from ..report.warnings import WIDE
from ..stats import samples as stats
from .blocks import BlockRunner
from .context import RunContext
from .preparation import BUDGET, Preparation, PreparedCase, worker_key
from .schedule import RoundBudget

ROUNDS_TO_MEASURE = 15  # of a plain run: 3 s a candidate, for clocks wander from second to second
MOST_ROUNDS = 40
APART_ROUNDS = 5  # of those that cannot be picked
APART_COST = 2.0  # FP64 takes about twice what the longest preparation of the others took
FOR_BEING_SLOW = ("beaten", "far_slower")


def in_turns(cases: Iterable[Case]) -> list[Case]:
    """One of each kind of device in turn, those that are compiled last."""
    of_kind: dict[str, list[Case]] = {}
    for case in cases:
        of_kind.setdefault(case.device_kind, []).append(case)
    mixed = [case for rank in zip_longest(*of_kind.values()) for case in rank if case is not None]
    return sorted(mixed, key=lambda case: case.is_compiled)


class Race:
    """One row from the first preparation to the last round."""

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
        self._telemetry = context.telemetry
        self._until_s = until_s  # of this row, on the run's clock
        self._end_s = end_s  # of all rows
        self._decide = plan.decides
        self._preparation = Preparation(plan, context, until_s=until_s, end_s=end_s)
        self._pace = RoundBudget(plan, context.control.now, until_s=until_s, end_s=end_s)
        self._turns = BlockRunner(plan, context, self._preparation, self._pace)
        self._active: list[PreparedCase] = []
        self._through: list[PreparedCase] = []  # the deciders, while those apart have their race
        self._excuses: dict[str, Reason] = {}  # of those spared: why they were to go
        self._beaten: set[str] = set()  # but still in the race, as a baseline
        self._late: Sequence[Case] = ()  # who will join once the others are decided
        self._number = 0  # of the round to come
        # Of a crossover's point, so that who leaves is beaten as surely as its claims must be.
        self._least_entrants = 0 if plan.of is None else math.ceil(math.sqrt(2 * MOST_POINTS)) + 1

    @property
    def holders(self) -> dict[str, int]:
        """Case id to the generation of the worker that has it prepared."""
        return self._preparation.holders

    # ------------------------------------------------------------ the whole

    def run(self) -> None:
        # What is compiled comes last: should it take too long, the others are ready.
        cases = sorted(self._plan.cases, key=lambda case: case.is_compiled)
        apart: list[Case] = []
        if self._decide and not all(map(self._is_apart, cases)):
            # What cannot be picked gets the time that the decision leaves.
            apart = [case for case in cases if self._is_apart(case)]
            cases = [case for case in cases if not self._is_apart(case)]
        machine = self._report.machine
        watch = DisturbanceMonitor(machine.cpu.effective_cores if machine else 1)
        rounds, ended_by = 0, "cancelled"
        try:
            self._enter_safe_ones(cases)
            watch.start(self._pool.process_ids())
            self._telemetry.begin()
            ended_by = self._rounds()
            rounds = self._number
            self._let_late_ones_in(need_s=self._until_s)  # there was no time for them
            self._race_apart(apart)
        except Cancelled:
            self._ended(rounds or self._number, ended_by)
            raise
        self._ended(rounds, ended_by)
        if self._number:
            own = self._pool.process_ids()
            subject = self._scenario.id
            told = [*watch.warnings(own, subject), *self._telemetry.warnings(subject, own)]
            for warning in told:
                self._emit(ev.WarningRaised(at_s=self._control.now(), warning=warning))
        for runner in [*self._through, *self._active]:
            if self._report.candidates[runner.case.id].blocks:
                self._preparation.finish(runner, "ok", None)
            else:
                self._preparation.finish(runner, "skipped", BUDGET)

    def _is_apart(self, case: Case) -> bool:
        return case.precision in self._scenario.reference_only

    def _ended(self, rounds: int, ended_by: str) -> None:
        self._emit(
            ev.RaceEnded(
                at_s=self._control.now(),
                scenario=self._scenario.id,
                rounds=rounds,
                ended_by=ended_by,
            )
        )

    def _rounds(self, most: int = MOST_ROUNDS) -> str:
        """Rounds of those that are active until it is over; returns what ended them."""
        first = complete = self._number  # the first round, and the first one with everybody
        while self._active and self._number - complete < most:
            if self._number and not self._pace.fits(self._active, after=self._number):
                return "budget"
            self._round(self._number)
            self._number += 1
            self._drop_after(self._number - first)
            if self._let_in():
                complete = self._number
            elif self._is_over(self._number - first):
                if not self._let_late_ones_in(self._preparation.longest_s):
                    return "decided"
                complete = self._number
        if self._let_late_ones_in(self._preparation.longest_s):
            return self._rounds(most)
        if self._active:
            return "rounds"
        waiting = self._number == first and self._control.now() >= self._until_s
        return "budget" if waiting else "empty"

    def _race_apart(self, cases: Sequence[Case]) -> None:
        """A short race of those that cannot be picked, as far as there is time left."""
        self._through, self._active = self._active, []
        self._enter(cases, need_s=APART_COST * self._preparation.longest_s)
        self._rounds(APART_ROUNDS)

    def _runner(self, case: Case) -> PreparedCase:
        return PreparedCase(case, worker_key(case, self._scenario))

    def _enter(self, cases: Iterable[Case], need_s: float = 0.0) -> None:
        for runner in map(self._runner, cases):
            if self._preparation.prepare(runner, max(need_s, self._first_round_s())):
                self._active.append(runner)

    def _first_round_s(self) -> float:
        """What it takes to measure at least once whom there is, before the first round: else the
        whole share may go into preparing.  For a second one, without whom there is no race, what
        the rows after this one have counts as well."""
        if self._number or not self._active:
            return 0.0
        turns_s = sum(self._pace.turn_s(runner, self._active) for runner in self._active)
        if len(self._active) > 1:
            return turns_s
        return 2 * turns_s - (self._end_s - self._until_s)

    def _enter_safe_ones(self, cases: Sequence[Case]) -> None:
        """Those whose precision is only emulated here wait for the others to be decided: preparing
        one can take a hundred times as long, and its end is that of all in its worker."""
        cpu = self._report.machine.cpu if self._report.machine else None
        risky = [case for case in cases if admission.small_probe_of(case, self._plan.workload, cpu)]
        if not self._decide or len(risky) == len(cases):
            risky = []
        # Of each kind of device the first comes first, should the time end before all are ready.
        self._enter(in_turns(case for case in cases if case not in risky))
        self._active.sort(key=lambda runner: cases.index(runner.case))
        self._late = [c for c in risky if self._preparation.is_worth_it(self._runner(c))]

    def _let_late_ones_in(self, need_s: float) -> bool:
        """Have those join that waited for the decision of the others; False if nobody does."""
        late, self._late, before = self._late, (), len(self._active)
        self._enter(late, need_s)
        return len(self._active) > before

    def _let_in(self) -> bool:
        """Have further candidates join; False if there are none."""
        if self._plan.source is None:
            return False
        known = [self._report.candidates[case.id] for case in self._plan.cases]
        cases = self._plan.source.join(known, self._until_s - self._control.now())
        if not cases:
            return False
        self._plan.cases += cases
        self._emit(
            ev.CasesJoined(
                at_s=self._control.now(),
                scenario=self._scenario.id,
                cases=cases,
                work={case.id: self._plan.workload.work(case) for case in cases},
                after=self._number,
            )
        )
        self._enter(cases)
        return True

    def release(self) -> None:
        """Give back what the row's cases hold, before the next row needs it."""
        self._preparation.release()

    # --------------------------------------------------------------- rounds

    def _round(self, number: int) -> None:
        # Every other round runs backwards, so that no candidate always follows the same one.
        order = list(self._active) if number % 2 == 0 else list(reversed(self._active))
        for runner in order:
            if number > 0 and self._pace.outlasts_run(runner, self._active):
                return
            if not self._turns.take(runner, number, self._active):
                self._active.remove(runner)

    def _candidates(self) -> list[Candidate]:
        return [self._report.candidates[runner.case.id] for runner in self._active]

    def _drop(self, leaving: Iterable[elimination.Leaving]) -> None:
        source = self._plan.source
        kept = source.baseline(self._candidates()) if source is not None else None
        for left in list(leaving):
            if left.candidate.case.id == kept and left.reason.code in FOR_BEING_SLOW:
                self._beaten.add(kept)
                continue
            runner = next(r for r in self._active if r.case == left.candidate.case)
            self._active.remove(runner)
            beaten, reason = left.beaten, self._excuses.get(runner.case.id, left.reason)
            if reason.code in FOR_BEING_SLOW:
                reason = left.reason
            self._emit(
                ev.CaseDropped(
                    at_s=self._control.now(),
                    case=runner.case.id,
                    scenario=self._scenario.id,
                    reason=reason,
                    beaten_by=beaten.by if beaten else None,
                    ratio=beaten.ratio.value if beaten else None,
                    ratio_bounds=beaten.ratio.interval if beaten else None,
                )
            )
            self._preparation.finish(runner, "ok", reason)

    def _drop_after(self, rounds: int) -> None:
        """Send those away that cannot be picked any more; in a plain `run` reduced precisions far
        slower than FP32, and where the budget holds no more rounds of all, the far slower ones."""
        if self._decide:  # first, so that nobody is called slow beside one that cannot be picked
            self._drop(elimination.inadmissible(self._candidates(), self._scenario))
        if rounds == 1:
            cpu = self._report.machine.cpu if self._report.machine else None
            self._drop_but_second(elimination.slower_precisions(self._candidates(), cpu))
            turn_s = {r.case.id: self._pace.turn_s(r, self._active) for r in self._active}
            left_s, known = self._pace.left_s(self._active, after=self._number), self._candidates()
            self._drop(elimination.hopeless(known, self._scenario, turn_s=turn_s, left_s=left_s))
        if self._decide:
            self._drop_but_second(elimination.far_slower(self._candidates(), self._scenario))
            self._drop(
                elimination.beaten(
                    self._candidates(),
                    self._scenario,
                    rounds=rounds,
                    entrants=max(len(self._entrants()), self._least_entrants),
                )
            )

    def _entrants(self) -> list[Candidate]:
        """All that had a turn among those that race now, or race with them."""
        apart = bool(self._active) and self._is_apart(self._active[0].case)
        known = [self._report.candidates[case.id] for case in self._plan.cases]
        return [c for c in known if c.blocks and self._is_apart(c.case) == apart]

    def _drop_but_second(self, leaving: Iterable[elimination.Leaving]) -> None:
        """Not whoever may come in second, as long as its rounds fit: there is to be an interval of
        the lead over it."""
        going = {left.candidate.case.id: left for left in leaving}
        front = (
            elimination.front(self._entrants(), self._scenario) if self._decide and going else []
        )
        front += [case for case in self._plan.protected if case not in front]
        staying = [r for r in self._active if r.case.id in front or r.case.id not in going]
        if self._pace.fits(staying, after=self._number, rounds=stats.MIN_PAIRS - 1):
            for spared in filter(going.__contains__, front):
                self._excuses.setdefault(spared, going.pop(spared).reason)
        self._drop(going.values())

    def _is_over(self, rounds: int) -> bool:
        """Nothing left to decide, and what is left is known well enough."""
        field = [c for c in self._candidates() if c.case.id not in self._beaten]
        field = field or self._candidates()
        # Where nothing is to be decided, the figures themselves are what was asked for.
        if not self._decide:
            steady = all(map(elimination.is_steady, field))
            return rounds >= ROUNDS_TO_MEASURE and steady and all(map(elimination.repeats, field))
        if rounds < stats.MIN_PAIRS or not elimination.is_decided(field, self._scenario):
            return False
        if self._plan.of is not None and not elimination.is_proven(self._entrants(), MOST_POINTS):
            return False
        return all(elimination.is_steady(candidate, WIDE) for candidate in field)
