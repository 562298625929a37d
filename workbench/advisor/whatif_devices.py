"""What recordings hold for the rows of a run: the same job measured, or estimated between sizes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..contract import Case, ParameterValue, Work, WorkloadError
from ..planning.cases import cases_on
from ..planning.plan import RowPlan
from ..planning.request import Request
from ..planning.usage import MOST_BATCH
from ..records.document import Measurement
from ..records.reason import Reason, Warning
from ..records.verdict import WhatIf
from ..report.candidate import Block, Candidate
from ..report.names import name_of
from ..stats import ratios
from .estimate import Estimate, Point, estimate
from .limits import is_admissible
from .recordings import Recording, file_name, load, named, own_folder, shown
from .whatif import TIMED, counted

# Of several reasons why there is no estimate, the one nearest to having one is told.
NEAREST = ("too_far_off", "too_few_sizes", "outside", "no_work")


@dataclass(frozen=True)
class Recorded:
    """A recorded candidate under the row's objective."""

    measured: Measurement
    candidate: Candidate


def fill(rows: Sequence[RowPlan], request: Request) -> list[Warning]:
    """Give each row what is recorded of the devices asked for; the warnings are of files that are
    no recordings.  UsageError for a device of which there is none."""
    recordings, unusable = load()
    names = {asked: named(asked, recordings, unusable) for asked in request.what_if}
    for row in rows:
        row.what_if = [
            of_row(row, request, asked, [r for r in recordings if r.name == name])
            for asked, name in names.items()
        ]
    return unusable


def of_row(row: RowPlan, request: Request, asked: str, recordings: Sequence[Recording]) -> WhatIf:
    """The newest recording that measured this very job; else the newest that has an estimate."""
    if row.scenario.objective not in TIMED:
        text = f"recordings answer for times, and this row counts {row.scenario.objective}"
        return _missing(asked, recordings, Reason("objective", text))
    for recording in recordings:
        if (found := _recorded(row, request, asked, recording)) is not None:
            return found
    reasons = []
    for recording in recordings:
        answer = _estimated(row, request, asked, recording)
        if isinstance(answer, WhatIf):
            return answer
        reasons += answer
    alone = replace(
        request, scenarios=(row.scenario.id,), what_if=(), devices=(), all_scenarios=False
    )
    arguments = [*alone.arguments(), "--json", "--output", file_name(asked)]
    command = shlex.join(["workbench", *arguments])
    folder = shown(own_folder())
    hint = f"to record it, run `{command}` on that machine and copy the file into {folder}"
    sizes = _sizes(row.scenario.batch, row.scenario.params)
    listed = ",".join(f"{name}={value}" for name, value in sizes.items())
    text = f"{row.workload.name}[{listed}] is not among what was recorded of it"
    code = "not_recorded"
    if reasons:
        nearest = min(reasons, key=lambda reason: NEAREST.index(reason.code))
        code, text = nearest.code, f"{text}, and {nearest.message}"
    return _missing(asked, recordings, Reason(code, text, hint))


def _answer(
    asked: str,
    recording: Recording,
    basis: str,
    case: Case,
    found: Estimate,
    warnings: Sequence[Warning],
) -> WhatIf:
    return WhatIf(
        device=asked,
        name=recording.name,
        basis=basis,
        id=case.id,
        step_s=found.value_s,
        step_ci95_s=found.interval_s,
        ratio=None,
        ratio_ci95=None,
        error=found.error,
        recorded_at=recording.recorded_at,
        source=recording.file,
        warnings=list(warnings),
    )


def _missing(asked: str, recordings: Sequence[Recording], reason: Reason) -> WhatIf:
    return WhatIf(
        device=asked,
        name=recordings[0].name,
        basis=None,
        id=None,
        step_s=None,
        step_ci95_s=None,
        ratio=None,
        ratio_ci95=None,
        error=None,
        recorded_at=None,
        source=None,
        missing=reason,
    )


def _sizes(batch: int | None, params: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    return {**({} if batch is None else {"batch": batch}), **params}


# ----------------------------------------------------------------- recorded


def _recorded(row: RowPlan, request: Request, asked: str, recording: Recording) -> WhatIf | None:
    """The fastest candidate that this row could have picked there, at its very size."""
    rows: dict[str | None, dict[str, Recorded]] = {}
    for found in _comparable(row, request, recording):
        if not _differing(row, found.measured.case) and is_admissible(
            found.candidate, row.scenario
        ):
            rows.setdefault(found.measured.scenario, {})[found.measured.id] = found
    fastest = []
    for group in rows.values():  # candidates are compared in the rounds that they shared
        first = ratios.ranking({name: found.candidate.rounds() for name, found in group.items()})[0]
        fastest.append(group[first])
    best = min(fastest, key=lambda found: _value(found)[0], default=None)
    if best is None:
        return None
    answer = Estimate(*_value(best), error=None)
    return _answer(asked, recording, "recorded", best.measured.case, answer, best.measured.warnings)


def _value(found: Recorded) -> tuple[float, tuple[float, float] | None]:
    value = counted(found.candidate)
    assert value is not None  # noqa: S101 - only those are comparable
    return value


def _comparable(row: RowPlan, request: Request, recording: Recording) -> Iterator[Recorded]:
    """What was recorded of candidates that this row would have there, at whatever size."""
    is_cpu = recording.devices == ("cpu",)
    gpus = () if is_cpu else recording.devices
    there = cases_on(row, request, recording.machine, gpus, with_cpu=is_cpu)
    for measured in recording.measurements:
        case, scenario = measured.case, row.scenario
        if case.workload != row.workload.name:
            continue
        if replace(case, batch=scenario.batch, params=scenario.params) not in there:
            continue
        candidate = _candidate(measured, scenario.objective)
        if counted(candidate) is not None and _does_the_same(row, measured):
            yield Recorded(measured, candidate)


def _candidate(measured: Measurement, objective: str) -> Candidate:
    samples = iter(measured.samples_s)
    blocks = [
        Block(shape.round, [next(samples) for _ in range(shape.n)], []) for shape in measured.blocks
    ]
    return Candidate(
        case=measured.case,
        scenario=measured.scenario or "",
        objective=objective,
        work=measured.work,
        state=measured.status,
        setup=measured.setup,
        accuracy=measured.accuracy,
        iterations_per_sample=measured.iterations_per_sample,
        memory_peak_bytes=measured.memory_peak_bytes,
        blocks=blocks,
    )


def _does_the_same(row: RowPlan, measured: Measurement) -> bool:
    """Whether a step is still the work that it was when it was recorded."""
    now, then = _work(row, measured.case), measured.work
    return now is not None and (now.flops, now.items) == (then.flops, then.items)


def _work(row: RowPlan, case: Case) -> Work | None:
    """None for sizes that this version of the workload does not take."""
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
    """The sizes that are not the row's, as they were there."""
    here, there = _sizes(row.scenario.batch, row.scenario.params), _sizes(case.batch, case.params)
    names = dict.fromkeys([*here, *there])
    return {name: there.get(name) for name in names if here.get(name) != there.get(name)}


# ---------------------------------------------------------------- estimated


def _estimated(
    row: RowPlan, request: Request, asked: str, recording: Recording
) -> WhatIf | list[Reason]:
    """The fastest candidate whose recorded sizes, all alike but one, lie on both sides."""
    curves: dict[tuple[str, str], dict[float, Recorded]] = {}
    for found in _comparable(row, request, recording):
        differing = _differing(row, found.measured.case)
        if len(differing) != 1:
            continue
        ((name, size),) = differing.items()
        if not isinstance(size, int | float):
            continue
        points = curves.setdefault((name, found.measured.case.label), {})
        if size not in points or found.measured.n > points[size].measured.n:
            points[size] = found
    reasons: list[Reason] = []
    best: tuple[Estimate, Case, list[Warning]] | None = None
    for (name, _), points in curves.items():
        answer = _on_curve(row, name, points)
        if isinstance(answer, Reason):
            reasons.append(answer)
        elif answer is not None and (best is None or answer[0].value_s < best[0].value_s):
            best = answer
    if best is None:
        return reasons
    estimated, case, warnings = best
    return _answer(asked, recording, "estimated", case, estimated, warnings)


def _on_curve(
    row: RowPlan, name: str, points: Mapping[float, Recorded]
) -> tuple[Estimate, Case, list[Warning]] | Reason | None:
    """The estimate for one candidate over one size; None where a neighbour could not be picked."""
    wanted = _sizes(row.scenario.batch, row.scenario.params).get(name)
    if not isinstance(wanted, int | float):
        return None
    some = next(iter(points.values())).measured.case
    case = replace(some, batch=row.scenario.batch, params=row.scenario.params)
    work = _work(row, case)
    if work is None:
        return None
    drawn = [
        Point(size, now, *_value(found))
        for size, found in points.items()
        if (now := _work(row, found.measured.case)) is not None
    ]
    answer = estimate(drawn, wanted, work)
    if isinstance(answer, Reason):
        sizes = ", ".join(f"{size:g}" for size in sorted(points))
        return Reason(answer.code, f"{answer.message} ({name} {sizes}: {name_of(some.id)})")
    sides = (max(s for s in points if s < wanted), min(s for s in points if s > wanted))
    neighbours = [points[size] for size in sides]
    if not all(is_admissible(found.candidate, row.scenario) for found in neighbours):
        return None
    warnings = [w for found in neighbours for w in found.measured.warnings]
    return answer, case, list(dict.fromkeys(warnings))
