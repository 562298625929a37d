"""The contract of the three things one can add: a workload, a backend, a kind of device.

A file in `workloads/` binds a `Workload` to `WORKLOAD`; a file in `workloads/_backends/` binds a
`Backend` to `BACKEND`.  The engine reads their descriptions, which import no backend; a worker
calls `prepare` and then times `Task.step`.  Standard library only: a worker may run under an
interpreter that has nothing but its backend.
"""

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from .errors import WorkloadError as WorkloadError
from .precisions import (
    LEAST_CAPABILITY as LEAST_CAPABILITY,
    PRECISION_BYTES as PRECISION_BYTES,
    PRECISIONS as PRECISIONS,
    REDUCED as REDUCED,
)

LARGEST, SMALLEST = 1e30, 1e-60  # sizes that a journal holds, besides 0
COMPILED = ("compile", "reduce-overhead", "max-autotune")  # words of modes by torch.compile
MOST_BATCH, MOST_THREADS = 1_000_000, 4096  # of a case
PRICES = 1e-6, 1e9  # per hour: outside these bounds it is a typo, and products may overflow
DEFAULT_CACHE_BYTES = 64 << 20  # used where the size of the last-level cache is unknown

ParameterValue = int | float | str


@dataclass(frozen=True)
class DeviceKind:
    """Everything that follows from the kind of a device alone."""

    name: str  # a device is called by this name, with `:NUMBER` appended where `numbered`
    column: str  # "cpu" or "gpu": the side of the comparison it is on
    numbered: bool
    on_host: bool  # computes on the CPU, in the host's memory, timed by the host's clock
    simulated: bool = False  # requested as NAME:NUMBER@SPEED; its results are never recorded
    nsight: bool = False  # can be traced by NVIDIA Nsight Systems and CUPTI
    settle_s: float = 0.0  # longest lead-in, seconds, for clocks to rise after an idle turn
    hidden_by: str = ""  # environment variable that hides these devices when set to ""
    word: str = "GPU"  # for a verdict that chooses it


DEVICE_KINDS = {
    kind.name: kind
    for kind in (
        DeviceKind("cpu", "cpu", numbered=False, on_host=True),
        # AMD's GPUs too: a torch for ROCm gives them this name.
        DeviceKind(
            "cuda",
            "gpu",
            numbered=True,
            on_host=False,
            nsight=True,
            settle_s=0.25,
            hidden_by="CUDA_VISIBLE_DEVICES",
        ),
        DeviceKind("xpu", "gpu", numbered=True, on_host=False, settle_s=0.25),  # Intel's GPUs
        DeviceKind("mps", "gpu", numbered=True, on_host=False, settle_s=0.25),  # Apple's GPU
        DeviceKind("tpu", "gpu", numbered=True, on_host=False, word="TPU"),  # Google's, by JAX
        # For tests: poses as a GPU of a given speed.
        DeviceKind("fake", "gpu", numbered=True, on_host=True, simulated=True),
    )
}
# In a run that another version recorded: shown, never measured.
OTHER_KIND = DeviceKind("", "gpu", numbered=False, on_host=True)
COLUMNS = tuple(dict.fromkeys(kind.column for kind in DEVICE_KINDS.values()))


def kind_of(device: str) -> DeviceKind:
    """The kind of a device such as `cpu`, `cuda:0` or `fake:0`."""
    return DEVICE_KINDS.get(device.partition(":")[0], OTHER_KIND)


class Backend:
    """A library that computes, as the engine and the workers see it.

    The name of its file is what the library is imported as, and what cases call it.  The engine
    reads the attributes; only workers call the methods, which may import the library.  A method
    that takes a `device` is called for GPUs only, never for the CPU or a simulated device.
    """

    name: ClassVar[str]
    install: ClassVar[str]  # how to get the library, where it is missing
    packages: ClassVar[tuple[str, ...]] = ()  # that contain it, if their names differ from it
    thread_variables: ClassVar[tuple[str, ...]] = ()  # besides those of OpenMP and BLAS libraries
    # The library reads its number of threads once, so each number needs a worker of its own.
    threads_fixed_at_import: ClassVar[bool] = False
    # Workers keep the user's environment: threads, precision and GPUs stay as the user set them.
    own_environment: ClassVar[bool] = False
    # Its cases are planned where it is installed or named by --backend, and not missed elsewhere.
    optional: ClassVar[bool] = False
    # The range of tested versions: the first that the extra in pyproject.toml allows, and the one
    # that constraints.txt pins, to its second number.
    oldest: ClassVar[str] = ""
    newest: ClassVar[str] = ""
    platforms: ClassVar[tuple[str, ...]] = ("CUDA",)  # of the GPUs that it uses: see `Gpu.platform`

    def version(self) -> str:
        """The version of the library, which this imports."""
        return str(importlib.import_module(self.name).__version__)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that the library can use, each with fields of `records.machine.Gpu`."""
        return []

    def start(self, device: str) -> None:
        """Do what otherwise only the first case would pay for, such as opening the driver."""

    def load_rest(self, device: str) -> None:
        """Load what only some jobs need, such as cuDNN: it counts in no start-up and in no step."""

    def reset_memory_peak(self, device: str) -> None:
        """Start a new peak, towards which memory that is allocated now does not count."""

    def memory_peak_bytes(self, device: str) -> int | None:
        """Most memory allocated since the last reset; None where this is unknown."""
        return None

    def release(self, device: str) -> None:
        """Return memory that the library keeps for later, on the device or for copies to it."""

    def named_range(self, device: str, name: str) -> AbstractContextManager[Any]:
        """A range called `name` on the timeline of a system-wide profiler."""
        return nullcontext()


@dataclass(frozen=True)
class Case:
    """One way to do a job; its `id` names it everywhere: events, JSON, screens, logs."""

    workload: str
    device: str  # "cpu", "cuda:0", "fake:0"
    backend: str
    precision: str  # "" where the code of the case decides it
    quantization: str | None = None  # "dynamic" or "static", only with precision int8
    threads: int | None = None  # CPU threads; None on a GPU
    batch: int | None = None
    params: Mapping[str, ParameterValue] = field(default_factory=dict, hash=False)
    mode: str | None = None  # a special way of using the backend: "nhwc", "compile"
    tuning: Mapping[str, ParameterValue] = field(default_factory=dict, hash=False)  # see Parameter

    @property
    def id(self) -> str:
        """Readable and stable, such as `matmul[n=4096]/cpu/torch/bf16/t16`."""
        inner = {} if self.batch is None else {"batch": self.batch}
        inner.update(self.params)  # type: ignore[arg-type]
        return f"{self.workload}[{_listed(inner)}]/{self.label}"

    @property
    def label(self) -> str:
        """The candidate without its workload: `cpu/torch/bf16/t16`."""
        precision = f"{self.precision}-{self.quantization}" if self.quantization else self.precision
        parts = [self.device, self.backend, *filter(None, [precision])]
        if self.mode is not None:
            parts.append(self.mode)
        if self.tuning:
            parts.append(_listed(self.tuning))
        if self.threads is not None:
            parts.append(f"t{self.threads}")
        return "/".join(parts)

    @property
    def device_kind(self) -> str:
        """`cpu` or `gpu`, as in a `Variant`."""
        return kind_of(self.device).column

    @property
    def element_bytes(self) -> int:
        return PRECISION_BYTES[self.precision]

    @property
    def mode_words(self) -> list[str]:
        return (self.mode or "").split("+")

    @property
    def compile_mode(self) -> str | None:
        """The mode for torch.compile; None where nothing is compiled."""
        named = [word for word in self.mode_words if word in COMPILED]
        return {"compile": "default"}.get(named[-1], named[-1]) if named else None

    @property
    def is_compiled(self) -> bool:
        """Whether preparing it takes a compiler's time."""
        return self.compile_mode is not None or "tensorrt" in self.mode_words

    def but_precision(self) -> "Case":
        """A key that is equal for cases which differ in their precision only."""
        return replace(self, precision="", quantization=None)


def _listed(values: Mapping[str, ParameterValue]) -> str:
    """`n=64,m=8`; a path is cut to its last part, since `/` divides an id."""
    return ",".join(f"{name}={str(value).rpartition('/')[2]}" for name, value in values.items())


@dataclass(frozen=True)
class Parameter:
    """One knob of a workload, declared once for `--set`, `--help`, the TUI and the JSON.

    Most parameters describe the job: several values make several rows.  A `tuning` parameter
    describes how the same job is done: its values race against one another in one row.
    """

    name: str
    default: ParameterValue
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    tuning: bool = False

    def parse(self, text: str) -> ParameterValue:
        """The value that `text` spells, in the default's type; ValueError says what is allowed."""
        kind = type(self.default)
        try:
            value = kind(text)
        except ValueError:
            noun = {int: "a whole number", float: "a number"}.get(kind, "text")
            raise ValueError(f"{self.name} takes {noun}, not {text!r}") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        if isinstance(value, (int, float)):
            if not self._within(value):
                raise ValueError(f"{self.name} must be {self.range_text()}, not {text}")
            if value and not SMALLEST <= abs(value) <= LARGEST:
                size = f"between {SMALLEST:g} and {LARGEST:g} in size"
                raise ValueError(f"{self.name} must be 0 or {size}, not {text}")
        return value

    def _within(self, value: float) -> bool:
        low = float("-inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        return low <= value <= high  # False for NaN, as it should be

    def range_text(self) -> str:
        """The allowed numbers: `between 1 and 64`."""
        if self.minimum is None and self.maximum is None:
            return "any number"
        if self.maximum is None:
            return f"{self.minimum:g} or more"
        if self.minimum is None:
            return f"{self.maximum:g} or less"
        return f"between {self.minimum:g} and {self.maximum:g}"


@dataclass(frozen=True)
class Variant:
    """A way of doing the job that a workload offers on one kind of device."""

    device_kind: str  # "cpu" or "gpu"
    backend: str
    precision: str
    quantization: str | None = None
    mode: str | None = None  # see `Case`
    threads: int | None = None  # most threads that it can use; None: any number


@dataclass(frozen=True)
class Host:
    """The machine, as far as a workload needs it to propose values for its tuning parameters."""

    cores: int  # usable ones
    gpus: int


@dataclass(frozen=True)
class Work:
    """The cost of one step: for throughput, for FLOP/s, and to refuse cases that do not fit."""

    flops: float | None  # floating-point (or integer multiply-add) operations, 2 per MAC
    bytes_moved: float | None  # least traffic to and from memory
    items: float  # items per step; throughput is items per second
    item: str  # unit of `items`: "samples", "products", "runs"
    memory_bytes: float  # estimated peak; a case whose peak does not fit is not prepared
    transfers: str = ""  # when operands cross to a GPU: "step" (each), "setup" (once), "": mixed
    ranks: int = 1  # processes that share the step, each on a GPU of its own or on its threads
    # For a GPU: main memory that preparing and checking needs.  (msgspec would leave out of a
    # document the plain default of a field that the file lacks.)
    host_bytes: float = field(default_factory=float)


@dataclass(frozen=True)
class OutputAccuracy:
    """The accuracy of one output of a model over all checked samples, against the original's."""

    name: str
    relative_error: float  # Euclidean norm of the difference over that of the original's output
    cosine: float | None  # cosine of the angle between the two; None where either is all zeros
    top1_agreement: float | None  # share of rows whose largest entry stays; None without classes
    worst_sample: int
    worst_error: float  # relative error of that sample


@dataclass(frozen=True)
class Accuracy:
    """The result of a check; `passed` is False where the result is plainly wrong.

    `metric` is "relative_error" or "disagreement" (less is better), "test_accuracy" (more is), or
    "none" where there is nothing to compare with, which `reference` explains.
    `passed` is judged by `limit`, which suits the precision.  The advisor also applies the
    scenario's own error limit.
    """

    metric: str
    value: float
    reference: str
    limit: float
    passed: bool
    outputs: tuple[OutputAccuracy, ...] = ()  # one entry for each output of a model
    error_bound: float | None = None  # upper bound of `value` on unseen inputs; None: no promise
    held_out: bool = False  # the inputs were kept apart until everything else was decided

    @classmethod
    def within(cls, error: float, limit: float, reference: str) -> "Accuracy":
        """A relative error, which passes up to `limit`; NaN never does."""
        return cls("relative_error", error, reference, limit, error <= limit)

    @classmethod
    def uncompared(cls, why: str) -> "Accuracy":
        return cls("none", 0.0, why, 0.0, True)


@dataclass(frozen=True)
class Operator:
    """One kind of operation in a profile."""

    name: str
    calls: int
    self_s: float  # seconds, without the operations that it called


@dataclass(frozen=True)
class Profile:
    """A short profiled pass.

    `events` are complete events of the Trace Event Format (Google, "Trace Event Format", 2016):
    `name`, `ph`, `ts` and `dur` in microseconds, `pid`, `tid`.
    """

    events: list[dict[str, Any]]
    operators: list[Operator]  # the longest, longest first
    total_s: float  # seconds of all operators, including those not listed
    device: str  # where that time was spent: "cpu" or "gpu"
    fallback_s: float = 0.0  # part of `total_s` in nodes that another provider left to the CPU


@dataclass(kw_only=True)
class Setup:
    """Times the parts of a preparation: `with setup.phase("transfer"): ...`."""

    PHASES = ("build", "transfer", "compile")

    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)  # made for this case: paths by role
    cache_bytes: int = DEFAULT_CACHE_BYTES  # last-level cache of the CPU
    seconds: dict[str, float] = field(default_factory=dict, init=False)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if name not in self.PHASES:
            raise ValueError(f"unknown set-up phase {name!r}")
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


class DeviceTimer(ABC):
    """Marks in a device's queue of work, such as a pair of CUDA events."""

    @abstractmethod
    def start(self) -> None:
        """Queue the first mark."""

    @abstractmethod
    def stop(self) -> None:
        """Queue the second mark."""

    @abstractmethod
    def elapsed_s(self) -> float:
        """Seconds from mark to mark; only after the task's `finish`."""

    def hold(self, seconds: float) -> bool:
        """Keep the device busy for at least about so many seconds; False if it cannot."""
        return False


class Task(ABC):
    """A prepared case inside a worker: everything is loaded, the next `step` can be timed.

    `waits`: a `step` waits for the device (it reads a result back) or for its data, so its time on
    the host is not the time that queueing takes.

    `checks_latest`: `check` judges what the latest step left, so it follows the warm-up and takes
    no step of its own.

    `finishes`: a `step` returns when all its work is done (it reads its result back), so a latency
    needs no `finish`, and work that is queued before the step would not overlap with it.
    """

    waits: bool = False
    checks_latest: bool = False
    finishes: bool = False
    restores: bool = False  # a sample is one step, since each step needs `restore`
    together: int = 1  # steps of one sample at least: loaders in step deliver their batches at once

    def restore(self) -> None:  # noqa: B027 - most steps leave their inputs alone
        """Put back what steps have changed: before each block and after each sample, untimed."""

    @abstractmethod
    def step(self) -> None:
        """One unit of work.  On a GPU it may return before the work is finished."""

    def finish(self) -> None:  # noqa: B027 - nothing is queued on a CPU
        """Return only when all work that `step` queued is done."""

    def activate(self) -> None:  # noqa: B027 - most tasks share no global setting
        """Set what the process shares (threads, TF32) before a block of this case."""

    @abstractmethod
    def check(self) -> Accuracy:
        """Compare the result with a reference; called once, untimed, before any block."""

    def transfer_out_s(self) -> float | None:
        """Seconds to bring the result back to the host, measured on its own; None on a CPU."""
        return None

    def device_timer(self) -> DeviceTimer | None:
        """The device's own clock for what `step` queues; None where only the host has a clock."""
        return None

    def loss(self) -> float | None:
        """The latest training loss, or None where nothing is trained."""
        return None

    def memory_peak_bytes(self) -> int | None:
        """Peak memory of the other processes that do the work; None where this one does it."""
        return None

    def metrics(self) -> dict[str, float]:
        """Further results of the latest block, such as `waiting_fraction`, asked for after it.

        The names end in their unit.
        """
        return {}

    def profile(self, steps: int) -> Profile:
        """Run `steps` steps under the backend's profiler; never called while anything is timed."""
        raise WorkloadError(
            "this backend has no profiler",
            code="no_profiler",
            hint="run `perf record -g` on the worker's process to see where its time goes",
        )

    def close(self) -> None:  # noqa: B027 - garbage collection is enough for most
        """Release memory, files and child processes."""


class Workload(ABC):
    """One kind of work: its description (light) and its preparation (in a worker)."""

    name: ClassVar[str]
    title: ClassVar[str]
    teaches: ClassVar[str]  # the lesson in one sentence
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    default_batch: ClassVar[int | None] = None
    quick: ClassVar[Mapping[str, ParameterValue]] = {}  # smaller values, "batch" too, for --quick
    latency: ClassVar[bool] = False  # True: every sample is one step, so that tails are real
    # True: 3x3 convolutions, which Winograd's method does with fewer operations than are counted.
    convolves: ClassVar[bool] = False
    # True: a case gets a worker to itself if it is compiled, since compiling code of others may
    # crash or hang, or if it has loader processes, which only stand still with their worker.
    isolates: ClassVar[bool] = False
    variants: ClassVar[tuple[Variant, ...]]

    @property
    def usual_objective(self) -> Literal["latency_p99", "throughput"]:
        """The objective of a row that asks for no answer."""
        return "latency_p99" if self.latency else "throughput"

    @abstractmethod
    def work(self, case: Case) -> Work:
        """The cost of one step of `case`."""

    @abstractmethod
    def prepare(self, case: Case, setup: Setup) -> Task:
        """Load `case`; raise WorkloadError where the library or device cannot do it."""

    def consult(self, question: str, **details: Any) -> dict[str, Any]:
        """Answer a question that the engine asks in a worker, such as what a user's code is like;
        WorkloadError where there is no answer."""
        raise WorkloadError(f"{self.name} answers no questions")

    def small_probe(self, case: Case) -> Case | None:
        """The same job at a size that takes a moment even in an emulated precision.

        A precision that the processor lacks can be 200 times slower.  It is tried at this size,
        next to FP32, before the case itself is prepared.  None: steps are short at any size.
        """
        return None

    def tuning_values(
        self, parameter: str, host: Host, device_kind: str
    ) -> Sequence[ParameterValue]:
        """The values of a tuning parameter that race unless the user names some; none where it does
        not matter."""
        return [next(p.default for p in self.parameters if p.name == parameter)]

    def values(self, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        """The parameters that describe the job, with their given or default values."""
        return {p.name: given.get(p.name, p.default) for p in self.parameters if not p.tuning}

    def tuning(self, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        """The tuning parameters, with their given or default values."""
        return {p.name: given.get(p.name, p.default) for p in self.parameters if p.tuning}
