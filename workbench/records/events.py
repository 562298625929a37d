"""The events of a run, in the order in which they happened; a journal is a list of them.

Screens and JSON document show only what derives from these events
(`workbench.report.report.Report.apply`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Union

import msgspec

from ..contract import Accuracy, Case, Work
from . import document
from .code import CodeAdvice, CodeFacts
from .encoding import encode as encode
from .machine import GpuReading, HostReading, Machine, Software
from .model import Advice, Built, ModelFacts
from .reason import Reason, Warning
from .verdict import Crossover, Verdict, WhatIf

SHORTEST_S, LONGEST_S = 1e-12, 1e8  # bounds of plausible samples and set-up times
Samples = Annotated[
    Sequence[Annotated[float, msgspec.Meta(ge=SHORTEST_S, le=LONGEST_S)]],
    msgspec.Meta(min_length=1),
]


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Base of all events."""

    at_s: float  # seconds since the run began, on the monotonic clock


class RunStarted(Event, frozen=True, kw_only=True, tag=True):
    """The first event of every run."""

    schema_version: int
    id: str  # id of the run
    started_at: str  # ISO 8601, UTC
    budget_s: float
    tool: document.Tool
    resumes: str | None = None  # id of the cut run that this one resumes
    carried: dict[str, str] = {}  # row carried over from another run to the id of that run


class HardwareDetected(Event, frozen=True, kw_only=True, tag=True):
    """The machine and its software, as detected at the start."""

    machine: Machine
    software: Software


class CeilingsKnown(Event, frozen=True, kw_only=True, tag=True):
    """The ceilings of this machine, stored by an earlier run or measured in this one."""

    ceilings: document.Ceilings


class WarningRaised(Event, frozen=True, kw_only=True, tag=True):
    """Something weakens the results of a row or of the whole run."""

    warning: Warning


class RacePlanned(Event, frozen=True, kw_only=True, tag=True):
    """The plan of one row; all rows are planned before the first is measured."""

    scenario: str  # id of the scenario; for a plain `run` the name of the workload
    title: str
    question: str
    textbook: str | None  # usual advice, "cpu" or "gpu"; None for a row without a verdict
    objective: str
    # Precisions that race among themselves and are never picked.
    reference_only: list[str] = msgspec.field(name="apart")
    reproduce: str  # command that measures this row again
    cases: list[Case]
    work: dict[str, Work]  # case id to the work of one step
    workload: str = ""
    point: dict[str, int | float | str] = {}  # place of this row in a sweep
    of: str | None = None  # id of the scenario whose crossover this row is a point of
    prices: dict[str, float] = {}  # kind of device, or device, to its price per hour
    what_if: list[WhatIf] = []  # recorded results of other devices, without ratios
    limits: dict[str, float] = {}  # limits for a pick, by their names in the scenario's file

    @property
    def owes_verdict(self) -> bool:
        """Whether the row races for an answer; one of a plain run does not."""
        return self.textbook is not None

    @property
    def is_crossover_point(self) -> bool:
        return self.of is not None


class CasesJoined(Event, frozen=True, kw_only=True, tag=True):
    """Candidates joined a race that was under way."""

    scenario: str
    cases: list[Case]
    work: dict[str, Work]  # case id to the work of one step
    after: int = 0  # number of rounds before they joined


class RaceStarted(Event, frozen=True, kw_only=True, tag=True):
    """The first candidate of a row is about to be prepared."""

    scenario: str
    share_s: float  # seconds of the budget that this row may use


class BudgetExtended(Event, frozen=True, kw_only=True, tag=True):
    """A row that is still open at the end of its time gets more, and so does the run."""

    scenario: str
    by_s: float  # negative if the row returns unused time


class RaceEnded(Event, frozen=True, kw_only=True, tag=True):
    """The last round of a row is over."""

    scenario: str
    rounds: int
    ended_by: str  # see `RaceSummary.ended_by`


class CrossoverFound(Event, frozen=True, kw_only=True, tag=True):
    """The search over a scenario's size has ended, after its verdict."""

    scenario: str
    crossover: Crossover


class WorkerStarted(Event, frozen=True, kw_only=True, tag=True):
    """A worker process is ready."""

    worker: str  # name of the worker, "cpu/torch"
    pid: int
    import_s: float  # seconds from its start to the end of its imports
    versions: dict[str, str]  # package to version


class WorkerEnded(Event, frozen=True, kw_only=True, tag=True):
    """A worker process is gone."""

    worker: str
    reason: Reason | None  # None if it was asked to end


class CasePreparing(Event, frozen=True, kw_only=True, tag=True):
    """A worker begins to load a case."""

    case: str  # case id, here and in all events below


class CasePrepared(Event, frozen=True, kw_only=True, tag=True):
    """A case is loaded, checked and warm."""

    case: str
    setup: document.SetupTimes
    accuracy: Accuracy | None
    warmup: document.WarmUp
    iterations_per_sample: int
    memory_peak_bytes: int | None
    call_overhead_s: float | None = None  # seconds per step that the timing loop itself takes


class BlockMeasured(Event, frozen=True, kw_only=True, tag=True, gc=False):
    """One turn of a case: consecutive samples after a lead-in."""

    case: str
    scenario: str
    round: int  # number of the round; blocks of the same round are compared as a pair
    samples_s: Samples  # seconds per step
    lead_in_s: Sequence[float]  # seconds per step before the first sample
    loss: float | None  # training loss after the block
    clocks: document.Clocks | None = None
    # The workload's own metrics, units in the names.
    metrics: dict[str, float] = msgspec.field(default_factory=dict, name="figures")


class BlockDiscarded(Event, frozen=True, kw_only=True, tag=True):
    """A block spanned a pause or a suspend, so its samples do not count."""

    case: str
    reason: Reason


class CaseProfiled(Event, frozen=True, kw_only=True, tag=True):
    """A pass under the backend's profiler, outside the race."""

    case: str
    operators: list[document.OperatorShare]
    reason: Reason | None = None  # cause of an empty `operators`
    steps: int = 1  # number of steps that the operators' times add up
    fallback_fraction: float = 0.0  # share of their time on the CPU instead of the chosen provider


class BatchTried(Event, frozen=True, kw_only=True, tag=True):
    """One attempt in the search for the largest batch that fits."""

    case: str
    attempt: document.BatchAttempt


class LargestBatchFound(Event, frozen=True, kw_only=True, tag=True):
    """The search for the largest batch has ended."""

    found: document.LargestBatch


class ModelInspected(Event, frozen=True, kw_only=True, tag=True):
    """A user's model was read; none of its variants has been timed yet."""

    facts: ModelFacts


class ModelBuilding(Event, frozen=True, kw_only=True, tag=True):
    """Building one variant of the model has begun; `ModelBuilt` follows."""

    recipe: str
    search: bool = False  # True while searching for nodes to leave in FP32


class ModelBuilt(Event, frozen=True, kw_only=True, tag=True):
    """One variant of the model was built, or building it failed."""

    built: Built


class ModelAdvised(Event, frozen=True, kw_only=True, tag=True):
    """The advice on a user's model."""

    advice: Advice
    left_out: dict[str, str]  # recipe or option to the reason why it was not tried


class CodeExamined(Event, frozen=True, kw_only=True, tag=True):
    """The user's code ran once; nothing has been timed yet."""

    facts: CodeFacts


class CodeAdvised(Event, frozen=True, kw_only=True, tag=True):
    """The advice after the race of the user's code."""

    advice: CodeAdvice | None  # None without a pick
    left_out: dict[str, str]  # candidate to the reason why it was not tried
    breaks: list[str] = []
    compile_calls: float | None = None


class TraceWritten(Event, frozen=True, kw_only=True, tag=True):
    """The file of --trace is complete."""

    trace: document.Trace


class CaseFinished(Event, frozen=True, kw_only=True, tag=True):
    """The end of one candidate in its row; "ok" with a `reason` means it left the race early."""

    case: str
    scenario: str
    status: str  # "ok", "skipped", "failed", "cancelled"
    reason: Reason | None
    telemetry: document.Telemetry | None = None
    beaten_by: str | None = None  # id of the case that eliminated it by a paired comparison
    ratio: float | None = None  # its time over that case's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs


class MachineRead(Event, frozen=True, kw_only=True, tag=True):
    """One reading of the processor, or of the GPUs in use."""

    host: HostReading | None = None
    gpus: list[GpuReading] = []
    gap: Reason | None = None  # cause of missing GPU readings


class VerdictReached(Event, frozen=True, kw_only=True, tag=True):
    """The verdict of a row."""

    verdict: Verdict


class StatusChanged(Event, frozen=True, kw_only=True, tag=True):
    """The run was paused or goes on."""

    status: str  # "paused" or "running"


class RunFinished(Event, frozen=True, kw_only=True, tag=True):
    """The last event of every run that was not killed."""

    status: str  # "done", "failed" or "cancelled"
    finished_at: str  # ISO 8601, UTC
    duration_s: float
    exit_code: int
    overhead: document.Overhead | None = None


if TYPE_CHECKING:
    AnyEvent = Event
else:
    AnyEvent = Union[tuple(Event.__subclasses__())]  # noqa: UP007 - a tuple of types

decode = msgspec.json.Decoder(AnyEvent).decode
