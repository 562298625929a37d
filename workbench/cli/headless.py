"""A run without a screen: `--json`, `--jsonl` and plain text."""

from __future__ import annotations

import sys
from pathlib import Path

from ..engine.context import Listener
from ..engine.engine import Engine
from ..engine.exit_codes import CUT_SHORT, FAILED
from ..export.json import dump
from ..export.log import line
from ..export.text import run_text
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.control import Control
from ..records import events as ev
from ..report import journal
from ..report.report import Report
from ..text.output import beside_of, let_go, say


def run_headless(
    request: Request, rows: list[RowPlan], *, mode: str, output: Path | None, take_control: bool
) -> int:
    """Run in this process; `mode` is "json", "jsonl" or "plain".  Returns the exit code.

    stdout gets the result and nothing else, stderr the log.
    """
    control = Control(sys.stdin.fileno() if take_control else None)
    report = Report()
    events = EventWriter(output) if mode == "jsonl" else None
    with control.signals():
        code = Engine(request, rows, control, report, events or log_writer(report)).run()
    if events is not None:
        return code if events.error is None else unwritten(output, events.error, report, code)
    if output is not None:
        code = save(output, report, code)
    elif mode == "json":
        code = _print(dump(report.document()), report, code)
    return _print(run_text(report), report, code) if mode == "plain" else code


def save(output: Path, report: Report, code: int) -> int:
    """Write the document of a run that ended with `code`; the exit code then."""
    try:
        write_atomically(output, dump(report.document()) + "\n")
    except OSError as error:
        return unwritten(output, error, report, code)
    return code


def _print(text: str, report: Report, code: int) -> int:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return unwritten(None, error, report, code)
    return code


def unwritten(output: Path | None, error: OSError, report: Report, code: int) -> int:
    """Say that `output`, or stdout, did not take the result, and where the run is kept; the exit
    code then."""
    if output is None:
        let_go(sys.stdout)
    run = report.started.id if report.started else ""
    kept = f"the run is kept: `workbench open {run} --json`"
    where = kept if journal.is_kept(run) else "the run is not kept"
    say(f"workbench: {output or 'stdout'} cannot be written: {error.strerror}; {where}")
    return code if code == CUT_SHORT else FAILED


def run_quietly(request: Request, rows: list[RowPlan] | None = None) -> tuple[Report, int]:
    """A run with its log on stderr and nothing on stdout; its report and exit code."""
    control, report = Control(), Report()
    with control.signals():
        code = Engine(request, rows or [], control, report, log_writer(report)).run()
    return report, code


class EventWriter:
    """Each event as a line of JSON, at once, to `output` or stdout, until one cannot be written:
    the run goes on for its journal, and `error` says why."""

    def __init__(self, output: Path | None) -> None:
        self._stream = sys.stdout.buffer if output is None else output.open("wb", buffering=0)
        self.error: OSError | None = None

    def __call__(self, event: ev.AnyEvent) -> None:
        if self.error is not None:
            return
        try:
            self._stream.write(ev.encode(event) + b"\n")
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.error = error


def log_writer(report: Report) -> Listener:
    """What happens, in words, on stderr."""

    def write(event: ev.AnyEvent) -> None:
        text = line(event, report)
        if text is not None:
            say(text)

    return write


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader sees the old document or the whole new one."""
    if path.exists() and not path.is_file():  # a pipe or /dev/stdout cannot be replaced
        path.write_text(text)
        return
    beside = beside_of(path)
    try:
        beside.write_text(text)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
