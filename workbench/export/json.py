"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ..records.encoding import encode
from ..report.report import Report

# An array of numbers, one a line; no string holds a line break, so none can match.
NUMBERS = re.compile(r"\[(\n\s+)[\d.,eE+-][\s\d.,eE+-]*\]")
EMPTY = '"measurements": ['


def dump(value: Any) -> str:
    """`value` as indented JSON, arrays of numbers on one line for the sake of people."""
    text = msgspec.json.format(encode(value), indent=2).decode()
    return NUMBERS.sub(_on_one_line, text)


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match.group()[:-1].rstrip().replace(match.group(1), ' ')} ]"


def document_parts(report: Report) -> Iterator[str]:
    """The text of `dump(report.document())`, with one measurement at a time in memory."""
    before, empty, after = dump(report.document_with([])).partition(EMPTY)
    yield before + empty
    separator = ""
    for measurement in report.each_measurement():
        yield f"{separator}\n    " + dump(measurement).replace("\n", "\n    ")
        separator = ","
    yield ("\n  " if separator else "") + after
