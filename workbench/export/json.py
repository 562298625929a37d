"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ..records.document import Measurement
from ..records.encoding import encode
from ..report.report import Report

# An array of numbers, one a line; no string holds a line break, so none can match.
NUMBERS = re.compile(r"\[(\n\s+)[\d.,eE+-][\s\d.,eE+-]*\]")
MEASUREMENTS, SAMPLES = '"measurements": [', '"samples_s": ['
AT_ONCE = 100_000  # samples that become text at a time


def dump(value: Any) -> str:
    """`value` as indented JSON, arrays of numbers on one line for the sake of people."""
    text = msgspec.json.format(encode(value), indent=2).decode()
    return NUMBERS.sub(_on_one_line, text)


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match.group()[:-1].rstrip().replace(match.group(1), ' ')} ]"


def document_parts(report: Report) -> Iterator[str]:
    """The text of `dump(report.document())`, with some samples of one measurement at a time in
    memory."""
    before, opening, after = dump(report.document_with([])).partition(MEASUREMENTS)
    yield before + opening
    separator = ""
    for measured in report.each_measurement():
        yield f"{separator}\n    "
        yield from _measurement_parts(measured)
        separator = ","
    yield ("\n  " if separator else "") + after


def _measurement_parts(measured: Measurement) -> Iterator[str]:
    samples_s = measured.samples_s
    text = dump(replace(measured, samples_s=[])).replace("\n", "\n    ")
    before, opening, after = text.partition(SAMPLES)
    yield before + opening
    separator = " "
    for start in range(0, len(samples_s), AT_ONCE):
        numbers = encode(samples_s[start : start + AT_ONCE])[1:-1].decode()
        yield separator + numbers.replace(",", ", ")
        separator = ", "
    yield (" " if samples_s else "") + after
