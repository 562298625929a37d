"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from __future__ import annotations

from typing import Any

import msgspec


def dump(value: Any) -> str:
    """`value` as indented JSON; paths of raw samples stay on few lines for people's sake."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
