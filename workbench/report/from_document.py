"""The report of a run from its JSON document."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from .. import catalog
from ..contract import Workload
from ..records import events as ev
from ..records.document import Document, Measurement
from ..records.verdict import CHOICES, CONFIDENCES, Verdict
from ..stats.objectives import OBJECTIVES
from .candidate import CANCELLED, ENDED, ENERGY, SHARED, Candidate, Row, price_of
from .report import Report

VOCABULARY = {"choice": CHOICES, "objective": OBJECTIVES, "confidence": CONFIDENCES}


def report_of(document: Document) -> Report:
    """The report whose `document()` is `document`; times within the run are lost."""
    run, model = document.run, document.model
    report = Report(
        started=ev.RunStarted(
            at_s=0.0,
            schema_version=document.schema_version,
            id=run.id,
            started_at=run.started_at,
            budget_s=run.budget_s or 0.0,
            tool=document.tool,
            resumes=run.resumes,
            carried=run.carried,
        ),
        machine=document.machine,
        software=document.software,
        ceilings=document.ceilings,
        warnings=list(document.warnings),
        extended_s=run.extended_s,
        rows={row.plan.scenario: row for row in _rows(document)},
        trace=document.trace,
        largest_batches=list(document.largest_batches),
        model=model and msgspec.structs.replace(model, built=list(model.built)),
        code=document.code and msgspec.structs.replace(document.code),
    )
    raced = [row for row in report.rows.values() if row.started]
    # If several rows have the same case, the one raced last counts.
    for row in [*report.rows.values(), *raced]:
        report.candidates |= {candidate.case.id: candidate for candidate in row.candidates}
    report.last_row = raced[-1].plan.scenario if raced else None
    if run.finished_at is not None:
        report.apply(
            ev.RunFinished(
                at_s=run.duration_s or 0.0,
                status=run.status,
                finished_at=run.finished_at,
                duration_s=run.duration_s or 0.0,
                exit_code=0,
                overhead=run.overhead,
            )
        )
    return report


def _rows(document: Document) -> Iterator[Row]:
    groups: dict[str, list[Measurement]] = {}
    for measured in document.measurements:
        groups.setdefault(_scenario(measured), []).append(measured)
    verdicts = {verdict.scenario: verdict for verdict in document.verdicts}
    axes = {sweep.scenario or sweep.workload: list(sweep.axes) for sweep in document.sweeps}
    planned = {each.scenario: msgspec.structs.asdict(each) for each in document.unanswered}
    for scenario, group in groups.items():
        verdict, searched = verdicts.get(scenario), scenario.partition("[")[0]
        if verdict is None and searched in verdicts:  # a point of that scenario's crossover
            plan = _plan(scenario, group, verdicts[searched], axes.get(searched, []), of=searched)
        else:
            swept = [] if verdict else axes.get(group[0].case.workload, [])
            plan = _plan(scenario, group, verdict, swept)
            plan = msgspec.structs.replace(plan, **planned.get(scenario, {}))
        yield _row(plan, group, verdict)


def _scenario(measured: Measurement) -> str:
    return measured.scenario or measured.case.workload


def _plan(
    scenario: str,
    group: Sequence[Measurement],
    verdict: Verdict | None,
    swept: Sequence[str],
    of: str | None = None,
) -> ev.RacePlanned:
    """The plan of a row as far as its results show it; `verdict` is its own, or that of the
    scenario `of` whose crossover it is a point of."""
    case = group[0].case
    owed = verdict if of is None else None  # a point of a crossover gets no verdict of its own
    joined = owed.race.joined if owed and owed.race else {}
    first = [measured for measured in group if measured.id not in joined]
    sizes = {"batch": case.batch, **case.params}
    title, objective = case.workload if swept else scenario, "throughput"
    if verdict is not None:
        title, objective = verdict.title, verdict.objective
    elif scenario.partition("[")[0] == case.workload and (usual := _built_in(case.workload)):
        title, objective = usual.title, usual.usual_objective
    return ev.RacePlanned(
        at_s=0.0,
        scenario=scenario,
        title=title,
        question=verdict.question if verdict else "",
        textbook=owed.textbook if owed else None,
        objective=objective,
        reference_only=[e.precision for e in verdict.equal_precision if e.reference_only]
        if verdict
        else [],
        reproduce=owed.reproduce if owed else "",
        cases=[measured.case for measured in first],
        work={measured.id: measured.work for measured in first},
        workload=case.workload,
        point={name: size for name in swept if (size := sizes.get(name)) is not None},
        of=of,
        prices=verdict.prices if verdict else {},
        what_if=[answer.uncompared_yet() for answer in verdict.what_if] if verdict else [],
    )


def _built_in(name: str) -> Workload | None:
    """The workload of a plain run; None for a user's, whose file may have changed."""
    file = catalog.files().get(name)
    return catalog.load(name) if file is not None and catalog.is_built_in(file) else None


def _row(plan: ev.RacePlanned, group: Sequence[Measurement], verdict: Verdict | None) -> Row:
    race = verdict.race if verdict else None
    joined = race.joined if race else {}
    left = {elimination.id: elimination for elimination in race.left} if race else {}
    has_begun = race is not None or any(measured.n for measured in group)
    row = Row(
        plan,
        began_at_s=0.0 if has_begun else None,  # a document does not say when
        verdict=verdict,
        candidates=[candidate_of(measured, plan.objective) for measured in group],
    )
    for each in row.candidates:
        each.price_per_hour = price_of(each.case.device, plan.prices, each.work.ranks)
        each.joined_after = joined.get(each.case.id)
        if (lost := left.get(each.case.id)) is not None:
            each.beaten_by, each.ratio = lost.beaten_by, lost.ratio
            each.ratio_bounds = lost.ratio_bounds
    if race is not None and race.ended_by != CANCELLED:
        row.rounds, row.ended_by = race.rounds, race.ended_by
    return row


def candidate_of(measured: Measurement, objective: str) -> Candidate:
    """The candidate whose measurement is `measured`, in a row with the given objective."""
    return Candidate(
        **{name: getattr(measured, name) for name in SHARED},
        scenario=_scenario(measured),
        objective=objective,
        state=measured.status,
        blocks=list(_blocks(measured)),
    )


def _blocks(measured: Measurement) -> Iterator[ev.BlockMeasured]:
    samples, losses = measured.samples_s, iter(measured.loss)
    scenario, begin, lead_in_s = _scenario(measured), 0, measured.lead_in_s
    for shape in measured.blocks:
        metrics = measured.metrics  # medians over the blocks, save the energy
        if ENERGY in metrics:
            known = {**metrics, ENERGY: shape.energy_j}
            metrics = {name: value for name, value in known.items() if value is not None}
        yield ev.BlockMeasured(
            at_s=0.0,
            case=measured.id,
            scenario=scenario,
            round=shape.round,
            samples_s=samples[begin : begin + shape.n],
            lead_in_s=lead_in_s,
            loss=next(losses, None),
            clocks=measured.clocks,
            metrics=metrics,
        )
        begin, lead_in_s = begin + shape.n, []


def contradictions(document: Document) -> Iterator[str]:
    """The contradictions within a document, each with its place."""
    for place, m in enumerate(document.measurements):
        at, counted = f"measurements[{place}]", sum(block.n for block in m.blocks)
        if m.id != m.case.id:
            yield f"{at}.id is {m.id!r}, its case is {m.case.id!r}"
        if m.status not in ENDED:
            yield f"{at}.status is {m.status!r}, not one of {', '.join(ENDED)}"
        if any(block.n < 1 for block in m.blocks) or counted != len(m.samples_s):
            yield f"{at}: its blocks count {counted} samples, samples_s holds {len(m.samples_s)}"
        for sample in (min(m.samples_s), max(m.samples_s)) if m.samples_s else ():
            if not ev.SHORTEST_S <= sample <= ev.LONGEST_S:
                yield f"{at} has a sample of {sample:g} s"
    ids = {m.id for m in document.measurements}
    for case in (document.model.explained.keys() if document.model else set()) - ids:
        yield f"model.advice explains {case!r}, which was not measured"
    for place, found in enumerate(document.largest_batches):
        if found.case not in ids:
            yield f"largest_batches[{place}].case is {found.case!r}, which was not measured"
    for place, row in enumerate(document.unanswered):
        if row.objective not in OBJECTIVES:
            yield f"unanswered[{place}].objective is {row.objective!r}, which is unknown"
    yield from _wrong_verdicts(document.verdicts, ids)


def _wrong_verdicts(verdicts: Sequence[Verdict], ids: Collection[str]) -> Iterator[str]:
    for place, v in enumerate(verdicts):
        at = f"verdicts[{place}]"
        costed = {None, *(cost.id for cost in v.costs)}
        for best in v.by_objective:
            if best.objective == "most_frugal" and best.pick not in costed:
                yield f"{at}.by_objective has {best.pick!r}, which has no cost"
        if not v.reasons:
            yield f"{at}.reasons is empty"
        for name, words in VOCABULARY.items():
            if (word := getattr(v, name)) not in words:
                yield f"{at}.{name} is {word!r}, not one of {', '.join(words)}"
        for name in ("pick", "runner_up", "best_cpu", "best_gpu"):
            if (case := getattr(v, name)) is not None and case not in ids:
                yield f"{at}.{name} is {case!r}, which was not measured"
