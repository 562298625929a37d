"""What is known of one case while a run goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
OUT_OF_TIME = "budget"  # reason code of a candidate that the end of the budget stopped
ENDED = ("ok", "skipped", "failed", "cancelled")


@dataclass
class Candidate:
    """What is known of one case so far."""

    case: Case
    scenario: str
    objective: str
    work: Work
    price_per_hour: float | None = None  # of all its devices; None: none was given
    state: str = "waiting"  # then preparing, prepared, measuring; ends as in the JSON
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
    joined_after: int | None = None  # rounds; None: in the race from its start
    telemetry: Telemetry | None = None
    operators: list[OperatorShare] = field(default_factory=list)
    profiled_steps: int = 1  # that the operators' times add up
    fallback_fraction: float = 0.0  # of their time, left to the CPU by another provider
    unprofiled: Reason | None = None

    @property
    def samples_s(self) -> list[float]:
        return [sample for block in self.blocks for sample in block.samples_s]

    @property
    def loss(self) -> list[float]:
        """One value per block, where something is trained."""
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
        return stats.blocked_interval([block.samples_s for block in self.blocks])

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def eliminated(self) -> bool:
        """Measured, and out of the race before its end for another reason than the budget."""
        return self.state == "ok" and self.reason is not None and self.reason.code != OUT_OF_TIME

    @property
    def simulated(self) -> bool:
        return kind_of(self.case.device).simulated

    @property
    def fixed_parts_s(self) -> tuple[float, ...]:
        return fixed_parts_s(self.setup, self.warmup.first_s, self.samples_s)

    @property
    def fixed_s(self) -> float:
        """Seconds that come once, however many steps are made."""
        return math.fsum(self.fixed_parts_s)

    @property
    def p99_s(self) -> float | None:
        """The 99th percentile of all steps; None below a hundred, or if a sample is several."""
        samples = self.samples_s
        if self.iterations_per_sample != 1 or len(samples) < stats.MIN_SAMPLES_FOR_P99:
            return None
        return stats.quantile(samples, 0.99)

    @property
    def value(self) -> float | None:
        """What the row's objective counts, of all that was measured; rounds are for ratios."""
        if self.objective == "latency_p99":
            return self.p99_s
        values = list(self.rounds().values())
        return stats.median(values) if values else None

    def rounds(self) -> Rounds:
        """One value per round under the row's objective: what the race compares."""
        from_start = self.objective == "time_to_result"
        fixed_s = self.fixed_s if from_start else 0.0  # it sorts every sample
        values = {
            block.round: block_value(
                self.objective,
                block.samples_s,
                fixed_s=fixed_s,
                memory_bytes=self.memory_peak_bytes,
                energy_j=block.metrics.get(ENERGY),
                price_per_hour=self.price_per_hour,
            )
            for block in self.blocks
        }
        found = Rounds({number: each for number, each in values.items() if each is not None})
        if from_start and found:
            found.spread = START_UP_SPREAD * fixed_s / stats.median(list(found.values()))
            found.origin = catalog.process_of(self.case)
        return found

    def step_rounds(self) -> dict[int, float]:
        """The median step of each round in seconds, whatever the row counts."""
        return {block.round: stats.median(block.samples_s) for block in self.blocks}

    @property
    def rate(self) -> float | None:
        """Items per second at the median step; None before the first sample."""
        samples = self.samples_s
        return self.work.items / stats.median(samples) if samples else None


CUT_SHORT = "cancelled"


def price_of(device: str, prices: Mapping[str, float], gpus: int = 1) -> float | None:
    """The price of `device` per hour: its own, else that of its kind; None if there is neither.

    Of several `gpus` that share the work, as many times that.
    """
    price = prices.get(device, prices.get(kind_of(device).column))
    return price if price is None or device == "cpu" else price * gpus
