"""Faults in the description of a user's workload or backend, one line each."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Annotated

import msgspec

from ..contract import (
    COLUMNS,
    LARGEST,
    MOST_BATCH,
    MOST_THREADS,
    PRECISIONS,
    Case,
    Parameter,
    ParameterValue,
    ParameterValues,
    Variant,
    Work,
)
from ..text.sanitize import shown

LEAST_ITEMS = 1e-30  # a journal refuses smaller numbers
LONGEST_WORD = 60  # characters of a name
TRANSFERS = ("step", "setup", "")
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=64)]


class WorkloadDescription(msgspec.Struct, frozen=True):
    """The attributes of a `Workload`."""

    title: str
    teaches: str
    parameters: Annotated[tuple[Parameter, ...], msgspec.Meta(max_length=64)]
    variants: Annotated[tuple[Variant, ...], msgspec.Meta(min_length=1, max_length=256)]
    default_batch: Annotated[int, msgspec.Meta(ge=1, le=MOST_BATCH)] | None
    quick: dict[str, ParameterValue]
    latency: bool
    convolves: bool
    isolates: bool


class BackendDescription(msgspec.Struct, frozen=True):
    """The attributes of a `Backend`."""

    install: str
    packages: Names
    thread_variables: Names
    threads_fixed_at_import: bool
    own_environment: bool
    oldest: str
    newest: str
    platforms: Names


def in_workload(found: WorkloadDescription) -> Iterator[str]:
    """Faults of the attributes of a workload."""
    names = [parameter.name for parameter in found.parameters]
    for name in names:
        if not _is_word(name) or not name.isidentifier() or names.count(name) > 1:
            yield f"parameter {shown(name, 60)!r}: give each a name of its own, as in Python"
    for parameter in found.parameters:
        if wrong := _wrong_parameter(parameter):
            yield wrong
    for variant in found.variants:
        if wrong := _wrong_variant(variant):
            yield f"variant {shown(str(variant), 200)}: {wrong}"
    known = {parameter.name: parameter for parameter in found.parameters}
    for name, value in found.quick.items():
        if name == "batch":
            if not isinstance(value, int) or value < 1 or found.default_batch is None:
                yield "quick: batch must be a whole number, and default_batch must be set"
        elif name not in known:
            yield f"quick: there is no parameter {shown(name, 60)!r}"
        elif wrong := _wrong_value(known[name], value):
            yield f"quick: {wrong}"


def _wrong_parameter(parameter: Parameter) -> str | None:
    if parameter.name == "batch":
        return "parameter batch: set default_batch instead, which --batch changes"
    texts = (*parameter.choices, parameter.unit, parameter.help)
    if len(parameter.choices) > 256 or not all(map(_is_text, texts)):
        return f"parameter {parameter.name}: choices, unit and help must be short printable texts"
    return _wrong_value(parameter, parameter.default)


def _wrong_value(parameter: Parameter, value: ParameterValue) -> str | None:
    kind = type(parameter.default)
    if not isinstance(value, kind) and not (kind is float and isinstance(value, int)):
        return f"{parameter.name} is {shown(repr(value), 60)}, not of the type of its default"
    if not _is_text(str(value)):
        return f"{parameter.name} must be a short printable text"
    try:
        parameter.parse(str(value))
    except (ValueError, OverflowError) as error:
        return shown(str(error))
    return None


def _wrong_variant(variant: Variant) -> str | None:
    if variant.device_kind not in COLUMNS:
        return f"device_kind must be one of {', '.join(COLUMNS)}"
    if variant.precision not in PRECISIONS:
        return f"precision must be one of {', '.join(PRECISIONS)}"
    for word in (variant.backend, variant.quantization, variant.mode):
        if word is not None and (not _is_word(word) or "/" in word):
            return "backend, quantization and mode must be short printable texts without /"
    if variant.threads is not None and not 1 <= variant.threads <= MOST_THREADS:
        return f"threads must be between 1 and {MOST_THREADS}"
    return None


def in_work(work: Work) -> Iterator[str]:
    """Faults of the work of a case."""
    amounts = (n for n in astuple(work) if isinstance(n, (int, float)))
    if not all(0 <= n <= LARGEST for n in amounts):  # false for NaN
        yield f"amounts must be between 0 and {LARGEST:g}, not {shown(str(work))}"
    if work.items < LEAST_ITEMS or not _is_word(work.item):
        yield f"items must be at least {LEAST_ITEMS:g}, and item must name its unit"
    if work.transfers not in TRANSFERS:
        yield f"transfers must be one of {TRANSFERS}"
    if work.ranks < 1:
        yield "ranks must be at least 1"


def in_values(parameter: Parameter, values: ParameterValues) -> Iterator[str]:
    """Faults of the values that a workload proposes for a tuning parameter."""
    if len(values) > 64:
        yield f"{parameter.name} has {len(values)} values; at most 64 are allowed"
    for value in values:
        if wrong := _wrong_value(parameter, value):
            yield wrong


def in_probe(small: Case | None, case: Case, parameters: Sequence[Parameter]) -> Iterator[str]:
    """Faults of the small case that stands for `case`."""
    if small is None:
        return
    if _way(small) != _way(case):
        yield "only sizes may differ from those of the case"
    known = {parameter.name: parameter for parameter in parameters}
    for name, value in {**small.params, **small.tuning}.items():
        if name not in known or _wrong_value(known[name], value):
            yield f"{shown(name, 60)} cannot be {shown(repr(value), 60)}"
    if small.batch is not None and not 1 <= small.batch <= MOST_BATCH:
        yield f"batch must be between 1 and {MOST_BATCH}"


def _way(case: Case) -> tuple[object, ...]:
    return case.workload, case.device, case.backend, case.precision, case.quantization, case.mode


def in_backend(found: BackendDescription) -> Iterator[str]:
    """Faults of the attributes of a backend."""
    texts = (found.install, found.oldest, found.newest, *found.packages, *found.platforms)
    if not all(map(_is_text, texts)):
        yield "its texts, such as install, must be short and printable"
    if not all(name.isidentifier() and len(name) <= 100 for name in found.thread_variables):
        yield "thread_variables must be names of environment variables"


def _is_text(text: str) -> bool:
    return shown(text) == text


def _is_word(text: str) -> bool:
    return 0 < len(text) <= LONGEST_WORD and text.isprintable()
