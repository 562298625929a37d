"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..records.encoding import encode

# An array of numbers, one a line; no string holds a line break, so none can match.
NUMBERS = re.compile(r"\[\n[\s\d.,eE+-]+\]")


def dump(value: Any) -> str:
    """`value` as indented JSON, arrays of numbers on one line for the sake of people."""
    text = msgspec.json.format(encode(value), indent=2).decode()
    return NUMBERS.sub(lambda match: " ".join(match.group().split()), text)
