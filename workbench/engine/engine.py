"""A run from start to end: detect, plan, race row by row, decide; every step an event.

The engine never draws and never measures.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from .. import __version__, catalog
from ..advisor import whatif_devices
from ..advisor.verdict import decide
from ..contract import is_cuda
from ..machine import hardware_warnings
from ..planning.cases import fill_cases
from ..planning.model_question import ModelQuestion
from ..planning.plan import RowPlan, planned
from ..planning.prices import unused_prices
from ..planning.request import Request
from ..planning.threads import fewer_threads
from ..planning.usage import UsageError
from ..pool.control import Cancelled, Control
from ..pool.pool import Pool
from ..pool.pool_events import make_pool
from ..records import events as ev
from ..records.document import SCHEMA_VERSION, Ceilings, Overhead, Tool, Trace
from ..records.machine import Machine
from ..records.reason import Reason, Warning
from ..report.journal import new_run_id
from ..report.report import Report
from . import ceiling_runs, ceilings, model_conclusion
from .context import SLACK_S, Listener, RunContext
from .crossovers import CrossoverSearch
from .devices import detected, may_know_more, with_those_of_torch
from .event_stream import EventStream
from .exit_codes import exit_code
from .largest_batch import LargestBatchSearch, check_alone
from .model_child import Refused
from .model_lab import ModelLab
from .overhead import OverheadMeter
from .profiling import PROFILED_STEPS, Profiling, why_unprofiled
from .race import Race
from .telemetry import MachineTelemetry
from .trace import TraceFile

PROFILE_SHARE = 0.25  # of a row's time, with --trace
CROSSOVER_SHARE = 0.5  # of the time, with --crossover; otherwise what the rows leave over
CONCLUSION_S, CONCLUSION_SHARE = 6.0, 0.2  # for profiling and saving a model's forms, at most

CANCELLED = Reason("cancelled", "the run was cut short before its turn")
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
        self._pool: Pool | None = None
        self._context: RunContext | None = None  # once the devices in use are known
        self._latest: Race | None = None  # whose cases the workers hold
        self._lab: ModelLab | None = None  # of `advise --model`
        self._unreadable: Reason | None = None  # why its model could not be read
        self._overhead = OverheadMeter(control.front_end)
        self._trace = TraceFile()
        self.report = report
        self.run_id = new_run_id()

    # ----------------------------------------------------------------- run

    def run(self) -> int:
        """Everything, within the budget; raises UsageError before anything is measured."""
        unkept = self._events.open_journal(self.run_id)
        self._emit(
            ev.RunStarted(
                at_s=self._control.now(),
                schema_version=SCHEMA_VERSION,
                id=self.run_id,
                started_at=now_utc(),
                budget_s=self._request.budget,
                tool=Tool(
                    name="workbench",
                    version=__version__,
                    command=shlex.join(["workbench", *self._request.arguments()]),
                ),
            )
        )
        if unkept:
            self._warn(unkept)
        status = "failed"
        try:
            self._measure()
            status = "done"
        except Cancelled as cancelled:
            self._conclude()
            self._write_trace()
            status = "cancelled"
            text = f"the run was cut short ({cancelled})"
            self._warn(Warning("cut_short", text, "run it again"))
        except UsageError:
            self._events.discard()
            raise
        finally:
            if self._pool is not None:
                self._pool.close(at_once=status != "done")
            if self._context is not None:
                self._context.telemetry.close()
            code = exit_code(status, self._request, self.report)
            self._emit(
                ev.RunFinished(
                    at_s=self._control.now(),
                    status=status,
                    finished_at=now_utc(),
                    duration_s=self._control.now(),
                    exit_code=code,
                    overhead=self._own_cost(),
                )
            )
            self._events.close()
        return code

    def _own_cost(self) -> Overhead | None:
        machine = self.report.machine
        return self._overhead.result(machine.cpu.effective_cores) if machine else None

    def _measure(self) -> None:
        unusable = whatif_devices.fill(self._rows, self._request) if self._request.what_if else []
        machine, software = detected(self._request)
        self._pool = make_pool(
            self._request,
            machine,
            run_id=self.run_id,
            control=self._control,
            emit=self._emit,
            warn=self._warn,
        )
        if may_know_more(machine, software, self._request, self._rows):
            left_s = max(0.0, self._request.budget - SLACK_S - self._control.now())
            machine = with_those_of_torch(machine, self._pool, left_s)
        if self._request.ceilings:
            self._rows = ceiling_runs.rows(self._request, machine)
        elif self._request.model is None:
            fill_cases(self._rows, self._request, machine)
        at_s = self._control.now()
        self._emit(ev.HardwareDetected(at_s=at_s, machine=machine, software=software))
        raced = [r.scenario for r in self._rows if any(c.threads is not None for c in r.cases)]
        fewer = fewer_threads(raced, self._request, machine)
        for warning in [*hardware_warnings(machine, software), *unusable, *fewer]:
            self._warn(warning)
        if self._request.every:
            self._warn_of_broken()
        if self._request.model is not None:
            self._rows = [self._open_model(self._request.model, self._rows[0], machine)]
        mark = ceilings.fingerprint(machine, software)
        self._rows = [row for row in self._rows if row.cases]
        for row in self._rows:
            self._emit(planned(row, self._request, self._control.now()))
        devices = {case.device for row in self._rows for case in row.cases}
        for warning in unused_prices(self._request.prices, devices):
            self._warn(warning)
        context = self._context = RunContext(
            request=self._request,
            pool=self._pool,
            control=self._control,
            report=self.report,
            emit=self._emit,
            telemetry=MachineTelemetry.of(machine, devices, now=self._control.now, emit=self._emit),
            overhead=self._overhead,
        )
        if self._request.largest_batch:
            cases = [case for row in self._rows for case in row.cases]
            check_alone(machine, cases, forced=self._request.force)
            LargestBatchSearch(context).run(self._rows)
            return
        if not self._request.ceilings:
            aside = partial(self._race_aside, context)
            self._know(ceiling_runs.known(self._request, mark, machine, aside))
        if self._unreadable is not None:
            self._tell_unreadable(self._unreadable)
            return
        self._race(self._rows, context, end_s=self._rows_end_s(context.end_s))
        self._look_for_crossovers(context)
        self._know(ceiling_runs.kept_after(self._request, mark, self.report))
        self._write_trace()

    def _warn_of_broken(self) -> None:
        for name, error in catalog.load_all()[1].items():
            remedy = error.hint or f"correct {name}.py, or take it out of the folder"
            self._warn(Warning("broken_workload", f"left out: {error}", remedy))

    def _write_trace(self) -> None:
        request = self._request
        if request.trace is None:
            return
        if self._trace.is_empty:
            why = why_unprofiled(self.report)
            text = f"{request.trace} was not written: nothing was profiled{why}"
            self._warn(Warning("no_trace", text, "give it a larger --budget, or other candidates"))
            return
        try:
            Path(request.trace).write_bytes(self._trace.dump())
        except OSError as error:
            text = f"{request.trace} could not be written: {error.strerror}"
            self._warn(Warning("no_trace", text, "choose another --trace"))
            return
        on_gpu = any(is_cuda(c.case.device) for c in self.report.candidates.values())
        command = shlex.join(["workbench", *replace(request, trace=None).arguments()])
        nsys = f"nsys profile --trace=cuda,nvtx,osrt --output=workbench {command}"
        trace = Trace(file=request.trace, nsys=nsys if on_gpu else None)
        self._emit(ev.TraceWritten(at_s=self._control.now(), trace=trace))

    def _know(self, known: Ceilings | None) -> None:
        if known is not None:
            self._emit(ev.CeilingsKnown(at_s=self._control.now(), ceilings=known))

    def _race_aside(self, context: RunContext, rows: list[RowPlan], share: float) -> Report:
        """A race of `rows` within a share of the budget, told to nobody but its report."""
        known = self.report
        aside = Report(started=known.started, machine=known.machine, software=known.software)
        for row in rows:
            aside.apply(planned(row, self._request, self._control.now()))
        asked = replace(context, report=aside, emit=aside.apply)
        if ceiling_runs.start_workers(rows, self._rows, asked, share):
            now = self._control.now()
            self._race(rows, asked, end_s=now + share * (context.end_s - now))
        return aside

    def _race(self, rows: list[RowPlan], context: RunContext, *, end_s: float) -> None:
        # The heaviest row last: what the others leave of their shares is worth most there.
        lightest_first = sorted(rows, key=lambda row: row.scenario.weight)
        for position, row in enumerate(lightest_first):
            self._control.check()
            now = self._control.now()
            weights = [r.scenario.weight for r in lightest_first[position:]]
            share = max(0.0, end_s - now) * weights[0] / sum(weights)
            if self._request.trace is not None:
                share *= 1 - PROFILE_SHARE
            context.emit(ev.RaceStarted(at_s=now, scenario=row.scenario.id, share_s=share))
            race = self._run_race(row, context, until_s=now + share, end_s=end_s)
            self._decide(row)
            if context.report is not self.report:
                continue
            profiling = Profiling(
                row,
                race.holders,
                context,
                most_steps=PROFILED_STEPS if self._lab is None else model_conclusion.PROFILED_STEPS,
            )
            if self._request.trace is not None:
                profiling.run(self._trace)
            if self._lab is not None and self._request.model is not None:
                known = context.report.rows[row.scenario.id]
                model_conclusion.conclude(
                    self._request.model, self._lab, known, context.report, profiling
                )

    def _run_race(self, row: RowPlan, context: RunContext, *, until_s: float, end_s: float) -> Race:
        """Race a row once the one before has given back what it holds; the last one never does,
        for its workers end with the run."""
        if self._latest is not None:
            self._latest.release()
        self._latest = Race(row, context, until_s=until_s, end_s=end_s)
        self._latest.run()
        return self._latest

    def _rows_end_s(self, end_s: float) -> float:
        """When the races of the table shall be over, on the run's clock."""
        if self._lab is not None:
            return end_s - min(CONCLUSION_S, CONCLUSION_SHARE * self._request.budget)
        if self._request.crossover and any(row.scenario.size for row in self._rows):
            return end_s - CROSSOVER_SHARE * (end_s - self._control.now())
        return end_s

    def _look_for_crossovers(self, context: RunContext) -> None:
        if self._request.quick and not self._request.crossover:
            return
        if self._request.crossover and not any(row.scenario.size for row in self._rows):
            text = "--crossover: no scenario of this run has a size to look over"
            self._warn(Warning("no_size", text, "give it a `size` in the file of scenarios"))

        def race_row(row: RowPlan, until_s: float) -> None:
            now = self._control.now()
            self._emit(planned(row, self._request, now))
            share_s = until_s - now
            self._emit(ev.RaceStarted(at_s=now, scenario=row.scenario.id, share_s=share_s))
            self._run_race(row, context, until_s=until_s, end_s=context.end_s)

        CrossoverSearch(context, race_row=race_row, warn=self._warn).run(self._rows)

    def _open_model(self, question: ModelQuestion, row: RowPlan, machine: Machine) -> RowPlan:
        """The row of a user's model; one with a single, failing candidate if it cannot be read."""
        assert self._pool is not None  # noqa: S101 - made just before
        self._lab = ModelLab(
            question,
            self._request,
            row,
            pool=self._pool,
            machine=machine,
            control=self._control,
            emit=self._emit,
        )
        try:
            return self._lab.open()
        except Refused as refused:
            self._unreadable = refused.reason
            return self._lab.refused()

    def _tell_unreadable(self, reason: Reason) -> None:
        (row,) = self._rows
        for case in row.cases:
            self._emit(
                ev.CaseFinished(
                    at_s=self._control.now(),
                    case=case.id,
                    scenario=row.scenario.id,
                    status="failed",
                    reason=reason,
                )
            )
        self._decide(row)

    def _decide(self, row: RowPlan) -> None:
        if row.scenario.textbook is None:
            return
        verdict = decide(self.report, row.scenario)
        self._emit(ev.VerdictReached(at_s=self._control.now(), verdict=verdict))

    def _conclude(self) -> None:
        """After a cut: say of every case and row how far it came."""
        for candidate in [c for row in self.report.rows.values() for c in row.candidates]:
            if not candidate.ended:
                self._emit(
                    ev.CaseFinished(
                        at_s=self._control.now(),
                        case=candidate.case.id,
                        scenario=candidate.scenario,
                        status="cancelled",
                        reason=CANCELLED_IN_RACE if candidate.blocks else CANCELLED,
                    )
                )
        for row in self._rows:
            known = self.report.rows.get(row.scenario.id)
            if known is not None and known.verdict is None:
                self._decide(row)
