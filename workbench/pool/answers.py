"""The types of a worker's answers; see `worker.worker` and `lab.child`.

A worker runs code of others, so the engine decodes its answers into these types only.
"""

from dataclasses import replace
from typing import Annotated, Any

import msgspec

from ..contract import Accuracy
from ..records.document import Clocks, SetupTimes
from ..records.model import PreparationStep
from ..text.sanitize import shown
from ..worker.recipe import Recipe

MOST_S = 1e9
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MOST_S)]
StepSeconds = Annotated[float, msgspec.Meta(gt=0, le=MOST_S)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]


class Hello(msgspec.Struct):
    """The backend is imported."""

    versions: Annotated[dict[str, str], msgspec.Meta(max_length=100)]
    ready_s: Seconds | None = None  # when it was imported, on the monotonic clock

    def __post_init__(self) -> None:
        self.versions = {shown(name, 60): shown(one, 60) for name, one in self.versions.items()}


class Warmed(msgspec.Struct):
    """See `worker.block.WarmedUp`."""

    n: int
    seconds: Seconds
    first_s: Seconds
    step_s: StepSeconds
    steady: bool
    iterations: Annotated[int, msgspec.Meta(ge=1)]
    restore_s: Seconds = 0.0


class Prepared(msgspec.Struct):
    """A case is loaded, checked and warm."""

    setup: SetupTimes
    transfer_out_s: Seconds | None
    accuracy: Accuracy
    warmup: Warmed
    call_overhead_s: Seconds
    memory_peak_bytes: Bytes | None
    cold_s: Seconds = 0.0  # first preparation and step; 0 unless start-up counts
    loading_s: Seconds = 0.0  # for importing modules in this preparation; `setup` has its full cost

    def __post_init__(self) -> None:
        metric, reference = shown(self.accuracy.metric, 60), shown(self.accuracy.reference)
        self.accuracy = replace(self.accuracy, metric=metric, reference=reference)


class Block(msgspec.Struct):
    """One turn, as `worker.block.run_block` measures it."""

    # Seconds per step by the clock that counts.
    samples_s: Annotated[list[float], msgspec.Meta(min_length=1)]
    lead_in_s: list[float]  # the same before the first sample
    loss: float | None
    clocks: Clocks | None  # None without a device timer
    figures: Annotated[dict[str, float], msgspec.Meta(max_length=100)]
    gap: bool  # whether the machine slept meanwhile
    began_s: Seconds  # start of the turn, on the monotonic clock, which all processes share
    settled_s: Seconds  # start of its first sample that counts
    ended_s: Seconds

    def __post_init__(self) -> None:
        self.figures = {shown(name, 60): value for name, value in self.figures.items()}


class Attempt(msgspec.Struct):
    """Two steps at one batch size fitted."""

    step_s: Seconds
    memory_peak_bytes: Bytes | None


class SmallProbe(msgspec.Struct):
    """Seconds per step of two small cases."""

    case_s: StepSeconds
    other_s: StepSeconds


class Operator(msgspec.Struct):
    """One kind of operation in a profile."""

    name: str
    calls: int
    self_s: Seconds

    def __post_init__(self) -> None:
        self.name = shown(self.name)


class _TraceEvent(msgspec.Struct):
    """The fields of an event (Trace Event Format) that a trace changes; others stay unchanged."""

    ts: float = 0.0  # microseconds
    dur: float = 0.0
    pid: int | str | None = None


class Profile(msgspec.Struct):
    """See `contract.Profile`."""

    operators: list[Operator]
    total_s: Seconds
    fallback_s: Seconds
    events: list[dict[str, Any]]

    def __post_init__(self) -> None:
        msgspec.convert(self.events, list[_TraceEvent])


class ModelSteps(msgspec.Struct):
    """The lab has prepared the model for quantisation."""

    forms: list[PreparationStep]
    multiply_adds: int | None
    weights_bytes: Bytes
    products: dict[str, int]  # type to number of nodes that can be quantised


class Made(msgspec.Struct):
    """The lab has written a variant."""

    file: str
    size_bytes: Bytes
    operators: dict[str, int]
    coverage: float | None
    recipe: Recipe | None = None  # names the FP32 nodes of a mixed variant


class SavedFile(msgspec.Struct):
    """The lab has written the user's file."""

    size_bytes: Bytes
    difference: float | None


class ExportedCode(msgspec.Struct):
    """A user's module as an ONNX file."""

    model: str  # path
    dynamic: bool  # whether it runs at other batches
    operations: int  # in its graph, without those that compute shapes
    convolutions: int


class GraphBreaks(msgspec.Struct):
    """Why torch.compile splits a module, most frequent reason first, and how much it compiles."""

    reasons: Annotated[list[str], msgspec.Meta(max_length=100)]
    operations: int
    convolutions: int

    def __post_init__(self) -> None:
        self.reasons = [shown(reason) for reason in self.reasons]


class SavedFiles(msgspec.Struct):
    """The names of the files that --save-best wrote into its folder."""

    files: Annotated[list[str], msgspec.Meta(max_length=100)]

    def __post_init__(self) -> None:
        self.files = [shown(name) for name in self.files]
