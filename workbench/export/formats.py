"""The formats of a run; a new one is an entry here and a branch of `whole`.

Functions import what they need when called, since every command reads these tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from ..text.output import terminal_width
from ..text.sanitize import clean

if TYPE_CHECKING:
    from ..report.report import Report

DOCUMENT, EVENTS, PLAIN = "json", "jsonl", "plain"
FORMATS = {  # option to its help
    DOCUMENT: "One JSON document on stdout.",
    EVENTS: "Events on stdout, one a line.",
    PLAIN: "Text, even in a terminal.",
}

FILES = {  # the formats of `workbench export`, by the names of their options and modules
    "html": "One page with plots, for a browser.",
    "markdown": "Tables for a pull request or an issue.",
    "csv": "All samples, one a line.",
    "openmetrics": "Gauges for a textfile collector.",
}

SUFFIXES = {"markdown": "md", "openmetrics": "prom"}  # file suffixes that differ from the name


def whole(name: str, report: Report, *, samples: bool = True) -> Iterable[str | bytes]:
    """The parts of a run that has ended, in any of FORMATS but EVENTS, which come one by one."""
    if name == PLAIN:
        from .text import run_text

        parts = run_text(report, terminal_width()).split("\t")  # tabs of code to paste stay
        return ["\t".join(map(clean, parts))]
    from .json import document_parts

    return document_parts(report, samples=samples)


def file_text(name: str, report: Report) -> str:
    """A run in one of the formats of FILES, or as the document."""
    if name == DOCUMENT:
        from .json import document_parts

        return b"".join(document_parts(report)).decode()
    return str(import_module(f".{name}", __package__).text(report))
