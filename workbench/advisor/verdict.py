"""The answer for one row, decided from what the report holds and nothing else.

Pure: the same report gives the same verdict, live, replayed or years later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ..machine import no_gpu
from ..planning.scenario import Scenario
from ..records.reason import Warning
from ..records.verdict import EqualPrecision, Verdict
from ..report.candidate import Candidate
from ..report.names import short
from ..report.report import Report
from ..report.row import Row
from ..report.warnings import measurement_warnings
from ..stats import ratios
from ..stats.samples import Ratio
from ..text.units import times
from . import costs
from .break_even import payoffs
from .causes import causes
from .limits import is_admissible, is_over_error_limit, only_within
from .next_step import next_best
from .race_summary import BY_FIRST_BLOCK, summarise
from .reasons import Evidence, reasons
from .whatif import compared


def decide(report: Report, scenario: Scenario) -> Verdict:
    """The verdict of a row; `unknown` where the evidence does not carry one."""
    row, machine = report.rows[scenario.id], report.machine
    by_id = sorted(row.candidates, key=lambda candidate: candidate.case.id)  # ties go by id
    eligible = [c for c in by_id if is_admissible(c, scenario) and c.blocks]
    rounds = {c.case.id: c.rounds() for c in eligible}
    order = ratios.ranking(rounds)
    best_cpu = _first(order, eligible, "cpu")
    best_gpu = _first(order, eligible, "gpu")
    ratio = _ratio(best_cpu, best_gpu)
    absent = no_gpu(machine) if machine is not None else None
    none_found = absent is not None and absent.code == "no_gpu"
    pick, runner_up = _pick(order, eligible)
    pick_ratio = _ratio(runner_up, pick)
    decisive = None
    if best_cpu is not None and best_gpu is not None:
        decisive = ratios.decisive_ratio(best_cpu.rounds(), best_gpu.rounds())
    choice = choose(decisive, has_cpu=best_cpu is not None, no_gpu=none_found)
    if (only := only_within(row, scenario)) is not None:
        choice = only
    named = [c for c in (pick, runner_up, best_cpu, best_gpu) if c is not None]
    unique = {c.case.id: c for c in named}.values()
    warnings = [
        *report.disturbances(row),
        *unsettled(pick, runner_up, pick_ratio),
        *unmeasured(row, scenario),
        *chain.from_iterable(measurement_warnings(c, machine) for c in unique),
    ]
    evidence = Evidence(
        report=report,
        row=row,
        scenario=scenario,
        choice=choice,
        ratio=ratio,
        best_cpu=best_cpu,
        best_gpu=best_gpu,
        pick=pick,
        runner_up=runner_up,
        pick_ratio=pick_ratio,
        tie=ratios.is_close(pick_ratio),
        absent=absent,
        decisive=decisive,
        eligible=eligible,
        over_limit=[c for c in by_id if is_over_error_limit(c, scenario)],
        warnings=warnings,
    )
    return Verdict(
        scenario=row.plan.scenario,
        title=row.plan.title,
        question=row.plan.question,
        textbook=row.plan.textbook or "",
        objective=row.plan.objective,
        choice=choice,
        no_gpu=none_found,
        best_cpu=_id(best_cpu),
        best_gpu=_id(best_gpu),
        device_ratio=ratio.value if ratio else None,
        device_ratio_ci95=ratio.interval if ratio else None,
        pick=_id(pick),
        runner_up=_id(runner_up),
        pick_ratio=pick_ratio.value if pick_ratio else None,
        pick_ratio_ci95=pick_ratio.interval if pick_ratio else None,
        tie=ratios.is_close(pick_ratio),
        equal_precision=equal_precision(row, scenario),
        basis=basis_of(row),
        crossover=None,
        reasons=reasons(evidence, causes(evidence)),
        warnings=warnings,
        reproduce=row.plan.reproduce,
        textbook_source=scenario.source,
        next_best=next_best(evidence),
        race=summarise(row),
        payoffs=payoffs(eligible, order, best_gpu, best_cpu),
        by_objective=costs.by_objective(eligible, row.plan.prices),
        costs=costs.case_costs(eligible),
        prices=row.plan.prices,
        what_if=compared(row.plan.what_if, pick, machine),
    )


def basis_of(row: Row) -> str:
    """What the verdict rests on: `none` where nothing was measured."""
    if not any(candidate.blocks for candidate in row.candidates):
        return "none"
    return "simulated" if any(c.simulated for c in row.candidates) else "measured"


def unsettled(
    pick: Candidate | None, runner_up: Candidate | None, ratio: Ratio | None
) -> Iterator[Warning]:
    """The pick is the best seen; say so where the rounds do not tell it from the next."""
    if pick is None or runner_up is None or ratios.is_close(ratio):
        return
    if ratio is None and runner_up.reason is not None and runner_up.reason.code in BY_FIRST_BLOCK:
        return  # one block showed it far behind
    if ratio is None or ratio.low <= 1:
        found = "too few common rounds" if ratio is None else times(ratio.value, ratio.interval)
        remedy = "give it a larger --budget"
        if ratio is not None and ratios.is_exhausted(ratio):
            remedy = "start-ups differ by that much: see after how many steps each has paid off"
        yield Warning(
            code="pick_unsettled",
            message=f"not told apart from {short(runner_up.case)}: {found}",
            remedy=remedy,
            subject=pick.case.id,
        )


def unmeasured(row: Row, scenario: Scenario) -> Iterator[Warning]:
    """Those that might have been picked, had the budget held a turn for them."""
    deciding = [c for c in row.candidates if c.case.precision not in scenario.apart]
    missed = [c for c in deciding if not c.blocks and c.reason and c.reason.code == "budget"]
    if missed and any(c.blocks for c in deciding):
        yield Warning(
            code="unmeasured",
            message=f"{len(missed)} of the {len(deciding)} candidates that may be picked had no "
            "turn within the budget",
            remedy="give it a larger --budget",
            subject=row.plan.scenario,
        )


def choose(ratio: Ratio | None, *, has_cpu: bool, no_gpu: bool) -> str:
    """`cpu`, `gpu`, `either` or `unknown` from the decisive ratio of CPU time to GPU time."""
    if ratio is None:
        return "cpu" if no_gpu and has_cpu else "unknown"
    if ratios.is_close(ratio):
        return "either"
    if ratio.low > 1:
        return "gpu"
    if ratio.high < 1:
        return "cpu"
    return "unknown"


def equal_precision(row: Row, scenario: Scenario) -> list[EqualPrecision]:
    """The best of each device at each precision, those measured apart included."""
    found = []
    wanted = [*scenario.precisions, *scenario.apart]
    present = {c.case.precision for c in row.candidates if c.blocks}
    for precision in (p for p in wanted if p in present):
        group = [c for c in row.candidates if c.case.precision == precision and c.blocks]
        order = ratios.ranking({c.case.id: c.rounds() for c in group if c.state != "failed"})
        cpu, gpu = _first(order, group, "cpu"), _first(order, group, "gpu")
        ratio = _ratio(cpu, gpu)
        found.append(
            EqualPrecision(
                precision=precision,
                reference_only=precision in scenario.apart,
                best_cpu=_id(cpu),
                best_gpu=_id(gpu),
                device_ratio=ratio.value if ratio else None,
                device_ratio_ci95=ratio.interval if ratio else None,
            )
        )
    return found


def _pick(
    order: Sequence[str], eligible: Sequence[Candidate]
) -> tuple[Candidate | None, Candidate | None]:
    by_id = {c.case.id: c for c in eligible}
    ranked = [by_id[case] for case in order]
    return (ranked[0] if ranked else None, ranked[1] if len(ranked) > 1 else None)


def _first(order: Sequence[str], group: Sequence[Candidate], kind: str) -> Candidate | None:
    by_id = {c.case.id: c for c in group}
    return next((by_id[case] for case in order if by_id[case].case.device_kind == kind), None)


def _ratio(first: Candidate | None, second: Candidate | None) -> Ratio | None:
    if first is None or second is None:
        return None
    return ratios.ratio_between(first.rounds(), second.rounds())


def _id(candidate: Candidate | None) -> str | None:
    return candidate.case.id if candidate else None
