"""What a candidate's outputs are compared with, and how far off they may be.

The rule is torchbench's (pytorch, `torch/_dynamo/utils.py`, `same`): against a reference in
float64, a candidate's error may be a small multiple of eager FP32's own, plus a tolerance.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, WorkloadError
from workbench.worker.code import Code

from ..lab import agreement, samples
from .subject import Subject, subject
from .target import user_errors
from .tree import Example, tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MULTIPLE, LARGER = 2.0, 3.0  # times the error of eager FP32; the larger for reduced precision
SMALL = 1000  # elements, below which a norm says little: the larger multiple too
TOLERANCES = {"fp64": 1e-4, "fp32": 1e-4, "tf32": 1e-3}
REDUCED = 0.02  # tolerance of every other precision, as in the model lab
MOST_FLOOR = 0.1  # error of eager, beyond which nothing else can be judged
EXACT_COST = 10.0  # times the time of a call that float64 may take
KEPT = "reference.pickle"
GUARDS = ("inference_mode", "no_grad", "enable_grad")


@dataclass(frozen=True)
class Reference:
    """Reference outputs of one batch, in the order of the module's output."""

    names: list[str]
    outputs: list[Array]
    floors: list[float]  # relative error of eager FP32, or the difference of two calls if more
    source: str
    reduced: float = REDUCED  # tolerance of precisions that TOLERANCES does not have

    def judge(self, code: Code, precision: str, answers: Sequence[Array]) -> Accuracy:
        """The accuracy of `answers`, by the output that is nearest to its limit or beyond."""
        if len(answers) != len(self.outputs):
            text = f"it returns {len(answers)} tensors where eager returns {len(self.outputs)}"
            raise WorkloadError(text, code="wrong_result")
        found = agreement.compare(self.names, [answers], [self.outputs])
        if max(self.floors, default=0.0) > MOST_FLOOR:
            why = f"not checked: eager differs from itself by {max(self.floors):.0%}"
            return Accuracy("relative_error", 0.0, why, 1.0, True)
        limits = [self._limit(code, precision, place) for place in range(len(found))]
        worst = max(
            range(len(found)), key=lambda place: found[place].relative_error / limits[place]
        )
        error = found[worst].relative_error
        # Always passed: the advisor times what is over its limit once, and never picks it.
        return Accuracy("relative_error", error, self.source, limits[worst], True, tuple(found))

    def _limit(self, code: Code, precision: str, place: int) -> float:
        if code.max_error is not None:
            return code.max_error
        tolerance = TOLERANCES.get(precision, self.reduced)
        strict = precision in TOLERANCES and self.outputs[place].size >= SMALL
        return (MULTIPLE if strict else LARGER) * self.floors[place] + tolerance


def guard(name: str) -> Any:
    """The context in which the module is called; see GUARDS."""
    import torch

    return getattr(torch, name)()


def call(module: Any, example: Example, *, within: str = "inference_mode") -> Any:
    """One call with copies of the inputs, on the device of the module's first weight."""
    first = next(iter(module.parameters()), None)

    def placed(tensor: Any) -> Any:
        return tensor.clone() if first is None else tensor.clone().to(first.device)

    cloned = example.mapped(placed)
    with guard(within):
        return module(*cloned.args, **cloned.kwargs)


def arrays(output: Any) -> dict[str, Array]:
    """The tensors of an output as NumPy arrays on the host, by path.

    Reduced floats become FP32, complex numbers pairs.
    """
    import torch

    found = {}
    for path, tensor in tensors(output).items():
        plain = tensor.detach().cpu().to_dense()
        if plain.dtype in (torch.bfloat16, torch.float16):
            plain = plain.float()
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj())
        # A copy, since an output may be the module's own state.
        found[path] = plain.resolve_neg().numpy().copy()
    if not found:
        raise WorkloadError(
            f"its output ({type(output).__name__}) holds no tensors, so nothing can be checked",
            code="bad_input",
            hint="return tensors, or lists, dictionaries or dataclasses of them",
        )
    return found


def folder_of(code: Code, batch: int | None) -> Path:
    return Path(code.folder) / f"b{batch or 0}"


@cache
def reference(code: Code, batch: int | None, within: str) -> Reference:
    """The reference at `batch`, computed by the first worker that needs it."""
    folder = folder_of(code, batch)
    kept = folder / KEPT
    if not kept.exists():
        found = _computed(subject(code), batch, within)
        samples.write(folder / samples.REFERENCE, [found.outputs])  # for the lab and its tasks
        kept.write_bytes(pickle.dumps(found))
    shared: Reference = pickle.loads(kept.read_bytes())  # noqa: S301 - ours
    return shared


def _computed(one: Subject, batch: int | None, within: str) -> Reference:
    import numpy as np

    example = one.example(batch)
    with user_errors(one.name):
        eager = arrays(call(one.copy(), example, within=within))
        began = time.perf_counter()
        again = arrays(call(one.copy(), example, within=within))
    own = errors(list(again.values()), list(eager.values()))
    outputs, floors, source = eager, own, "eager in fp32"
    if EXACT_COST * (time.perf_counter() - began) < one.code.seconds / 2:
        exact = _in_float64(one, example, within, eager)
        found = [] if exact is None else errors(list(eager.values()), list(exact.values()))
        if exact is not None and all(map(math.isfinite, found)):
            outputs, source = exact, "eager in float64"
            floors = [max(pair) for pair in zip(found, own, strict=True)]
    names = [name or "output" for name in outputs]
    for name, values in outputs.items():
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise WorkloadError(
                f"its output {name or ''} holds NaN, with which nothing can be compared",
                code="bad_input",
                hint="give inputs in the range of the module",
            )
    return Reference(names, list(outputs.values()), floors, source)


def errors(answers: Sequence[Array], references: Sequence[Array]) -> list[float]:
    names = [str(place) for place in range(len(references))]
    return [each.relative_error for each in agreement.compare(names, [answers], [references])]


def _in_float64(
    one: Subject, example: Example, within: str, eager: dict[str, Array]
) -> dict[str, Array] | None:
    """The outputs in float64; None where the module does not survive it."""
    import torch

    def doubled(tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    try:
        output = call(one.copy().double(), example.mapped(doubled), within=within)
        found = arrays(output)
    except Exception:
        return None
    floats = [each for each in tensors(output).values() if each.is_floating_point()]
    alike = found.keys() == eager.keys() and all(
        found[name].shape == eager[name].shape for name in eager
    )
    return found if alike and all(each.dtype == torch.float64 for each in floats) else None
