"""The state of one case in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import catalog
from ..contract import Case, Work, kind_of
from ..records.document import (
    AccuracyResult,
    BlockShape,
    OperatorShare,
    SetupTimes,
    Telemetry,
    WarmUp,
)
from ..records.events import BlockMeasured
from ..records.reason import Reason
from ..stats import samples as stats
from ..stats.objectives import START_UP_SPREAD, block_value, fixed_parts_s
from ..stats.ratios import Rounds

ENERGY = "energy_j"  # the metric of a block with the joules of one step on the CPU
BY_FIRST_BLOCK = ("far_slower", "slower_precision")  # codes of eliminations without an interval
CANCELLED = "cancelled"  # status of a candidate, and end of a race, when the run was interrupted
OUT_OF_TIME = "budget"  # reason code of a candidate that the end of the budget stopped
ENDED = ("ok", "skipped", "failed", "cancelled")


@dataclass
class Candidate:
    """One case of a row with everything measured so far."""

    case: Case
    scenario: str
    objective: str
    work: Work
    price_per_hour: float | None = None  # price of all its devices; None if none was given
    # "waiting", "preparing", "prepared", "measuring", then one of ENDED.
    state: str = "waiting"
    reason: Reason | None = None
    setup: SetupTimes = field(default_factory=SetupTimes)
    accuracy: AccuracyResult | None = None
    warmup: WarmUp = field(default_factory=WarmUp)
    iterations_per_sample: int = 1
    call_overhead_s: float | None = None
    memory_peak_bytes: int | None = None
    blocks: list[BlockMeasured] = field(default_factory=list)
    beaten_by: str | None = None  # id of the case that eliminated it by a paired comparison
    ratio: float | None = None  # its time over that case's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs
    joined_after: int | None = None  # rounds before it joined; None: in the race from the start
    telemetry: Telemetry | None = None
    operators: list[OperatorShare] = field(default_factory=list)
    profiled_steps: int = 1  # number of steps that the operators' times add up
    fallback_fraction: float = 0.0  # share of their time on the CPU instead of the chosen provider
    unprofiled: Reason | None = None  # cause of missing operators

    # Kept, since a block never changes: the median of each, and what was derived at a stamp.
    _medians: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    _ordered: tuple[object, Sequence[float]] = field(
        default=(None, ()), init=False, repr=False, compare=False
    )
    _rounds: tuple[object, Rounds] = field(
        default=(None, Rounds()), init=False, repr=False, compare=False
    )

    @property
    def _stamp(self) -> tuple[int, int]:
        """Another one as soon as there is another block."""
        return len(self.blocks), id(self.blocks[-1]) if self.blocks else 0

    @property
    def samples_s(self) -> Sequence[float]:
        return stats.joined([block.samples_s for block in self.blocks])

    @property
    def ordered_s(self) -> Sequence[float]:
        """All samples, from the shortest to the longest."""
        stamp = self._stamp
        if self._ordered[0] != stamp:
            self._ordered = stamp, stats.ascending(self.samples_s)
        return self._ordered[1]

    @property
    def medians_s(self) -> list[float]:
        """The median step of each block."""
        known = self._medians[: len(self.blocks)]
        self._medians = known + [stats.median(b.samples_s) for b in self.blocks[len(known) :]]
        return self._medians

    @property
    def loss(self) -> list[float]:
        """The training loss after each block; empty unless the workload trains."""
        return [block.loss for block in self.blocks if block.loss is not None]

    @property
    def block_shapes(self) -> list[BlockShape]:
        return [
            BlockShape(block.round, len(block.samples_s), block.metrics.get(ENERGY))
            for block in self.blocks
        ]

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the median sample; None below six samples."""
        return stats.blocked_interval([self.ordered_s], self.medians_s)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def eliminated(self) -> bool:
        """Whether it was measured and left the race early, for another reason than the budget."""
        return self.state == "ok" and self.reason is not None and self.reason.code != OUT_OF_TIME

    @property
    def simulated(self) -> bool:
        return kind_of(self.case.device).simulated

    @property
    def fixed_parts_s(self) -> tuple[float, ...]:
        return fixed_parts_s(self.setup, self.warmup.first_s, self.ordered_s)

    @property
    def fixed_s(self) -> float:
        """One-off seconds, whatever the number of steps."""
        return math.fsum(self.fixed_parts_s)

    @property
    def p99_s(self) -> float | None:
        """The 99th percentile of all steps; None below 100 samples, or if one holds several."""
        samples = self.ordered_s
        if self.iterations_per_sample != 1 or len(samples) < stats.MIN_SAMPLES_FOR_P99:
            return None
        return stats.quantile(samples, 0.99)

    @property
    def value(self) -> float | None:
        """The value of all samples under the row's objective; ratios use `rounds` instead."""
        if self.objective == "latency_p99":
            return self.p99_s
        values = list(self.rounds().values())
        return stats.median(values) if values else None

    def rounds(self) -> Rounds:
        """One value per round under the row's objective; the race compares these."""
        stamp = self._stamp, self.setup, self.warmup, self.memory_peak_bytes, self.price_per_hour
        if self._rounds[0] != stamp or self.objective == "energy":
            self._rounds = stamp, self._counted_rounds()
        return self._rounds[1]

    def _counted_rounds(self) -> Rounds:
        if self.objective in ("throughput", "latency"):
            return Rounds(self.step_rounds())
        from_start = self.objective == "time_to_result"
        fixed_s = self.fixed_s if from_start else 0.0  # costly: it sorts all samples
        values = {
            block.round: block_value(
                self.objective,
                block.samples_s,
                median_s=median_s,
                fixed_s=fixed_s,
                memory_bytes=self.memory_peak_bytes,
                energy_j=block.metrics.get(ENERGY),
                price_per_hour=self.price_per_hour,
            )
            for block, median_s in zip(self.blocks, self.medians_s, strict=True)
        }
        rounds = Rounds({number: value for number, value in values.items() if value is not None})
        if self.objective == "latency_p99":
            rounds.blocks = {block.round: block.samples_s for block in self.blocks}
        if from_start and rounds:
            rounds.spread = START_UP_SPREAD * fixed_s / stats.median(list(rounds.values()))
            rounds.origin = catalog.process_of(self.case)
        return rounds

    def step_rounds(self) -> dict[int, float]:
        """Median seconds per step in each round, whatever the objective."""
        return {
            block.round: median_s
            for block, median_s in zip(self.blocks, self.medians_s, strict=True)
        }

    @property
    def rate(self) -> float | None:
        """Items per second at the median step; None before the first sample."""
        samples = self.ordered_s
        return self.work.items / stats.median(samples) if samples else None


def price_of(device: str, prices: Mapping[str, float], gpus: int = 1) -> float | None:
    """The price of `device` per hour, or of its kind; None if neither is given.

    On a GPU the price is that of all `gpus` that share the work.
    """
    price = prices.get(device, prices.get(kind_of(device).column))
    return price if price is None or device == "cpu" else price * gpus
