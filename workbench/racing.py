"""Racing the contenders of one row: prepare, take turns, drop the beaten, stop in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from . import events as ev
from . import refusals
from .advisor import standings
from .advisor.scenarios import Scenario
from .contender import Contender
from .contract import DEFAULT_CACHE_BYTES, Case
from .control import Control
from .document import AccuracyResult, Clocks, Reason, SetupTimes, WarmUp
from .energy import EnergyMeter
from .machine.watch import SystemWatch
from .measure import statistics as stats
from .overhead import OverheadMeter
from .plan import RowPlan
from .report import Report
from .telemetry import MachineTelemetry
from .workers import Answer, Pool, WorkerFailed, WorkerKey

BLOCK_S = 0.2  # a turn, where the budget allows: long against the 3-6 % slow start of a resume
SHARED_BLOCK_S = 0.1  # where contenders share a worker, which need not be thawed for a turn
SHORTEST_BLOCK_S = 0.03
ROUNDS_WANTED = 8
ROUNDS_TO_MEASURE = 15  # of a plain run: 3 s a contender, for clocks wander from second to second
MOST_ROUNDS = 40
TAIL_SAMPLES = 100  # per block, so that a 99th percentile is more than the largest
LONGEST_TAIL_BLOCK_S = 1.0
WARM_UP_S = (0.02, 1.0)  # bounds of one case's warm-up
START_DEADLINE_S = 120.0  # importing a CUDA build from a cold network disk takes most of a minute
PREPARE_DEADLINE_S = 5.0  # at least; one case cannot eat what the others live on:
PREPARE_SHARES = 1.5  # of the row's time that is left, and never more than half of the run's
SCOUT_DEADLINE_S = 10.0  # a build for a GPU takes seconds to start
SLACK_S = 1.0  # kept back for a last turn that runs over, ending workers, writing the document
GRACE_S = 0.4  # of that, what a turn may run over before it is killed

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
FOR_BEING_SLOW = ("beaten", "far_slower")
BUDGET = Reason(
    "budget", "the budget was spent before its turn", "give it a larger --budget, or fewer rows"
)


@dataclass
class Runner:
    """A contender still in the race, with what the scheduler needs to know of it."""

    case: Case
    key: WorkerKey
    generation: int = -1  # of the worker that holds it prepared
    step_s: float = 0.0
    iterations: int = 1

    @property
    def sample_s(self) -> float:
        return self.step_s * self.iterations


def worker_key(case: Case, scenario: Scenario | None = None) -> WorkerKey:
    threads = case.threads if case.backend == "numpy" else None
    alone = scenario is not None and scenario.weighs_memory
    return WorkerKey(case.device, case.backend, threads, case.id if alone else "")


class Race:
    """One row from the first preparation to the last round."""

    def __init__(
        self,
        plan: RowPlan,
        *,
        pool: Pool,
        control: Control,
        report: Report,
        emit: Callable[[ev.AnyEvent], None],
        until_s: float,
        end_s: float,
        speeds: dict[str, float],
        seed: int,
        decide: bool,
        overhead: OverheadMeter,
        telemetry: MachineTelemetry,
    ) -> None:
        self._plan = plan
        self._scenario = plan.scenario
        self._pool = pool
        self._control = control
        self._report = report
        self._emit = emit
        self._until_s = until_s  # of this row, on the run's clock
        self._end_s = end_s  # of the whole run
        self._speeds = speeds
        self._seed = seed
        self._decide = decide
        self._overhead = overhead
        self._telemetry = telemetry
        self._tails = plan.scenario.objective == "latency_p99"
        self._energy = EnergyMeter(wanted=plan.scenario.objective == "energy")
        self._active: list[Runner] = []
        self._beaten: set[str] = set()  # but still in the race, as a yardstick
        self.holders: dict[str, int] = {}  # case id to the generation of the worker that has it

    # ------------------------------------------------------------ the whole

    def run(self) -> None:
        # What is compiled comes last: should it take too long, the others are ready.
        self._enter(sorted(self._plan.cases, key=refusals.is_compiled))
        machine = self._report.machine
        watch = SystemWatch(machine.cpu.effective_cores if machine else 1)
        watch.start(self._pool.process_ids())
        self._telemetry.begin()
        number = complete = 0  # the round to come, and the first one with everybody
        while self._active and number - complete < MOST_ROUNDS and self._may_go_on(number):
            self._round(number)
            number += 1
            self._drop_after(number)
            if self._let_in(number):
                complete = number
            elif self._is_over(number):
                ended_by = "decided"
                break
        else:
            enough = number - complete >= MOST_ROUNDS
            ended_by = "rounds" if enough else "budget" if self._active else "empty"
        self._emit(
            ev.RaceEnded(
                at_s=self._control.now(),
                scenario=self._scenario.id,
                rounds=number,
                ended_by=ended_by,
            )
        )
        if number:
            own = self._pool.process_ids()
            subject = self._scenario.id
            told = [*watch.warnings(own, subject), *self._telemetry.warnings(subject, own)]
            for warning in told:
                self._emit(ev.WarningRaised(at_s=self._control.now(), warning=warning))
        for runner in self._active:
            self._finish(runner, "ok", None)

    def _enter(self, cases: Iterable[Case]) -> None:
        for case in cases:
            runner = Runner(case, worker_key(case, self._scenario))
            if self._prepare(runner):
                self._active.append(runner)

    def _let_in(self, rounds: int) -> bool:
        """Have further contenders join after `rounds`; False if there are none."""
        if self._plan.entries is None:
            return False
        known = [self._report.contenders[case.id] for case in self._plan.cases]
        cases = self._plan.entries.join(known, self._until_s - self._control.now())
        if not cases:
            return False
        self._plan.cases += cases
        self._emit(
            ev.CasesJoined(
                at_s=self._control.now(),
                scenario=self._scenario.id,
                cases=cases,
                work={case.id: self._plan.workload.work(case) for case in cases},
                after=rounds,
            )
        )
        self._enter(cases)
        return True

    def release(self) -> None:
        """Give back what the row's cases hold, before the next row needs it."""
        for case in self._plan.cases:
            self._release(case)

    # ---------------------------------------------------------- preparation

    def _prepare(self, runner: Runner) -> bool:
        """Load one case; False, with the reason in the report, if it cannot race."""
        left = self._until_s - self._control.now()
        if left <= 0:
            self._finish(runner, "skipped", BUDGET)
            return False
        machine, software = self._report.machine, self._report.software
        price = self._report.contenders[runner.case.id].price_per_hour
        refusal = refusals.unpriced(runner.case, self._scenario.objective, price)
        refusal = refusal or refusals.too_long_to_compile(runner.case, left)
        if machine is not None and refusal is None:
            held = sum(
                self._report.contenders[other.case.id].work.memory_bytes
                for other in self._active
                if other.case.device == runner.case.device
            )
            refusal = refusals.beforehand(
                runner.case, self._plan.workload, machine, software, held_bytes=held
            )
        if refusal is not None:
            self._finish(runner, "skipped", refusal)
            return False
        warm_up_s = min(max(left / (4 * len(self._plan.cases)), WARM_UP_S[0]), WARM_UP_S[1])
        self._emit(ev.CasePreparing(at_s=self._control.now(), case=runner.case.id))
        try:
            self._pool.start(runner.key, self._deadline(START_DEADLINE_S))
            if slower := self._scout(runner):
                self._finish(runner, "skipped", slower)
                return False
            answer = self._pool.ask(
                runner.key,
                self._deadline(self._prepare_deadline_s()),
                op="prepare",
                case=runner.case,
                seed=self._seed,
                latency=self._scenario.objective not in ("throughput", "cost"),
                warm_up_s=warm_up_s,
                cache_bytes=self._cache_bytes(),
                files=self._plan.entries.files(runner.case) if self._plan.entries else {},
            )
        except WorkerFailed as failure:
            self._fail(runner, failure)
            return False
        return self._take_preparation(runner, answer.result)

    def _prepare_deadline_s(self) -> float:
        now = self._control.now()
        fair = PREPARE_SHARES * (self._until_s - now)
        return max(PREPARE_DEADLINE_S, min(fair, (self._end_s - now) / 2))

    def _cache_bytes(self) -> int:
        machine = self._report.machine
        sizes = [cache.size_bytes for cache in machine.cpu.caches] if machine else []
        return max(sizes, default=DEFAULT_CACHE_BYTES)

    def _scout(self, runner: Runner) -> Reason | None:
        """Try a reduced precision small before it is prepared: emulated, it is 200x slower."""
        cpu = self._report.machine.cpu if self._report.machine else None
        pair = refusals.scouting(runner.case, self._plan.workload, cpu)
        if pair is None:
            return None
        small, like = pair
        deadline = self._deadline(SCOUT_DEADLINE_S)
        answer = self._pool.ask(
            runner.key, deadline, op="scout", case=small, beside=like, seed=self._seed
        )
        factor = answer.result["case_s"] / answer.result["beside_s"]
        where = f"in {small.id.partition('/')[0]}"
        return refusals.slower_precision(runner.case, factor, where, cpu)

    def _take_preparation(self, runner: Runner, result: dict[str, Any]) -> bool:
        warmed = result["warmup"]
        import_s = self._pool.import_s[runner.key]
        setup = SetupTimes(
            import_s=import_s, transfer_out_s=result["transfer_out_s"], **result["setup"]
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
        self._finish(runner, "failed", reason)
        return False

    # --------------------------------------------------------------- rounds

    def _may_go_on(self, number: int) -> bool:
        """The first round always runs; later ones if they fit into the row's share."""
        cost = sum(self._turn_cost(runner) for runner in self._active)
        left = (self._end_s if number == 0 else self._until_s) - self._control.now()
        return cost <= left or number == 0

    def _block_s(self) -> float:
        """Length of a turn: so that the wanted number of rounds fits, within its bounds."""
        left = self._until_s - self._control.now()
        longest = BLOCK_S if self._plan.entries is None else SHARED_BLOCK_S
        return min(longest, max(SHORTEST_BLOCK_S, left / (ROUNDS_WANTED * len(self._active))))

    def _least_samples(self, runner: Runner) -> int:
        if not self._tails:
            return 1
        return max(1, min(TAIL_SAMPLES, int(LONGEST_TAIL_BLOCK_S / max(runner.sample_s, 1e-9))))

    def _turn_cost(self, runner: Runner) -> float:
        """Predicted seconds of one turn, lead-in included."""
        least = self._least_samples(runner) * runner.sample_s
        return max(self._block_s(), least, runner.sample_s) + 2 * min(runner.sample_s, 0.1)

    def _round(self, number: int) -> None:
        # Every other round runs backwards, so that no contender always follows the same one.
        order = list(self._active) if number % 2 == 0 else list(reversed(self._active))
        for runner in order:
            if number > 0 and self._control.now() + self._turn_cost(runner) > self._end_s:
                return
            if not self._turn(runner, number):
                self._active.remove(runner)

    def _turn(self, runner: Runner, number: int) -> bool:
        """One block; False if the contender is out."""
        try:
            if runner.generation != self._pool.generation.get(runner.key, 0):
                # Its worker died under another case: this one goes on in a fresh worker.
                return self._prepare(runner) and self._turn(runner, number)
            answer = self._ask_block(runner)
            if answer is None:
                return True
        except WorkerFailed as failure:
            self._fail(runner, failure)
            return False
        result = answer.result
        figures = result["figures"] | self._energy.figures(result["samples_s"])
        speed = self._speeds.get(runner.case.device, 1.0)
        samples = [value / speed for value in result["samples_s"]]
        try:
            stats.require_finite(samples)
        except ValueError as error:
            self._finish(runner, "failed", Reason("bad_clock", str(error), "run it again"))
            return False
        runner.step_s = stats.median(result["samples_s"])
        now = self._control.now() - result["after_s"]
        took_s = sum(result["samples_s"]) * runner.iterations
        self._telemetry.measured(runner.case.id, runner.case.device, now - took_s, now)
        self._emit(
            ev.BlockMeasured(
                at_s=self._control.now(),
                case=runner.case.id,
                scenario=self._scenario.id,
                round=number,
                samples_s=samples,
                lead_in_s=[value / speed for value in result["lead_in_s"]],
                loss=result["loss"],
                clocks=msgspec.convert(result["clocks"], Clocks | None),
                figures=figures,
            )
        )
        if impossible := self._impossible(runner):
            self._finish(runner, "failed", impossible)
            return False
        return True

    def _impossible(self, runner: Runner) -> Reason | None:
        """A rate that this processor cannot reach is an error, not a result."""
        contender, machine = self._report.contenders[runner.case.id], self._report.machine
        if machine is None or not contender.work.flops:
            return None
        rate = contender.work.flops / stats.median(contender.samples_s)
        return refusals.impossible_rate(runner.case, rate, machine, contender.work.ranks)

    def _ask_block(self, runner: Runner) -> Answer | None:
        """A block that no pause or sleep has touched; None if every attempt was."""
        for _ in range(3):
            with self._overhead.measuring(), self._energy.around(runner.case.device):
                answer = self._pool.ask(
                    runner.key,
                    self._deadline(10.0 + 20 * self._turn_cost(runner)),
                    op="block",
                    case=runner.case.id,
                    seconds=self._block_s(),
                    min_samples=self._least_samples(runner),
                )
            if not answer.interrupted and not answer.result["gap"]:
                return answer
            self._emit(
                ev.BlockDiscarded(
                    at_s=self._control.now(),
                    case=runner.case.id,
                    reason=Reason("suspended", "the block spanned a pause or a suspend"),
                )
            )
        return None

    def _contenders(self) -> list[Contender]:
        return [self._report.contenders[runner.case.id] for runner in self._active]

    def _drop(self, leaving: Iterable[standings.Leaving]) -> None:
        entries = self._plan.entries
        kept = entries.yardstick(self._contenders()) if entries is not None else None
        for left in list(leaving):
            if left.contender.case.id == kept and left.reason.code in FOR_BEING_SLOW:
                self._beaten.add(kept)
                continue
            runner = next(r for r in self._active if r.case == left.contender.case)
            self._active.remove(runner)
            beaten = left.beaten
            self._emit(
                ev.CaseDropped(
                    at_s=self._control.now(),
                    case=runner.case.id,
                    scenario=self._scenario.id,
                    reason=left.reason,
                    beaten_by=beaten.by if beaten else None,
                    ratio=beaten.ratio.value if beaten else None,
                    ratio_bounds=beaten.ratio.interval if beaten else None,
                )
            )
            self._finish(runner, "ok", left.reason)

    def _drop_after(self, rounds: int) -> None:
        """Send those away that cannot be picked any more; in a plain `run` all stay if they fit."""
        if self._decide:  # first, so that nobody is called slow beside one that cannot be picked
            self._drop(standings.inadmissible(self._contenders(), self._scenario))
        if rounds == 1:
            cpu = self._report.machine.cpu if self._report.machine else None
            self._drop(standings.slower_precisions(self._contenders(), cpu))
            turn_s = {runner.case.id: self._turn_cost(runner) for runner in self._active}
            left_s = self._until_s - self._control.now()
            self._drop(
                standings.hopeless(self._contenders(), self._scenario, turn_s=turn_s, left_s=left_s)
            )
        if self._decide:
            self._drop(standings.far_slower(self._contenders(), self._scenario))
            entrants = len(self._plan.cases)
            self._drop(
                standings.beaten(
                    self._contenders(), self._scenario, rounds=rounds, entrants=entrants
                )
            )

    def _is_over(self, rounds: int) -> bool:
        """Nothing left to decide, and what is left is known well enough."""
        field = [c for c in self._contenders() if c.case.id not in self._beaten]
        field = field or self._contenders()
        # Where nothing is to be decided, the figures themselves are what was asked for.
        least = stats.MIN_PAIRS if self._decide else ROUNDS_TO_MEASURE
        if rounds < least or not all(map(standings.is_steady, field)):
            return False
        if not self._decide:
            return all(map(standings.repeats, field))
        return standings.is_decided(field, self._scenario)

    # ---------------------------------------------------------------- ends

    def _deadline(self, at_most_s: float) -> float:
        """Seconds a request may take: never past the end of the run."""
        return max(0.0, min(at_most_s, self._end_s + GRACE_S - self._control.now()))

    def _fail(self, runner: Runner, failure: WorkerFailed) -> None:
        reason = failure.reason
        if reason.code == "timeout" and self._control.now() >= self._end_s:
            measured = bool(self._report.contenders[runner.case.id].blocks)
            self._finish(runner, "ok" if measured else "skipped", BUDGET)
        elif reason.code in CANNOT_HERE:
            self._finish(runner, "skipped", reason)
        else:
            self._finish(runner, "failed", reason)

    def _finish(self, runner: Runner, status: str, reason: Reason | None) -> None:
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

    def _release(self, case: Case) -> None:
        key = worker_key(case, self._scenario)
        if self._pool.is_alive(key):
            with suppress(WorkerFailed):  # the pool has already said that the worker ended
                self._pool.ask(key, self._deadline(5.0), op="release", case=case.id)
