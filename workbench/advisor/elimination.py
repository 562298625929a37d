"""Which candidates leave a race: pure functions of the measurements so far."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ..contract import REDUCED
from ..machine.host.isa import lacking
from ..planning.admission import NOT_WORTH_RACING, slower_precision
from ..planning.plan import RowPlan
from ..planning.scenario import Scenario
from ..records.machine import Cpu
from ..records.reason import Reason
from ..report.candidate import Candidate, ranked
from ..report.names import candidate_name
from ..stats import ratios, samples as stats
from ..stats.objectives import OF_A_STEP
from ..text import units
from .comparison import worse
from .crossover import MOST_POINTS
from .limits import error_limit, exceeds_error_limit, is_admissible, leaves_for_limits, uncounted

CERTAIN_SAMPLES = 3
FAR = 2.0  # a candidate this many times as slow as the leader needs no second block
FAR_BEHIND = 10.0  # a candidate this many times as slow as the leader needs no second sample
SLOW = ("beaten", "far_slower")  # reasons that speak of time alone
# A crossover rests on up to MOST_POINTS races, so at least as many pairs share the error of each.
POINT_CANDIDATES = math.ceil(math.sqrt(2 * MOST_POINTS)) + 1


@dataclass(frozen=True)
class Standings:
    """The state of a race after a round, as far as the rules need it."""

    plan: RowPlan
    candidates: Sequence[Candidate]  # still racing
    measured: Sequence[Candidate]  # had a turn in this race, eliminated ones included
    rounds: int  # since the race began
    cpu: Cpu | None
    turn_s: Mapping[str, float]  # predicted seconds of the next turn, by case id
    usable_s: float  # seconds left to the row, with those that it may borrow

    @property
    def scenario(self) -> Scenario:
        return self.plan.scenario

    @property
    def pairs(self) -> int:
        """The number of comparisons that share the error of a race (Bonferroni)."""
        least = POINT_CANDIDATES if self.plan.of is not None else 0
        return math.comb(max(len(self.measured), least), 2)


@dataclass(frozen=True)
class Eliminated:
    """A candidate that leaves the race, and why."""

    candidate: Candidate
    reason: Reason
    proof: ratios.ProvenSlower | None = None


@dataclass(frozen=True)
class Rule:
    """One reason to leave a race, and when it is checked."""

    find: Callable[[Standings], Iterator[Eliminated]]
    for_a_pick: bool = False  # only in rows that end with a pick
    protects_runner_up: bool = False  # a possible runner-up stays until the lead has an interval

    def applies(self, standings: Standings) -> bool:
        return standings.plan.decides or not self.for_a_pick


def inadmissible(standings: Standings) -> Iterator[Eliminated]:
    """Candidates that cannot be picked; one block shows what they would have gained."""
    scenario = standings.scenario
    for candidate in standings.candidates:
        if why := leaves_for_limits(candidate, scenario):
            reason = Reason("limit", why, "raise the limit or choose a smaller size")
        elif why := uncounted(candidate):
            reason = Reason("not_counted", why, "choose another objective")
        elif exceeds_error_limit(candidate, scenario):
            limit = units.share(error_limit(candidate, scenario) or 0.0)
            reason = Reason("error_limit", f"its error is above the limit of {limit}")
        else:
            continue
        yield Eliminated(candidate, reason)


def slower_precisions(standings: Standings) -> Iterator[Eliminated]:
    """Reduced precisions whose first turn was far behind FP32, all else equal."""
    if standings.scenario.weighs_memory:
        return  # a reduced precision may need less memory
    cpu = standings.cpu
    measured = [c for c in standings.candidates if c.samples_s]  # a block may have been discarded
    fp32 = {c.case.but_precision(): c for c in measured if c.case.precision == "fp32"}
    for candidate in measured:
        precision, like = candidate.case.precision, fp32.get(candidate.case.but_precision())
        if precision not in REDUCED or like is None or len(candidate.blocks) > 1:
            continue
        is_emulated = cpu is not None and lacking(precision, cpu) is not None
        if not is_emulated and not is_plausible(candidate):
            continue  # other load may have slowed it
        shown = ratios.relative(candidate.step_rounds(), like.step_rounds())  # as in the tables
        factor = min(shown, candidate.min_s / like.min_s)
        if reason := slower_precision(candidate.case, factor, "in its first turn", cpu, shown):
            yield Eliminated(candidate, reason)


def too_slow_for_budget(standings: Standings) -> Iterator[Eliminated]:
    """The slowest of each group after a first round, until three rounds fit the time left.

    Since the first steps of a candidate may be slow, one with few of them has a second turn, unless
    it is far behind.
    """
    rounds, turn_s = standings.rounds, standings.turn_s
    if rounds not in (1, 2):
        return
    more = stats.MIN_PAIRS - rounds
    planned_s = more * sum(turn_s[candidate.case.id] for candidate in standings.candidates)
    for group in groups(standings.candidates, standings.scenario):
        for candidate, factor, best in sorted(_slowdowns(group), key=itemgetter(1), reverse=True):
            if rounds == 1:
                least, turns = _least_factor(candidate), "first round"
            else:
                least, turns = NOT_WORTH_RACING, "best of two rounds"
            is_slow = factor >= least and not _is_disturbed(candidate)
            if planned_s > standings.usable_s and is_slow:
                planned_s -= more * turn_s[candidate.case.id]
                behind = worse(standings.scenario.objective)
                text = f"{_factor(candidate, factor)} {behind} than {best} in its {turns}"
                reason = Reason("far_slower", f"{text}, and time is short", "raise --budget")
                yield Eliminated(candidate, reason)


def _least_factor(candidate: Candidate) -> float:
    is_sure = candidate.objective not in OF_A_STEP or len(candidate.samples_s) >= CERTAIN_SAMPLES
    return NOT_WORTH_RACING if is_sure else FAR_BEHIND


def _is_disturbed(candidate: Candidate) -> bool:
    """Whether even its fastest sample took far longer than a step of its warm-up."""
    step_s = candidate.warmup.step_s if candidate.objective in OF_A_STEP else None
    return step_s is not None and candidate.min_s > FAR * step_s


def far_slower(standings: Standings) -> Iterator[Eliminated]:
    """Candidates far behind after a first block, or a second if the first was not plausible."""
    for group in groups(standings.candidates, standings.scenario):
        for candidate, factor, best in _slowdowns(group):
            blocks = len(candidate.blocks)
            if factor < FAR or blocks > 2 or candidate.objective not in OF_A_STEP:
                continue
            is_believed = is_plausible(candidate) == (blocks == 1)
            if is_believed and len(candidate.samples_s) >= CERTAIN_SAMPLES:
                which = "first turn" if blocks == 1 else "best of two turns"
                text = f"{_factor(candidate, factor)} slower than {best} in its {which}"
                yield Eliminated(candidate, Reason("far_slower", text))


def proven_slower(standings: Standings) -> Iterator[Eliminated]:
    """Candidates slower than another one of their group beyond doubt, by their paired ratio."""
    look = standings.rounds - stats.MIN_PAIRS + 1
    if look < 1:
        return
    for group in groups(standings.candidates, standings.scenario):
        by_id = {candidate.case.id: candidate for candidate in group}
        rounds = {case: candidate.rounds() for case, candidate in by_id.items()}
        for proof in ratios.proven_slower(rounds, look=look, pairs=standings.pairs):
            behind = worse(standings.scenario.objective)
            text = f"{units.ratio(proof.ratio.value)} {behind} than {candidate_name(proof.by)}"
            yield Eliminated(by_id[proof.case], Reason("beaten", text), proof)


RULES = (  # applied in this order, each to those that the previous rules left in the race
    # First, so that no candidate counts as slow against one that cannot be picked.
    Rule(inadmissible, for_a_pick=True),
    Rule(slower_precisions, protects_runner_up=True),
    Rule(too_slow_for_budget),
    Rule(far_slower, for_a_pick=True, protects_runner_up=True),
    Rule(proven_slower, for_a_pick=True),
)


def groups(candidates: Iterable[Candidate], scenario: Scenario) -> list[list[Candidate]]:
    """Candidates that may eliminate each other: all for the pick or all reference-only, on one kind
    of device, since the best CPU and GPU candidate both need a value."""
    found: dict[tuple[str, bool], list[Candidate]] = {}
    for candidate in candidates:
        reference_only = candidate.case.precision in scenario.reference_only
        found.setdefault((candidate.case.device_kind, reference_only), []).append(candidate)
    return list(found.values())


def is_plausible(candidate: Candidate) -> bool:
    """Whether its first block needs no confirmation: it has several samples, one of them about as
    fast as the warm-up.  All are slow where another process holds a core of the candidate."""
    samples, warm_s = candidate.blocks[0].samples_s, candidate.warmup.step_s
    if len(samples) < CERTAIN_SAMPLES:
        return False
    return warm_s is None or min(samples) <= FAR * warm_s


def _slowdowns(group: Sequence[Candidate]) -> Iterator[tuple[Candidate, float, str]]:
    """Each candidate, its least value over that of the best of its group in its last round, and the
    name of the best.  Where the objective is the time of a step, its fastest sample counts."""
    rounds = {candidate.case.id: candidate.rounds() for candidate in group}
    for candidate in group:
        case = candidate.case.id
        if not candidate.blocks or (number := candidate.blocks[-1].round) not in rounds[case]:
            continue
        values = {c: measured[number] for c, measured in rounds.items() if number in measured}
        best = min(values, key=values.__getitem__)
        own = candidate.min_s if candidate.objective in OF_A_STEP else min(rounds[case].values())
        yield candidate, own / values[best], candidate_name(best)


def _factor(candidate: Candidate, factor: float) -> str:
    """A factor of `_slowdowns` in words; one from a fastest sample is a lower bound."""
    return f"{'at least ' * (candidate.objective in OF_A_STEP)}{units.ratio(factor)}"


def protected(standings: Standings) -> set[str]:
    """Ids of cases that stay while there is time: pick, runner-up, and those the plan names."""
    if not standings.plan.decides:
        return set(standings.plan.protected)
    able = ranked(c for c in standings.measured if is_admissible(c, standings.scenario))
    return {*(c.case.id for c in able[:2]), *standings.plan.protected}
