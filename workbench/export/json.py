"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..records.document import Measurement
from ..records.encoding import encode
from ..report.report import Report
from ..stats.samples import MANY

# An array of numbers, one a line; no string holds a line break, so none can match.
NUMBERS = re.compile(r"\[(\n\s+)[\d.,eE+-][\s\d.,eE+-]*\]")
SAMPLES = '"samples_s":['
AT_ONCE = 100_000  # samples that become text at a time


def dump(value: Any) -> str:
    """`value` as indented JSON, arrays of numbers on one line for the sake of people."""
    text = msgspec.json.format(encode(value), indent=2).decode()
    return NUMBERS.sub(_on_one_line, text)


def _on_one_line(match: re.Match[str]) -> str:
    return f"{match.group()[:-1].rstrip().replace(match.group(1), ' ')} ]"


def document_parts(report: Report, *, samples: bool = True) -> Iterator[str]:
    """The text of `report.document()`, each measurement, verdict and other part on a line of its
    own, with some samples of one measurement at a time in memory."""
    document, before = report.document([]), "{"
    for name in document.__struct_fields__:
        yield f'{before}\n  "{name}": '
        value = getattr(document, name)
        if name == "measurements":
            yield from _list(_measurement(each, samples) for each in report.each_measurement())
        elif isinstance(value, list):
            yield from _list([encode(each).decode()] for each in value)
        else:
            yield encode(value).decode()
        before = ","
    yield "\n}"


def _list(entries: Iterable[Iterable[str]]) -> Iterator[str]:
    """A JSON array of entries, each of which comes in parts."""
    before = "["
    for parts in entries:
        yield f"{before}\n    "
        yield from parts
        before = ","
    yield "[]" if before == "[" else "\n  ]"


def _measurement(measured: Measurement, samples: bool) -> Iterator[str]:
    samples_s, lead_in_s = (measured.samples_s, measured.lead_in_s) if samples else ([], [])
    text = encode(replace(measured, samples_s=[], lead_in_s=rounded(lead_in_s))).decode()
    before, opening, after = text.partition(SAMPLES)
    yield before + opening
    for start in range(0, len(samples_s), AT_ONCE):
        numbers = encode(rounded(samples_s[start : start + AT_ONCE]))[1:-1].decode()
        yield f",{numbers}" if start else numbers
    yield after


def rounded(seconds: Sequence[float]) -> list[float]:
    """Six significant digits of each positive sample: statistics differ by less than 1e-5."""
    if len(seconds) < MANY:
        return [float(f"{value:.6g}") for value in seconds]
    import numpy  # four times as fast, and only long runs have so many

    values = numpy.asarray(seconds)
    places = 5 - numpy.floor(numpy.log10(values)).astype(int)
    tens = numpy.array([float(f"1e{exponent}") for exponent in range(-10, 23)])[places + 10]
    digits = numpy.rint(values * tens)
    # A quotient of exact numbers is the double nearest to the decimal, as a product is not.
    shown: list[float] = (digits / tens).tolist()
    return shown
