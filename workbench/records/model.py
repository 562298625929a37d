"""The part of the JSON document on a user's model: its facts, its variants and the advice."""

from __future__ import annotations

import msgspec

from .reason import Reason


class Port(msgspec.Struct, frozen=True):
    """An input or output of the model."""

    name: str
    type: str  # NumPy type name: "float32", "int64"
    shape: list[int | str | None]  # axes: a size, a name, or None for neither
    run_shape: list[int] = []  # inputs only: shape in the measurements
    values: str = ""  # inputs only: origin of the values, such as "random normal"


class Form(msgspec.Struct, frozen=True):
    """The size of the model after one step of its preparation."""

    step: str  # "as given", "opset 13", "weights as initialisers", "shapes", "simplified"
    size_bytes: int | None
    nodes: int | None
    reason: Reason | None = None  # cause of a skipped step


class ModelFacts(msgspec.Struct, frozen=True):
    """The model as read, before any variant is timed."""

    file: str  # file name without its folder
    sha256: str
    size_bytes: int  # including external data
    ir_version: int
    opset: int
    producer: str
    precision: str  # type of most weights: "fp32", "fp16", "fp64", "bf16"; "int8" if `quantised`
    parameters: int  # number of values in its weights
    operators: dict[str, int]  # type to count, including subgraphs
    control_flow: list[str]  # operators with subgraphs
    quantised: bool  # True if the model as given has integer operators
    inputs: list[Port]
    outputs: list[Port]
    batch: int | None  # batch size in the measurements; None if the model has no batch axis
    samples: int  # number of inputs that check the accuracy of every variant
    calibration_samples: int  # number of inputs that give the static ranges
    inputs_from: str  # "random" or a file name
    step_s: float  # approximate seconds per run of the model as given, without optimisation
    forms: list[Form]  # the model after each step of its preparation for quantisation
    multiply_adds: int | None  # number per run; None if shapes are unknown
    weights_bytes: int  # bytes of the weights in convolutions and matrix products
    same_samples: bool = False  # True if too few inputs made the same ones calibrate and check
    uncompared: list[str] = []  # outputs that are not tensors, such as a classifier's maps
    unquantisable: Reason | None = None  # obstacle to every INT8 variant, such as over 2 GiB
    max_error: float | None = None  # limit for a recommended variant, in the chosen metric


class Built(msgspec.Struct, frozen=True):
    """One variant of the model that was built, or could not be."""

    recipe: str  # "int8-static-u8s8", as in the ids of its cases
    seconds: float  # time to build it
    size_bytes: int | None = None
    operators: dict[str, int] = {}  # type to count
    coverage: float | None = None  # INT8 share of the multiply-adds in its products, 0 to 1
    excluded: list[str] = []  # nodes left in FP32 on purpose
    reason: Reason | None = None  # cause of a failure


class OperatorTimes(msgspec.Struct, frozen=True):
    """Seconds per run of one kind of operator, in the profiles of the FP32 and the INT8 variant.

    A quantised kernel counts as the operator that it replaces.
    """

    operator: str
    fp32_s: float
    int8_s: float


class Explanation(msgspec.Struct, frozen=True):
    """Why a candidate won or lost."""

    case: str  # case id
    won: bool
    sentences: list[str]
    operators: list[OperatorTimes] = []


class Saved(msgspec.Struct, frozen=True):
    """The best variant in a file of its own."""

    file: str
    size_bytes: int | None
    difference: float | None  # largest relative error of the loaded file against the candidate
    reason: Reason | None = None  # cause if it was not written


class Advice(msgspec.Struct, frozen=True):
    """The recommendation on a user's model."""

    explanations: list[Explanation]
    snippet: str  # Python code that runs the pick as it was measured
    weak_evidence: str | None  # limits of the accuracy check: random inputs, few samples
    saved: Saved | None = None


class ModelReport(msgspec.Struct):
    """All that a run says about a user's model."""

    facts: ModelFacts
    built: list[Built] = []
    left_out: dict[str, str] = {}  # recipe or option to the reason why it was not tried
    advice: Advice | None = None
