"""Checks of a scenario's fields against each other and against its workload."""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from .. import catalog
from ..contract import MOST_BATCH, Parameter, ParameterValue, Workload, WorkloadError
from ..text.sanitize import shown
from ..text.toml_file import Key, TomlFile
from .scenario import Scenario, Size
from .usage import unknown

# Without brackets, which the names of points have: `id[batch=4]`.
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")

Fault = tuple[tuple[Key, ...], str]  # the keys that lead to the field, and the reason


def sound(file: TomlFile, place: int, row: Scenario) -> Scenario:
    """`row` with its parameters in the workload's types; TomlError names the first fault."""
    for keys, reason in _faults(row):
        raise file.error(reason, ("scenario", place, *keys))
    known = {p.name: p for p in catalog.load(row.workload).parameters}
    quick = msgspec.structs.replace(row.quick, params=_typed(known, row.quick.params))
    return msgspec.structs.replace(row, params=_typed(known, row.params), quick=quick)


def _faults(row: Scenario) -> Iterator[Fault]:
    yield from _unreadable(row)
    yield from _at_odds(row)
    try:
        names = list(catalog.files())
        if row.workload not in names:
            yield ("workload",), str(unknown("workload", row.workload, names))
            return
        workload = catalog.load(row.workload)
    except WorkloadError as error:
        yield ("workload",), str(error)
        return
    yield from _not_offered(row, workload)
    yield from _wrong_values(row, workload)


def _unreadable(row: Scenario) -> Iterator[Fault]:
    """Texts that are empty or unsafe to print."""
    if not ID.fullmatch(row.id):
        name = shown(repr(row.id), 60)
        yield ("id",), f"id {name}: use at most 40 letters, digits, _ . and -, and no leading dash"
    texts: dict[tuple[Key, ...], object] = {
        (name,): getattr(row, name) for name in ("title", "question", "source")
    }
    texts |= {("params", name): value for name, value in row.params.items()}
    texts |= {("quick", "params", name): value for name, value in row.quick.params.items()}
    for keys, text in texts.items():
        if not str(text).isprintable():
            yield keys, f"{keys[-1]}: contains a control character or a line break"
    for name in ("title", "question"):
        if not getattr(row, name).strip():
            yield (name,), f"{name}: must not be empty"


def _at_odds(row: Scenario) -> Iterator[Fault]:
    """Fields that contradict each other, independent of the workload."""
    for precision in row.reference_only:
        if precision in row.precisions:
            yield ("apart",), f"apart: {precision} is also in precisions; list it only once"
    counts = [count for count in row.threads if count != "all"]
    limit = row.limits.threads
    if limit is not None and len(counts) == len(row.threads) and min(counts) > limit:
        text = f"limits.threads = {limit} is below every entry of threads (least: {min(counts)})"
        yield ("limits", "threads"), text
    if row.size is not None and row.size.low >= row.size.high:
        text = f"size: low = {row.size.low:g} must be below high = {row.size.high:g}"
        yield ("size", "low"), text


def _not_offered(row: Scenario, workload: Workload) -> Iterator[Fault]:
    """Precisions and modes for which the workload has no variant."""
    gpu = [v for v in workload.variants if v.device_kind == "gpu"]
    for field, variants in (("modes", workload.variants), ("gpu_modes", gpu)):
        modes = list(dict.fromkeys(v.mode for v in variants if v.mode))
        for mode in getattr(row, field) or ():
            if mode not in modes:
                yield (field,), _unknown("mode", workload, mode, modes)
    usual = [v for v in workload.variants if v.mode in row.modes_on(v.device_kind)]
    offered = list(dict.fromkeys(v.precision for v in usual))
    for name, listed in (("precisions", row.precisions), ("apart", row.reference_only)):
        for precision in listed:
            if precision not in offered:
                yield (name,), _unknown("precision", workload, precision, offered)


def _wrong_values(row: Scenario, workload: Workload) -> Iterator[Fault]:
    """Parameters, batches and sizes that the workload lacks, or that are out of range."""
    known = {p.name: p for p in workload.parameters}
    for at, params in ((("params",), row.params), (("quick", "params"), row.quick.params)):
        for name, value in params.items():
            if reason := _wrong(workload, known, name, value):
                yield (*at, name), reason
    for keys, batch in ((("batch",), row.batch), (("quick", "batch"), row.quick.batch)):
        if batch is not None and workload.default_batch is None:
            yield keys, f"batch: {workload.name} has no batch; leave it out"
    if row.size is not None:
        yield from _wrong_size(row.size, workload, known)


def _wrong_size(size: Size, workload: Workload, known: Mapping[str, Parameter]) -> Iterator[Fault]:
    numbers = {n: p for n, p in known.items() if not (p.tuning or isinstance(p.default, str))}
    if workload.default_batch is not None:
        numbers["batch"] = Parameter("batch", 1, "items in a step", 1, MOST_BATCH)
    if size.name not in numbers:
        yield ("size", "name"), _unknown("size", workload, size.name, numbers)
        return
    for end in ("low", "high"):
        value = getattr(size, end)
        if reason := _wrong(workload, numbers, size.name, int(value) if value % 1 == 0 else value):
            yield ("size", end), f"size.{end}: {reason}"


def _wrong(
    workload: Workload, known: Mapping[str, Parameter], name: str, value: ParameterValue
) -> str | None:
    """Why `name` cannot be `value`; None if it can."""
    if name not in known:
        return _unknown("parameter", workload, name, known)
    if known[name].tuning:
        return f"{name} is a tuning parameter: its values race each other; narrow them with --set"
    if isinstance(value, str) != isinstance(known[name].default, str):
        noun = "text in quotes" if isinstance(known[name].default, str) else "a number"
        return f"{name} takes {noun}, not {shown(repr(value), 60)}"
    try:
        known[name].parse(str(value))
    except (ValueError, OverflowError) as error:
        return str(error)
    return None


def _typed(
    known: Mapping[str, Parameter], params: Mapping[str, ParameterValue]
) -> dict[str, ParameterValue]:
    return {name: known[name].parse(str(value)) for name, value in params.items()}


def _unknown(noun: str, workload: Workload, given: str, choices: Iterable[str]) -> str:
    listed = list(choices)
    if not listed:
        return f"{noun} {shown(repr(given), 60)}: {workload.name} has no {noun}s; leave it out"
    return str(unknown(f"{noun} of {workload.name}:", given, listed))
