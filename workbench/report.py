"""The state of a run: events folded one by one, read by every front end.

`Report.apply` is the only way in, `Report.document` the way out to JSON.  Nothing here knows
whether the events are live, replayed from a journal or recorded on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from . import events as ev
from .advisor.objective import block_value
from .contract import Case
from .document import (
    SCHEMA_VERSION,
    AccuracyResult,
    BlockShape,
    Document,
    Machine,
    Measurement,
    Reason,
    Run,
    SetupTimes,
    Software,
    Throughput,
    Verdict,
    WarmUp,
    Warning,
)
from .measure import statistics as stats

FEW_SAMPLES = 10
ENDED = ("ok", "skipped", "failed", "cancelled")


@dataclass
class Block:
    round: int
    samples_s: list[float]
    lead_in_s: list[float]


@dataclass
class Contender:
    """What is known of one case so far."""

    case: Case
    scenario: str
    objective: str
    item: str
    items_per_step: float
    flops_per_step: float | None
    state: str = "waiting"  # then preparing, prepared, measuring, dropped; ends as in the JSON
    reason: Reason | None = None
    setup: SetupTimes = field(default_factory=SetupTimes)
    accuracy: AccuracyResult | None = None
    warmup: WarmUp = field(default_factory=WarmUp)
    iterations_per_sample: int = 1
    memory_peak_bytes: int | None = None
    blocks: list[Block] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    dropped: ev.CaseDropped | None = None

    @property
    def samples_s(self) -> list[float]:
        return [sample for block in self.blocks for sample in block.samples_s]

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def simulated(self) -> bool:
        return self.case.device.startswith("fake:")

    def rounds(self) -> dict[int, float]:
        """One value per round under the row's objective: what the race compares."""
        return {
            block.round: block_value(self.objective, block.samples_s, self.setup)
            for block in self.blocks
        }

    @property
    def rate(self) -> float | None:
        """Items per second at the median step; None before the first sample."""
        samples = self.samples_s
        return self.items_per_step / stats.median(samples) if samples else None


@dataclass
class Row:
    """One scenario, or one workload of a plain `run`."""

    plan: ev.RacePlanned
    share_s: float | None = None
    started: bool = False
    verdict: Verdict | None = None
    contenders: list[Contender] = field(default_factory=list)

    def is_apart(self, contender: Contender) -> bool:
        """Whether it races among its like only, FP64 say, and is never picked."""
        return contender.case.precision in self.plan.apart

    @property
    def finished(self) -> bool:
        return self.verdict is not None or (
            self.started and all(contender.ended for contender in self.contenders)
        )


@dataclass
class Report:
    """Everything a run has said so far."""

    started: ev.RunStarted | None = None
    finished: ev.RunFinished | None = None
    status: str = "incomplete"
    machine: Machine | None = None
    software: Software | None = None
    warnings: list[Warning] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    contenders: dict[str, Contender] = field(default_factory=dict)  # by case id, in plan order
    workers: dict[str, ev.WorkerStarted] = field(default_factory=dict)
    current_row: str | None = None
    last_row: str | None = None  # the one raced last, also after the end
    current_case: str | None = None
    last_at_s: float = 0.0
    event_count: int = 0

    @classmethod
    def of(cls, events: Iterable[ev.AnyEvent]) -> Report:
        """The report of a run that says nothing more; without an end it is `incomplete`."""
        report = cls()
        for event in events:
            report.apply(event)
        if report.finished is None:
            report.status = "incomplete"
        return report

    def apply(self, event: ev.AnyEvent) -> None:  # noqa: C901 - one flat arm per event
        """Take in one event; events of unknown cases are an error of the sender."""
        self.last_at_s = max(self.last_at_s, event.at_s)
        self.event_count += 1
        match event:
            case ev.RunStarted():
                self.started, self.status = event, "running"
            case ev.HardwareDetected():
                self.machine, self.software = event.machine, event.software
            case ev.WarningRaised():
                self.warnings.append(event.warning)
            case ev.RacePlanned():
                self._plan(event)
            case ev.RaceStarted():
                row = self.rows[event.scenario]
                row.started, row.share_s = True, event.share_s
                self.current_row = self.last_row = event.scenario
            case ev.WorkerStarted():
                self.workers[event.worker] = event
            case ev.WorkerEnded():
                self.workers.pop(event.worker, None)
            case ev.CasePreparing():
                self.contenders[event.case].state = "preparing"
                self.current_case = event.case
            case ev.CasePrepared():
                self._prepared(event)
            case ev.BlockMeasured():
                contender = self.contenders[event.case]
                contender.blocks.append(Block(event.round, event.samples_s, event.lead_in_s))
                contender.state = "measuring"
                if event.loss is not None:
                    contender.loss.append(event.loss)
                self.current_case = event.case
            case ev.BlockDiscarded():
                pass  # the journal keeps it; no statistic may
            case ev.CaseDropped():
                contender = self.contenders[event.case]
                contender.state, contender.dropped = "dropped", event
            case ev.CaseFinished():
                contender = self.contenders[event.case]
                contender.state, contender.reason = event.status, event.reason
            case ev.VerdictReached():
                self.rows[event.verdict.scenario].verdict = event.verdict
            case ev.StatusChanged():
                self.status = event.status
            case ev.RunFinished():
                self.finished, self.status = event, event.status
                self.current_row = self.current_case = None

    def _plan(self, event: ev.RacePlanned) -> None:
        row = Row(event)
        for case in event.cases:
            contender = Contender(
                case=case,
                scenario=event.scenario,
                objective=event.objective,
                item=event.item,
                items_per_step=event.items_per_step[case.id],
                flops_per_step=event.flops_per_step[case.id],
            )
            row.contenders.append(contender)
            self.contenders[case.id] = contender
        self.rows[event.scenario] = row

    def _prepared(self, event: ev.CasePrepared) -> None:
        contender = self.contenders[event.case]
        contender.state = "prepared"
        contender.setup = event.setup
        contender.accuracy = event.accuracy
        contender.warmup = event.warmup
        # Prepared again after its worker died: samples grouped before still have no tail.
        known = contender.iterations_per_sample if contender.blocks else 1
        contender.iterations_per_sample = max(known, event.iterations_per_sample)
        contender.memory_peak_bytes = event.memory_peak_bytes
        self.current_case = event.case

    @property
    def measurements(self) -> list[Measurement]:
        return [measurement(contender) for contender in self.contenders.values()]

    @property
    def verdicts(self) -> list[Verdict]:
        return [row.verdict for row in self.rows.values() if row.verdict is not None]

    def document(self) -> Document:
        """The JSON document of what happened so far; valid at every point of a run."""
        started = self.started
        if started is None:
            raise ValueError("the run has not begun: there is nothing to report")
        finished = self.finished
        return Document(
            schema_version=SCHEMA_VERSION,
            tool=started.tool,
            run=Run(
                id=started.id,
                started_at=started.started_at,
                finished_at=finished.finished_at if finished else None,
                duration_s=finished.duration_s if finished else None,
                status=self.status,
                budget_s=started.budget_s,
            ),
            machine=self.machine,
            software=self.software,
            measurements=self.measurements,
            verdicts=self.verdicts,
            warnings=list(self.warnings),
        )


def measurement(contender: Contender) -> Measurement:
    """The contender's raw samples and everything that derives from them."""
    samples = contender.samples_s
    n = len(samples)
    center = stats.median(samples) if n else None
    return Measurement(
        id=contender.case.id,
        case=contender.case,
        status=_status(contender),
        reason=contender.reason,
        scenario=contender.scenario,
        samples_s=samples,
        blocks=[BlockShape(block.round, len(block.samples_s)) for block in contender.blocks],
        iterations_per_sample=contender.iterations_per_sample,
        lead_in_s=[value for block in contender.blocks for value in block.lead_in_s],
        warmup=contender.warmup,
        n=n,
        median_s=center,
        ci95_s=stats.median_interval(samples),
        p10_s=stats.quantile(samples, 0.10) if n else None,
        p90_s=stats.quantile(samples, 0.90) if n else None,
        p99_s=_p99(contender, samples),
        min_s=min(samples) if n else None,
        throughput=_throughput(contender, center),
        flops_per_s=contender.flops_per_step / center
        if center and contender.flops_per_step
        else None,
        peak_fraction=None,
        setup=contender.setup,
        accuracy=contender.accuracy,
        memory_peak_bytes=contender.memory_peak_bytes,
        energy_j=None,
        telemetry=None,
        simulated=contender.simulated,
        loss=list(contender.loss),
        warnings=trust_warnings(contender),
    )


def _status(contender: Contender) -> str:
    if contender.ended:
        return contender.state
    return "cancelled"  # the run ended, or still goes on, before this case did


def _p99(contender: Contender, samples: list[float]) -> float | None:
    """Tails exist only where every sample is one step, and there are enough of them."""
    if contender.iterations_per_sample != 1 or len(samples) < stats.MIN_SAMPLES_FOR_P99:
        return None
    return stats.quantile(samples, 0.99)


def _throughput(contender: Contender, center: float | None) -> Throughput | None:
    if not center:
        return None
    return Throughput(contender.items_per_step / center, f"{contender.item}/s")


def trust_warnings(contender: Contender) -> list[Warning]:
    """What weakens this one measurement."""
    samples = contender.samples_s
    if not samples:
        return []
    case_id = contender.case.id
    found: list[Warning] = []
    if len(samples) < FEW_SAMPLES:
        found.append(
            Warning(
                code="few_samples",
                message=f"only {len(samples)} samples",
                remedy="give it more time: a larger --budget, or fewer scenarios",
                subject=case_id,
            )
        )
    width = stats.relative_half_width(stats.median(samples), stats.median_interval(samples))
    if width is not None and width > 0.05:
        found.append(
            Warning(
                code="unstable",
                message=f"the median is known to within {width:.0%} only",
                remedy="stop other work on this machine, or give it a larger --budget",
                subject=case_id,
            )
        )
    return found
