"""An independent validator of documents and events: jsonschema with the schemas of workbench.

Its copy of the schema is stricter: this version writes every key, and no other.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from workbench.export.schema import PARTS, STRUCTURES, schema_of


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of what this very version writes."""
    for name, definition in schema["$defs"].items():
        definition["additionalProperties"] = False
        config = getattr(STRUCTURES[name], "__struct_config__", None)
        if config is None or not config.omit_defaults:
            definition["required"] = list(definition["properties"])
    return schema


@cache
def _definitions(part: str) -> dict[str, Any]:
    return strict(schema_of(part))["$defs"]


@cache
def _validator(part: str, structure: str) -> Draft202012Validator:
    """Checks one structure: a choice among all kinds of events would hide what is wrong in one."""
    defs = _definitions(part)
    return Draft202012Validator({"$ref": f"#/$defs/{structure}", "$defs": defs})


def _checked(value: Any, part: str, structure: str) -> Any:
    error = best_match(_validator(part, structure).iter_errors(value))
    assert error is None, f"{structure}, {error.json_path}: {error.message[:300]}"
    return value


def checked_document(text: str | bytes, part: str = "document") -> Any:
    """The document in `text`; fails if this version does not write such a document."""
    return _checked(json.loads(text), part, PARTS[part].__name__)


def checked_events(lines: Iterable[str | bytes]) -> list[Any]:
    """The events in `lines`; fails if this version does not write such events."""
    found = [json.loads(line) for line in lines]
    return [_checked(event, "events", event["event"]) for event in found]


def check_output(arguments: tuple[str, ...], stdout: str) -> None:
    """Check what a command printed, if that is a document or a list of events."""
    if not stdout.startswith("{") or "schema" in arguments:
        return
    if "--jsonl" in arguments:
        checked_events(stdout.splitlines())
    elif "watch" in arguments:
        for line in stdout.splitlines():
            checked_document(line, "watch")
    elif "--json" in arguments:
        part = "-".join(arguments[: 2 if arguments[:2] == ("fleet", "plan") else 1])
        checked_document(stdout, part if part in PARTS else "document")
