"""One way to do a job, and what a workload and a machine say about the ways there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..precisions import PRECISION_BYTES
from .device import kind_of

LARGEST, SMALLEST = 1e30, 1e-60  # sizes that a journal holds, besides 0
COMPILED = ("compile", "reduce-overhead", "max-autotune")  # words of modes by torch.compile
MOST_BATCH, MOST_THREADS = 1_000_000, 4096  # in one case

ParameterValue = int | float | str
ParameterValues = Sequence[ParameterValue]


@dataclass(frozen=True)
class Case:
    """One way to do a job; its `id` names it everywhere: events, JSON, screens, logs."""

    workload: str
    device: str  # "cpu", "cuda:0", "fake:0"
    backend: str
    precision: str  # "" where the code of the case decides it
    quantization: str | None = None  # INT8 form: "dynamic", "static", "static-u8s8-channel"
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
        parts = [self.device, self.backend, *filter(None, [self.variant])]
        if self.mode is not None:
            parts.append(self.mode)
        if self.tuning:
            parts.append(_listed(self.tuning))
        if self.threads is not None:
            parts.append(f"t{self.threads}")
        return "/".join(parts)

    @property
    def variant(self) -> str:
        """The precision with its INT8 form: `int8-static`."""
        return "-".join(filter(None, (self.precision, self.quantization)))

    @property
    def device_kind(self) -> str:
        """`cpu` or `gpu`, as in a `Variant`."""
        return kind_of(self.device).column

    @property
    def computes_on(self) -> str:
        """The device whose library runs it: a simulated GPU computes on the CPU."""
        return "cpu" if kind_of(self.device).on_host else self.device

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
            low = float("-inf") if self.minimum is None else self.minimum
            high = float("inf") if self.maximum is None else self.maximum
            if not low <= value <= high:  # false for NaN
                raise ValueError(f"{self.name} must be {self.range_text()}, not {text}")
            if value and not SMALLEST <= abs(value) <= LARGEST:
                size = f"between {SMALLEST:g} and {LARGEST:g} in size"
                raise ValueError(f"{self.name} must be 0 or {size}, not {text}")
        return value

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
