"""A run from start to end: detect, plan, race row by row, decide; every step is an event.

The engine neither draws nor measures: front ends read its events, and workers measure.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path

from .. import __version__, catalog
from ..advisor import whatif_devices
from ..advisor.verdict import decide
from ..machine.warnings import hardware_warnings, missing_backends
from ..planning.announcing import planned
from ..planning.cases import fewer_threads, share_workers
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..planning.usage import UsageError, target
from ..pool.control import NEVER, SECOND, Cancelled, Control
from ..records import events as ev
from ..records.document import SCHEMA_VERSION, Ceilings, Tool
from ..records.reason import Reason, Warning
from ..report.candidate import CANCELLED
from ..report.cut_run import CutRun, resumable
from ..report.journal import Journal, new_run_id, no_journal, path_of
from ..report.report import Report
from . import ceiling_store, ceilings
from .context import Listener, RunContext
from .crossovers import search_crossovers
from .exit_codes import exit_code
from .largest_batch import check_alone, search_rows
from .opening import RowSource, opened, row_source
from .overhead import CLOSING, IDLE, PREPARING, STARTING, OverheadMeter
from .profiling import Profiling, TraceFile
from .races import Races

CROSSOVER_SHARE = 0.5  # share of the time; without --crossover the search gets what rows leave
# From a row's plan: the settings on which its answer depends, apart from its cases.
deciding_settings = attrgetter("reference_only", "objective", "prices", "limits")

NOT_BEGUN = Reason("cancelled", "the run was cut short before its turn")
CANCELLED_IN_RACE = Reason("cancelled", "the run was cut short before its race was over")


def now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Engine:
    """One run; `run` returns the exit code."""

    def __init__(
        self,
        request: Request,
        rows: list[RowPlan],
        control: Control,
        report: Report,
        listener: Listener,
    ) -> None:
        self._request = request
        self._rows = rows
        self._control = control
        self._events = EventStream(control, report, listener)
        self._emit, self._warn = self._events.emit, self._events.warn
        self._context: RunContext | None = None  # once the machine is known
        self._overhead = OverheadMeter(control.front_end, control.now)
        trace = request.trace
        self._trace = TraceFile(target("--trace", Path(trace), opened=True) if trace else None)
        self.report = report
        self.run_id = new_run_id()

    def run(self) -> int:
        """Run within the budget; raises UsageError before anything is measured.

        It does not wait for processes to end: `close` does, after the result is written.
        """
        self._begin()
        status = "failed"
        try:
            with self._control.raising(SECOND):
                self._measure()
            status = "done"
        except Cancelled as cancelled:
            self._cut_short(str(cancelled))
            status = CANCELLED
        except UsageError:
            self._events.discard()
            raise
        finally:
            code = self._end(status)
        return code

    def _begin(self) -> None:
        cut = self._request.resumes
        command = shlex.join(["workbench", *self._request.arguments()])
        self._emit(
            ev.RunStarted(
                at_s=self._control.now(),
                schema_version=SCHEMA_VERSION,
                id=self.run_id,
                started_at=now_utc(),
                budget_s=self._request.budget,
                tool=cut.started.tool if cut else Tool("workbench", __version__, command),
                resumes=cut.started.id if cut else None,
                carried=cut.carried if cut else {},
            )
        )

    def _measure(self) -> None:
        """The stages of a run in order."""
        request = self._request
        unusable = whatif_devices.fill(self._rows, request) if request.what_if else []
        context = self._context = opened(
            request, self.run_id, self._control, self._emit, self.report, self._overhead
        )
        for warning in [*hardware_warnings(context.machine, context.software), *unusable]:
            self._warn(warning)
        source = row_source(context, self._rows)
        fingerprint = ceiling_store.fingerprint(context.machine, context.software)
        kept = ceiling_store.load(fingerprint)
        lacking = ceilings.missing(kept, context)
        self._plan(source, context, fresh=not lacking)
        self._overhead.turn_to(IDLE)
        if request.largest_batch:
            cases = [case for row in self._rows for case in row.cases]
            check_alone(context.machine, cases, forced=request.force)
            with self._overhead.spending(PREPARING):
                search_rows(self._rows, context)
            return
        races = Races(context)
        if not request.ceilings:  # else the rows measure them
            aside = partial(races.aside, table=self._rows)
            self._know(ceilings.completed(kept, lacking, fingerprint, context, aside))
        if any(row.refused for row in self._rows):
            self._refuse(context)
            return
        self._race(races, context, source)
        self._search_crossovers(races, context)
        self._overhead.turn_to(CLOSING)
        self._know(ceilings.measured_or_raised(fingerprint, context))
        self._write_trace()

    def _plan(self, source: RowSource, context: RunContext, *, fresh: bool) -> None:
        """Announce every row, and the warnings known before any race; the workers are `fresh` when
        the first row begins, unless ceilings are measured before."""
        request = self._request
        with self._overhead.spending(PREPARING if request.question else STARTING):
            planned_rows = source.rows()
        self._rows = [row for row in planned_rows if row.cases]
        share_workers(self._rows, quick=request.quick, fresh=fresh)
        cases = [case for row in self._rows for case in row.cases]
        threaded = [r.scenario for r in self._rows if any(c.threads is not None for c in r.cases)]
        context.telemetry.watch(context.machine, {case.device for case in cases})
        for row in self._rows:
            self._emit(planned(row, request, context.now()))
        for warning in [
            *missing_backends(context.software, {case.backend for case in cases}),
            *fewer_threads(threaded, request, context.machine),
            *_left_out(planned_rows, every=request.every),
        ]:
            self._warn(warning)
        if request.resumes is not None:
            self._take_over(request.resumes)

    def _take_over(self, cut: CutRun) -> None:
        """Carry the complete rows of a cut run over into this run, and drop them from the plan."""

        def fingerprint(report: Report) -> str | None:
            here, software = report.machine, report.software
            return ceiling_store.fingerprint(here, software) if here and software else None

        def rules(report: Report) -> dict[str, object]:
            """The cases and settings that decide the answer of each carried row."""
            plans = [report.rows[row].plan for row in cut.carried if row in report.rows]
            return {p.scenario: ({c.id for c in p.cases}, deciding_settings(p)) for p in plans}

        old, new = cut.old.report, self.report
        if fingerprint(old) != fingerprint(new) or rules(old) != rules(new):
            raise UsageError(str(cut.refused("the machine, its software or the rows have changed")))
        for event in cut.events(self._control.now()):
            self._emit(event)
        self._rows = [row for row in self._rows if row.scenario.id not in cut.carried]

    def _race(self, races: Races, context: RunContext, source: RowSource) -> None:
        """Race every row, decide it, and finish it while the workers still hold its cases."""

        def conclude(row: RowPlan) -> None:
            self._decide(row)
            if self._request.trace is not None:
                Profiling(row, context).run(self._trace)
            source.conclude(self.report.rows[row.scenario.id])

        races.start_workers(self._rows)
        end_s = context.end_s - source.reserved_s
        if self._request.crossover and any(row.scenario.size for row in self._rows):
            end_s -= CROSSOVER_SHARE * (end_s - context.now())
        races.rows(self._rows, end_s, conclude)

    def _search_crossovers(self, races: Races, context: RunContext) -> None:
        asked = self._request.crossover
        if asked and not any(row.scenario.size for row in self._rows):
            text = "--crossover: no scenario of this run has a size to search"
            self._warn(Warning("no_size", text, "add a `size` to the scenario in its file"))
        if asked or not self._request.quick:
            search_crossovers(self._rows, context, races.point)

    def _refuse(self, context: RunContext) -> None:
        """End rows that cannot race, with the reason on each of their cases."""
        for row in self._rows:
            for case in row.cases:
                context.finish(case.id, row.scenario.id, "failed", row.refused)
            self._decide(row)

    def _cut_short(self, cause: str) -> None:
        """Record how far each case and row got."""
        for row in self.report.rows.values():
            assert self._context is not None  # it is made before rows are planned
            for candidate in [c for c in row.candidates if not c.ended]:
                has_begun = candidate.blocks or self._request.largest_batch
                reason = CANCELLED_IN_RACE if has_begun else NOT_BEGUN
                self._context.finish(candidate.case.id, row.plan.scenario, CANCELLED, reason)
        for plan in self._rows:
            known = self.report.rows.get(plan.scenario.id)
            if known is not None and known.verdict is None:
                self._decide(plan)
        self._write_trace()
        remedy = "run it again"
        if run := resumable(self.report):
            remedy = f"{remedy}, or try `workbench resume {run}`"
        self._warn(Warning("cut_short", f"the run was cut short ({cause})", remedy))

    def _end(self, status: str) -> int:
        """End the workers, and close the journal with the run's exit code."""
        if self._context is not None:
            self._context.pool.end_all(at_once=status != "done")
        code = exit_code(status, self._request, self.report)
        machine = self.report.machine
        self._emit(
            ev.RunFinished(
                at_s=self._control.now(),
                status=status,
                finished_at=now_utc(),
                duration_s=self._control.now(),
                exit_code=code,
                overhead=self._overhead.result(machine.cpu.effective_cores) if machine else None,
            )
        )
        self._events.close()
        return code

    def close(self) -> None:
        """Wait, with a bound, until nothing of the run is left."""
        if self._context is not None:
            self._context.telemetry.close()
            self._context.pool.close()

    def _decide(self, row: RowPlan) -> None:
        if row.scenario.owes_verdict:
            verdict = decide(self.report, row.scenario)
            self._emit(ev.VerdictReached(at_s=self._control.now(), verdict=verdict))

    def _know(self, known: Ceilings | None) -> None:
        if known is not None:
            self._emit(ev.CeilingsKnown(at_s=self._control.now(), ceilings=known))

    def _write_trace(self) -> None:
        written = self._trace.write(self._request, self.report, self._control)
        if isinstance(written, Warning):
            self._warn(written)
        elif written is not None:
            self._emit(ev.TraceWritten(at_s=self._control.now(), trace=written))


def _left_out(rows: Sequence[RowPlan], *, every: bool) -> Iterator[Warning]:
    """A warning for each row and file that --all leaves out."""
    files = catalog.load_all()[1] if every else {}
    broken = {name: (str(error), error.hint) for name, error in files.items()}
    refused = {row.workload.name: row.refused for row in rows if row.refused and not row.cases}
    broken |= {name: (reason.message, reason.hint) for name, reason in refused.items()}
    for name, (message, hint) in broken.items():
        remedy = hint or f"correct {name}.py, or remove it from the folder"
        yield Warning("broken_workload", f"left out: {message}", remedy)


class EventStream:
    """Sends each event of a run to its journal first, then to the report, then to the front end."""

    def __init__(self, control: Control, report: Report, listener: Listener) -> None:
        self._control, self._report, self._listener = control, report, listener
        self._journal: Journal | None = None

    def emit(self, event: ev.AnyEvent) -> None:
        """Journal, apply and forward an event, unless it repeats a warning."""
        if isinstance(event, ev.WarningRaised) and event.warning in self._report.warnings:
            return
        with self._control.raising(NEVER):
            unkept = self._keep(event)
            self._report.apply(event)
        try:
            with self._control.raising(SECOND):
                self._listener(event)
        except BrokenPipeError:
            self._listener = lambda _: None
            self._control.cancel("the reader of the output is gone")
        except Cancelled:  # the reader does not read; the run ends at its next wait
            self._listener = lambda _: None
        if unkept is not None:
            self.warn(unkept)

    def warn(self, warning: Warning) -> None:
        self.emit(ev.WarningRaised(at_s=self._control.now(), warning=warning))

    def _keep(self, event: ev.AnyEvent) -> Warning | None:
        """Append to the journal, which RunStarted opens; without one the run goes on."""
        if isinstance(event, ev.RunStarted):
            try:
                self._journal = Journal(path_of(event.id))
            except OSError as error:
                return no_journal("is not kept", error.filename, error)
        if self._journal is None:
            return None
        try:
            self._journal.append(event)
        except OSError as error:
            journal, self._journal = self._journal, None
            if self._report.started is None:
                journal.discard()  # a journal without its first event cannot be read
                return no_journal("is not kept", journal.path, error)
            journal.close()
            return no_journal("is kept only up to here", journal.path, error)
        return None

    def discard(self) -> None:
        """Forget a run that never began."""
        if self._journal is not None:
            self._journal.discard()
            self._journal = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
