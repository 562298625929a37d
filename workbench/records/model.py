"""The document's part about a user's model: what it is, what was made of it, what to ship."""

from __future__ import annotations

import msgspec

from .reason import Reason


class Port(msgspec.Struct, frozen=True):
    """An input or output; an axis is a number, its name, or None where it has neither."""

    name: str
    type: str  # NumPy's word: "float32", "int64"
    shape: list[int | str | None]
    run_shape: list[int] = []  # of inputs: as it was run
    values: str = ""  # of inputs: where the values came from, such as "random normal"


class Form(msgspec.Struct, frozen=True):
    """The size of a model after a step of its preparation; `reason`: why the step was left out."""

    step: str  # "as given", "opset 13", "weights as initialisers", "shapes", "simplified"
    size_bytes: int | None
    nodes: int | None
    reason: Reason | None = None


class ModelFacts(msgspec.Struct, frozen=True):
    """What is known of the model before anything is timed."""

    file: str  # its name, without the folder
    sha256: str
    size_bytes: int  # external data included
    ir_version: int
    opset: int
    producer: str
    precision: str  # "fp32", "fp16", "fp64", "bf16" of most weights; "int8" where `quantised`
    parameters: int  # numbers in its weights
    operators: dict[str, int]  # type to count, subgraphs included
    control_flow: list[str]  # operators with graphs of their own
    quantised: bool  # it already holds integer operators
    inputs: list[Port]
    outputs: list[Port]
    batch: int | None  # as run; None where the model has no batch axis
    samples: int  # inputs that every form is checked on
    calibration_samples: int  # inputs that static ranges are taken from
    inputs_from: str  # "random", or the file's name
    step_s: float  # of one run as given, not optimised, roughly
    forms: list[Form]  # step by step, as prepared for quantisation
    multiply_adds: int | None  # of one run; None where shapes are not known
    weights_bytes: int  # of weights in convolutions and products
    same_samples: bool = False  # the inputs that calibrate are those that check: too few for both
    uncompared: list[str] = []  # outputs that are no tensors, such as a classifier's maps
    unquantisable: Reason | None = None  # why no INT8 form can be made: over 2 GiB of weights
    max_error: float | None = None  # what no recommended form may exceed, under the asked metric


class Built(msgspec.Struct, frozen=True):
    """One form of the model that was made, or could not be."""

    recipe: str  # "int8-static-u8s8", as in the ids of its cases
    seconds: float
    size_bytes: int | None = None
    operators: dict[str, int] = {}
    coverage: float | None = None  # of the products' multiply-adds, those in INT8
    excluded: list[str] = []  # nodes left in FP32 on purpose
    reason: Reason | None = None


class OperatorTimes(msgspec.Struct, frozen=True):
    """One kind of operator in both profiles, seconds of one run; quantised kernels count with the
    operator they stand for."""

    operator: str
    fp32_s: float
    int8_s: float


class Explanation(msgspec.Struct, frozen=True):
    """Why a candidate won or lost."""

    case: str
    won: bool
    sentences: list[str]
    operators: list[OperatorTimes] = []


class Saved(msgspec.Struct, frozen=True):
    file: str
    size_bytes: int | None
    difference: float | None  # largest relative error against the candidate, after loading it again
    reason: Reason | None = None  # why it was not written


class Advice(msgspec.Struct, frozen=True):
    """What to ship."""

    explanations: list[Explanation]
    snippet: str  # Python that runs it as it was measured
    weak_evidence: str | None  # why its accuracy says little: random inputs, few samples
    saved: Saved | None = None


class ModelReport(msgspec.Struct):
    facts: ModelFacts
    built: list[Built] = []
    left_out: dict[str, str] = {}  # recipe or option to the reason why it was not tried
    advice: Advice | None = None
