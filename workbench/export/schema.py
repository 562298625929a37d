"""JSON Schema of what a command writes, taken from the structures that write it."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.inspect import DataclassType, Field, StructType, Type, multi_type_info

from ..records import comparison, document, events, fleet, inspection
from .catalogue import Catalogue

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PARTS: dict[str, Any] = {
    "document": document.Document,
    "events": events.AnyEvent,
    "ab": comparison.ABReport,
    "ceilings": inspection.CeilingsReport,
    "compare": comparison.RunComparison,
    "detect": inspection.Detected,
    "doctor": inspection.DoctorReport,
    "fleet": fleet.FleetDocument,
    "fleet-plan": fleet.PlanDocument,
    "list": Catalogue,
    "runs": comparison.RunList,
    "watch": inspection.Snapshot,
}


def structures(known: object) -> Iterator[type]:
    """The structures in a description by `msgspec.inspect`."""
    if isinstance(known, Field | Type):
        if isinstance(known, StructType | DataclassType):
            yield known.cls
        known = msgspec.structs.astuple(known)
    for part in known if isinstance(known, tuple) else ():
        yield from structures(part)


STRUCTURES = {found.__name__: found for found in structures(multi_type_info(PARTS.values()))}
# A field of a structure, with the comment above it or behind it.
FIELD = re.compile(r"((?:^    # .*\n)*)^    (\w+): [^#\n]*(?:# (.*))?$", re.MULTILINE)


def schema_of(part: str) -> dict[str, Any]:
    """The schema of one of PARTS; that of events and of `watch` is for each line."""
    schema = {"$schema": DIALECT, "title": f"workbench: {part}", **msgspec.json.schema(PARTS[part])}
    for name, definition in schema["$defs"].items():
        definition.pop("additionalProperties", None)  # a later version may add keys
        for field, comment in _comments(STRUCTURES[name]):
            definition["properties"][field]["description"] = comment
        if version := definition["properties"].get("schema_version"):
            version["const"] = document.SCHEMA_VERSION
    return schema


def _comments(structure: type) -> Iterator[tuple[str, str]]:
    """The comments on the fields of a structure, by the names that the fields have in JSON."""
    names = (getattr(structure, f"__struct_{each}__", ()) for each in ("fields", "encode_fields"))
    written = dict(zip(*names, strict=True))
    for part in structure.__mro__:
        if not part.__module__.startswith("workbench."):
            continue
        for above, name, behind in FIELD.findall(inspect.getsource(part)):
            comment = " ".join([*re.findall(r"# (.*)", above), behind]).strip()
            if comment:
                yield written.get(name, name), comment
