"""The race of one row: prepare its candidates, measure them in rounds, eliminate, stop in time."""

from collections.abc import Iterable, Sequence

from ..advisor import elimination, refinements, stopping
from ..advisor.elimination import Eliminated, Standings
from ..advisor.limits import exceeds_error_limit
from ..advisor.verdict import decide
from ..contract import Case, kind_of
from ..machine.host.disturbance import DisturbanceMonitor
from ..planning.plan import CandidateSource
from ..records import events as ev
from ..records.reason import Warning
from ..report.candidate import CANCELLED, Candidate
from ..stats.samples import MIN_PAIRS
from .blocks import BlockRunner
from .overhead import PREPARING
from .preparation import Preparation
from .schedule import PreparedCase, RowTime, by_promise, entry_order, in_turns

MOST_ROUNDS = 40
REFERENCE_ROUNDS = 5  # for reference-only precisions
PREPARING_SHARE = 0.1  # most of a row's time before the first turn, where a GPU races
REFERENCE_COST = 2.0  # FP64 takes about twice as long to prepare as the slowest of the others


class Race:
    """One row from its first preparation to its last round."""

    def __init__(self, row_time: RowTime) -> None:
        self._time, self._plan, self._context = row_time, row_time.plan, row_time.context
        self.preparation = Preparation(row_time)
        self._blocks = BlockRunner(row_time, self.preparation)
        self._active: list[PreparedCase] = []  # still racing
        self._late: list[Case] = []  # to enter once the others are decided
        self._reference_only: list[Case] = []  # they race last, among themselves
        self._is_deciding = True  # until the reference-only precisions race
        self._number = 0  # index of the next round
        self._began_s = self._context.now()

    def run(self) -> None:
        """Race for the decision, then race the reference-only precisions; Cancelled may pass."""
        context, scenario = self._context, self._plan.scenario.id
        rounds, ended_by = None, CANCELLED
        row = context.report.rows[scenario]
        decided: list[PreparedCase] = []
        try:
            disturbance = self._enter_watched()
            context.telemetry.begin()
            ended_by = self._run_rounds()
            rounds = row.round  # a last round in which nothing was measured does not count
            self._time.give_back()
            # The budget ran out before the decision, so these cannot enter.
            for case in self._late:
                self.preparation.skip(case)
            self._late = []
            decided, self._active, self._is_deciding = self._active, [], False
            self._enter(self._reference_only, REFERENCE_COST * self.preparation.longest_s)
            self._run_rounds()
            self._time.make_up()
        finally:
            rounds = self._number if rounds is None else rounds
            context.record(ev.RaceEnded, scenario=scenario, rounds=rounds, ended_by=ended_by)
            if any(candidate.blocks for candidate in row.candidates):
                self._report_warnings(disturbance, ended_by)
            elif ended_by == "budget":  # on a busy machine none may be ready in time
                for warning in disturbance.warnings(scenario):
                    context.record(ev.WarningRaised, warning=warning)
            self._finish(decided)  # even if the race for reference is cut short
        self._finish(self._active)

    def _run_rounds(self) -> str:
        """Rounds until no late case can enter or no time is left; returns what ended the race."""
        first = self._number  # from here on, `rounds` counts for the rules
        while (ended_by := self._race_active(first)) != "budget":
            were_active = bool(self._active)
            if not self._enter_late():
                break
            if not were_active:
                first = self._number
        is_late = ended_by == "empty" and self._time.left_s <= 0
        return "budget" if is_late else ended_by

    def _race_active(self, first: int) -> str:
        """Rounds of the active candidates; returns what ended them."""
        all_in = self._number  # the first round with all candidates
        most_rounds = MOST_ROUNDS if self._is_deciding else REFERENCE_ROUNDS
        if not self._number:
            self._fit_first_round()
        while self._active and self._number - all_in < most_rounds:
            if self._number and not self._time.fits(self._active, after=self._number):
                more_s = self._settling_s(self._number - first)
                if not more_s:
                    return "budget"
                self._time.take(more_s)
            joined = self._number > first and self._number == all_in
            self._run_round(self._resting() if joined else set())
            self._number += 1
            rounds = self._number - first
            self._eliminate(rounds)
            if rounds >= MIN_PAIRS and self._is_decided():
                self._time.give_back()
            if self._enter_joining():
                all_in = self._number
            elif self._is_over(rounds):
                return "decided"
        return "rounds" if self._active else "empty"

    def _resting(self) -> set[str]:
        """The ids of the cases that are well behind the leader.  They leave the time of a round to
        new candidates of the source; its baseline does not."""
        source, candidates = self._plan.source, list(map(self._candidate, self._active))
        if source is None or not self._is_deciding:
            return set()
        baseline = source.baseline(self._row_candidates())
        return refinements.resting(candidates, self._plan.scenario) - {baseline}

    def _run_round(self, resting: set[str]) -> None:
        # Every other round runs backwards, so that no candidate always follows the same one.
        number = self._number
        taking_turns = [each for each in self._active if each.case.id not in resting]
        for prepared in taking_turns[:: -1 if number % 2 else 1]:
            turn_s = self._time.turn_s(prepared, self._active)
            if number > 0 and turn_s > self._time.left_to_all_s:
                return
            if not self._blocks.take(prepared, number, self._active):
                self._active.remove(prepared)

    def _settling_s(self, rounds: int) -> float:
        """Seconds beyond the row's share that may settle an answer which is open after `rounds`
        rounds; 0 if more rounds would not, or if the run may not last that much longer."""
        more_s = self._time.settling_s(self._active, after=rounds)
        if not (more_s and self._is_deciding) or self._is_decided():
            return 0.0  # no round would change the answer
        return more_s if decide(self._context.report, self._plan.scenario).is_open else 0.0

    # ------------------------------------------------------------ who enters

    def _enter(self, cases: Iterable[Case], need_s: float = 0.0) -> bool:
        """Prepare cases and let them race; False if none could be prepared.

        A case is skipped if no more than `need_s` seconds are left to the row, or no time for a
        round of the active candidates.
        """
        before = len(self._active)
        for case in cases:
            reserve_s = self._time.first_round_s(self._active)
            least_s = max(need_s, reserve_s)
            if self._number and len(self._active) > before:  # new ones wait for their first turn
                least_s = max(need_s, reserve_s + self.preparation.expected_s(case))
            prepared = self.preparation.prepare(case, least_s, reserve_s=reserve_s)
            if prepared is not None:
                self._active.append(prepared)
        return len(self._active) > before

    def _make_room(self, case: Case) -> None:
        """Lengthen the row for a candidate that its time is too short to prepare."""
        round_s = max(0.0, self._time.first_round_s(self._active))
        need_s = round_s + self.preparation.expected_s(case)
        more_s = need_s - self._time.left_s
        lacks_time = self._time.left_s <= round_s or self._time.left_to_all_s < need_s
        if lacks_time and 0 < more_s <= self._time.room_s():
            self._time.take(more_s)

    def _fit_first_round(self) -> None:
        """Lengthen a row that has no time for a turn of each.  The shortest then come first, since
        the run may end before the rest."""
        short_s = self._time.round_s(self._active) - self._time.left_s
        if short_s > 0 and len(self._active) > 1:
            self._time.take(min(short_s, max(0.0, self._time.room_s())))
            self._active.sort(key=lambda prepared: prepared.sample_s)

    def _enter_watched(self) -> DisturbanceMonitor:
        """Let the first candidates enter; returns a monitor, which covers start-ups that count, or
        after which no candidate was ready."""
        disturbance = self._monitor()
        self._enter_first()
        is_covered = self._plan.scenario.counts_start_up or not self._active
        return disturbance if is_covered else self._monitor()

    def _monitor(self) -> DisturbanceMonitor:
        context = self._context
        cores = context.machine.cpu.effective_cores
        disturbance = DisturbanceMonitor(cores, context.pool.process_ids)
        context.control.at_pause = disturbance.paused
        return disturbance

    def _enter_first(self) -> None:
        first, late, self._reference_only = entry_order(self._plan, self._context.machine.cpu)
        for case in in_turns(by_promise(first) if self._plan.decides else first):
            if self._gives_up(case):
                self._late.append(case)
            else:
                self._make_room(case)
                self._enter([case])
        self._time.give_back()  # preparing may have taken less than `_make_room` allowed
        self._active.sort(key=lambda prepared: first.index(prepared.case))
        self._late += filter(self.preparation.is_worth_it, late)

    def _gives_up(self, case: Case) -> bool:
        """Whether a further candidate of a GPU must wait until the others are decided, since its
        preparation would take too much of the time for their turns."""
        ready = (self._candidate(p) for p in self._active if p.case.device == case.device)
        if kind_of(case.device).on_host or not self._plan.decides:
            return False
        if all(exceeds_error_limit(each, self._plan.scenario) for each in ready):
            return False
        spent_s, share_s = self._context.now() - self._began_s, self._time.until_s - self._began_s
        return spent_s + self.preparation.longest_s > PREPARING_SHARE * share_s

    def _enter_late(self) -> bool:
        """Let the late cases enter; False if none could be prepared."""
        late, self._late = self._late, []
        need_s = self.preparation.longest_s
        others_follow = self._time.rows > 1 or self._plan.of is not None
        if others_follow and any(not kind_of(case.device).on_host for case in late):
            need_s /= PREPARING_SHARE  # they gave way to the turns of others
        return self._enter(late, need_s)

    def _enter_joining(self) -> bool:
        """Let cases enter that may beat a leader or that the source proposes; False without any."""
        plan, left_s = self._plan, self._time.left_s
        candidates = self._row_candidates()
        cases = refinements.due(plan, candidates) if left_s > self.preparation.longest_s else []
        reserve_s = MIN_PAIRS * self._time.round_s(self._active)  # to compare what joins
        if plan.source is not None and left_s > reserve_s:
            with self._context.overhead.spending(PREPARING):
                cases += plan.source.join(candidates, left_s - reserve_s)
        if not cases and plan.source is not None:
            return self._enter_lacking(plan.source, candidates, reserve_s)
        return self._join(cases)

    def _join(self, cases: list[Case]) -> bool:
        """Announce cases, if any, and let them enter; False without any."""
        if cases:
            plan, workload = self._plan, self._plan.workload
            plan.cases += cases
            self._context.record(
                ev.CasesJoined,
                scenario=plan.scenario.id,
                cases=cases,
                work={case.id: workload.work(case) for case in cases},
                after=self._number,
            )
            self._enter(cases)
        return bool(cases)

    def _enter_lacking(
        self, source: CandidateSource, candidates: Sequence[Candidate], reserve_s: float
    ) -> bool:
        """Lengthen the row for cases of the source that may well win but lack time; False if there
        is none, or it takes too long.

        Meanwhile they have all of the run's extension, since a preparation that is cut off was in
        vain.  Then the row has the time that it had before, or `reserve_s`.
        """
        left_s, whole_s = self._time.left_s, self._time.lent_s(1.0)
        after_round_s = left_s - self._time.round_s(self._active)
        if not 0 < source.lacks_s(candidates, after_round_s) <= whole_s:
            return False
        self._time.take(whole_s)
        with self._context.overhead.spending(PREPARING):
            cases = source.join_late(self._time.left_s - reserve_s)
        self._time.is_for_source = self._join(cases)
        self._time.give_back(max(left_s, reserve_s))
        return bool(cases)

    # ------------------------------------------------------------ who leaves

    def _eliminate(self, rounds: int) -> None:
        """Apply every rule that is due after `rounds` rounds."""
        for rule in elimination.RULES:
            standings = self._standings(self._active, rounds)
            if not rule.applies(standings):
                continue
            leaving = {each.candidate.case.id: each for each in rule.find(standings)}
            if leaving and rule.protects_runner_up:
                self._keep_protected(leaving, standings)
            if leaving:
                self._remove(leaving, standings)

    def _keep_protected(self, leaving: dict[str, Eliminated], standings: Standings) -> None:
        """Take protected cases out of `leaving` if there is time to give the lead an interval."""
        kept = elimination.protected(standings)
        staying = [p for p in self._active if p.case.id in kept or p.case.id not in leaving]
        if self._time.fits(staying, after=self._number, rounds=MIN_PAIRS - 1):
            for prepared in staying:
                eliminated = leaving.pop(prepared.case.id, None)
                if eliminated is not None and eliminated.reason.code not in elimination.SLOW:
                    prepared.deferred = eliminated.reason

    def _remove(self, leaving: dict[str, Eliminated], standings: Standings) -> None:
        """Eliminate all of `leaving`; a slow baseline races on, but the race may end without it."""
        source = self._plan.source
        baseline = source.baseline(standings.candidates) if source is not None else None
        by_id = {prepared.case.id: prepared for prepared in self._active}
        for case, eliminated in leaving.items():
            if case == baseline and eliminated.reason.code in elimination.SLOW:
                by_id[case].is_only_baseline = True
            else:
                self._active.remove(by_id[case])
                reason = by_id[case].deferred or eliminated.reason
                self.preparation.finish(by_id[case].case, "ok", reason, eliminated.proof)

    def _is_over(self, rounds: int) -> bool:
        contending = [prepared for prepared in self._active if not prepared.is_only_baseline]
        return stopping.is_over(self._standings(contending or self._active, rounds))

    def _is_decided(self) -> bool:
        return stopping.is_decided([*map(self._candidate, self._active)], self._plan.scenario)

    # ------------------------------------------------------------ what is known

    def _candidate(self, prepared: PreparedCase) -> Candidate:
        return self._context.report.candidates[prepared.case.id]

    def _row_candidates(self) -> list[Candidate]:
        return [self._context.report.candidates[case.id] for case in self._plan.cases]

    def _standings(self, racing: Sequence[PreparedCase], rounds: int) -> Standings:
        # The race for the decision and that of the reference-only precisions are separate.
        apart = {case.id for case in self._reference_only}
        measured = [candidate for candidate in self._row_candidates() if candidate.blocks]
        return Standings(
            plan=self._plan,
            candidates=[self._candidate(prepared) for prepared in racing],
            measured=[c for c in measured if (c.case.id in apart) != self._is_deciding],
            rounds=rounds,
            cpu=self._context.machine.cpu,
            turn_s={p.case.id: self._time.turn_s(p, self._active) for p in self._active},
            usable_s=self._time.usable_s(self._active, after=self._number),
        )

    def _report_warnings(self, disturbance: DisturbanceMonitor, ended_by: str) -> None:
        context, subject = self._context, self._plan.scenario.id
        own = context.pool.process_ids()
        found = [*disturbance.warnings(subject), *context.telemetry.warnings(subject, own)]
        source = None if ended_by == CANCELLED else self._plan.source
        if source is not None and (gap := source.gap(self._row_candidates())):
            text = f"no time was left for {gap}"
            found.append(Warning("unmeasured", text, "raise --budget", subject))
        for warning in found:
            context.record(ev.WarningRaised, warning=warning)

    def _finish(self, remaining: Iterable[PreparedCase]) -> None:
        for prepared in remaining:
            if self._candidate(prepared).blocks:
                self.preparation.finish(prepared.case, "ok", None)
            else:
                self.preparation.skip(prepared.case)
