"""The verdict on one row, a pure function of the report: live, replayed or years later."""

from ..planning.scenario import Scenario
from ..records.verdict import EqualPrecision, Verdict
from ..report.candidate import Candidate, Row, ranked
from ..report.report import Report
from ..stats import ratios
from ..stats.paired import value_and_interval
from . import costs
from .break_even import payoffs
from .causes import causes
from .comparison import ratio_of
from .evidence import Evidence, first_on
from .next_step import next_best
from .race_summary import summarise
from .reasons import reasons
from .whatif import compared

OF_THE_PLAN = ("scenario", "title", "question", "objective", "reproduce", "prices")


def decide(report: Report, scenario: Scenario) -> Verdict:
    """The verdict of a row; its choice is `unknown` where the evidence is too weak."""
    row = report.rows[scenario.id]
    found = Evidence(report, row, scenario)
    pick_ratio = found.lead.ratio if found.lead is not None else None
    device, device_ci95 = value_and_interval(found.device_ratio)
    lead, lead_ci95 = value_and_interval(pick_ratio)
    measured = any(candidate.blocks for candidate in row.candidates)
    is_simulated = any(candidate.simulated for candidate in row.candidates)
    return Verdict(
        **{name: getattr(row.plan, name) for name in OF_THE_PLAN},
        textbook=row.plan.textbook or "",
        choice=found.choice,
        no_gpu=found.is_without_gpu,
        best_cpu=_id(found.best_cpu),
        best_gpu=_id(found.best_gpu),
        device_ratio=device,
        device_ratio_ci95=device_ci95,
        pick=_id(found.pick),
        runner_up=_id(found.runner_up),
        pick_ratio=lead,
        pick_ratio_ci95=lead_ci95,
        tie=ratios.is_close(pick_ratio),
        equal_precision=equal_precision(row, scenario),
        basis="none" if not measured else "simulated" if is_simulated else "measured",
        crossover=None,
        reasons=reasons(found, causes(found)),
        warnings=found.warnings,
        textbook_source=scenario.source,
        next_best=next_best(found),
        race=summarise(row),
        payoffs=payoffs(found.ranked, found.best_gpu, found.best_cpu),
        by_objective=costs.by_objective(found.eligible, row.plan.prices),
        costs=costs.case_costs(found.eligible),
        what_if=compared(row.plan.what_if, found.pick, report.machine),
        confidence=found.confidence,
    )


def equal_precision(row: Row, scenario: Scenario) -> list[EqualPrecision]:
    """The best of each device at each precision, including those raced for reference only."""
    found = []
    for precision in (*scenario.precisions, *scenario.reference_only):
        apart = precision in scenario.reference_only
        # Unmeasured ones are listed too, since they show which precisions are never picked.
        group = [c for c in row.candidates if c.case.precision == precision and (c.blocks or apart)]
        if not group:
            continue
        best_first = ranked(c for c in group if c.state != "failed")
        cpu, gpu = first_on("cpu", best_first), first_on("gpu", best_first)
        ratio = value_and_interval(ratio_of(gpu, cpu))
        found.append(EqualPrecision(precision, apart, _id(cpu), _id(gpu), *ratio))
    return found


def _id(candidate: Candidate | None) -> str | None:
    return candidate.case.id if candidate else None
