"""The scenarios of `assets/scenarios.toml`, which documents each field, and of a user's file."""

import datetime
import difflib
import re
import shlex
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from .. import catalog
from ..assets import path as asset
from ..contract import MOST_THREADS
from ..stats.objectives import OBJECTIVES
from ..text.sanitize import shown
from ..text.toml_file import Key, TomlError, TomlFile, read
from .scenario import Limits, Quick, Scenario, Size
from .usage import UsageError, unknown

NESTED: Mapping[str, type[msgspec.Struct]] = {"quick": Quick, "limits": Limits, "size": Size}
_EXTRA = re.compile("Object contains unknown field `(.*?)`(?: - at `(.*)`)?", re.DOTALL)
_ABSENT = re.compile("Object missing required field `(.*)`")
_STEP = re.compile(r"\.(\w+)")  # a name in a path such as `$.quick.params[...]`
ENUMS = {
    "textbook": '"cpu", "gpu" or "" for no usual advice',
    "objective": f"{', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]}",
    "threads": f'"all" or whole numbers from 1 to {MOST_THREADS}',
}


def load(path: Path | None = None) -> dict[str, Scenario]:
    """The shipped scenarios by id, or those of a user's file, in its order.

    UsageError names the file, the line and the fault.  A user's file is also checked for
    contradictions and unknown names.
    """
    return dict(_shipped()) if path is None else _read(path)


@cache
def _shipped() -> dict[str, Scenario]:
    return _read(None)


def _read(path: Path | None) -> dict[str, Scenario]:
    try:
        file = read(path or asset("scenarios.toml"))
        rows = [_row(file, place, table) for place, table in enumerate(_tables(file))]
        found: dict[str, Scenario] = {}
        for place, row in enumerate(rows):
            if row.id in found:
                raise file.error(f"two scenarios have the id {row.id!r}", ("scenario", place, "id"))
            if path is not None:
                from .scenario_checks import sound  # it loads workloads

                row = sound(file, place, row)
            found[row.id] = row
    except TomlError as error:
        raise UsageError(str(error)) from None
    return found


def load_with(path: str | None) -> tuple[dict[str, Scenario], list[str]]:
    """All scenarios, and the ids in the user's file, whose scenarios replace shipped ones."""
    shipped = load()
    own = {} if path is None else load(Path(path))
    return {**shipped, **own}, list(own)


def check_name(noun: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not a known one, with the command that takes it if there is one."""
    if name in known:
        return
    if "=" in name:
        raise UsageError(f"{name} is no {noun}: a parameter takes --set {shlex.quote(name)}")
    if name.endswith(".onnx"):
        taker = "model"
    elif name.endswith((".py", ".pt2")):
        taker = "advise --torch"
    elif name in load():
        taker = "advise"
    elif name in catalog.files():
        taker = "run"
    else:
        raise unknown(noun, name, known)
    raise UsageError(f"{name} is no {noun}: use `workbench {taker} {shlex.quote(name)}`")


def _tables(file: TomlFile) -> list[dict[str, Any]]:
    for name in file.tables:
        if name != "scenario":
            hint = "; is a [[scenario]] above it missing?" if name in _fields(Scenario) else ""
            raise file.error(f"expected [[scenario]], not {shown(repr(name), 60)}{hint}", (name,))
    tables = file.tables.get("scenario")
    if not (isinstance(tables, list) and tables and all(isinstance(each, dict) for each in tables)):
        raise file.error("a scenario starts with [[scenario]] in double brackets", ("scenario",))
    return tables


def _row(file: TomlFile, place: int, table: dict[str, Any]) -> Scenario:
    """One scenario, decoded; TomlError names the line of a wrong field."""
    at: tuple[Key, ...] = ("scenario", place)
    dates = (datetime.datetime, datetime.date, datetime.time)  # kept as they are, for the message
    try:
        whole = {"textbook": "", **table}
        return msgspec.convert(whole, Scenario, builtin_types=dates, str_keys=True)
    except (msgspec.ValidationError, OverflowError) as error:
        if extra := _EXTRA.fullmatch(str(error)):
            names = _STEP.findall(extra[2] or "")
            raise file.error(_no_field(extra[1], names), (*at, *names, extra[1])) from None
        message, _, where = str(error).partition(" - at `")
        if absent := _ABSENT.fullmatch(message):
            message = f"the field {absent[1]} is missing"
        names = _STEP.findall(where)
        field = names[0] if names else ""
        if field in ENUMS:
            message = f"must be {ENUMS[field]}"
        prefix = ".".join(names) or "scenario"
        raise file.error(f"{prefix}: {message}", (*at, *names)) from None


def _no_field(name: str, names: list[str]) -> str:
    """The message on an unknown field, with the fields of the table that `names` lead to."""
    known, noun = _fields(NESTED[names[0]] if names else Scenario), [*names, "a scenario"][0]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else f". Choices: {', '.join(known)}"
    return f"{noun} has no field {shown(repr(name), 60)}{hint}"


def _fields(kind: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]
