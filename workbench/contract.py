"""What a workload implements, and the nouns it shares with the engine.

A file in `workloads/` defines one `Workload` and binds an instance to the module-level
name `WORKLOAD`.  The engine reads its description (no backend is imported for that); a
worker calls `prepare` and then times `Task.step`.  Standard library only: a worker may run
under an interpreter that has nothing but its backend.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

BACKENDS = ("numpy", "torch", "onnxruntime")
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
DEFAULT_CACHE_BYTES = 64 << 20  # where the machine does not tell its last-level cache

ParameterValue = int | float | str


class WorkloadError(Exception):
    """A workload, device or library cannot do what a case asks for.

    `code` is a stable word for scripts, `hint` the remedy in one sentence.
    """

    def __init__(self, message: str, *, code: str = "unsupported", hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def kind_of(device: str) -> str:
    """`cpu` or `gpu`; the test device `fake:N` poses as a GPU."""
    return "cpu" if device == "cpu" else "gpu"


def is_cuda(device: str) -> bool:
    """Whether it is `cuda:N`, by which torch names AMD's GPUs too."""
    return device.startswith("cuda:")


def is_simulated(device: str) -> bool:
    """Whether it is the test device `fake:N`, which computes on the CPU."""
    return device.startswith("fake:")


@dataclass(frozen=True)
class Case:
    """One way to do a job; its `id` names it everywhere: events, JSON, screens, logs."""

    workload: str
    device: str  # "cpu", "cuda:0", "fake:0"
    backend: str
    precision: str
    quantization: str | None = None  # "dynamic" or "static", only with precision int8
    threads: int | None = None  # CPU threads; None where the device is a GPU
    batch: int | None = None
    params: Mapping[str, ParameterValue] = field(default_factory=dict, hash=False)
    mode: str | None = None  # how the backend does it, where not as usual: "nhwc", "compile"
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
        parts = [self.device, self.backend, precision]
        if self.mode is not None:
            parts.append(self.mode)
        if self.tuning:
            parts.append(_listed(self.tuning))
        if self.threads is not None:
            parts.append(f"t{self.threads}")
        return "/".join(parts)

    @property
    def device_kind(self) -> str:
        return kind_of(self.device)

    @property
    def is_compiled(self) -> bool:
        return "compile" in (self.mode or "").split("+")

    @property
    def process(self) -> tuple[str, str, int | None]:
        """What cases that share a worker process have in common: its device, its backend, and of
        NumPy the threads, which its BLAS reads once, when imported."""
        return self.device, self.backend, self.threads if self.backend == "numpy" else None

    def but_precision(self) -> Case:
        """Equal for cases that differ in nothing else."""
        return replace(self, precision="", quantization=None)


def _listed(values: Mapping[str, ParameterValue]) -> str:
    """`n=64,m=8`; of a path only its last part, since `/` divides an id."""
    return ",".join(f"{name}={str(value).rpartition('/')[2]}" for name, value in values.items())


@dataclass(frozen=True)
class Parameter:
    """One knob of a workload, declared once for `--set`, `--help`, the TUI and the JSON.

    Most say what the job is; several values make several rows.  A `tuning` one says how the same
    job is done: its values race against one another in one row.
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
        """The value that `text` spells, of the default's type; ValueError says what is allowed."""
        kind = type(self.default)
        try:
            value = kind(text)
        except ValueError:
            noun = {int: "a whole number", float: "a number"}.get(kind, "text")
            raise ValueError(f"{self.name} takes {noun}, not {text!r}") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        if isinstance(value, (int, float)) and not self._within(value):
            raise ValueError(f"{self.name} lies {self.range_text()}, not at {text}")
        return value

    def _within(self, value: float) -> bool:
        low = float("-inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        return low <= value <= high  # False for NaN, as it should be

    def range_text(self) -> str:
        if self.minimum is None and self.maximum is None:
            return "anywhere"
        if self.maximum is None:
            return f"at {self.minimum:g} or above"
        if self.minimum is None:
            return f"at {self.maximum:g} or below"
        return f"between {self.minimum:g} and {self.maximum:g}"


@dataclass(frozen=True)
class Variant:
    """A way of doing the job that a workload offers on one kind of device."""

    device_kind: str
    backend: str
    precision: str
    quantization: str | None = None
    mode: str | None = None  # as in `Case`
    threads: int | None = None  # where it uses no more than these, whatever it is given


@dataclass(frozen=True)
class Host:
    """What a workload may want to know of the machine to propose values for its tuning."""

    cores: int  # usable
    gpus: int


@dataclass(frozen=True)
class Work:
    """What one step does, for throughput, FLOP/s and the refusal of what does not fit."""

    flops: float | None  # floating-point (or integer multiply-add) operations, 2 per MAC
    bytes_moved: float | None  # least traffic to and from memory
    items: float  # what throughput counts, per step
    item: str  # its unit: "samples", "products", "runs"
    memory_bytes: float  # estimated peak, refused beforehand where it does not fit
    transfers: str = ""  # on a GPU: in each "step", of operands once in "setup"; "": neither wholly
    ranks: int = 1  # processes that share the step, each on a GPU of its own or on its threads


@dataclass(frozen=True)
class OutputAccuracy:
    """One output of a model over all checked samples, against the original's."""

    name: str
    relative_error: float  # of the whole, by the Euclidean norm
    cosine: float | None  # of the angle between them; None where either is all zeros
    top1_agreement: float | None  # share of rows whose largest entry stays; None without classes
    worst_sample: int
    worst_error: float  # the relative error of that sample


@dataclass(frozen=True)
class Accuracy:
    """The result of a check; `passed` is False where the result is plainly wrong.

    `metric` is "relative_error" or "disagreement" (less is better), or "test_accuracy" (more is).
    `limit` is the bound that `passed` was judged by: right for the precision, not yet the
    scenario's own error limit, which the advisor applies.
    """

    metric: str
    value: float
    reference: str
    limit: float
    passed: bool
    outputs: tuple[OutputAccuracy, ...] = ()  # of a model with several, each


@dataclass(frozen=True)
class Operator:
    """One kind of operation in a profile; `self_s` is without what it called."""

    name: str
    calls: int
    self_s: float


@dataclass(frozen=True)
class Profile:
    """A short profiled pass.

    `events` are those of the Trace Event Format (Google, "Trace Event Format", 2016): complete
    ones with `name`, `ph`, `ts` and `dur` in microseconds, `pid`, `tid`.
    """

    events: list[dict[str, Any]]
    operators: list[Operator]  # the longest, longest first
    total_s: float  # of all operators, those left out too
    device: str  # whose time that is: "cpu" or "gpu"
    fallback_s: float = 0.0  # of `total_s`: of nodes that another provider left to the CPU


class Setup:
    """Times the parts of a preparation: `with setup.phase("transfer"): ...`."""

    PHASES = ("build", "transfer", "compile")

    def __init__(
        self,
        *,
        seed: int = 0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self.seed = seed
        self.files = files or {}  # what was made ready for this case, by its role
        self.cache_bytes = cache_bytes  # last-level cache of the CPU, for what must not fit in it
        self.seconds: dict[str, float] = {}

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


class Task(ABC):
    """A prepared case inside a worker: everything is loaded, the next `step` can be timed.

    `waits`: a `step` itself waits for the device (reads a result back) or for its data, so that
    what it takes on the host is not what queueing takes.
    """

    waits: bool = False

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
        """The device's own clock for what `step` queues; None where the host's is all there is."""
        return None

    def loss(self) -> float | None:
        """The latest training loss, or None where nothing is trained."""
        return None

    def memory_peak_bytes(self) -> int | None:
        """Where the work is done in other processes: their peak.  None: in this one."""
        return None

    def figures(self) -> dict[str, float]:
        """What only this task can tell, such as `waiting_fraction`: asked after each block, about
        that block; units stand in the names."""
        return {}

    def profile(self, steps: int) -> Profile:
        """Run `steps` steps under the backend's profiler; never called while anything is timed."""
        raise WorkloadError(
            "this backend has no profiler",
            code="no_profiler",
            hint="perf record -g on the worker's process shows where its time goes",
        )

    def close(self) -> None:  # noqa: B027 - garbage collection is enough for most
        """Give back memory, files and child processes."""


class Workload(ABC):
    """One kind of work: its description (light) and its preparation (in a worker)."""

    name: ClassVar[str]
    title: ClassVar[str]
    teaches: ClassVar[str]  # one sentence: what a learner sees here
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    default_batch: ClassVar[int | None] = None
    quick: ClassVar[Mapping[str, ParameterValue]] = {}  # smaller values, "batch" too, for --quick
    latency: ClassVar[bool] = False  # True: every sample is one step, so that tails are real
    # True: of 3x3 convolutions, for which Winograd's way needs fewer operations than are counted.
    convolves: ClassVar[bool] = False
    variants: ClassVar[tuple[Variant, ...]]

    def tuning(self, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        """The tuning parameters likewise."""
        return {p.name: given.get(p.name, p.default) for p in self.parameters if p.tuning}

    @abstractmethod
    def work(self, case: Case) -> Work:
        """The cost of one step of `case`."""

    @abstractmethod
    def prepare(self, case: Case, setup: Setup) -> Task:
        """Load `case`; raise WorkloadError where the library or device cannot do it."""

    def small_probe(self, case: Case) -> Case | None:
        """The same job at a size that even an emulated precision gets through in a moment.

        A precision that this processor lacks can be 200x slower: it is tried at this size, beside
        FP32, before the real one is prepared.  None: its steps are short at any size.
        """
        return None

    def tuning_values(
        self, parameter: str, host: Host, device_kind: str
    ) -> Sequence[ParameterValue]:
        """The values of a tuning parameter to race unless some are asked for."""
        return [next(p.default for p in self.parameters if p.name == parameter)]

    def values(self, given: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        """The parameters of the job with their defaults filled in, in their declared order."""
        job = (p for p in self.parameters if not p.tuning)
        return {p.name: given.get(p.name, p.default) for p in job}


def decode_case(fields: Mapping[str, Any]) -> Case:
    """A case from its JSON object."""
    return Case(**fields)


REDUCED = ("bf16", "fp16", "int8")
