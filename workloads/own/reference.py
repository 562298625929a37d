"""The reference for a candidate's outputs, and the limit of their error.

The rule is torchbench's (pytorch, `torch/_dynamo/utils.py`, `same`): against a reference in
float64, a candidate's error may be a small multiple of eager FP32's own, plus a tolerance.
"""

import itertools
import math
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from workbench.contract import Accuracy, WorkloadError, kind_of
from workbench.files import write
from workbench.worker.code import Code
from workbench.worker.libraries import Array, np, torch

from .._shared.torch_task import true_fp32
from ..lab import agreement, samples
from .subject import Subject, folder_of, subject_of
from .target import seed_loaded, unusable, user_errors
from .tree import Example, as_array, tensors_of_output

MULTIPLE, LARGER = 2.0, 3.0  # times the error of eager FP32; the larger for reduced precision
SMALL = 1000  # elements, below which a norm says little, so LARGER applies
TOLERANCES = {"fp64": 1e-4, "fp32": 1e-4}
# Tolerance of every other precision, as in the model lab.  TF32 is one, since it reads as many bits
# of each factor as FP16 has (10 of the mantissa: PyTorch notes, Numerical accuracy).
REDUCED = 0.02
MOST_FLOOR = 0.1  # error of eager, beyond which nothing else can be judged
SAME = 1e-6  # relative difference of two runs up to which they count as equal
# Further calls of a module that draws random numbers, since few draws may change a label, and their
# share of the time for a script.
DRAWS, DRAWS_SHARE = 30, 0.1
EXACT_COST = 10.0  # times the time of a call that float64 may take
SLOW_COST = 80.0  # the same on most GPUs: up to 64 units of FP32 for one of float64 (CUDA guide)
HALF_RATE = (6, 0), (7, 0), (8, 0), (9, 0), (10, 0)  # compute capabilities with only two for one
KEPT = "reference.pickle"
GUARDS = ("inference_mode", "no_grad", "enable_grad")
DRAWN = "eager that draws the same numbers"
OTHER_NUMBERS = "not checked: its random numbers or its results differ from those of eager"


@dataclass(frozen=True)
class Reference:
    """Reference outputs of one batch, in the order of the module's output."""

    names: list[str]
    outputs: list[Array]
    floors: list[float]  # relative error of eager FP32, or the difference of calls if more
    source: str
    reduced: float = REDUCED  # tolerance of precisions that TOLERANCES does not have
    varies: bool = False  # whether equal calls differ
    # By place: outputs that agree only between calls which draw the same numbers, from the seed.
    seeded: dict[int, Array] = field(default_factory=dict)

    @property
    def steady(self) -> list[int]:
        """The places of the outputs in which eager agrees with itself, so that others can too."""
        return [place for place, floor in enumerate(self.floors) if floor <= MOST_FLOOR]

    @property
    def holed(self) -> list[str]:
        """The names of outputs with NaN, in whose places nothing is compared."""
        pairs = zip(self.names, self.outputs, strict=True)
        return [name for name, each in pairs if each.dtype.kind == "f" and np.isnan(each).any()]

    @property
    def why_useless(self) -> str:
        """Why nothing can be compared with it; empty if something can."""
        if not self.steady:
            known = "eager differs from itself (as with F.dropout without training=)"
            return f"{known} or from float64 by {max(self.floors):.0%}"
        values = (each for each in self.outputs if each.size)
        if not any(agreement.holds_labels(each) or each.any() for each in values):
            return "its outputs are empty or zero"  # such as those of a detector that finds nothing
        return ""

    def judge(
        self,
        code: Code,
        precision: str,
        answers: Sequence[Array],
        rounded: Sequence[float] = (),
        parts: Sequence[Sequence[agreement.Part]] = (),
    ) -> Accuracy:
        """The accuracy of `answers`, by the output that is nearest to its limit or beyond.

        `rounded` has for each output how far rounded weights move it, which its limit allows;
        `parts` those that have an error of their own.
        """
        if len(answers) != len(self.outputs):
            text = f"it returns {len(answers)} tensors where eager returns {len(self.outputs)}"
            raise WorkloadError(text, code="wrong_result")
        expected = [self.seeded.get(n, each) for n, each in enumerate(self.outputs)]
        found = agreement.compare(self.names, [answers], [expected], parts)
        if not self.seeded and (why := self.why_useless):
            return Accuracy.uncompared(f"not checked: {why}")
        allowed = rounded or [0.0] * len(answers)
        limits = [self._limit(code, precision, n) + more for n, more in enumerate(allowed)]
        pairs = [(each.relative_error, limit) for each, limit in zip(found, limits, strict=True)]
        same = [n for n in self.seeded if pairs[n][0] <= limits[n]]
        pairs = [pairs[n] for n in (*self.steady, *same)]
        if not pairs:
            return Accuracy.uncompared(OTHER_NUMBERS)
        error, limit = max(pairs, key=lambda pair: pair[0] / pair[1])
        # Always passed: the advisor times what is over its limit once, and never picks it.
        return Accuracy("relative_error", error, self.source, limit, True, found)

    def _limit(self, code: Code, precision: str, place: int) -> float:
        if code.max_error is not None:
            return code.max_error
        tolerance = TOLERANCES.get(precision, self.reduced)
        strict = precision in TOLERANCES and self.outputs[place].size >= SMALL
        floor = 0.0 if place in self.seeded else self.floors[place]
        return (MULTIPLE if strict else LARGER) * floor + tolerance


def call(module: Any, example: Example, *, within: str = "inference_mode") -> Any:
    """One call with copies of the inputs, on the device of the module's first weight or buffer."""
    first = next(itertools.chain(module.parameters(), module.buffers()), None)
    device = None if first is None else first.device
    cloned = example.mapped(lambda tensor: tensor.clone().to(device or tensor.device))
    with guard(within), as_eager():
        return module(*cloned.args, **cloned.kwargs)


@contextmanager
def as_eager() -> Iterator[None]:
    """Call what the code compiles without compiling it, which would happen again in each of the
    contexts, types and sizes of an examination."""
    is_used = "torch._dynamo" in sys.modules  # importing it takes a second
    with torch.compiler.set_stance("force_eager") if is_used else nullcontext(), plain_attention():
        yield


@contextmanager
def plain_attention() -> Iterator[None]:
    """Turn off the fast path of `nn.TransformerEncoder`, since only that fills padding with 0."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def guard(name: str) -> Any:
    """The context in which the module is called; see GUARDS."""
    return getattr(torch, name)()


def arrays(output: Any) -> dict[str, Array]:
    """The tensors of an output as NumPy arrays on the host, by path (`as_array`)."""
    found = {path: as_array(tensor) for path, tensor in tensors_of_output(output).items()}
    if not found:
        kind = type(output).__name__  # other objects may hold some in their attributes
        text = f"no tensors were found in its output ({kind}), so nothing can be checked"
        raise unusable(text, "return tensors, or lists, dictionaries or dataclasses of them")
    return found


@cache
def reference(code: Code, batch: int | None, within: str) -> Reference:
    """The reference at `batch`, computed by the first worker that needs it.

    Reading it does not import torch, which a worker of ONNX Runtime does not need otherwise.
    """
    folder = folder_of(code, batch)
    file = folder / KEPT
    if file.exists():
        shared: Reference = pickle.loads(file.read_bytes())  # noqa: S301 - ours
        return shared
    subject = subject_of(code)
    with true_fp32(code.home):
        found = _computed(subject, batch, within)
    samples.write(folder / samples.REFERENCE, [found.outputs])  # for the lab and its tasks
    write.replace(file, pickle.dumps(found))
    return found


def _computed(subject: Subject, batch: int | None, within: str) -> Reference:
    example = subject.example(batch)

    def answers(seed: int | None = None) -> dict[str, Array]:
        with user_errors(subject.name):
            module = subject.copy()
            if seed is not None:
                seed_loaded(seed)
            return arrays(call(module, example, within=within))

    eager, state, began = answers(), torch.get_rng_state(), time.perf_counter()
    again, took_s = answers(), time.perf_counter() - began
    draws = not torch.equal(state, torch.get_rng_state())
    for name, values in eager.items():
        if values.dtype.kind == "f" and values.size and np.isnan(values).all():
            output = f"its output {name}".rstrip()
            text = f"{output} holds only NaN, with which nothing can be compared"
            raise unusable(text, "give inputs in the range of the module")
    if [each.shape for each in again.values()] != [each.shape for each in eager.values()]:
        text = f"equal calls of {subject.name} return outputs of different shapes"
        raise unusable(text, "let it draw its random numbers from a seed of its own")
    names, outputs = [name or "output" for name in eager], list(eager.values())
    own = errors(list(again.values()), outputs)
    for _ in range(DRAWS if draws and DRAWS * took_s < DRAWS_SHARE * subject.code.seconds else 0):
        own = [*map(max, own, errors(list(answers().values()), outputs))]
    varies, seeded = max(own) > SAME, dict[int, Array]()
    if max(own) > MOST_FLOOR:
        drawn, same = (list(answers(subject.code.seed).values()) for _ in range(2))
        pairs = enumerate(zip(own, errors(same, drawn), strict=True))
        seeded = {n: drawn[n] for n, (apart, off) in pairs if apart > MOST_FLOOR and off <= SAME}
    if len(seeded) == len(outputs):
        return Reference(names, outputs, own, DRAWN, varies=True, seeded=seeded)
    source = "eager as written"
    if affords_float64(subject.code, took_s):
        exact = _in_float64(subject, example, within, eager)
        with suppress(WorkloadError):  # raised where a value is finite in float64 alone
            found = errors(outputs, exact)
            if exact and all(map(math.isfinite, found)):
                floors = [*map(max, found, own)]
                source, outputs, own = "eager in float64", exact, floors
    return Reference(names, outputs, own, source, varies=varies, seeded=seeded)


def affords_float64(code: Code, call_s: float) -> bool:
    """Whether there is time for a call in float64 on `code.home`, if one takes `call_s` in FP32."""
    is_fast = kind_of(code.home).on_host or (
        code.home.startswith("cuda") and torch.cuda.get_device_capability(code.home) in HALF_RATE
    )
    return (EXACT_COST if is_fast else SLOW_COST) * call_s < code.seconds / 2


def errors(answers: Sequence[Array], references: Sequence[Array]) -> list[float]:
    """The relative error of each output; for labels, the share that differs."""
    names = [str(place) for place in range(len(references))]
    return [each.relative_error for each in agreement.compare(names, [answers], [references])]


def _in_float64(
    subject: Subject, example: Example, within: str, eager: dict[str, Array]
) -> list[Array]:
    """The outputs in float64; [] if the module cannot compute in it."""

    def doubled(tensor: Any) -> Any:
        wide = tensor.to(torch.complex128) if tensor.is_complex() else tensor
        return tensor.double() if tensor.is_floating_point() else wide

    try:
        output = call(subject.copy().double(), example.mapped(doubled), within=within)
        found = arrays(output)
    except Exception:
        return []
    types = {x.dtype for x in tensors_of_output(output).values()}
    types = {kind for kind in types if kind.is_floating_point or kind.is_complex}
    shapes = {name: values.shape for name, values in found.items()}
    is_alike = shapes == {name: values.shape for name, values in eager.items()}
    return list(found.values()) if is_alike and types <= {torch.float64, torch.complex128} else []
