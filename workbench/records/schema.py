"""JSON Schema of what a run writes, taken from the structures that write it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from .. import contract
from . import code, document, events, machine, model, reason, verdict

DIALECT = "https://json-schema.org/draft/2020-12/schema"
STRUCTURES = {
    name: found
    for module in (contract, code, document, events, machine, model, reason, verdict)
    for name, found in vars(module).items()
    if isinstance(found, type)
}
# A field of a structure, with the comment above it or behind it.
FIELD = re.compile(r"((?:^    # .*\n)*)^    (\w+): [^#\n]*(?:# (.*))?$", re.MULTILINE)


def document_schema() -> dict[str, Any]:
    """The schema of the JSON document."""
    return _schema(document.Document, "The JSON document of a run of workbench", "Document")


def events_schema() -> dict[str, Any]:
    """The schema of one line of --jsonl or of a journal."""
    return _schema(events.AnyEvent, "An event of a run of workbench", "RunStarted")


def _schema(kind: Any, title: str, versioned: str) -> dict[str, Any]:
    """The schema of `kind`; the structure called `versioned` holds the schema's version."""
    schema = {"$schema": DIALECT, "title": title, **msgspec.json.schema(kind)}
    for name, definition in schema["$defs"].items():
        for field, comment in _comments(STRUCTURES[name]):
            definition["properties"][field]["description"] = comment
    version = schema["$defs"][versioned]["properties"]["schema_version"]
    version["const"] = document.SCHEMA_VERSION
    return schema


def _comments(structure: type) -> Iterator[tuple[str, str]]:
    """The comments on the fields of a structure, by the names that the fields have in JSON."""
    names = (getattr(structure, f"__struct_{each}__", ()) for each in ("fields", "encode_fields"))
    written = dict(zip(*names, strict=True))
    for part in structure.__mro__:
        if part not in STRUCTURES.values():
            continue
        for above, name, behind in FIELD.findall(inspect.getsource(part)):
            comment = " ".join([*re.findall(r"# (.*)", above), behind]).strip()
            if comment:
                yield written.get(name, name), comment
