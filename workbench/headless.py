"""A run without a screen: `--json`, `--jsonl` and plain text."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import events as ev
from .context import Listener
from .control import Control
from .engine import Engine
from .export.json import dump
from .export.log import line
from .export.text import run_text
from .plan import RowPlan
from .report import Report
from .request import Request


def run_headless(
    request: Request, rows: list[RowPlan], *, mode: str, output: Path | None, take_control: bool
) -> int:
    """Run in this process; `mode` is "json", "jsonl" or "plain".  Returns the exit code.

    stdout gets the result and nothing else, stderr the log.
    """
    control = Control(sys.stdin.fileno() if take_control else None)
    report = Report()
    listener = event_writer(output) if mode == "jsonl" else log_writer(report)
    with control.signals():
        code = Engine(request, rows, control, report, listener).run()
    if mode == "jsonl":
        return code
    if output is not None:
        write_atomically(output, dump(report.document()) + "\n")
    elif mode == "json":
        sys.stdout.write(dump(report.document()) + "\n")
    if mode == "plain":
        sys.stdout.write(run_text(report) + "\n")
    sys.stdout.flush()
    return code


def run_quietly(request: Request, rows: list[RowPlan] | None = None) -> tuple[Report, int]:
    """A run with its log on stderr and nothing on stdout; its report and exit code."""
    control, report = Control(), Report()
    with control.signals():
        code = Engine(request, rows or [], control, report, log_writer(report)).run()
    return report, code


def event_writer(output: Path | None) -> Listener:
    """Each event as a line of JSON, at once, to `output` or stdout."""
    stream = sys.stdout.buffer if output is None else output.open("wb")

    def write(event: ev.AnyEvent) -> None:
        stream.write(ev.encode(event) + b"\n")
        stream.flush()

    return write


def log_writer(report: Report) -> Listener:
    """What happens, in words, on stderr."""

    def write(event: ev.AnyEvent) -> None:
        text = line(event, report)
        if text is not None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    return write


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader sees the old document or the whole new one."""
    if path.exists() and not path.is_file():  # a pipe or /dev/stdout cannot be replaced
        path.write_text(text)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_text(text)
    beside.replace(path)
