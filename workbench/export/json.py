"""JSON: the document of a run, and the smaller ones of `detect` and `list`."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ..records.document import Measurement
from ..records.encoding import encode
from ..report.report import Report


def dump(value: Any) -> str:
    """`value` as indented JSON."""
    return msgspec.json.format(encode(value), indent=2).decode()


def document_parts(report: Report, *, samples: bool = True) -> Iterator[bytes]:
    """The JSON of `report.document()`, with one measurement, verdict or other entry per line; only
    one measurement at a time is in memory."""
    document, before = report.document([]), b"{"
    for name in document.__struct_fields__:
        yield b'%b\n  "%b": ' % (before, name.encode())
        value = getattr(document, name)
        if name == "measurements":
            yield from _list(_measurement(each, samples) for each in report.each_measurement())
        elif isinstance(value, list):
            yield from _list(value)
        else:
            yield encode(value)
        before = b","
    yield b"\n}"


def _list(entries: Iterable[Any]) -> Iterator[bytes]:
    """A JSON array with a line for each entry."""
    before = b"["
    for entry in entries:
        yield b"%b\n    %b" % (before, encode(entry))
        before = b","
    yield b"[]" if before == b"[" else b"\n  ]"


def _measurement(found: Measurement, samples: bool) -> Measurement:
    samples_s, lead_in_s = (found.samples_s, found.lead_in_s) if samples else ([], [])
    return replace(found, samples_s=rounded(samples_s), lead_in_s=rounded(lead_in_s))


def rounded(seconds: Iterable[float]) -> msgspec.Raw:
    """Samples as JSON with six significant digits, which changes statistics by less than 1e-5."""
    values = tuple(seconds)
    return msgspec.Raw(f"[{'%.6g,' * len(values) % values}".rstrip(",").encode() + b"]")
