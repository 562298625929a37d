"""The JSON document, schema version 1: one struct per object, field by field.

Units are in the names, SI, numbers as numbers.  A value that is not known is `null`; what
explains it stands in `unavailable{field: reason}` or in `reason`.  NaN and infinity never
get this far: they are refused where they arise (see `workbench.worker.worker`).
"""

from __future__ import annotations

import msgspec

from ..contract import Case, OutputAccuracy, Work
from .machine import Machine, Software
from .model import ModelReport
from .reason import Reason, Warning
from .verdict import Verdict

SCHEMA_VERSION = 1


# ----------------------------------------------------------- measurements


class Throughput(msgspec.Struct, frozen=True):
    value: float
    unit: str  # "samples/s"


class SetupTimes(msgspec.Struct, frozen=True):
    """One-off costs of a case in seconds; each None where it does not arise."""

    import_s: float | None = None  # starting the worker's interpreter and importing the backend
    build_s: float | None = None
    transfer_s: float | None = None  # host to device
    transfer_out_s: float | None = None  # device to host
    compile_s: float | None = None


class WarmUp(msgspec.Struct, frozen=True):
    n: int = 0  # steps
    seconds: float = 0.0
    first_s: float | None = None  # the very first step
    steady: bool = False  # consecutive windows agreed
    step_s: float | None = None  # at its end


class AccuracyResult(msgspec.Struct, frozen=True):
    metric: str
    value: float
    reference: str
    limit: float
    passed: bool
    outputs: list[OutputAccuracy] = []  # of a user's model, each


class Clocks(msgspec.Struct, frozen=True):
    """Median seconds per step by each clock, where the device has one of its own.

    `issue_s` is what the host took to queue a step: close to `device_s`, launches limit the rate.
    None where the step itself waits, for the device or for its data.
    """

    counted: str  # "host" or "device": the clock of the samples
    host_s: float  # until all work was finished
    device_s: float
    issue_s: float | None


class BlockShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn: `n` samples of `samples_s`; those of the same `round` are compared as a pair."""

    round: int
    n: int
    energy_j: float | None = None  # of one step on the CPU; left out where it cannot be read


class Against(msgspec.Struct, frozen=True):
    """A candidate beside the fastest of its row: its time over the other's, from common rounds."""

    id: str
    ratio: float
    ci95: tuple[float, float]
    word: str  # "same", "slower", "ambiguous" ("faster" cannot be), within 5 %


class Roofline(msgspec.Struct, frozen=True):
    """Where a result stands under the machine's measured ceilings (Williams et al. 2009)."""

    intensity_flops_per_byte: float
    attainable_flops_per_s: float  # the lower of the two roofs at this intensity
    fraction: float  # of the attainable rate
    limited_by: str  # "compute", "memory" or "cache"


class Telemetry(msgspec.Struct, frozen=True):
    """How the device was while a case was measured on it, from the readings within its blocks."""

    readings: int
    clock_before_mhz: float | None  # of a GPU's SMs, of a CPU's cores
    clock_mhz: float | None  # median
    clock_after_mhz: float | None
    power_w: float | None  # mean of those that were of this case alone
    temperature_c: float | None  # highest
    slowed: dict[str, float]  # on a GPU: share of the race's time on it, by cause
    counted_power_w: float | None = None  # by the energy counter, over stretches of this case alone


class OperatorShare(msgspec.Struct, frozen=True):
    """One kind of operation in a profiled pass, without what it called itself."""

    name: str
    calls: int
    self_s: float
    share: float  # of all operators' time, on a GPU of all kernels'


class Measurement(msgspec.Struct):
    """One case, its raw samples and what derives from them."""

    id: str
    case: Case
    status: str  # "ok", "skipped", "failed", "cancelled"
    reason: Reason | None
    scenario: str | None
    work: Work  # of one step
    samples_s: list[float]  # seconds per iteration, in the order of measuring
    blocks: list[BlockShape]  # how the samples divide into turns
    iterations_per_sample: int
    lead_in_s: list[float]
    warmup: WarmUp
    n: int
    median_s: float | None
    ci95_s: tuple[float, float] | None  # of the median, distribution-free; None below 6 samples
    p10_s: float | None
    p90_s: float | None
    p99_s: float | None  # None below 100 samples
    min_s: float | None
    throughput: Throughput | None
    flops_per_s: float | None
    peak_fraction: float | None
    setup: SetupTimes
    accuracy: AccuracyResult | None
    memory_peak_bytes: int | None
    energy_j: float | None  # of one step; None unless the GPU's counter ran over this case alone
    telemetry: Telemetry | None  # None where no reading fell into its blocks
    simulated: bool
    loss: list[float]  # one value per block, where something is trained
    warnings: list[Warning]
    capability: Throughput | None = None  # at the 10th percentile, which repeats between runs
    outliers: int = 0  # samples with a modified z-score above 3.5, kept in every statistic
    clocks: Clocks | None = None  # None on a CPU: the host's clock is all there is
    call_overhead_s: float | None = None  # of each step's time, the timing loop's own part
    against: Against | None = None  # None for the fastest of its row
    roofline: Roofline | None = None
    operators: list[OperatorShare] = []  # with --trace, longest first
    unprofiled: Reason | None = None  # with --trace: why there are none
    # Metrics of this workload alone: medians over its blocks, units in the names.
    metrics: dict[str, float] = msgspec.field(default_factory=dict, name="figures")


# --------------------------------------------------------------- ceilings


class DeviceCeilings(msgspec.Struct, frozen=True):
    """What one device reached in its best tenth of samples; `unavailable` explains what is not
    there."""

    device: str
    name: str | None
    threads: int | None  # CPU threads that were used; None on a GPU
    peak_ops_per_s: dict[str, float]  # by precision, from matrix products
    memory_bytes_per_s: float | None  # the best of copy and triad, out of cache
    memory: dict[str, float]  # bytes per second by kernel: "copy", "triad"
    cache_bytes: int | None  # last-level cache: work below it stands under the next figure
    cache_bytes_per_s: float | None
    transfer_bytes_per_s: dict[str, float] = {}  # "to_device/pinned", ...; GPUs only
    launch_s: float | None = None  # of one operation, queued back to back
    step_latency_s: float | None = None  # of one operation and the wait for it
    unavailable: dict[str, str] = {}


class Ceilings(msgspec.Struct, frozen=True):
    """The measured ceilings of a machine, kept under its fingerprint."""

    fingerprint: str
    measured_at: str  # ISO 8601, UTC
    complete: bool  # False: the short form that a run measures where nothing is kept
    devices: list[DeviceCeilings]


# ---------------------------------------------------------- largest batch


class BatchAttempt(msgspec.Struct, frozen=True):
    """Two steps at one batch size in a worker of their own; `reason`: why they did not succeed."""

    batch: int
    step_s: float | None  # of the second step
    memory_peak_bytes: int | None
    reason: Reason | None


class LargestBatch(msgspec.Struct):
    case: str  # the candidate at the batch where the search began
    batch: int | None  # the largest seen to fit; None if none did
    ended_by: str  # "memory", "budget", "range", or the code of another reason
    attempts: list[BatchAttempt]


# ----------------------------------------------------------------- curves

Value = int | float | str


class CurvePoint(msgspec.Struct, frozen=True):
    at: dict[str, Value]  # parameter, or "batch", to its value
    id: str
    median_s: float | None
    ci95_s: tuple[float, float] | None
    rate: float | None  # None where nothing valid was measured; the measurement says why
    memory_peak_bytes: int | None
    admissible: bool = True  # False: by its error or a limit the scenario may not pick it there


class Curve(msgspec.Struct, frozen=True):
    """One candidate over all points of a sweep."""

    candidate: str = msgspec.field(name="contender")
    unit: str  # of `rate`
    points: list[CurvePoint]
    knee: Value | None  # over batch: the smallest with 90 % of the curve's best rate; None: rising


class LeadChange(msgspec.Struct, frozen=True):
    """Between two points another candidate becomes the fastest beyond doubt."""

    parameter: str
    between: tuple[Value, Value]
    from_candidate: str
    to_candidate: str


class Sweep(msgspec.Struct, frozen=True):
    """A workload measured at several sizes or batches; `scenario`: whose crossover it shows."""

    workload: str
    axes: dict[str, list[Value]]
    curves: list[Curve]
    best: str | None  # the case with the highest rate anywhere, of those that are admissible
    lead_changes: list[LeadChange]  # over a single parameter only
    scenario: str | None = None


# --------------------------------------------------------------- document


class Tool(msgspec.Struct, frozen=True):
    name: str
    version: str
    command: str


class Overhead(msgspec.Struct, frozen=True):
    """What the tool itself cost: seconds of processor time of the engine and its screen."""

    own_cpu_s: float  # over the whole run
    measured_s: float  # wall time in which blocks were measured
    own_cpu_measuring_s: float  # of `own_cpu_s`, spent while a block was being measured
    share: float  # of all usable cores' time then: the most it can have cost a candidate


class Run(msgspec.Struct, frozen=True):
    id: str
    started_at: str  # ISO 8601, UTC
    finished_at: str | None
    duration_s: float | None
    status: str  # "running", "paused", "done", "failed", "cancelled", "incomplete"
    budget_s: float | None
    overhead: Overhead | None = None


class Trace(msgspec.Struct, frozen=True):
    """What --trace wrote, and the line that records the same run with NVIDIA Nsight Systems."""

    file: str
    nsys: str | None  # None without a GPU


class Document(msgspec.Struct):
    schema_version: int
    tool: Tool
    run: Run
    machine: Machine | None
    software: Software | None
    measurements: list[Measurement]
    verdicts: list[Verdict]
    warnings: list[Warning]
    ceilings: Ceilings | None = None  # None: not measured on this machine yet
    sweeps: list[Sweep] = []
    trace: Trace | None = None
    largest_batches: list[LargestBatch] = []
    model: ModelReport | None = None  # of `advise --model`
