"""A run without a screen, written to stdout or a file in one of the export formats."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from ..engine.context import Listener
from ..engine.engine import Engine
from ..engine.exit_codes import CUT_SHORT, FAILED
from ..export.formats import DOCUMENT, FORMATS, Exporter
from ..export.json import dump
from ..export.log import line
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.control import Control
from ..records import events as ev
from ..report import journal
from ..report.report import Report
from ..text.output import let_go, partial_of, say


def run_headless(
    request: Request,
    rows: list[RowPlan],
    *,
    export_as: str,
    output: Path | None,
    take_control: bool,
) -> int:
    """Run in this process; `export_as` is a key of `FORMATS`.  Returns the exit code.

    stdout gets the result and nothing else, stderr the log.
    """
    control = Control(sys.stdin.fileno() if take_control else None)
    report, exporter = Report(), FORMATS[export_as]
    events = EventWriter(exporter, output) if exporter.each is not None else None
    engine = Engine(request, rows, control, report, events or log_writer(report))
    with control.signals(), closing(engine):
        code = engine.run()
        with control.writing():
            return _deliver(report, exporter, events, output, export_as, code)


def _deliver(
    report: Report,
    exporter: Exporter,
    events: EventWriter | None,
    output: Path | None,
    export_as: str,
    code: int,
) -> int:
    """Write what the run has not written yet; returns the exit code."""
    if events is not None:
        return code if events.error is None else unwritten(output, events.error, report, code)
    if output is not None:
        code = save(output, report, code)
    if exporter.whole is not None and not (output is not None and export_as == DOCUMENT):
        code = _print(exporter.whole(report), report, code)
    return code


def save(output: Path, report: Report, code: int) -> int:
    """Write the document of a run that ended with `code`; returns the exit code."""
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
    """Say that `output`, or stdout, did not take the result, and where the run is kept; returns
    the exit code."""
    if output is None:
        let_go(sys.stdout)
    run = report.started.id if report.started else ""
    kept = f"the run is kept: `workbench open {run} --json`"
    where = kept if journal.is_kept(run) else "the run is not kept"
    say(f"workbench: {output or 'stdout'} cannot be written: {error.strerror}; {where}")
    return code if code == CUT_SHORT else FAILED


def run_quietly(request: Request, rows: list[RowPlan] | None = None) -> tuple[Report, int]:
    """A run with its log on stderr and nothing on stdout; returns its report and exit code."""
    control, report = Control(), Report()
    engine = Engine(request, rows or [], control, report, log_writer(report))
    with control.signals(), closing(engine):
        return report, engine.run()


class EventWriter:
    """Writes each event at once to `output` or stdout, until a write fails: the run goes on for
    its journal, and `error` holds the reason."""

    def __init__(self, exporter: Exporter, output: Path | None) -> None:
        self._each = exporter.each
        self._stream = sys.stdout.buffer if output is None else output.open("wb", buffering=0)
        self.error: OSError | None = None

    def __call__(self, event: ev.AnyEvent) -> None:
        if self.error is not None or self._each is None:
            return
        try:
            self._stream.write(self._each(event))
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.error = error


def log_writer(report: Report) -> Listener:
    """A listener that writes every event in words to stderr."""

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
    partial = partial_of(path)
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
