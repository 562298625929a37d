"""Results of devices that are not here: recorded for the same job, or estimated between sizes."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from ..contract import MOST_BATCH, Case, ParameterValue, Work, WorkloadError
from ..machine.packages.software import shorten_home
from ..planning.cases import cases_on
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..planning.scenario import Scenario
from ..records.document import Measurement
from ..records.reason import Reason, Warning
from ..records.verdict import WhatIf
from ..report.candidate import Candidate, ranked
from ..report.from_document import candidate_of
from ..report.names import candidate_name
from ..stats.objectives import BY_DEVICE
from ..stats.unpaired import between_equals
from .comparison import TIMED
from .estimate import Estimate, Point, estimate
from .limits import is_admissible
from .recordings import Recording, file_name, load, named, own_folder
from .whatif import seconds_of

# Codes of reasons against an estimate, closest to a result first; only one is reported.
NEAREST = ("too_far_off", "too_few_sizes", "outside", "no_work")


@dataclass(frozen=True)
class Recorded(Point):
    """A recorded measurement that this row could repeat, and its time under the row's objective."""

    measured: Measurement
    candidate: Candidate


# The id of a case that answers, its time, and the warnings of the measurements it rests on.
Answer = tuple[str, Recorded | Estimate, list[Warning]]


def fill(rows: Sequence[RowPlan], request: Request) -> list[Warning]:
    """Give each row the recorded results of the requested devices, or of all devices in a folder.

    Returns warnings on unusable files; raises UsageError for a device without a recording.
    """
    recordings, unusable = load()
    wanted: list[tuple[str, list[Recording]]] = []
    for asked in dict.fromkeys(request.what_if):
        is_folder = os.path.isdir(asked)  # noqa: PTH112 - no error for a name that is too long
        found, flaws = load([Path(asked)]) if is_folder else ([], [])
        unusable += flaws
        kinds = list(dict.fromkeys(recording.name for recording in found))
        for name in kinds or [named(asked, recordings, unusable)]:
            same = [r for r in found or recordings if r.name == name]
            wanted.append((name if found else asked, same))
    by_row = [[list(_answers(row, request, *each)) for each in wanted] for row in rows]
    groups = [answers for of_row in by_row for answers in of_row]
    spread = between_equals([[a.step_s for a in g if a.step_s is not None] for g in groups])
    for row, of_row in zip(rows, by_row, strict=True):
        row.what_if = [msgspec.structs.replace(newest, spread=spread) for newest, *_ in of_row]
    return unusable


def _answers(
    row: RowPlan, request: Request, asked: str, recordings: Sequence[Recording]
) -> Iterator[WhatIf]:
    """The results of recordings of this very job, the newest first; else the newest estimate."""
    if row.scenario.objective not in TIMED:
        text = f"recordings hold times only; the objective of this row is {row.scenario.objective}"
        yield WhatIf(asked, recordings[0].name, missing=Reason("objective", text))
        return
    answers = [(each, a) for each in recordings if (a := _recorded(row, request, each))]
    reasons: list[Reason] = []
    if not answers:
        estimated = ((each, _estimated(row, request, each, reasons)) for each in recordings)
        answers = list(islice(((each, a) for each, a in estimated if a), 1))
    for recording, (case, time, warnings) in answers:
        yield WhatIf(
            device=asked,
            name=recording.name,
            basis="recorded" if isinstance(time, Recorded) else "estimated",
            id=case,
            step_s=time.value_s,
            step_ci95_s=time.interval_s,
            error=None if isinstance(time, Recorded) else time.error,
            recorded_at=recording.recorded_at,
            source=recording.file,
            warnings=warnings,
        )
    if not answers:
        yield WhatIf(asked, recordings[0].name, missing=_not_recorded(row, request, asked, reasons))


def _not_recorded(row: RowPlan, request: Request, asked: str, reasons: Sequence[Reason]) -> Reason:
    """Why there is no result; `reasons` are those against estimates."""
    alone = replace(
        request, scenarios=(row.scenario.id,), what_if=(), devices=(), all_scenarios=False
    )
    arguments = [*alone.arguments(), "--json", "--output", file_name(asked)]
    command, folder = shlex.join(["workbench", *arguments]), shorten_home(own_folder())
    hint = f"run `{command}` on that machine and copy the file to {folder}"
    listed = ",".join(f"{name}={value}" for name, value in _sizes(row.scenario).items())
    code, text = "not_recorded", f"{row.workload.name}[{listed}] was not recorded"
    if reasons:
        nearest = min(reasons, key=lambda reason: NEAREST.index(reason.code))
        code, text = nearest.code, f"{text}; {nearest.message}"
    return Reason(code, text, hint)


def _sizes(of: Case | Scenario) -> dict[str, ParameterValue]:
    return {**({} if of.batch is None else {"batch": of.batch}), **of.params}


def _recorded(row: RowPlan, request: Request, recording: Recording) -> Answer | None:
    """The fastest recorded candidate that this row could pick, at the size of the row."""
    rows: dict[str | None, dict[str, Recorded]] = {}
    for recorded in _comparable(row, request, recording):
        if not _differing(row, recorded.measured.case) and is_admissible(
            recorded.candidate, row.scenario
        ):
            rows.setdefault(recorded.measured.scenario, {})[recorded.measured.id] = recorded
    fastest = []
    for group in rows.values():  # candidates of one row share rounds
        first = ranked(recorded.candidate for recorded in group.values())[0]
        fastest.append(group[first.case.id])
    if not fastest:
        return None
    best = min(fastest, key=lambda recorded: recorded.value_s)
    return best.measured.id, best, best.measured.warnings


def _comparable(row: RowPlan, request: Request, recording: Recording) -> Iterator[Recorded]:
    """The recorded candidates that this row would have on that machine, at all sizes."""
    there = cases_on(row, request, recording.machine, recording.devices, None)
    for measured in recording.measurements:
        case, scenario = measured.case, row.scenario
        if case.workload != row.workload.name:
            continue
        if replace(case, batch=scenario.batch, params=scenario.params) not in there:
            continue
        clocks, by_device = measured.clocks, scenario.objective in BY_DEVICE
        if clocks is not None and (clocks.counted == "device") != by_device:
            continue  # a latency includes launch and wait, a rate does not
        candidate = candidate_of(measured, objective=scenario.objective)
        now, then, time = _work(row, case), measured.work, seconds_of(candidate)
        does_the_same = now is not None and (now.flops, now.items) == (then.flops, then.items)
        if now is not None and does_the_same and time is not None:
            yield Recorded(now, *time, measured, candidate)


def _work(row: RowPlan, case: Case) -> Work | None:
    """The work of one step; None for sizes that this version of the workload refuses."""
    if case.batch is not None and not 1 <= case.batch <= MOST_BATCH:
        return None
    try:
        for parameter in row.workload.parameters:
            if not parameter.tuning:
                parameter.parse(str(case.params[parameter.name]))
        return row.workload.work(case)
    except (ArithmeticError, LookupError, TypeError, ValueError, WorkloadError):
        return None


def _differing(row: RowPlan, case: Case) -> dict[str, ParameterValue | None]:
    """The recorded sizes that differ from those of the row."""
    here, there = _sizes(row.scenario), _sizes(case)
    names = dict.fromkeys([*here, *there])
    return {name: there.get(name) for name in names if here.get(name) != there.get(name)}


def _estimated(
    row: RowPlan, request: Request, recording: Recording, reasons: list[Reason]
) -> Answer | None:
    """The fastest candidate with recorded sizes on both sides that differ in one parameter only;
    `reasons` gets those against the others."""
    curves: dict[tuple[str, str], dict[float, Recorded]] = {}
    for recorded in _comparable(row, request, recording):
        for name, size in (differing := _differing(row, recorded.measured.case)).items():
            if len(differing) == 1 and isinstance(size, int | float):
                points = curves.setdefault((name, recorded.measured.case.label), {})
                if size not in points or recorded.measured.n > points[size].measured.n:
                    points[size] = recorded
    answers = [_on_curve(row, name, points) for (name, _), points in curves.items()]
    reasons += (answer for answer in answers if isinstance(answer, Reason))
    found = (answer for answer in answers if isinstance(answer, tuple))
    return min(found, key=lambda answer: answer[1].value_s, default=None)


def _on_curve(row: RowPlan, name: str, points: Mapping[float, Recorded]) -> Answer | Reason | None:
    """The estimate of one candidate over one size; None if a neighbour could not be picked."""
    wanted = _sizes(row.scenario).get(name)
    if not isinstance(wanted, int | float):
        return None
    some = next(iter(points.values())).measured.case
    case = replace(some, batch=row.scenario.batch, params=row.scenario.params)
    work = _work(row, case)
    if work is None:
        return None
    answer = estimate(points, wanted, work)
    if isinstance(answer, Reason):
        sizes = ", ".join(f"{size:g}" for size in sorted(points))
        return Reason(answer.code, f"{answer.message} ({name} {sizes}: {candidate_name(some)})")
    sides = (max(s for s in points if s < wanted), min(s for s in points if s > wanted))
    neighbours = [points[size] for size in sides]
    if not all(is_admissible(recorded.candidate, row.scenario) for recorded in neighbours):
        return None
    given = (w for recorded in neighbours for w in recorded.measured.warnings)
    return case.id, answer, list(dict.fromkeys(given))
