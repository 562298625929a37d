"""Which cases join a race because they may beat the leader of a device, by what limits it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..contract import WAITING_FRACTION, Case
from ..planning.plan import RowPlan
from ..planning.scenario import Scenario
from ..report.candidate import Candidate, ranked
from ..stats.objectives import OF_A_STEP
from .limits import eligible

SETTLED_ROUNDS = 2  # rounds that a leader has raced before cases join against it
NEAR = 1.25  # times the leader's time, up to which a candidate has a turn in every round
LOADERS_JOIN_FROM = 0.1  # share of the time that waits for data
LAUNCHES_S = 5e-3  # a thousand launches: in a longer step, queueing them hardly counts
KERNELS_S = 1e-3  # in a shorter step, faster kernels hardly count


def due(plan: RowPlan, candidates: Sequence[Candidate]) -> list[Case]:
    """Cases that may beat their device's leader, most promising first; removed from the plan."""
    if not plan.refining:
        return []
    leaders = settled_leaders(candidates, plan.scenario)
    found = [case for leader in leaders for case in _promising(leader, plan.refining)]
    plan.refining = [case for case in plan.refining if case not in found]
    return found


def settled_leaders(candidates: Sequence[Candidate], scenario: Scenario) -> list[Candidate]:
    """The leader of each device, once it has raced for `SETTLED_ROUNDS`; the best first."""
    leaders = _leaders(candidates, scenario).values()
    return [each for each in leaders if len(each.blocks) >= SETTLED_ROUNDS]


def _leaders(candidates: Sequence[Candidate], scenario: Scenario) -> dict[str, Candidate]:
    """The best admissible candidate of each device, best first."""
    leaders: dict[str, Candidate] = {}
    for candidate in ranked(eligible(candidates, scenario)):
        leaders.setdefault(candidate.case.device, candidate)
    return leaders


def resting(candidates: Sequence[Candidate], scenario: Scenario) -> set[str]:
    """Ids of the cases without a turn in a round in which others join: `SETTLED_ROUNDS` showed them
    well behind the leader of their device."""
    leaders = _leaders(candidates, scenario)
    return {
        each.case.id
        for each in candidates
        if each.objective in OF_A_STEP
        and len(each.blocks) >= SETTLED_ROUNDS
        and (leader := leaders.get(each.case.device)) is not None
        and each.min_s > NEAR * leader.min_s
    }


def _promising(leader: Candidate, cases: Sequence[Case]) -> Iterator[Case]:
    """Other precisions and modes with the leader's threads on a CPU; on a GPU more loaders if it
    waits for data, else fewer loaders or compiled code."""
    case, step_s = leader.case, leader.median_s
    if case.threads is not None:
        yield from (each for each in cases if replace(each, threads=case.threads) == case)
        return
    near = [each for each in cases if each.device == case.device]
    waits = leader.blocks[-1].metrics.get(WAITING_FRACTION, 0.0) >= LOADERS_JOIN_FROM
    for each in near:
        is_like = (each.precision, each.mode) == (case.precision, case.mode)
        if is_like and each.tuning != case.tuning:
            its, leaders = (int(one.tuning.get("loaders", 0)) for one in (each, case))
            if (its > leaders) == waits:
                yield each
    if waits:
        return
    helpful = {
        "reduce-overhead": step_s < LAUNCHES_S,
        "compile": True,
        "max-autotune": step_s >= KERNELS_S,
    }
    for mode in (mode for mode, helps in helpful.items() if helps):
        compiled = [c for c in near if c.tuning == case.tuning and mode in c.mode_words]
        yield from [c for c in compiled if c.precision == case.precision] or compiled
