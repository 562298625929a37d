"""The facts a run consists of, in the order they happened; the journal is a list of them.

Every event carries `at_s`, seconds since the run began (monotonic).  Whatever the screens
or the JSON document show follows from these alone (`workbench.report.report.Report.apply`).
"""

from __future__ import annotations

import msgspec

from ..contract import Case, Work
from .document import (
    AccuracyResult,
    BatchAttempt,
    Ceilings,
    Clocks,
    LargestBatch,
    OperatorShare,
    Overhead,
    SetupTimes,
    Telemetry,
    Tool,
    Trace,
    WarmUp,
)
from .machine import GpuReading, HostReading, Machine, Software
from .model import Advice, Built, ModelFacts
from .reason import Reason, Warning
from .verdict import Crossover, Verdict, WhatIf


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    at_s: float


class RunStarted(Event, frozen=True, kw_only=True, tag=True):
    schema_version: int
    id: str
    started_at: str
    budget_s: float
    tool: Tool


class HardwareDetected(Event, frozen=True, kw_only=True, tag=True):
    machine: Machine
    software: Software


class CeilingsKnown(Event, frozen=True, kw_only=True, tag=True):
    """What this machine can reach, from an earlier run or measured in this one."""

    ceilings: Ceilings


class WarningRaised(Event, frozen=True, kw_only=True, tag=True):
    warning: Warning


class RacePlanned(Event, frozen=True, kw_only=True, tag=True):
    """A row of the table: announced for all rows before the first is measured."""

    scenario: str  # the scenario's id, or the workload's name for a plain `run`
    title: str
    question: str
    textbook: str | None  # None for a plain `run`: no verdict is owed
    objective: str
    apart: list[str]  # precisions that race among themselves and are never picked
    reproduce: str  # the command that measures this row again
    cases: list[Case]
    work: dict[str, Work]  # of one step, by case id
    workload: str = ""
    point: dict[str, int | float | str] = {}  # of a sweep: where this row lies
    of: str | None = None  # the scenario whose crossover this row is a point of
    prices: dict[str, float] = {}  # per hour, by kind of device or device
    what_if: list[WhatIf] = []  # what is recorded of devices elsewhere, without its ratios


class CasesJoined(Event, frozen=True, kw_only=True, tag=True):
    """Candidates that entered a row while it was raced."""

    scenario: str
    cases: list[Case]
    work: dict[str, Work]  # of one step, by case id
    after: int = 0  # rounds


class RaceStarted(Event, frozen=True, kw_only=True, tag=True):
    scenario: str
    share_s: float  # the part of the budget given to this row


class RaceEnded(Event, frozen=True, kw_only=True, tag=True):
    scenario: str
    rounds: int
    ended_by: str  # as in `RaceSummary`


class CrossoverFound(Event, frozen=True, kw_only=True, tag=True):
    """What the search over a scenario's size found, after its verdict."""

    scenario: str
    crossover: Crossover


class WorkerStarted(Event, frozen=True, kw_only=True, tag=True):
    worker: str  # "cpu/torch"
    pid: int
    import_s: float
    versions: dict[str, str]


class WorkerEnded(Event, frozen=True, kw_only=True, tag=True):
    worker: str
    reason: Reason | None  # None: it ended because it was asked to


class CasePreparing(Event, frozen=True, kw_only=True, tag=True):
    case: str  # the case id, here and below


class CasePrepared(Event, frozen=True, kw_only=True, tag=True):
    case: str
    setup: SetupTimes
    accuracy: AccuracyResult | None
    warmup: WarmUp
    iterations_per_sample: int
    memory_peak_bytes: int | None
    call_overhead_s: float | None = None


class BlockMeasured(Event, frozen=True, kw_only=True, tag=True):
    case: str
    scenario: str
    round: int  # candidates measured in the same round are compared as a pair
    samples_s: list[float]
    lead_in_s: list[float]
    loss: float | None
    clocks: Clocks | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict, name="figures")


class BlockDiscarded(Event, frozen=True, kw_only=True, tag=True):
    """A block that spanned a suspend: kept out of every statistic."""

    case: str
    reason: Reason


class CaseProfiled(Event, frozen=True, kw_only=True, tag=True):
    """A pass beside the race, slower for being watched; `reason`: why there is none."""

    case: str
    operators: list[OperatorShare]
    reason: Reason | None = None
    steps: int = 1  # that the times of the operators add up
    fallback_fraction: float = 0.0  # of their time, left to the CPU by another provider


class BatchTried(Event, frozen=True, kw_only=True, tag=True):
    """One step of the search for the largest batch that fits."""

    case: str
    attempt: BatchAttempt


class LargestBatchFound(Event, frozen=True, kw_only=True, tag=True):
    found: LargestBatch


class ModelInspected(Event, frozen=True, kw_only=True, tag=True):
    """What a user's model is, before any form of it is timed."""

    facts: ModelFacts


class ModelBuilding(Event, frozen=True, kw_only=True, tag=True):
    """A form is begun; `ModelBuilt` says what became of it."""

    recipe: str
    search: bool = False  # for the nodes of this form to leave in FP32


class ModelBuilt(Event, frozen=True, kw_only=True, tag=True):
    """One form of the model was made, or could not be."""

    built: Built


class ModelAdvised(Event, frozen=True, kw_only=True, tag=True):
    advice: Advice
    left_out: dict[str, str]  # form or option to the reason why it was not tried


class TraceWritten(Event, frozen=True, kw_only=True, tag=True):
    trace: Trace


class CaseFinished(Event, frozen=True, kw_only=True, tag=True):
    """The end of one candidate in its row; `ok` with a `reason`: it left the race early."""

    case: str
    scenario: str
    status: str  # "ok", "skipped", "failed", "cancelled"
    reason: Reason | None
    telemetry: Telemetry | None = None
    beaten_by: str | None = None  # id of the case that eliminated it by a paired comparison
    ratio: float | None = None  # its time over that case's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs


class MachineRead(Event, frozen=True, kw_only=True, tag=True):
    """One look at the processor, or at the GPUs in use; `gap`: why none came from the GPUs."""

    host: HostReading | None = None
    gpus: list[GpuReading] = []
    gap: Reason | None = None


class VerdictReached(Event, frozen=True, kw_only=True, tag=True):
    verdict: Verdict


class StatusChanged(Event, frozen=True, kw_only=True, tag=True):
    status: str  # "paused" or "running"


class RunFinished(Event, frozen=True, kw_only=True, tag=True):
    status: str
    finished_at: str
    duration_s: float
    exit_code: int
    overhead: Overhead | None = None


AnyEvent = (
    RunStarted
    | HardwareDetected
    | CeilingsKnown
    | WarningRaised
    | RacePlanned
    | CasesJoined
    | RaceStarted
    | RaceEnded
    | CrossoverFound
    | WorkerStarted
    | WorkerEnded
    | CasePreparing
    | CasePrepared
    | BlockMeasured
    | BlockDiscarded
    | CaseProfiled
    | BatchTried
    | LargestBatchFound
    | ModelInspected
    | ModelBuilding
    | ModelBuilt
    | ModelAdvised
    | TraceWritten
    | CaseFinished
    | MachineRead
    | VerdictReached
    | StatusChanged
    | RunFinished
)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(AnyEvent).decode
