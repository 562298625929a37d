"""Fields of a dataclass that options of the command line set, and how to write them there."""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from typing import Any


def set_by(name: str, default: Any) -> Any:
    return field(default=default, metadata={"option": name})


def given(options: Any) -> dict[str, Any]:
    """The options that are set, with their values."""
    known = {each.metadata["option"]: each for each in fields(options) if each.metadata}
    values = {name: getattr(options, each.name) for name, each in known.items()}
    return {name: value for name, value in values.items() if value != known[name].default}


def written(values: Mapping[str, Any]) -> Iterator[str]:
    """The words of options: a flag has the value True, a repeated option a tuple."""
    for name, value in values.items():
        if value is True:
            yield name
        elif isinstance(value, float):
            yield from (name, str(value).removesuffix(".0"))
        else:
            texts = value if isinstance(value, tuple) else (str(value),)
            yield from (part for text in texts for part in (name, text))
