"""The turns of a race: one block of one candidate, requested, checked and reported."""

import math
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec

from ..contract import kind_of
from ..machine.host.readings import package_energy_j, used_energy_j
from ..planning import admission
from ..pool.answers import Block
from ..pool.pool import WorkerFailed
from ..records import events as ev
from ..records.reason import Reason
from ..report.candidate import ENERGY
from ..stats import samples as stats
from .preparation import Preparation
from .schedule import PreparedCase, RowTime, least_samples

HUNG = "the GPU or its driver may hang: read `dmesg | grep -iE 'nvrm|xid'`, or raise --budget"
ATTEMPTS = 3  # to measure a block without a pause or a suspend in it


@contextmanager
def mean_power_w(device: str) -> Iterator[list[float]]:
    """A list that gets the mean power during a block on the CPU, if its packages count energy."""
    power_w = list[float]()
    if device != "cpu":
        yield power_w
        return
    before, began = package_energy_j()[0], time.monotonic()
    yield power_w
    after, ended = package_energy_j()[0], time.monotonic()
    if used_j := used_energy_j(before, after, ended - began):  # 0: the counter stood still
        power_w.append(used_j / (ended - began))


class BlockRunner:
    """Runs one block at a time of the candidates of one row."""

    def __init__(self, row_time: RowTime, preparation: Preparation) -> None:
        self._time, self._plan, self._context = row_time, row_time.plan, row_time.context
        self._preparation = preparation

    def take(self, prepared: PreparedCase, number: int, racing: Collection[PreparedCase]) -> bool:
        """Measure a block of round `number`; False, with the reason in the report, if it is out."""
        case = prepared.case
        if not self._preparation.holds(case) and not self._renew(prepared):
            return False
        try:
            result = self._ask_block(prepared, racing)
        except WorkerFailed as failure:
            if failure.reason.code == "timeout" and not kind_of(case.device).on_host:
                # A smaller size would not help a GPU that has stopped answering.
                failure = WorkerFailed(msgspec.structs.replace(failure.reason, hint=HUNG))
            self._preparation.fail(case, failure)
            return False
        if result is None:
            return True
        speed = self._context.speed(case.device)
        samples_s = [value / speed for value in result.samples_s]
        wrong = next((s for s in samples_s if not ev.SHORTEST_S <= s <= ev.LONGEST_S), None)
        if wrong is None:
            self._report(prepared, number, samples_s, result)
            context, convolves = self._context, self._plan.workload.convolves
            candidate = context.report.candidates[case.id]
            reason = admission.impossible_rate(candidate, context.machine, convolves=convolves)
        else:
            reason = Reason("bad_clock", f"a block has a sample of {wrong:g} s", "run it again")
        if reason is not None:
            self._preparation.finish(case, "failed", reason)
        return reason is None

    def _renew(self, prepared: PreparedCase) -> bool:
        """Load the case into a fresh worker, however late while nothing of the row is measured."""
        report = self._context.report
        is_measured = any(report.candidates[case.id].blocks for case in self._plan.cases)
        fresh = self._preparation.prepare(prepared.case, 0.0 if is_measured else -math.inf)
        if fresh is None:
            return False
        prepared.step_s, prepared.iterations = fresh.step_s, fresh.iterations
        return True

    def _ask_block(self, prepared: PreparedCase, racing: Collection[PreparedCase]) -> Block | None:
        """A block that no pause or suspend interrupted; None if every attempt was interrupted."""
        context, case = self._context, prepared.case
        for _ in range(ATTEMPTS):
            with context.overhead.measuring(), mean_power_w(case.device) as power_w:
                answer = context.pool.ask(
                    prepared.key,
                    context.deadline(10.0 + 20 * self._time.turn_s(prepared, racing)),
                    Block,
                    op="block",
                    case=case.id,
                    seconds=self._time.block_s(racing),
                    min_samples=least_samples(self._plan.scenario, prepared.sample_s),
                    settle_s=kind_of(case.device).settle_s,
                )
            result = answer.result
            if not answer.interrupted and not result.gap:
                if power_w:
                    result.figures[ENERGY] = power_w[0] * stats.median(result.samples_s)
                return result
            reason = Reason("suspended", "the block spanned a pause or a suspend")
            context.record(ev.BlockDiscarded, case=case.id, reason=reason)
        return None

    def _report(
        self, prepared: PreparedCase, number: int, samples_s: list[float], result: Block
    ) -> None:
        """Record a block, and update the predicted length of the next one."""
        context, case = self._context, prepared.case
        prepared.step_s = stats.median(result.samples_s)
        untimed_s = sum(result.lead_in_s) * prepared.iterations
        prepared.lead_in_s = untimed_s + len(result.lead_in_s) * prepared.restore_s
        timed, turn_s = (result.settled_s, result.ended_s), result.ended_s - result.began_s
        context.telemetry.measured(case.id, case.device, *timed, turn_s=turn_s)
        speed = context.speed(case.device)
        context.record(
            ev.BlockMeasured,
            case=case.id,
            scenario=self._plan.scenario.id,
            round=number,
            samples_s=samples_s,
            lead_in_s=[value / speed for value in result.lead_in_s],
            loss=result.loss,
            clocks=result.clocks,
            metrics=result.figures,
        )
