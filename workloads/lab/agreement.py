"""The errors of a variant: its outputs compared with those of the original model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.contract import OutputAccuracy, WorkloadError
from workbench.worker.libraries import Array, np

from .samples import Samples

_FLOATS = ("float", "double", "float16")
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
QUANTITIES = {f"tensor({n})" for n in (*_FLOATS, *_INTEGERS) if n[-2:] not in ("32", "64")}
MOST_LISTED = 3  # entries of a part that are no range
CHUNK = 1 << 16  # values that are compared at a time: copies of millions leave the caches
COMPARABLE = {f"tensor({name})" for name in (*_FLOATS, *_INTEGERS, "bool", "string")}
Pairs = Sequence[tuple[Array, Array]]  # an answer and its reference, for each sample


@dataclass(frozen=True)
class Part:
    """Entries of an output along one axis that have an error of their own (see `parts`)."""

    axis: int
    size: int  # length of the axis
    places: list[int]  # in order

    def of(self, array: Array) -> Array:
        return np.take(array, self.places, self.axis)

    @property
    def label(self) -> str:
        """`[:, 4:84]`, as in NumPy, or the first of its entries."""
        first, last = self.places[0], self.places[-1]
        text = f"{first}:{last + 1}"
        if last - first + 1 != len(self.places):
            more = ", ..." if len(self.places) > MOST_LISTED else ""
            text = f"[{', '.join(map(str, self.places[:MOST_LISTED]))}{more}]"
        return f"[{':, ' * self.axis}{text}]"


def pieces(pairs: Pairs, parts: Sequence[Part]) -> Iterator[tuple[str | None, Pairs]]:
    """Each part by its label, or the whole without any, or if its size is another."""
    if any(array.shape[p.axis : p.axis + 1] != (p.size,) for p in parts for _, array in pairs):
        parts = ()
    for part in parts:
        yield part.label, [(part.of(one), part.of(other)) for one, other in pairs]
    if not parts:
        yield None, pairs


def compared(session: Any) -> list[str]:
    """The names of the outputs that can be compared; a classifier's maps cannot."""
    return [port.name for port in session.get_outputs() if port.type in COMPARABLE]


def answer(session: Any, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs `names` of one run; text in NumPy's own type, since files hold no pickles."""
    found = session.run(list(names), dict(feeds))
    return [array.astype(str) if array.dtype.kind == "O" else array for array in found]


def feeds(session: Any, samples: Samples) -> list[dict[str, Array]]:
    """Each sample, whose arrays are in the order of the inputs, by their names."""
    names = [port.name for port in session.get_inputs()]
    return [dict(zip(names, sample, strict=True)) for sample in samples]


def answers(session: Any, samples: Samples) -> list[list[Array]]:
    """The comparable outputs of each sample."""
    outputs = compared(session)
    return [answer(session, outputs, each) for each in feeds(session, samples)]


def error(session: Any, samples: Samples, references: Samples) -> float:
    """The relative error of the worst output."""
    outputs = compare(compared(session), answers(session, samples), references)
    return summary(outputs, "relative_error")


def compare(
    names: Sequence[str],
    answers: Samples,
    references: Samples,
    parts: Sequence[Sequence[Part]] = (),
) -> list[OutputAccuracy]:
    """One result per output over all samples; `answers` and `references` hold samples of outputs.
    An output with `parts` has the error of the worst.  WorkloadError if shapes differ, or an answer
    is not finite although its reference is."""
    found = []
    for place, name in enumerate(names):
        both = zip(answers, references, strict=True)
        pairs = [(np.asarray(one[place]), np.asarray(other[place])) for one, other in both]
        whole = _compared(name, pairs)
        if parts and parts[place]:
            each = (replace(_compared(name, p), part=n) for n, p in pieces(pairs, parts[place]))
            worst = max(each, key=lambda one: one.relative_error)
            whole = replace(worst, cosine=whole.cosine, top1_agreement=whole.top1_agreement)
        found.append(whole)
    return found


def _compared(name: str, pairs: Pairs) -> OutputAccuracy:
    by_sample = np.array([sums(*pair, name) for pair in pairs])
    labels = holds_labels(pairs[0][1])
    errors = [_relative(off, whole, labels=labels) for off, whole, *_ in by_sample]
    off, whole, length, product = by_sample.sum(axis=0).tolist()
    scale = math.sqrt(whole * length)
    worst = int(np.argmax(errors))
    is_named = all(has_classes(reference) for _, reference in pairs)
    stay = 1.0 - float(np.mean([differing(*pair) for pair in pairs])) if is_named else None
    return OutputAccuracy(
        name=name,
        relative_error=_relative(off, whole, labels=labels),
        cosine=product / scale if scale > 0 else None,
        top1_agreement=stay,
        worst_sample=worst,
        worst_error=errors[worst],
    )


def summary(outputs: Sequence[OutputAccuracy], metric: str) -> float:
    """The value of the worst output, 0 without outputs.  `metric`: "relative_error", or
    "disagreement", the share of samples whose top entry changes."""
    if metric == "relative_error":
        return max((output.relative_error for output in outputs), default=0.0)
    shares = [o.top1_agreement for o in outputs if o.top1_agreement is not None]
    if not shares:
        text = "no output has classes to agree on"
        raise WorkloadError(text, hint="use --max-error instead of --min-agreement")
    return 1.0 - min(shares)


def differing(answer: Array, reference: Array) -> float:
    """The share of labels that change, or of rows or pixels by their largest entry; 0 without any,
    as where nothing is found."""
    if not reference.size:
        return 0.0
    if holds_labels(reference):
        return float(np.mean(answer != reference))
    axis = _classes(reference)
    return float(np.mean(answer.argmax(axis) != reference.argmax(axis)))


def has_classes(reference: Array) -> bool:
    has_rows = reference.ndim >= 1 and reference.shape[_classes(reference)] >= 2
    return (has_rows and reference.dtype.kind == "f") or holds_labels(reference)


def _classes(reference: Array) -> int:
    """The axis of the classes: the last, or the channels of pictures in PyTorch's layout.  The two
    sides of a picture are equal, or else each is longer than the number of channels."""
    if reference.ndim < 4:
        return -1
    _, first, *_, last = shape = reference.shape
    if (first == shape[-2]) != (shape[2] == last):
        return 1 if shape[2] == last else -1
    return 1 if first < last else -1


def holds_labels(reference: Array) -> bool:
    """Whether an output holds labels, as text, booleans and wide integers do; integers of 8 and 16
    bits are quantities, such as the levels of a picture."""
    kind, width = reference.dtype.kind, reference.dtype.itemsize
    return kind != "f" and not (kind in "iu" and width <= 2)


def sums(answer: Array, reference: Array, name: str = "") -> tuple[float, ...]:
    """The squared norms of the difference, the reference and the answer, and the product of both.
    Entries whose reference is not finite are left out, but if that is infinite, the answer must
    have its sign: INT8 puts large numbers there."""
    if answer.shape != reference.shape:
        text = f"output {name} has shape {answer.shape}, the original's {reference.shape}"
        hint = "if values decide its shape, as in NMS, export the model without that part"
        raise WorkloadError(text, code="wrong_result", hint=hint)
    if holds_labels(reference):  # right or wrong, not near
        answer, reference = answer == reference, np.ones(reference.shape)
    one, other = answer.reshape(-1), reference.reshape(-1)
    places = range(0, one.size or 1, CHUNK)
    parts = [_sums(one[at : at + CHUNK], other[at : at + CHUNK], name) for at in places]
    return tuple(map(sum, zip(*parts, strict=True)))


def _sums(answer: Array, reference: Array, name: str) -> list[float]:
    answer, reference = answer.astype(np.float64), reference.astype(np.float64)
    known = np.isfinite(reference)
    if not known.all():
        infinite = ~known & ~np.isnan(reference)
        if not (np.sign(answer[infinite]) == np.sign(reference[infinite])).all():
            text = f"output {name} lacks the sign of the original where that is infinite"
            raise WorkloadError(text, code="wrong_result")
        answer, reference = answer[known], reference[known]
    if not np.isfinite(answer).all():
        text = f"output {name} has NaN or infinity where the original has none"
        raise WorkloadError(text, code="non_finite")
    off = answer - reference
    pairs = (off, off), (reference, reference), (answer, answer), (answer, reference)
    # Not `@`: its threads take hundreds of times longer where other processes use the cores.
    return [float(np.einsum("i,i->", one, other)) for one, other in pairs]


def _relative(off: float, whole: float, *, labels: bool) -> float:
    """The relative error, from the squared norms of the difference and of the reference; for
    labels, the share that differs."""
    share = off / whole if whole else float(off > 0)
    return share if labels else math.sqrt(share)
