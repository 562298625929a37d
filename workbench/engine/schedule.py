"""How long the turns of a race are, and whether they fit: blocks, rounds and the row's share."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..contract import is_cuda
from ..planning.plan import RowPlan
from ..stats.samples import MIN_PAIRS
from ..worker.block import LEAD_IN_CAP_S, LEAD_IN_SAMPLES
from .preparation import PreparedCase

BLOCK_S = 0.2  # a turn, where the budget allows: long against the 3-6 % slow start of a resume
SHARED_BLOCK_S = 0.1  # where candidates share a worker, which need not be thawed for a turn
SHORTEST_BLOCK_S = 0.03
ROUNDS_WANTED = 8
TAIL_SAMPLES = 100  # per block, so that a 99th percentile is more than the largest
LONGEST_TAIL_BLOCK_S = 1.0
GPU_SETTLE_S = 0.25  # of a lead-in at most, for clocks to rise again after an idle turn
OVERDRAFT = 0.05  # of what the run has left, for the rounds that an interval needs


def settle_s(device: str) -> float:
    """What a lead-in may take so that the clocks of `device` are up again."""
    return GPU_SETTLE_S if is_cuda(device) else 0.0


def longest_lead_in_s(device: str, sample_s: float) -> float:
    """Seconds that a turn may take before its timed samples; long steps have no lead-in."""
    if sample_s > LEAD_IN_CAP_S:
        return 0.0
    return max(LEAD_IN_SAMPLES * sample_s, settle_s(device))


class RoundBudget:
    """Of one row, which has until `until_s` on the run's clock `now`, and the run until `end_s`."""

    def __init__(
        self, plan: RowPlan, now: Callable[[], float], *, until_s: float, end_s: float
    ) -> None:
        self._now, self._until_s, self._end_s = now, until_s, end_s
        self._tails = plan.scenario.objective == "latency_p99"
        self._longest_s = BLOCK_S if plan.source is None else SHARED_BLOCK_S

    def block_s(self, field: Collection[PreparedCase]) -> float:
        """Length of a turn: so that the wanted number of rounds fits, within its bounds."""
        fitting = (self._until_s - self._now()) / (ROUNDS_WANTED * len(field))
        return min(self._longest_s, max(SHORTEST_BLOCK_S, fitting))

    def least_samples(self, runner: PreparedCase) -> int:
        if not self._tails:
            return 1
        return max(1, min(TAIL_SAMPLES, int(LONGEST_TAIL_BLOCK_S / max(runner.sample_s, 1e-9))))

    def turn_s(self, runner: PreparedCase, field: Collection[PreparedCase]) -> float:
        """Predicted seconds of one turn of a race of `field`, lead-in included."""
        least = self.least_samples(runner) * runner.sample_s
        lead_in = runner.lead_in_s
        if lead_in is None:
            lead_in = longest_lead_in_s(runner.case.device, runner.sample_s)
        return max(self.block_s(field), least, runner.sample_s) + lead_in

    def fits(self, field: Collection[PreparedCase], *, after: int, rounds: int = 1) -> bool:
        """Whether so many more rounds fit `after` those that there were."""
        cost_s = rounds * sum(self.turn_s(runner, field) for runner in field)
        return cost_s <= self.left_s(field, after=after)

    def left_s(self, field: Collection[PreparedCase], *, after: int) -> float:
        """Seconds of the row's share that are left to `field` `after` so many rounds; a little
        more where several race and have too few rounds for an interval."""
        now = self._now()
        open_yet = len(field) > 1 and after < MIN_PAIRS
        return max(self._until_s - now, OVERDRAFT * (self._end_s - now) if open_yet else 0.0)

    def outlasts_run(self, runner: PreparedCase, field: Collection[PreparedCase]) -> bool:
        return self._now() + self.turn_s(runner, field) > self._end_s
