"""The turns of a race: one block of one candidate, asked for, judged, and told."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from ..contract import kind_of
from ..planning import admission
from ..planning.plan import RowPlan
from ..pool.pool import Answer, WorkerFailed
from ..records import events as ev
from ..records.document import Clocks
from ..records.reason import Reason
from ..stats import samples as stats
from .context import RunContext
from .energy import EnergyMeter
from .preparation import Preparation, PreparedCase
from .schedule import RoundBudget


class BlockRunner:
    """Of the candidates of one row."""

    def __init__(
        self, plan: RowPlan, context: RunContext, preparation: Preparation, pace: RoundBudget
    ) -> None:
        self._plan = plan
        self._preparation = preparation
        self._pace = pace
        self._run = context
        self._energy = EnergyMeter()

    def take(self, runner: PreparedCase, number: int, field: Collection[PreparedCase]) -> bool:
        """The block of one candidate in round `number`, beside the others of `field`; False, with
        the reason in the report, if it is out."""
        try:
            if runner.generation != self._run.pool.generation.get(runner.key, 0):
                # Its worker died under another case: this one goes on in a fresh worker.
                # Of a row of which nothing is known yet somebody is measured, whatever is left.
                need_s = 0.0 if self._is_anything_known() else -math.inf
                again = self._preparation.prepare(runner, need_s)
                return again and self.take(runner, number, field)
            answer = self._ask_block(runner, field)
            if answer is None:
                return True
        except WorkerFailed as failure:
            self._preparation.fail(runner, failure)
            return False
        result = answer.result
        metrics = result["figures"] | self._energy.figures(result["samples_s"])
        speed = self._run.speeds.get(runner.case.device, 1.0)
        samples = [value / speed for value in result["samples_s"]]
        try:
            stats.require_finite(samples)
        except ValueError as error:
            self._preparation.finish(
                runner, "failed", Reason("bad_clock", str(error), "run it again")
            )
            return False
        runner.step_s = stats.median(result["samples_s"])
        runner.lead_in_s = sum(result["lead_in_s"]) * runner.iterations
        now = self._run.control.now() - result["after_s"]
        took_s = sum(result["samples_s"]) * runner.iterations
        self._run.telemetry.measured(runner.case.id, runner.case.device, now - took_s, now)
        self._run.emit(
            ev.BlockMeasured(
                at_s=self._run.control.now(),
                case=runner.case.id,
                scenario=self._plan.scenario.id,
                round=number,
                samples_s=samples,
                lead_in_s=[value / speed for value in result["lead_in_s"]],
                loss=result["loss"],
                clocks=msgspec.convert(result["clocks"], Clocks | None),
                metrics=metrics,
            )
        )
        if impossible := self._impossible(runner):
            self._preparation.finish(runner, "failed", impossible)
            return False
        return True

    def _is_anything_known(self) -> bool:
        return any(self._run.report.candidates[case.id].blocks for case in self._plan.cases)

    def _impossible(self, runner: PreparedCase) -> Reason | None:
        """A rate that this device cannot reach is an error, not a result."""
        candidate, machine = self._run.report.candidates[runner.case.id], self._run.report.machine
        if machine is None or not candidate.work.flops:
            return None
        rate = candidate.work.flops / stats.median(candidate.samples_s)
        return admission.impossible_rate(
            runner.case,
            rate,
            machine,
            candidate.work.ranks,
            convolves=self._plan.workload.convolves,
        )

    def _ask_block(self, runner: PreparedCase, field: Collection[PreparedCase]) -> Answer | None:
        """A block that no pause or sleep has touched; None if every attempt was."""
        for _ in range(3):
            with self._run.overhead.measuring(), self._energy.around(runner.case.device):
                answer = self._run.pool.ask(
                    runner.key,
                    self._preparation.deadline(10.0 + 20 * self._pace.turn_s(runner, field)),
                    op="block",
                    case=runner.case.id,
                    seconds=self._pace.block_s(field),
                    min_samples=self._pace.least_samples(runner),
                    settle_s=kind_of(runner.case.device).settle_s,
                )
            if not answer.interrupted and not answer.result["gap"]:
                return answer
            self._run.emit(
                ev.BlockDiscarded(
                    at_s=self._run.control.now(),
                    case=runner.case.id,
                    reason=Reason("suspended", "the block spanned a pause or a suspend"),
                )
            )
        return None
