"""The document's part about a user's model: its facts, its variants, and which one to ship."""

import msgspec

from .reason import Reason


class Port(msgspec.Struct, frozen=True):
    """An input or output; an axis is a number, a name, or None where it has neither."""

    name: str
    type: str  # NumPy's name: "float32", "int64"
    shape: list[int | str | None]
    run_shape: list[int] = []  # shape as measured; inputs only
    values: str = ""  # origin of the values, such as "random normal"; inputs only


class PreparationStep(msgspec.Struct, frozen=True):
    """The size of a model after a step of its preparation for quantisation."""

    step: str  # "as given", "opset 13", "simplified"
    size_bytes: int | None
    nodes: int | None
    reason: Reason | None = None  # why the step was undone


class ModelFacts(msgspec.Struct, frozen=True):
    """Facts about the model that are known before timing."""

    file: str  # file name without the folder
    sha256: str
    size_bytes: int  # including external data
    ir_version: int
    opset: int
    producer: str
    precision: str  # "fp32", "fp16", "fp64" or "bf16" of most weights; "int8", "int4": `quantised`
    parameters: int  # number of values in its weights
    operators: dict[str, int]  # type to count, subgraphs included
    control_flow: list[str]  # operators with graphs of their own
    quantised: bool  # it has integer operators already
    inputs: list[Port]
    outputs: list[Port]
    batch: int | None  # measured batch; None where the model has no batch axis
    samples: int  # number of inputs on which variants are selected
    calibration_samples: int  # number of inputs that static ranges are taken from
    inputs_from: str  # "random", or the file's name
    step_s: float  # rough seconds of one run as given, unoptimised
    steps: list[PreparationStep] = msgspec.field(name="forms", default_factory=list)
    multiply_adds: int | None = None  # per run; None where those of an operator are unknown
    weights_bytes: int = 0  # size of weights in convolutions and products
    same_samples: bool = False  # the same inputs calibrate and check: too few for both
    uncompared: list[str] = []  # outputs that are not tensors, such as a classifier's maps
    unquantisable: Reason | None = None  # why no variant is made: over 2 GiB, or not prepared
    check_samples: int = 0  # number of inputs kept apart to check variants; 0: too few for it
    folds: int = 0  # parts in which inputs that both calibrate and choose are cross-validated
    needed_inputs: int | None = None  # samples of the user needed for a promise; None: none suffice
    no_promise: str | None = None  # why none suffice, unless the limit is 0
    weights_are_inputs: bool = False  # a caller may replace them, so ONNX Runtime fuses none
    max_error: float | None = None  # limit for recommended variants, under the requested metric


class Built(msgspec.Struct, frozen=True):
    """A variant of the model that was built, or could not be."""

    recipe: str  # "int8-static-u8s8", as in the ids of its cases
    seconds: float  # time to build it
    size_bytes: int | None = None
    operators: dict[str, int] = {}
    # Share of multiply-adds in INT8, or of weights where those are unknown, 0 to 1.
    coverage: float | None = None
    excluded: list[str] = []  # nodes that stay in FP32 on purpose
    reason: Reason | None = None


class OperatorTimes(msgspec.Struct, frozen=True):
    """One kind of operator in both profiles, in seconds of one run.

    Quantised kernels count as the operator that they compute.
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
    """The recommended variant as a file, or why it could not be written."""

    file: str
    size_bytes: int | None
    difference: float | None  # largest relative error of the file against the measured variant
    reason: Reason | None = None  # why it was not written, or, where it has a size, not checked


class Advice(msgspec.Struct, frozen=True):
    """The recommendation, and why."""

    explanations: list[Explanation]
    snippet: str  # Python code that runs it as it was measured
    weak_evidence: str | None  # why its accuracy proves little: random inputs, few samples
    saved: Saved | None = None


class ModelReport(msgspec.Struct):
    """All that a run says about a user's model."""

    facts: ModelFacts
    built: list[Built] = []
    left_out: dict[str, str] = {}  # recipe or option that was not tried, and why
    advice: Advice | None = None

    @property
    def explained(self) -> dict[str, Explanation]:
        """The explanations by the ids of their cases."""
        return {each.case: each for each in self.advice.explanations} if self.advice else {}
