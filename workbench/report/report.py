"""The state of a run, built from its events and read by every front end.

`Report.apply` takes in an event, live or from a journal; `Report.document` makes the JSON document;
`from_document.report_of` turns a document back into a report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from ..catalog.files import UNLISTED
from ..contract import Case, Work
from ..records import document as doc, events as ev
from ..records.code import CodeReport
from ..records.machine import GpuReading, HostReading, Machine, Software
from ..records.model import Explanation, ModelReport
from ..records.reason import Reason, Warning
from ..records.verdict import Verdict
from .candidate import Candidate, Row, price_of
from .measurements import fastest_of, measurement_warnings, statistics
from .sweeps import sweeps

KEPT = 24  # readings of each sensor


@dataclass
class Report:
    """Everything known about a run so far."""

    started: ev.RunStarted | None = None
    finished: ev.RunFinished | None = None
    status: str = "incomplete"
    machine: Machine | None = None
    software: Software | None = None
    ceilings: doc.Ceilings | None = None
    warnings: list[Warning] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    # Case id to candidate, of the row raced last if several rows have the case.
    candidates: dict[str, Candidate] = field(default_factory=dict)
    # The last readings of the processor, and of each GPU by NVML's number.
    host: deque[HostReading] = field(default_factory=lambda: deque(maxlen=KEPT))
    gpus: dict[int, deque[GpuReading]] = field(default_factory=dict)
    gap: Reason | None = None  # cause of missing GPU readings
    trace: doc.Trace | None = None
    largest_batches: list[doc.LargestBatch] = field(default_factory=list)
    model: ModelReport | None = None
    code: CodeReport | None = None
    building: ev.ModelBuilding | None = None  # variant under construction
    current_row: str | None = None  # id of the row being raced
    last_row: str | None = None  # id of the row raced last, also after the end
    current_case: str | None = None  # id of the case being prepared or measured
    extended_s: float = 0.0  # by which the run may exceed its budget
    last_at_s: float = 0.0  # seconds on the run's clock at the latest event

    @classmethod
    def of(cls, events: Iterable[ev.AnyEvent]) -> Report:
        """The report of all events of a run; without an end it is "incomplete"."""
        report = cls()
        for event in events:
            report.apply(event)
        if report.finished is None:
            report.status = "incomplete"
        return report

    def apply(self, event: ev.AnyEvent) -> None:
        """Take in one event; KeyError if its case or row was not announced."""
        self.last_at_s = max(self.last_at_s, event.at_s)
        match event:
            case ev.BlockMeasured():  # first, as most events of a long run are blocks
                self._apply_to_race(event)
            case ev.RunStarted():
                self.started, self.status = event, "running"
            case ev.HardwareDetected():
                self.machine, self.software = event.machine, event.software
            case ev.CeilingsKnown():
                self.ceilings = event.ceilings
            case ev.WarningRaised():
                self.warnings.append(event.warning)
            case ev.MachineRead():
                self._take_reading(event)
            case ev.LargestBatchFound():
                self.largest_batches.append(event.found)
            case ev.TraceWritten():
                self.trace = event.trace
            case ev.StatusChanged():
                self.status = event.status
            case ev.RunFinished():
                self.finished, self.status = event, event.status
                self.current_row = self.current_case = None
            case _:
                self._apply_to_race(event)
                self._apply_to_subject(event)

    def _apply_to_race(self, event: ev.AnyEvent) -> None:
        """Take in an event of a row or of its candidates."""
        match event:
            case ev.BlockMeasured() | ev.CasePreparing() | ev.CasePrepared() | ev.BatchTried():
                self.candidates[event.case].apply(event)
                self.current_case, self.building = event.case, None
            case ev.CaseProfiled():
                self.candidates[event.case].apply(event)
            case ev.CaseFinished():
                of_row = self.rows[event.scenario].candidates  # other rows may have the case too
                {each.case.id: each for each in of_row}[event.case].apply(event)
            case ev.RacePlanned():
                row = self.rows[event.scenario] = Row(event)
                self._enter(row, event.cases, event.work)
            case ev.CasesJoined():
                self._enter(self.rows[event.scenario], event.cases, event.work, event.after)
            case ev.RaceStarted():
                row = self.rows[event.scenario]
                row.began_at_s, row.share_s = event.at_s, event.share_s
                self.candidates |= {each.case.id: each for each in row.candidates}
                self.current_row = self.last_row = event.scenario
            case ev.BudgetExtended():
                row = self.rows[event.scenario]
                row.share_s = (row.share_s or 0.0) + event.by_s
                self.extended_s += event.by_s
            case ev.RaceEnded():
                row = self.rows[event.scenario]
                row.rounds, row.ended_by = event.rounds, event.ended_by
            case ev.VerdictReached():
                self.rows[event.verdict.scenario].verdict = event.verdict
            case ev.CrossoverFound():
                row = self.rows[event.scenario]
                row.verdict = row.verdict and row.verdict.with_crossover(event.crossover)

    def _apply_to_subject(self, event: ev.AnyEvent) -> None:
        """Take in an event about the user's model or code."""
        match event:
            case ev.ModelInspected():
                self.model = ModelReport(event.facts)
            case ev.ModelBuilding():
                self.building = event
            case ev.ModelBuilt():
                self.building = None
                if self.model is not None:  # else the variant is one of the user's code
                    self.model.built.append(event.built)
            case ev.ModelAdvised() if self.model is not None:
                self.model.advice, self.model.left_out = event.advice, event.left_out
            case ev.CodeExamined():
                self.code = CodeReport(event.facts)
            case ev.CodeAdvised() if self.code is not None:
                self.code.advice, self.code.left_out = event.advice, event.left_out
                self.code.breaks, self.code.compile_calls = event.breaks, event.compile_calls

    def _take_reading(self, event: ev.MachineRead) -> None:
        if event.host is not None:
            self.host.append(event.host)
        if event.gpus or event.gap is not None:
            self.gap = event.gap
        if event.gap is not None:
            self.gpus = {}  # an old reading must not look like a new one
        for reading in event.gpus:
            self.gpus.setdefault(reading.index, deque(maxlen=KEPT)).append(reading)

    def _enter(
        self, row: Row, cases: Iterable[Case], work: Mapping[str, Work], after: int | None = None
    ) -> None:
        for case in cases:
            candidate = Candidate(
                case=case,
                scenario=row.plan.scenario,
                objective=row.plan.objective,
                work=work[case.id],
                joined_after=after,
                price_per_hour=price_of(case.device, row.plan.prices, work[case.id].ranks),
            )
            row.candidates.append(candidate)
            self.candidates[case.id] = candidate

    def statistics(
        self, candidate: Candidate, fastest: Candidate | None = None, *, with_samples: bool = False
    ) -> doc.Measurement:
        """The candidate as it appears in the document; no screen shows its samples, nor how it
        compares with the `fastest` of its row, which takes long to find."""
        row, warned = self.rows[candidate.scenario], self.measurement_warnings(candidate)
        others = row.candidates, fastest, warned, self.ceilings
        return statistics(candidate, *others, with_samples=with_samples)

    def disturbances(self, row: Row) -> list[Warning]:
        """The warnings on the whole race of a row, such as a busy machine."""
        others = ("no_crossover", "unmeasured")
        return [each for each in self._about(row) if each.code not in others]

    def gaps(self, row: Row) -> list[Warning]:
        """The warnings about candidates that lacked time; they do not affect measured results."""
        return [each for each in self._about(row) if each.code == "unmeasured"]

    def _about(self, row: Row) -> Iterator[Warning]:
        return (each for each in self.warnings if each.subject == row.plan.scenario)

    def measurement_warnings(self, candidate: Candidate) -> list[Warning]:
        """The warnings on this candidate's result and on its row; none without a sample."""
        if not candidate.blocks:
            return []
        row = self.rows[candidate.scenario]
        return [*self.disturbances(row), *measurement_warnings(candidate, self.machine)]

    @property
    def most_s(self) -> float:
        """The longest that the run may take, in seconds: its budget and its extensions."""
        return (self.started.budget_s if self.started else 0.0) + self.extended_s

    @property
    def asked_rows(self) -> list[Row]:
        """The rows that the request asked for, without the points of crossovers."""
        return [row for row in self.rows.values() if not row.plan.is_crossover_point]

    @property
    def subject_rows(self) -> list[Row]:
        """The rows of the user's model, or code with one for each batch; [] in other runs."""
        return [row for row in self.rows.values() if row.plan.workload in UNLISTED]

    @property
    def subject_row(self) -> Row | None:
        return next(iter(self.subject_rows), None)

    @property
    def subject_verdict(self) -> Verdict | None:
        return self.subject_row.verdict if self.subject_row else None

    @property
    def subject(self) -> ModelReport | CodeReport | None:
        """All results about the user's model or code; None before it is read and in other runs."""
        return self.model or self.code

    @property
    def explained(self) -> dict[str, Explanation]:
        """Why candidates of the user's model won or lost, by the ids of their cases."""
        return self.model.explained if self.model else {}

    @property
    def has_results(self) -> bool:
        """Whether something was measured that an export can show."""
        timed = any(c.blocks for row in self.rows.values() for c in row.candidates)
        return timed or bool(self.largest_batches)

    @property
    def measurements(self) -> list[doc.Measurement]:
        return list(self.each_measurement())

    def each_measurement(self) -> Iterator[doc.Measurement]:
        """The measurements one by one, since all at once may fill the memory."""
        for row in self.rows.values():
            fastest = fastest_of(row.candidates)
            for candidate in row.candidates:
                yield self.statistics(candidate, fastest, with_samples=True)

    @property
    def sweeps(self) -> list[doc.Sweep]:
        return sweeps(list(self.rows.values()))

    @property
    def verdicts(self) -> list[Verdict]:
        return [row.verdict for row in self.rows.values() if row.verdict is not None]

    def document(self, measurements: list[doc.Measurement] | None = None) -> doc.Document:
        """The JSON document, valid after `RunStarted`; `measurements` replace its own."""
        started, finished = self.started, self.finished
        if started is None:
            raise ValueError("the run has not begun")
        picked = [(verdict, self.candidates.get(verdict.pick or "")) for verdict in self.verdicts]
        return doc.Document(
            schema_version=doc.SCHEMA_VERSION,
            summary=[summary_of(v, pick.case if pick else None) for v, pick in picked],
            tool=started.tool,
            run=doc.Run(
                id=started.id,
                started_at=started.started_at,
                finished_at=finished.finished_at if finished else None,
                duration_s=finished.duration_s if finished else None,
                status=self.status,
                budget_s=started.budget_s,
                overhead=finished.overhead if finished else None,
                extended_s=self.extended_s,
                resumes=started.resumes,
                carried=started.carried,
            ),
            machine=self.machine,
            software=self.software,
            measurements=self.measurements if measurements is None else measurements,
            verdicts=self.verdicts,
            warnings=list(self.warnings),
            ceilings=self.ceilings,
            sweeps=self.sweeps,
            trace=self.trace,
            largest_batches=list(self.largest_batches),
            model=self.model and msgspec.structs.replace(self.model, built=list(self.model.built)),
            code=self.code and msgspec.structs.replace(self.code),
            unanswered=[
                doc.Unanswered(
                    *(getattr(row.plan, name) for name in doc.Unanswered.__struct_fields__)
                )
                for row in self.asked_rows
                if row.plan.owes_verdict and row.verdict is None
            ],
        )


def summary_of(verdict: Verdict, pick: Case | None) -> doc.Summary:
    """The answer of `verdict`, whose pick is the case `pick`."""
    picked = None
    if pick is not None:
        picked = doc.Pick(**{name: getattr(pick, name) for name in doc.Pick.__struct_fields__})
    lead, bounds = verdict.lead
    lead = lead if lead is None else _six_digits(lead)
    bounds = bounds and (_six_digits(bounds[0]), _six_digits(bounds[1]))
    words = verdict.confidence, verdict.basis
    return doc.Summary(verdict.scenario, verdict.choice, picked, lead, bounds, *words)


def _six_digits(value: float) -> float:
    """Rounded like the samples in a document."""
    return float(f"{value:.6g}")
