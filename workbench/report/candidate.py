"""A row of a run and its candidates, with their states and measurements."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import catalog
from ..contract import FAULTING_FRACTION, Accuracy, Case, Work, kind_of
from ..records import events as ev
from ..records.document import Measurement, OperatorShare, SetupTimes, Telemetry, WarmUp
from ..records.reason import BUDGET, Reason
from ..records.verdict import Verdict
from ..stats import samples as stats
from ..stats.objectives import HOUR_S, MEMORY_SPREAD, START_UP_SPREAD
from ..stats.ratios import Rounds, ranking
from .names import candidate_name, place_text

FAULTING = 0.1  # share of the time that may go into faulting in memory
ENERGY = "energy_j"  # the metric of a block with the joules of one step on the CPU
BY_FIRST_BLOCK = ("far_slower", "slower_precision")  # codes of eliminations without an interval
CANCELLED = "cancelled"  # status of an interrupted run and of its candidates, and end of a race
WITHOUT_RESULT = ("skipped", "failed", CANCELLED)
ENDED = ("ok", *WITHOUT_RESULT)
BARRED = ("error_limit", "limit", "not_counted")  # reasons against a pick, however fast it is


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
    accuracy: Accuracy | None = None
    warmup: WarmUp = field(default_factory=WarmUp)
    iterations_per_sample: int = 1
    call_overhead_s: float | None = None
    memory_peak_bytes: int | None = None
    blocks: list[ev.BlockMeasured] = field(default_factory=list)
    beaten_by: str | None = None  # id of the case that eliminated it by a paired comparison
    ratio: float | None = None  # its time over that case's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs
    joined_after: int | None = None  # rounds before it joined; None: in the race from the start
    telemetry: Telemetry | None = None
    operators: list[OperatorShare] = field(default_factory=list)
    profiled_steps: int = 1  # number of steps that the operators' times add up
    fallback_fraction: float = 0.0  # share of their time on the CPU instead of the chosen provider
    unprofiled: Reason | None = None  # cause of missing operators

    # Caches, since a block never changes: the median of each, and values by `_once`.
    _medians: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    _kept: dict[str, tuple[object, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def apply(self, event: ev.AnyEvent) -> None:
        """Take in an event about this candidate."""
        match event:
            case ev.BlockMeasured():
                self.state = "measuring"
                self.blocks.append(event)
            case ev.BatchTried():
                self.state = "measuring"
            case ev.CasePreparing():
                self.state = "preparing"
            case ev.CasePrepared():
                self.state, self.setup = "prepared", event.setup
                self.accuracy, self.warmup = event.accuracy, event.warmup
                # A case that is prepared again, because its worker died, may have earlier samples
                # that are means over several iterations, which hide tails.
                known = self.iterations_per_sample if self.blocks else 1
                self.iterations_per_sample = max(known, event.iterations_per_sample)
                self.memory_peak_bytes = event.memory_peak_bytes
                self.call_overhead_s = event.call_overhead_s
            case ev.CaseProfiled():
                self.operators, self.unprofiled = event.operators, event.reason
                self.profiled_steps = event.steps
                self.fallback_fraction = event.fallback_fraction
            case ev.CaseFinished():
                self.state, self.reason = event.status, event.reason
                self.telemetry = event.telemetry
                self.beaten_by, self.ratio = event.beaten_by, event.ratio
                self.ratio_bounds = event.ratio_bounds

    def _once(self, name: str, make: Callable[[], Any], *depends_on: object) -> Any:
        """The cached result of `make`, made again after a new block or if `depends_on` changes."""
        stamp = len(self.blocks), id(self.blocks[-1]) if self.blocks else 0, *depends_on
        if name not in self._kept or self._kept[name][0] != stamp:
            self._kept[name] = stamp, make()
        return self._kept[name][1]

    @property
    def name(self) -> str:
        """`cpu torch bf16 t2`."""
        return candidate_name(self.case)

    @property
    def samples_s(self) -> Sequence[float]:
        return stats.joined([block.samples_s for block in self.blocks])

    @property
    def ordered_s(self) -> Sequence[float]:
        ordered: Sequence[float] = self._once("ordered", lambda: stats.ascending(self.samples_s))
        return ordered

    @property
    def median_s(self) -> float:
        return stats.median(self.ordered_s)

    @property
    def min_s(self) -> float:
        return self.ordered_s[0]

    @property
    def medians_s(self) -> list[float]:
        """The median step of each block in seconds."""
        known = self._medians[: len(self.blocks)]
        self._medians = known + [stats.median(b.samples_s) for b in self.blocks[len(known) :]]
        return self._medians

    @property
    def metrics(self) -> dict[str, float]:
        """The workload's metrics as medians over the blocks; page faults only where they matter."""
        names = dict.fromkeys(name for block in self.blocks for name in block.metrics)
        values = {n: [b.metrics[n] for b in self.blocks if n in b.metrics] for n in names}
        medians = {name: stats.median(found) for name, found in values.items()}
        if medians.get(FAULTING_FRACTION, 1.0) <= FAULTING:
            del medians[FAULTING_FRACTION]
        return medians

    @property
    def loss(self) -> list[float]:
        """The training loss after each block; empty unless the workload trains."""
        return [block.loss for block in self.blocks if block.loss is not None]

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the median sample in seconds; None below six samples."""
        return stats.blocked_interval([self.ordered_s], self.medians_s)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def status(self) -> str:
        """Its final state; "cancelled" if the run ended first."""
        return self.state if self.ended else CANCELLED

    @property
    def was_missed(self) -> bool:
        """Whether it might have been picked, had the budget left time for it."""
        return not self.blocks and self.reason is not None and self.reason.code == BUDGET

    @property
    def is_valid(self) -> bool:
        """Whether it was measured and did not fail afterwards."""
        return bool(self.blocks) and self.state != "failed"

    @property
    def eliminated(self) -> bool:
        """Whether it was measured and left the race early, except for lack of time."""
        return self.state == "ok" and self.reason is not None and not self.reason.is_late

    @property
    def simulated(self) -> bool:
        return kind_of(self.case.device).simulated

    @property
    def fixed_parts_s(self) -> tuple[float, ...]:
        """The one-time costs in seconds: import, loading, build, transfer, compilation, and the
        excess of the first call over a steady one.

        Each is measured once, and the first import of a library may read a cold disk.
        """
        setup, first_s, beyond = self.setup, self.warmup.first_s, 0.0
        if first_s is not None and self.blocks:
            beyond = max(0.0, first_s - self.median_s)
        loading = setup.import_s, setup.loading_s
        parts = (*loading, setup.build_s, setup.transfer_s, setup.compile_s, beyond)
        return tuple(part or 0.0 for part in parts)

    @property
    def fixed_s(self) -> float:
        return math.fsum(self.fixed_parts_s)

    @property
    def step_share(self) -> float:
        """The share of a step in the value: below 1 where start-up counts."""
        if self.objective != "time_to_result" or not self.blocks:
            return 1.0
        return self.median_s / (self.fixed_s + self.median_s)

    @property
    def whole_telemetry(self) -> Telemetry | None:
        """Its telemetry; None for work on several GPUs, of which only the first is read."""
        is_whole = self.case.device_kind == "cpu" or self.work.ranks == 1
        return self.telemetry if is_whole else None

    @property
    def p99_s(self) -> float | None:
        """The 99th percentile; None below 100 samples, or if they are means of several steps."""
        samples = self.ordered_s
        if self.iterations_per_sample != 1 or len(samples) < stats.MIN_SAMPLES_FOR_P99:
            return None
        return stats.quantile(samples, 0.99)

    @property
    def value(self) -> float | None:
        """The value of all samples under the row's objective, in its unit; ratios use `rounds`."""
        if self.objective == "latency_p99":
            return self.p99_s
        values = list(self.rounds().values())
        return stats.median(values) if values else None

    def rounds(self) -> Rounds:
        """One value per round under the row's objective; the race compares these."""
        parts = self.setup, self.warmup, self.memory_peak_bytes, self.price_per_hour
        joules = [b.metrics.get(ENERGY) for b in self.blocks if self.objective == "energy"]
        rounds: Rounds = self._once("rounds", self._counted_rounds, *parts, joules)
        return rounds

    def _counted_rounds(self) -> Rounds:
        steps, price, fixed_s = self.step_rounds(), self.price_per_hour, 0.0
        found: dict[int, float | None] = dict(steps)
        match self.objective:
            case "memory":
                on_host = self.case.device_kind == "cpu"  # a GPU's memory is not comparable
                found = dict.fromkeys(steps, self.memory_peak_bytes if on_host else None)
            case "energy":
                found = {block.round: block.metrics.get(ENERGY) for block in self.blocks}
            case "cost":
                found = {number: price and s * price / HOUR_S for number, s in steps.items()}
            case "latency_p99":
                found = {b.round: stats.quantile(b.samples_s, 0.99) for b in self.blocks}
            case "time_to_result":
                fixed_s = self.fixed_s
                found = {number: fixed_s + s for number, s in steps.items()}
        # A document may hold zero or negative prices, sizes and energies.
        rounds = Rounds({number: value for number, value in found.items() if value and value > 0})
        if self.objective == "memory":  # one number for all rounds
            rounds.spread = MEMORY_SPREAD
        if self.objective == "latency_p99":
            rounds.blocks = {block.round: block.samples_s for block in self.blocks}
        if fixed_s > 0 and rounds:
            part = START_UP_SPREAD / stats.median([*rounds.values()])
            import_s = self.setup.import_s or 0.0
            loading_s = import_s + (self.setup.loading_s or 0.0)
            rounds.spread, rounds.shared = part * fixed_s, part * loading_s
            # Candidates of one process share a single import.
            rounds.origin = catalog.process_of(self.case), import_s
        return rounds

    def step_rounds(self) -> dict[int, float]:
        """Median seconds per step in each round, for every objective."""
        return dict(zip((block.round for block in self.blocks), self.medians_s, strict=True))


# Fields that a candidate and its measurement have in common.
SHARED = {*Candidate.__dataclass_fields__} & {*Measurement.__struct_fields__}
SHARED -= {"blocks", "scenario"}


def price_of(device: str, prices: Mapping[str, float], gpus: int) -> float | None:
    """The hourly price of `device`, or of its kind, for all `gpus` on a GPU; None if not given."""
    price = prices.get(device, prices.get(kind_of(device).column))
    return price if price is None or device == "cpu" else price * gpus


@dataclass
class Row:
    """One row of a run and its candidates: a scenario, or a workload of a plain `run`."""

    plan: ev.RacePlanned
    share_s: float | None = None  # seconds of the budget that it may use
    began_at_s: float | None = None  # seconds on the run's clock; None before its race
    rounds: int = 0  # number of completed rounds, set at the end
    ended_by: str | None = None  # see `RaceSummary.ended_by`; None before the end
    verdict: Verdict | None = None
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def title(self) -> str:
        """`Matrix product`, with its place in a sweep: `Matrix product, n=512`."""
        return ", ".join(filter(None, [self.plan.title, place_text(self.plan.point)]))

    @property
    def started(self) -> bool:
        return self.began_at_s is not None

    def picks(self, candidate: Candidate) -> bool:
        return self.verdict is not None and self.verdict.pick == candidate.case.id

    @property
    def picked(self) -> Candidate | None:
        return next(filter(self.picks, self.candidates), None)

    @property
    def sweep(self) -> str | None:
        """The sweep that this row is a point of: a workload, or a scenario with a crossover."""
        return (self.plan.of or self.plan.workload) if self.plan.point else None

    def is_reference_only(self, candidate: Candidate) -> bool:
        """Whether the candidate is reference-only, such as FP64, and never picked."""
        return candidate.case.precision in self.plan.reference_only

    def is_barred(self, candidate: Candidate) -> bool:
        """Whether the candidate may not be picked, however fast it is."""
        code = candidate.reason.code if candidate.reason else None
        return self.is_reference_only(candidate) or code in BARRED

    @property
    def round(self) -> int:
        """The number of the current or last round; 0 before the first."""
        return max((c.blocks[-1].round + 1 for c in self.candidates if c.blocks), default=0)

    @property
    def is_cut_short(self) -> bool:
        """Whether the run ended before the race did."""
        unfinished = self.ended_by in (None, CANCELLED)
        return unfinished and any(c.state == CANCELLED for c in self.candidates)

    @property
    def finished(self) -> bool:
        return self.verdict is not None or (
            self.started and all(candidate.ended for candidate in self.candidates)
        )


def eliminations(candidates: Iterable[Candidate]) -> dict[str, str]:
    """Which candidate eliminated which, by the id of the eliminated one."""
    return {c.case.id: c.beaten_by for c in candidates if c.beaten_by is not None}


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates from best to worst; those without a value are missing."""
    known = {candidate.case.id: candidate for candidate in candidates}
    rounds = {case: c.rounds() for case, c in known.items()}
    order = ranking(rounds, eliminations(known.values()))
    return [known[case] for case in order]


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The measured candidates from best to worst, then the others as they were planned."""
    measured = ranked(candidates)
    return measured + [c for c in candidates if c not in measured]
