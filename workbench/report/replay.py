"""A JSON document as the events that lead to it, so that every screen can show it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ..records import events as ev
from ..records.document import BlockShape, Document, Measurement, SetupTimes
from ..records.model import ModelReport
from ..records.reason import Reason
from ..records.verdict import RaceSummary, Verdict
from ..stats.objectives import OBJECTIVES
from ..text.sanitize import printable_json
from . import journal
from .candidate import CUT_SHORT, ENDED, ENERGY
from .report import Report

CHOICES = ("cpu", "gpu", "either", "unknown")
LONGEST_S = 1e8  # of a sample or a set-up
OUT_OF_TIME = "budget"  # of who was measured and then ran out of time: it was not sent away


def open_run(name: str) -> list[ev.AnyEvent]:
    """The events of a run: a document, a journal, the id of an earlier run, or `last`.

    Raises JournalError with the ids there are.
    """
    path = Path(name)
    if _is_file(path):
        return read_journal(path) if journal.looks_like_one(path) else read_document(path)
    ids = list(journal.run_ids())
    if name == "last" and ids:
        return read_journal(journal.runs_folder() / f"{ids[0]}.jsonl")
    matches = [run_id for run_id in ids if run_id.startswith(name)]
    if len(matches) == 1:
        return read_journal(journal.runs_folder() / f"{matches[0]}.jsonl")
    shown = ", ".join(matches[:5] or ids[:5]) or "none yet"
    problem = "several runs begin with" if matches else "no such file or run:"
    raise journal.JournalError(f"{problem} {name!r}. Recent runs: {shown}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # longer than any file name may be
        return False


class _Head(msgspec.Struct):
    schema_version: int


def read_journal(path: Path) -> list[ev.AnyEvent]:
    """The events of a journal; JournalError says what is wrong with it."""
    events = journal.read(path)
    if reason := _disorder(events):
        raise journal.JournalError(f"{path} is not the journal of a run: {reason}")
    return events


def read_document(path: Path) -> list[ev.AnyEvent]:
    """The events of a JSON document; JournalError says what is wrong with it."""
    document = decode_document(path)
    reason = next(_contradictions(document), None)
    events = [] if reason else list(events_of(document))
    if reason := reason or _disorder(events):
        raise journal.JournalError(f"{path} is not a workbench document: {reason}")
    return events


def _contradictions(document: Document) -> Iterator[str]:
    """What of a document does not fit together, each as words with its place."""
    for place, m in enumerate(document.measurements):
        at, counted = f"measurements[{place}]", sum(block.n for block in m.blocks)
        if m.id != m.case.id:
            yield f"{at}.id is {m.id!r}, its case is {m.case.id!r}"
        if m.status not in ENDED:
            yield f"{at}.status is {m.status!r}, not one of {', '.join(ENDED)}"
        if any(block.n < 1 for block in m.blocks) or counted != len(m.samples_s):
            yield f"{at}: its blocks count {counted} samples, samples_s holds {len(m.samples_s)}"
    ids = {m.id for m in document.measurements}
    for place, v in enumerate(document.verdicts):
        at = f"verdicts[{place}]"
        if v.choice not in CHOICES:
            yield f"{at}.choice is {v.choice!r}, not one of {', '.join(CHOICES)}"
        if v.objective not in OBJECTIVES:
            yield f"{at}.objective is {v.objective!r}, not one of {', '.join(OBJECTIVES)}"
        for name in ("pick", "runner_up", "best_cpu", "best_gpu"):
            if (case := getattr(v, name)) is not None and case not in ids:
                yield f"{at}.{name} is {case!r}, which was not measured"


def _disorder(events: list[ev.AnyEvent]) -> str | None:
    """Why no report can be made of `events`; None if one can."""
    for event in events:
        if isinstance(event, ev.BlockMeasured):
            wrong = [sample for sample in event.samples_s if not 0 < sample <= LONGEST_S]
            if wrong or not event.samples_s:
                told = f"a sample of {wrong[0]:g} s" if wrong else "a block without samples"
                return f"{event.case} has {told}"
    try:
        Report.of(events)
    except (LookupError, StopIteration):
        return "it tells of a candidate or a row that it has not"
    return None


def decode_document(path: Path) -> Document:
    """A JSON document; JournalError says what is wrong with it."""
    try:
        text = printable_json(path.read_bytes())
        journal.check_schema(path, msgspec.json.decode(text, type=_Head).schema_version)
        return msgspec.json.decode(text, type=Document)
    except OSError as error:
        raise journal.JournalError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise journal.JournalError(f"{path} is not a workbench document: {error}") from error


def events_of(document: Document) -> Iterator[ev.AnyEvent]:
    """Events whose report gives `document` again; times within the run are not in it."""
    run = document.run
    yield ev.RunStarted(
        at_s=0.0,
        schema_version=document.schema_version,
        id=run.id,
        started_at=run.started_at,
        budget_s=run.budget_s or 0.0,
        tool=document.tool,
    )
    if document.machine is not None and document.software is not None:
        yield ev.HardwareDetected(at_s=0.0, machine=document.machine, software=document.software)
    if document.ceilings is not None:
        yield ev.CeilingsKnown(at_s=0.0, ceilings=document.ceilings)
    for warning in document.warnings:
        yield ev.WarningRaised(at_s=0.0, warning=warning)
    yield from _rows(document)
    if document.model is not None:
        yield from _model(document.model)
    for found in document.largest_batches:
        yield ev.LargestBatchFound(at_s=0.0, found=found)
    if document.trace is not None:
        yield ev.TraceWritten(at_s=0.0, trace=document.trace)
    if run.finished_at is not None:
        yield ev.RunFinished(
            at_s=run.duration_s or 0.0,
            status=run.status,
            finished_at=run.finished_at,
            duration_s=run.duration_s or 0.0,
            exit_code=0,
            overhead=run.overhead,
        )


def _model(model: ModelReport) -> Iterator[ev.AnyEvent]:
    yield ev.ModelInspected(at_s=0.0, facts=model.facts)
    for built in model.built:
        yield ev.ModelBuilt(at_s=0.0, built=built)
    if model.advice is not None:
        yield ev.ModelAdvised(at_s=0.0, advice=model.advice, left_out=model.left_out)


def _rows(document: Document) -> Iterator[ev.AnyEvent]:
    """Every row planned with all who joined it, then raced."""
    rows: dict[str, list[Measurement]] = {}
    for measured in document.measurements:
        rows.setdefault(measured.scenario or measured.case.workload, []).append(measured)
    verdicts = {verdict.scenario: verdict for verdict in document.verdicts}
    axes = {sweep.scenario or sweep.workload: list(sweep.axes) for sweep in document.sweeps}
    for scenario, group in rows.items():
        whole = scenario.partition("[")[0]  # of a point of a sweep
        of = whole if whole != scenario and whole in verdicts else None
        swept = [] if scenario in verdicts else axes.get(of or group[0].case.workload, [])
        verdict = verdicts.get(of or scenario)  # of a point of a crossover, its scenario's
        yield from _planned(scenario, group, verdict, swept, of)
    for scenario, group in rows.items():
        verdict = verdicts.get(scenario)
        race = verdict.race if verdict else None
        if race is not None or any(measured.n for measured in group):
            yield ev.RaceStarted(at_s=0.0, scenario=scenario, share_s=0.0)
        for measured in group:
            yield from _measured(scenario, measured)
        yield from _ended(scenario, group, race)
        if verdict is not None:
            yield ev.VerdictReached(at_s=0.0, verdict=verdict)


def _ended(
    scenario: str, group: list[Measurement], race: RaceSummary | None
) -> Iterator[ev.AnyEvent]:
    """Who left, in that order, then who stayed, and what ended the race."""
    left = {each.id: each for each in race.left} if race else {}
    by_id = {measured.id: measured for measured in group}
    for measured in [
        *(by_id[case] for case in left if case in by_id),
        *(m for m in group if m.id not in left),
    ]:
        gone = left.get(measured.id)
        if gone is not None and measured.status == "ok" and gone.code != OUT_OF_TIME:
            yield ev.CaseDropped(
                at_s=0.0,
                case=measured.id,
                scenario=scenario,
                reason=measured.reason or Reason(gone.code, gone.message),
                beaten_by=gone.beaten_by,
                ratio=gone.ratio,
                ratio_bounds=gone.ratio_bounds,
            )
        yield ev.CaseFinished(
            at_s=0.0,
            case=measured.id,
            scenario=scenario,
            status=measured.status,
            reason=measured.reason,
            telemetry=measured.telemetry,
        )
    if race is not None and race.ended_by != CUT_SHORT:
        yield ev.RaceEnded(at_s=0.0, scenario=scenario, rounds=race.rounds, ended_by=race.ended_by)


def _planned(
    scenario: str,
    group: list[Measurement],
    verdict: Verdict | None,
    swept: list[str],
    of: str | None,
) -> Iterator[ev.AnyEvent]:
    """The plan, as far as the results show it, and who joined the race later.

    `verdict` is that of the row, or of the scenario that it is a point `of`.
    """
    case = group[0].case
    joined = verdict.race.joined if verdict and verdict.race and of is None else {}
    sizes = {"batch": case.batch, **case.params}
    yield ev.RacePlanned(
        at_s=0.0,
        scenario=scenario,
        title=verdict.title if verdict else scenario,
        question=verdict.question if verdict else "",
        textbook=verdict.textbook if verdict and of is None else None,
        objective=verdict.objective if verdict else "throughput",
        apart=[e.precision for e in verdict.equal_precision if e.apart] if verdict else [],
        reproduce=verdict.reproduce if verdict and of is None else "",
        cases=[m.case for m in group if m.id not in joined],
        work={m.id: m.work for m in group if m.id not in joined},
        workload=case.workload,
        point={name: value for name in swept if (value := sizes[name]) is not None},
        of=of,
        prices=verdict.prices if verdict else {},
        what_if=[found.uncompared_yet() for found in verdict.what_if] if verdict else [],
    )
    for m in group:
        if m.id in joined:
            yield ev.CasesJoined(
                at_s=0.0, scenario=scenario, cases=[m.case], work={m.id: m.work}, after=joined[m.id]
            )


def _figures(measured: Measurement, block: BlockShape) -> dict[str, float]:
    """Of a block only its energy is kept; for the others stand the medians over all blocks."""
    if all(each.energy_j is None for each in measured.blocks):
        return measured.figures
    told = {name: block.energy_j if name == ENERGY else v for name, v in measured.figures.items()}
    return {name: value for name, value in told.items() if value is not None}


def _measured(scenario: str, measured: Measurement) -> Iterator[ev.AnyEvent]:
    if measured.accuracy is not None or measured.setup != SetupTimes():
        yield ev.CasePrepared(
            at_s=0.0,
            case=measured.id,
            setup=measured.setup,
            accuracy=measured.accuracy,
            warmup=measured.warmup,
            iterations_per_sample=measured.iterations_per_sample,
            memory_peak_bytes=measured.memory_peak_bytes,
            call_overhead_s=measured.call_overhead_s,
        )
    samples, losses = iter(measured.samples_s), iter(measured.loss)
    for position, block in enumerate(measured.blocks):
        yield ev.BlockMeasured(
            at_s=0.0,
            case=measured.id,
            scenario=scenario,
            round=block.round,
            samples_s=list(islice(samples, block.n)),
            lead_in_s=measured.lead_in_s if position == 0 else [],
            loss=next(losses, None),
            clocks=measured.clocks,
            figures=_figures(measured, block),
        )
    if measured.operators or measured.unprofiled:
        yield ev.CaseProfiled(
            at_s=0.0,
            case=measured.id,
            operators=measured.operators,
            reason=measured.unprofiled,
        )
