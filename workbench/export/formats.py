"""The formats of a run; a new one is a function and an entry here.

Functions import what they need when called, since every command reads these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ..text.output import terminal_width

if TYPE_CHECKING:
    from ..report.report import Report


@dataclass(frozen=True)
class Exporter:
    """One format; its name is its option."""

    help: str
    # From a run that has ended to the parts of a text; None: events are written as they come.
    whole: Callable[[Report], Iterable[str | bytes]] | None


def document(report: Report, *, samples: bool = True) -> Iterable[bytes]:
    """The JSON document in parts, with or without its samples."""
    from .json import document_parts

    return map(str.encode, document_parts(report, samples=samples))  # UTF-8 (RFC 8259)


def _text(report: Report) -> Iterable[str]:
    from .text import run_text

    return [run_text(report, terminal_width())]


DOCUMENT, EVENTS, PLAIN = "json", "jsonl", "plain"
FORMATS = {
    DOCUMENT: Exporter("One JSON document on stdout.", document),
    EVENTS: Exporter("Events on stdout, one a line.", None),
    PLAIN: Exporter("Text, even in a terminal.", _text),
}

FILES = {  # the formats of `workbench export`, by the names of their options and modules
    "html": "One page with plots, for a browser.",
    "markdown": "Tables for a pull request or an issue.",
    "csv": "All samples, one a line.",
    "openmetrics": "Gauges for a textfile collector.",
}

SUFFIXES = {"markdown": "md", "openmetrics": "prom"}  # file suffixes that differ from the name


def file_text(name: str, report: Report) -> str:
    """A run in one of the formats of FILES, or as the document."""
    if name == DOCUMENT:
        return b"".join(document(report)).decode()
    return str(import_module(f".{name}", __package__).text(report))
