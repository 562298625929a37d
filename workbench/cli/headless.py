"""A run without a screen, written to stdout or a file in one of the export formats."""

import sys
from contextlib import closing

from ..engine.context import Listener
from ..engine.engine import Engine
from ..engine.exit_codes import CUT_SHORT, FAILED
from ..export.formats import DOCUMENT, EVENTS, whole
from ..export.json import document_parts
from ..export.view.events import log_line
from ..export.view.words import ENDED_BY
from ..files.write import Target, send
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..pool.control import Control
from ..records import events as ev
from ..report import journal
from ..report.candidate import Row
from ..report.report import Report
from ..text.output import let_go, put, say


def run_headless(
    request: Request,
    rows: list[RowPlan],
    *,
    export_as: str,
    output: Target | None,
    samples: bool,
    take_control: bool,
    verbose: bool,
) -> int:
    """Run in this process; `export_as` is a key of `FORMATS`.  Returns the exit code.

    stdout gets only the result, stderr the failures or, with `verbose`, the whole log.
    """
    control = Control(sys.stdin.fileno() if take_control else None)
    report = Report()
    events = EventWriter(output, control) if export_as == EVENTS else None
    engine = Engine(request, rows, control, report, events or log_writer(report, verbose=verbose))
    with control.signals(), closing(engine):
        code = engine.run()
        say_why(report, code, is_logged=events is None)
        with control.writing():
            if events is not None:
                return unwritten(output, events.error, report, code) if events.error else code
            if output is not None:
                code = save(output, report, code, samples=samples)
            try:
                if output is None or export_as != DOCUMENT:
                    put(whole(export_as, report, samples=samples))
            except BrokenPipeError:
                raise
            except OSError as error:
                return unwritten(None, error, report, code)
            return code


def say_why(report: Report, code: int, *, is_logged: bool = True) -> None:
    """Write to stderr what was not measured in a run that failed.  If `is_logged`, the log there
    has already said why the only candidate of a row failed."""
    if code != FAILED:
        return
    if not report.rows:
        say("workbench: nothing was measured")
    for row, why in unmeasured(report):
        failed_alone = [candidate.state for candidate in row.candidates] == ["failed"]
        if not (is_logged and failed_alone):
            say(f"workbench: {why}")


def unmeasured(report: Report) -> list[tuple[Row, str]]:
    """Each row that has no measurement, with the first reason."""
    found, searched = [], {each.case: each for each in report.largest_batches}
    for row in report.asked_rows:
        ended = [searched[c.case.id] for c in row.candidates if c.case.id in searched]
        if ended:  # the search for the largest batch has no measurements
            if not any(each.batch for each in ended):
                cause = ENDED_BY.get(ended[0].ended_by, ended[0].ended_by)
                found.append((row, f"no batch of {row.plan.scenario} was found to fit: {cause}"))
        elif not any(candidate.is_valid for candidate in row.candidates):
            why = next((c.reason for c in row.candidates if c.reason is not None), None)
            said = f": {why.dashed}" if why is not None else ""
            name = row.plan.title if row in report.subject_rows else row.plan.scenario
            noise = "".join(f"; {warning.message}" for warning in report.disturbances(row))
            found.append((row, f"nothing was measured for {name}{said}{noise}"))
    return found


def save(output: Target, report: Report, code: int, *, samples: bool = True) -> int:
    """Write the document of a run that ended with `code`; returns the exit code."""
    try:
        output.write(b"".join([*document_parts(report, samples=samples), b"\n"]))
    except OSError as error:
        return unwritten(output, error, report, code)
    return code


def is_cut(report: Report) -> bool:
    """Whether a part of the run is missing in its journal, as on a full disk."""
    return any(warning.code == "no_journal" for warning in report.warnings)


def unwritten(output: Target | None, error: OSError, report: Report, code: int) -> int:
    """Say that `output` or stdout cannot be written and where the run is kept; returns the exit
    code."""
    if output is None:
        let_go(sys.stdout)
    run = report.started.id if report.started else ""
    how = "only the beginning of the run is kept" if is_cut(report) else "the run is kept"
    kept = f"{how}: `workbench open {run} --json`"
    where = kept if journal.is_kept(run) else "the run is not kept"
    name = output.named if output else "stdout"
    say(f"workbench: {name} cannot be written: {error.strerror}; {where}")
    return code if code == CUT_SHORT else FAILED


def run_quietly(request: Request, rows: list[RowPlan] | None = None) -> tuple[Report, int]:
    """A run with its log on stderr and nothing on stdout; returns its report and exit code."""
    control, report = Control(), Report()
    engine = Engine(request, rows or [], control, report, log_writer(report, verbose=False))
    with control.signals(), closing(engine):
        return report, engine.run()


class EventWriter:
    """Writes each event at once to `output` or stdout.  After an error, which it keeps in `error`,
    it writes no more, but the run goes on for its journal."""

    def __init__(self, output: Target | None, control: Control) -> None:
        self._output = output
        self._descriptor: int | None = None  # from the first event on
        self._control = control
        self.error: OSError | None = None

    def __call__(self, event: ev.AnyEvent) -> None:
        if self.error is not None:
            return
        try:
            if self._descriptor is None:
                self._descriptor = self._output.begin() if self._output else sys.stdout.fileno()
            line = ev.encode(event) + b"\n"
            send(self._descriptor, line, is_ending=lambda: self._control.is_ending)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.error = error


def log_writer(report: Report, *, verbose: bool) -> Listener:
    """A listener that writes events in words to stderr: all if `verbose`, else failures and the
    first notable extension of the run."""

    def write(event: ev.AnyEvent) -> None:
        text = log_line(event, report, verbose=verbose)
        if text is not None:
            say(text)

    return write
