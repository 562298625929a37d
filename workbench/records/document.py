"""The JSON document, schema version 1: one struct per object.

Units are SI and part of the field names.  An unknown value is `null`, with its explanation in
`unavailable{field: reason}` or in `reason`.  NaN and infinity never occur: the worker refuses them
(see `workbench.worker.worker`).
"""

from collections.abc import Sequence

import msgspec

from ..contract import Accuracy, Case, ParameterValue, Work
from .code import CodeReport
from .machine import Machine, Software
from .model import ModelReport
from .reason import Reason, Warning
from .verdict import Verdict

SCHEMA_VERSION = 1


class Throughput(msgspec.Struct, frozen=True):
    """A rate with its unit."""

    value: float
    unit: str  # "samples/s"


class SetupTimes(msgspec.Struct, frozen=True):
    """One-time costs of a case in seconds; None if a cost does not arise."""

    import_s: float | None = None  # start of the worker's interpreter and import of the backend
    # Loading of modules and kernels at first use: once per process, but listed for all its cases.
    loading_s: float | None = None
    build_s: float | None = None  # construction of model and data
    transfer_s: float | None = None  # copies from host to device
    transfer_out_s: float | None = None  # copies from device to host
    compile_s: float | None = None  # compilation before the first step


class WarmUp(msgspec.Struct, frozen=True):
    """The steps before the first sample."""

    n: int = 0  # number of steps
    seconds: float = 0.0  # duration of all of them
    first_s: float | None = None  # seconds of the first step
    steady: bool = False  # whether consecutive windows agreed
    step_s: float | None = None  # seconds per step at the end


class Clocks(msgspec.Struct, frozen=True):
    """Median seconds per step by the host's clock and by the device's own."""

    counted: str  # clock of the samples: "host" or "device"
    host_s: float  # seconds until all work was finished, by the host's clock
    device_s: float  # seconds by the device's clock
    # Seconds for the host to queue a step; if near `device_s`, launches limit the rate.  None if
    # the step itself waits for the device or for data.
    issue_s: float | None


class BlockShape(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One turn of a case: its next `n` samples in `samples_s`."""

    round: int  # number of the round; blocks of the same round are compared as a pair
    n: int  # number of samples
    energy_j: float | None = None  # joules per step on the CPU; absent if it cannot be read


class Against(msgspec.Struct, frozen=True):
    """A candidate compared with the fastest of its row, in their common rounds."""

    id: str  # case id of the fastest
    ratio: float  # time of the candidate over that of the fastest
    ci95: tuple[float, float]  # 95 % interval of `ratio`
    word: str  # "same", "slower" or "ambiguous", with a tolerance of 5 %


class Roofline(msgspec.Struct, frozen=True):
    """A result under the machine's measured ceilings (Williams et al. 2009)."""

    intensity_flops_per_byte: float
    attainable_flops_per_s: float  # the lower of the two roofs at this intensity, for burst peaks
    fraction: float  # reached share of the attainable rate, 0 to 1
    limited_by: str  # "compute", "memory" or "cache"


class Telemetry(msgspec.Struct, frozen=True):
    """State of the device during a case's blocks; clocks are those of GPU SMs or CPU cores."""

    readings: int  # number of readings within its blocks
    clock_before_mhz: float | None  # last reading before the first block
    clock_mhz: float | None  # median within its blocks
    clock_after_mhz: float | None  # first reading after the last block
    power_w: float | None  # mean of power readings over times when only this case ran
    temperature_c: float | None  # maximum
    slowed: dict[str, float]  # GPU only: cause to share of the race's time that it slowed, 0 to 1
    counted_power_w: float | None = None  # the same as `power_w`, by the energy counter


class OperatorShare(msgspec.Struct, frozen=True):
    """One kind of operation in a profiled pass, without the operations it called."""

    name: str
    calls: int
    self_s: float  # seconds in all calls together
    share: float  # part of the time of all operators (on a GPU: kernels), 0 to 1


class Measurement(msgspec.Struct):
    """One case: its raw samples and the values derived from them."""

    id: str  # case id
    case: Case
    status: str  # "ok", "skipped", "failed", "cancelled"
    reason: Reason | None  # cause of a missing result or an early end
    scenario: str | None  # id of its row
    work: Work  # amount of work in one step
    samples_s: Sequence[float]  # seconds per step, in the order of measurement
    blocks: list[BlockShape]  # division of the samples into turns
    iterations_per_sample: int  # number of steps that a sample averages
    lead_in_s: Sequence[float]  # seconds per step before the samples of each block
    warmup: WarmUp
    n: int  # number of samples
    median_s: float | None
    ci95_s: tuple[float, float] | None  # median's interval, distribution-free; None below 6 samples
    p10_s: float | None
    p90_s: float | None
    p99_s: float | None  # None below 100 samples, or if a sample has several steps
    min_s: float | None
    throughput: Throughput | None  # rate at the median
    flops_per_s: float | None
    peak_fraction: float | None  # share of the burst peak of its precision, 0 to 1
    setup: SetupTimes
    accuracy: Accuracy | None
    memory_peak_bytes: int | None
    energy_j: float | None  # joules per step; None unless a GPU's counter covers this case alone
    telemetry: Telemetry | None  # None if no reading fell into its blocks
    simulated: bool
    loss: list[float]  # one value per block; empty unless the workload trains
    warnings: list[Warning]
    capability: Throughput | None = None  # rate at the 10th percentile, which repeats across runs
    outliers: int = 0  # samples with a modified z-score above 3.5, kept in every statistic
    clocks: Clocks | None = None  # None on a CPU, which has only the host's clock
    call_overhead_s: float | None = None  # seconds per step that the timing loop itself takes
    against: Against | None = None  # None for the fastest of its row
    roofline: Roofline | None = None
    operators: list[OperatorShare] = []  # with --trace, longest first
    unprofiled: Reason | None = None  # with --trace: cause of an empty `operators`
    # The workload's own metrics, and page faults: medians over its blocks, units in the names.
    metrics: dict[str, float] = msgspec.field(default_factory=dict, name="figures")


class DeviceCeilings(msgspec.Struct, frozen=True):
    """Rates of one device in its fastest 10 % of samples, in short bursts; `unavailable` explains
    missing ones."""

    device: str
    name: str | None
    threads: int | None  # CPU threads in use; None on a GPU
    peak_ops_per_s: dict[str, float]  # precision to rate of matrix products
    memory_bytes_per_s: float | None  # faster of copy and triad, beyond the caches
    memory: dict[str, float]  # kernel, "copy" or "triad", to bytes per second
    cache_bytes: int | None  # size of the last-level cache, on a GPU of L2
    cache_bytes_per_s: float | None  # bandwidth of that cache, for work that fits into it
    transfer_bytes_per_s: dict[str, float] = {}  # direction, "to_device/pinned", ...; GPUs only
    launch_s: float | None = None  # seconds per operation, queued back to back
    step_latency_s: float | None = None  # seconds of one operation and the wait for it
    unavailable: dict[str, str] = {}
    # Precision to rate at the end of 5 s without a pause; GPUs only, by `workbench ceilings`.
    sustained_ops_per_s: dict[str, float] = {}


class Ceilings(msgspec.Struct, frozen=True):
    """The measured ceilings of a machine, stored under its fingerprint."""

    fingerprint: str
    measured_at: str  # ISO 8601, UTC
    complete: bool  # False: measured briefly by a run that found none stored, or disturbed
    devices: list[DeviceCeilings]
    since: str | None = None  # time of the oldest value, if some were measured earlier


class BatchAttempt(msgspec.Struct, frozen=True):
    """Two steps at one batch size, in a worker of their own."""

    batch: int
    step_s: float | None  # seconds of the second step
    memory_peak_bytes: int | None
    reason: Reason | None  # cause of a failure


class LargestBatch(msgspec.Struct, frozen=True):
    """The search for the largest batch that fits into memory."""

    case: str  # id of the case at the batch where the search began
    batch: int | None  # largest batch that fitted; None if none did
    ended_by: str  # "memory", "budget", "range", or the code of another reason
    attempts: list[BatchAttempt]


class CurvePoint(msgspec.Struct, frozen=True):
    """One candidate at one point of a sweep."""

    at: dict[str, ParameterValue]  # parameter, or "batch", to its value
    id: str  # case id
    median_s: float | None
    ci95_s: tuple[float, float] | None  # median's interval
    rate: float | None  # None if nothing valid was measured; its measurement has the reason
    memory_peak_bytes: int | None
    admissible: bool = True  # False if its error or a limit of the scenario excludes it


class Curve(msgspec.Struct, frozen=True):
    """One candidate over all points of a sweep."""

    candidate: str = msgspec.field(name="contender")
    unit: str  # unit of the rates
    points: list[CurvePoint]
    knee: ParameterValue | None  # smallest batch with 90 % of the best rate; None if it still rises


class LeadChange(msgspec.Struct, frozen=True):
    """Two neighbouring points between which another candidate provably becomes the fastest."""

    parameter: str
    between: tuple[ParameterValue, ParameterValue]
    from_candidate: str  # label of the candidate that leads at the first point
    to_candidate: str  # label of the candidate that leads at the second


class Sweep(msgspec.Struct, frozen=True):
    """A workload measured at several sizes or batches."""

    workload: str
    axes: dict[str, list[ParameterValue]]  # parameter, or "batch", to its values
    curves: list[Curve]
    best: str | None  # id of the admissible case with the highest rate
    lead_changes: list[LeadChange]  # over a single parameter only
    scenario: str | None = None  # id of the scenario whose crossover was searched


class Tool(msgspec.Struct, frozen=True):
    """The program that made the run."""

    name: str
    version: str
    command: str  # command line


class Headed(msgspec.Struct, frozen=True):
    """The first members of every document."""

    schema_version: int
    tool: Tool


class Spent(msgspec.Struct, frozen=True):
    """Wall seconds of a row by activity; together they are its whole time."""

    starting_s: float  # workers starting, with the imports of their libraries
    preparing_s: float  # candidates built, checked and warmed up
    measured_s: float  # blocks, and start-up if it is part of the result
    idle_s: float  # everything else: rounds judged, cases released, profiles


# The parts of a run's wall time; `Overhead` has a field for each.
PHASES = ("starting", "preparing", "measured", "idle", "closing")


class Overhead(msgspec.Struct, frozen=True):
    """Processor time of engine and front end, and wall seconds that add up to `duration_s`."""

    own_cpu_s: float  # CPU seconds in the whole run
    measured_s: float  # as in a row
    own_cpu_measuring_s: float  # CPU seconds while a block was measured
    share: float  # their share of the usable cores' time: the most that candidates can have lost
    starting_s: float | None = None  # as in a row, plus detecting the machine and planning
    preparing_s: float | None = None
    idle_s: float | None = None
    closing_s: float | None = None  # after the last row
    rows: dict[str, Spent] = {}  # by the id of the row, also of ceilings


class Run(msgspec.Struct, frozen=True):
    """When a run took place and how it ended."""

    id: str
    started_at: str  # ISO 8601, UTC
    finished_at: str | None
    duration_s: float | None  # from the start of the process, before `started_at`
    status: str  # "running", "paused", "done", "failed", "cancelled", "incomplete"
    budget_s: float | None
    overhead: Overhead | None = None
    resumes: str | None = None  # id of the cut run that this one resumes
    extended_s: float = 0.0  # seconds beyond the budget, for open rows and to compile
    carried: dict[str, str] = {}  # row carried over from another run to the id of that run


class Trace(msgspec.Struct, frozen=True):
    """The file that --trace wrote."""

    file: str
    nsys: str | None  # command that records the run with NVIDIA Nsight Systems; None without a GPU


class Pick(msgspec.Struct, frozen=True, omit_defaults=True):
    """The case that a verdict picks; keys that do not apply are left out."""

    id: str  # case id
    device: str
    backend: str
    precision: str
    quantization: str | None = None  # INT8 form: "dynamic", "static", "static-u8s8-channel"
    threads: int | None = None  # CPU threads
    batch: int | None = None
    mode: str | None = None  # a special way of using the backend: "nhwc", "compile"


class Summary(msgspec.Struct, frozen=True):
    """The answer of one verdict in brief."""

    scenario: str
    device: str  # the verdict's choice: "cpu", "gpu", "either", "unknown"
    pick: Pick | None
    # The value of the runner-up, or of the best candidate of the other device if both raced, over
    # that of the pick, under the objective.
    lead: float | None
    lead_ci95: tuple[float, float] | None  # 95 % interval of `lead`
    confidence: str  # see `Verdict`
    basis: str | None = None  # see `Verdict`; None in a document of an earlier version


class Unanswered(msgspec.Struct, frozen=True):
    """A row that was planned for a verdict and has none, as after a kill."""

    scenario: str
    title: str
    question: str
    textbook: str | None
    objective: str
    # Precisions that race among themselves and are never picked.
    reference_only: list[str] = msgspec.field(name="apart")
    reproduce: str  # command that measures this row again


class Document(msgspec.Struct, kw_only=True):
    """The whole JSON document."""

    schema_version: int
    summary: list[Summary] = []  # one entry for each verdict
    tool: Tool
    run: Run
    machine: Machine | None
    software: Software | None
    measurements: list[Measurement]
    verdicts: list[Verdict]
    warnings: list[Warning]
    ceilings: Ceilings | None = None  # None if never measured on this machine
    sweeps: list[Sweep] = []
    trace: Trace | None = None
    largest_batches: list[LargestBatch] = []
    model: ModelReport | None = None  # only with `advise --model`
    code: CodeReport | None = None  # only with --torch, --function or --command
    unanswered: list[Unanswered] = []
