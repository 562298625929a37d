"""A case, and the parameters and variants of a workload that it is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..precisions import PRECISION_BYTES
from .device import kind_of

LARGEST, SMALLEST = 1e30, 1e-60  # magnitudes that a journal accepts, besides 0
COMPILED = ("compile", "reduce-overhead", "max-autotune")  # words of modes by torch.compile
MOST_BATCH, MOST_THREADS = 1_000_000, 4096  # in one case

ParameterValue = int | float | str
ParameterValues = Sequence[ParameterValue]


@dataclass(frozen=True)
class Case:
    """One way to do a job; its `id` names it in events, JSON, screens and logs."""

    workload: str
    device: str  # "cpu", "cuda:0", "fake:0"
    backend: str
    precision: str  # "" if the code of the case decides it
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
        """The device that computes: the CPU for a simulated GPU."""
        return "cpu" if kind_of(self.device).on_host else self.device

    @property
    def element_bytes(self) -> int:
        return PRECISION_BYTES[self.precision]

    @property
    def mode_words(self) -> list[str]:
        return (self.mode or "").split("+")

    @property
    def compile_mode(self) -> str | None:
        """The mode for torch.compile; None if nothing is compiled."""
        named = [word for word in self.mode_words if word in COMPILED]
        return {"compile": "default"}.get(named[-1], named[-1]) if named else None

    @property
    def is_compiled(self) -> bool:
        """Whether preparing it includes compiling."""
        return self.compile_mode is not None or "tensorrt" in self.mode_words

    def without(self, *words: str) -> "Case":
        """The case without these words of its mode."""
        return replace(self, mode="+".join(w for w in self.mode_words if w not in words) or None)

    def but_precision(self) -> "Case":
        """A key that is equal for cases that differ only in precision."""
        return replace(self, precision="", quantization=None)


def _listed(values: Mapping[str, ParameterValue]) -> str:
    """`n=64,m=8`; only the last part of a path is kept, since `/` separates the parts of an id."""
    return ",".join(f"{name}={str(value).rpartition('/')[2]}" for name, value in values.items())


@dataclass(frozen=True)
class Parameter:
    """A parameter of a workload, declared once for `--set`, `--help`, the TUI and the JSON.

    Most parameters describe the job: several values make several rows.  A `tuning` parameter says
    how the same job is done: its values race each other in one row.
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
        """The value in `text`, in the type of the default; ValueError says what is allowed."""
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
    threads: int | None = None  # most threads that it can use; None: no limit


@dataclass(frozen=True)
class Host:
    """The facts of a machine from which a workload proposes values of tuning parameters."""

    cores: int  # usable ones
    gpus: int
