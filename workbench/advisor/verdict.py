"""The answer for one row, decided from what the report holds and nothing else.

Pure: the same report gives the same verdict, live, replayed or years later.
"""

from __future__ import annotations

from ..planning.scenario import Scenario
from ..records.verdict import EqualPrecision, Verdict
from ..report.candidate import Candidate
from ..report.confidence import rated
from ..report.report import Report
from ..report.row import Row
from ..stats import ratios
from ..stats.samples import Ratio
from . import costs
from .break_even import payoffs
from .causes import causes
from .comparison import Comparison, ranked
from .evidence import Evidence, first_on
from .next_step import next_best
from .race_summary import summarise
from .reasons import reasons
from .whatif import compared


def decide(report: Report, scenario: Scenario) -> Verdict:
    """The verdict of a row; `unknown` where the evidence does not carry one."""
    row = report.rows[scenario.id]
    found = Evidence(report, row, scenario)
    device_ratio, lead = found.device_ratio, found.lead
    pick_ratio = lead.ratio if lead is not None else None
    verdict = Verdict(
        scenario=row.plan.scenario,
        title=row.plan.title,
        question=row.plan.question,
        textbook=row.plan.textbook or "",
        objective=row.plan.objective,
        choice=found.choice,
        no_gpu=found.is_without_gpu,
        best_cpu=_id(found.best_cpu),
        best_gpu=_id(found.best_gpu),
        device_ratio=_value(device_ratio),
        device_ratio_ci95=_interval(device_ratio),
        pick=_id(found.pick),
        runner_up=_id(found.runner_up),
        pick_ratio=_value(pick_ratio),
        pick_ratio_ci95=_interval(pick_ratio),
        tie=ratios.is_close(pick_ratio),
        equal_precision=equal_precision(row, scenario),
        basis=basis_of(row),
        crossover=None,
        reasons=reasons(found, causes(found)),
        warnings=found.warnings,
        reproduce=row.plan.reproduce,
        textbook_source=scenario.source,
        next_best=next_best(found),
        race=summarise(row),
        payoffs=payoffs(found.ranked, found.best_gpu, found.best_cpu),
        by_objective=costs.by_objective(found.eligible, row.plan.prices),
        costs=costs.case_costs(found.eligible),
        prices=row.plan.prices,
        what_if=compared(row.plan.what_if, found.pick, report.machine),
    )
    return rated(verdict, row)


def basis_of(row: Row) -> str:
    """`measured` or `simulated`; `none` where nothing was measured."""
    if not any(candidate.blocks for candidate in row.candidates):
        return "none"
    return "simulated" if any(c.simulated for c in row.candidates) else "measured"


def equal_precision(row: Row, scenario: Scenario) -> list[EqualPrecision]:
    """The best of each device at each precision, including those raced for reference only."""
    found = []
    wanted = [*scenario.precisions, *scenario.reference_only]
    present = {c.case.precision for c in row.candidates if c.blocks}
    for precision in (p for p in wanted if p in present):
        group = [c for c in row.candidates if c.case.precision == precision and c.blocks]
        best_first = ranked(c for c in group if c.state != "failed")
        cpu, gpu = first_on("cpu", best_first), first_on("gpu", best_first)
        ratio = Comparison.of(gpu, cpu).ratio if cpu is not None and gpu is not None else None
        found.append(
            EqualPrecision(
                precision=precision,
                reference_only=precision in scenario.reference_only,
                best_cpu=_id(cpu),
                best_gpu=_id(gpu),
                device_ratio=_value(ratio),
                device_ratio_ci95=_interval(ratio),
            )
        )
    return found


def _id(candidate: Candidate | None) -> str | None:
    return candidate.case.id if candidate else None


def _value(ratio: Ratio | None) -> float | None:
    return ratio.value if ratio else None


def _interval(ratio: Ratio | None) -> tuple[float, float] | None:
    return ratio.interval if ratio else None
