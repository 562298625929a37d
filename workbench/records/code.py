"""The document's part about the user's own code: facts and advice."""

from typing import Literal

import msgspec

from .reason import Reason


class CodeInput(msgspec.Struct, frozen=True):
    """A tensor that the code is called with."""

    name: str
    type: str  # "float32", "int64"
    shape: list[int]
    place: str = ""  # Python expression for it: "inputs[0]" or "named['past'].keys"


class CalledModule(msgspec.Struct, frozen=True):
    """A module that a script calls, without calls of it by other modules."""

    name: str  # its class, numbered if several share one: "Net", "Net#2"
    calls: int
    seconds: float  # in all its calls
    share: float  # their part of the script's time, 0 to 1
    shapes: list[str]  # shapes of its inputs, most frequent first, at most five
    sizes: int = 0  # number of different shapes
    chosen: bool = False
    altered: bool = False  # called under other conditions than in the race: see the notes


class CodeFacts(msgspec.Struct, frozen=True):
    """Facts about the code that are known before timing."""

    kind: str  # "torch", "function", "command"
    name: str  # as in case ids: "package.module:build"
    code_sha256: str  # hash of its files
    inputs_sha256: str  # hash of its inputs
    precision: str = "fp32"  # the type of most parameters
    parameters: int | None = None  # number of values in its weights
    inputs: list[CodeInput] = []
    named: bool = False  # whether a call has keyword arguments
    batch: int | None = None  # size of the axis that all inputs share; None if there is none
    threads: int | None = None  # set by torch code or by OMP_NUM_THREADS; else None
    resizable: bool = False  # whether it runs at other batches
    of_one_size: bool = False  # whether it certainly takes its own batch only
    step_s: float = 0.0  # rough seconds of one eager call
    graph: bool = False  # torch.export made it, so its mode cannot change
    convolves: bool = False  # whether it has 2-D convolutions, and no 3-D ones
    takes_device: bool = False  # a function, or its `inputs`, has a parameter `device`
    passes_device: bool = False  # the call of a function names the device
    reference: str = ""  # what outputs are compared with: "eager in float64"
    floor: float | None = None  # error of eager FP32 against that reference
    guard: str = "inference_mode"  # torch context in which it is called
    checks: bool = False  # whether the user's own check(output) applies
    stateful: bool = False  # calls depend on earlier ones
    nondeterministic: bool = False  # two fresh copies differ
    mutated: list[str] = []  # inputs that a call changes
    returns_changes: bool = False  # its output holds all that a call puts into its inputs
    needs_gpu: Reason | None = None  # why it cannot run on the CPU
    modules: list[CalledModule] = []  # modules that a script calls
    cut: bool = False  # the script was cut short
    trains: bool = False  # the script trains the module
    lingers: bool = False  # threads of the script outlived it, so the race uses another process
    data: str | None = None  # "dataset" or "loader" of a training, if processes may load it
    # Arguments of a training's own loss.
    loss: Literal["output", "output, batch", "output, batch[-1]"] | None = None
    calls: int = 1  # calls of modules in a step of a training
    impossible: dict[str, str] = {}  # mode of a training, or "fused on cpu", to why it cannot start
    compiled: bool = False  # the code uses torch.compile, which the race undoes
    notes: list[str] = []  # sentences about peculiarities of the code and how they are handled


class SavedCode(msgspec.Struct, frozen=True):
    """The folder of --save-best, or why it could not be written."""

    folder: str
    files: list[str] = []
    reason: Reason | None = None


class CodeAdvice(msgspec.Struct, frozen=True):
    """The advice on the code."""

    snippet: str  # lines to paste
    flips: list[str] = []  # sentences: how the answer changes with the batch
    share: str = ""  # a sentence: the effect on the whole script
    saved: SavedCode | None = None


class CodeReport(msgspec.Struct):
    """All results about the user's own code."""

    facts: CodeFacts
    left_out: dict[str, str] = {}  # candidate that was not tried, and why
    breaks: list[str] = []  # reasons of graph breaks, most frequent first
    compile_calls: float | None = None  # calls after which compiling pays off
    advice: CodeAdvice | None = None
