"""The facts that the verdict of a row and its sentences rest on, all derived from the report."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from ..machine.nvidia.gpus import no_gpu
from ..planning.admission import compiling_s
from ..planning.request import LONGEST_BUDGET_S
from ..planning.scenario import Scenario
from ..records.reason import OVERLOADED_MACHINE, Reason, Warning
from ..records.verdict import LIKELY, OPEN, SURE, TIE
from ..report.candidate import BY_FIRST_BLOCK, CANCELLED, Candidate, Row, ranked
from ..report.measurements import measurement_warnings
from ..report.report import Report
from ..stats import ratios
from ..stats.paired import Ratio
from ..text import units
from ..worker.code import COMMAND
from .comparison import COMPARED, Comparison, Values, as_written, ratio_of
from .limits import beyond_limits, eligible, exceeds_error_limit, is_surely_beyond_limits

OVERLOADED_LEAD = 2.0  # below it, an overloaded machine has reversed stated leads
LOWERED = {SURE: LIKELY}  # the word after a doubt; every other one becomes open
EDGE = 1 + ratios.TOLERANCE


@dataclass(frozen=True)
class Evidence:
    """A row of a report under its scenario, and all that follows from these three."""

    report: Report
    row: Row
    scenario: Scenario

    @property
    def larger_budget_s(self) -> float:
        """Seconds of a budget that gives each row more time than this run, and time to compile what
        lacked it.  A row that raced alone gets a turn for each candidate."""
        measured = sum(bool(candidate.blocks) for candidate in self.for_the_pick)
        growth = 1 + len(self.missed) / measured if self.is_alone and measured else 0.0
        late = (c.case for c in self.by_id if not c.blocks and c.reason and c.reason.is_late)
        most_s, more_s = self.report.most_s, max(map(compiling_s, late), default=0.0)
        budget_s = max(max(2.0, growth) * most_s, most_s + more_s)
        return min(math.ceil(budget_s), LONGEST_BUDGET_S)

    @property
    def is_alone(self) -> bool:
        """Whether the run was asked for this row only."""
        return len(self.report.asked_rows) == 1

    @cached_property
    def by_id(self) -> list[Candidate]:
        """All candidates of the row in the order of their ids."""
        return sorted(self.row.candidates, key=lambda candidate: candidate.case.id)

    @cached_property
    def eligible(self) -> list[Candidate]:
        """The measured candidates that may be picked."""
        return eligible(self.by_id, self.scenario)

    @cached_property
    def ranked(self) -> list[Candidate]:
        """The eligible candidates, best first; those without a value are missing.

        Where 99th percentiles are level, one whose median is clearly lower comes first.  The user's
        code as written comes before candidates that are no better.
        """
        order, code = self._by_value, self.report.code
        first: Candidate | None = None
        if self.chosen_by_median is not None:
            first = self.chosen_by_median.one
        elif code is not None and code.facts.kind != COMMAND and order:
            given = as_written(self.row, code)
            ratio = ratio_of(order[0], given) if given in order else None
            first = given if ratio is not None and ratios.is_tie(ratio) else None
        return order if first is None else [first, *(c for c in order if c is not first)]

    @cached_property
    def _by_value(self) -> list[Candidate]:
        return ranked(self.eligible)

    @cached_property
    def chosen_by_median(self) -> Comparison | None:
        """The pick's medians against those of the lowest 99th percentile, where they decide."""
        if not self.scenario.measures_tails or not self._by_value:
            return None
        first, *others = self._by_value
        racing = [c for c in others if c.beaten_by is None]
        level = [c for c in racing if ratios.is_close(ratio_of(first, c))]
        found = [Comparison.of(c, first, Candidate.step_rounds) for c in level]
        clear = {each.ratio.value: each for each in found if each.ratio and each.ratio.low > EDGE}
        return clear[max(clear)] if clear else None

    @cached_property
    def over_limit(self) -> list[Candidate]:
        """The measured candidates that cannot be picked because of their error alone."""
        measured, row = [c for c in self.for_the_pick if c.is_valid], self.scenario
        return [c for c in measured if exceeds_error_limit(c, row) and not beyond_limits(c, row)]

    @cached_property
    def for_the_pick(self) -> list[Candidate]:
        """The candidates that are not reference-only, measured or not."""
        return [c for c in self.by_id if c.case.precision not in self.scenario.reference_only]

    @cached_property
    def missed(self) -> list[Candidate]:
        """The candidates that might have been picked, had there been time for them."""
        return [candidate for candidate in self.for_the_pick if candidate.was_missed]

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of device ("cpu", "gpu") with an eligible candidate."""
        return {candidate.case.device_kind for candidate in self.eligible}

    @cached_property
    def lost(self) -> list[Candidate]:
        """The candidates for the pick on kinds of device that have no eligible one."""
        return [c for c in self.for_the_pick if c.case.device_kind not in self.kinds]

    @property
    def pick(self) -> Candidate | None:
        return self.ranked[0] if self.ranked else None

    @property
    def runner_up(self) -> Candidate | None:
        return self.ranked[1] if len(self.ranked) > 1 else None

    @property
    def best_cpu(self) -> Candidate | None:
        return first_on("cpu", self.ranked)

    @property
    def best_gpu(self) -> Candidate | None:
        return first_on("gpu", self.ranked)

    @property
    def rival(self) -> Candidate | None:
        """The best of the other kind of device, otherwise the runner-up."""
        if self.best_cpu is None or self.best_gpu is None:
            return self.runner_up
        return self.best_gpu if self.pick is self.best_cpu else self.best_cpu

    @cached_property
    def lead(self) -> Comparison | None:
        """The pick against the runner-up."""
        pick, next_best = self.pick, self.runner_up
        return Comparison.of(pick, next_best) if pick and next_best else None

    @cached_property
    def device_ratio(self) -> Ratio | None:
        """The value of the best CPU candidate over that of the best GPU candidate."""
        return ratio_of(self.best_gpu, self.best_cpu)

    @cached_property
    def decisive_ratio(self) -> Ratio | None:
        """`device_ratio` with an interval that holds over all looks, not just the last."""
        cpu, gpu = self.best_cpu, self.best_gpu
        return self._decisive(cpu, gpu) if cpu and gpu else None

    @cached_property
    def ahead_by_median(self) -> Comparison | None:
        """The pick's medians against those of the nearest rival, where they decide: its 99th
        percentile is lower too, but not beyond doubt, since a few stalls set it."""
        pick, rival = self.pick, self.rival
        if not self.scenario.measures_tails or pick is None or rival is None:
            return None
        tails = self._decisive(rival, pick)
        if tails is None or not tails.low <= 1 < tails.value:
            return None
        found: dict[float, Comparison] = {}  # by their ratio
        for other in self._undecided(pick, rival.case.device_kind):
            steps = Comparison.of(pick, other, Candidate.step_rounds)
            decisive = self._decisive(other, pick, Candidate.step_rounds)
            if steps.ratio is None or decisive is None or decisive.low <= EDGE:
                return None
            found[steps.ratio.value] = steps
        return found[min(found)] if found else None

    def _undecided(self, pick: Candidate, kind: str) -> Iterator[Candidate]:
        """The candidates on a kind of device whose 99th percentile may be as low as the pick's."""
        for other in self.eligible:
            if other is not pick and not other.eliminated and other.case.device_kind == kind:
                tails = self._decisive(other, pick)
                if tails is None or tails.low <= 1:
                    yield other

    def _decisive(
        self, one: Candidate, other: Candidate, values: Values = Candidate.rounds
    ) -> Ratio | None:
        # A race may have been decided, or stopped by hand, because of what it had shown so far.
        is_last = self.row.ended_by not in ("decided", CANCELLED)
        return ratios.decisive_ratio(values(one), values(other), is_last=is_last)

    @cached_property
    def absence(self) -> Reason | None:
        """Why no GPU could take part; None where one could, or before the hardware is known."""
        return None if self.report.machine is None else no_gpu(self.report.machine)

    @property
    def is_without_gpu(self) -> bool:
        """Whether the machine is known to have no GPU."""
        return self.absence is not None and self.absence.code == "no_gpu"

    @cached_property
    def choice(self) -> str:
        """`cpu`, `gpu`, `either` or `unknown`; a device that alone meets the limits is chosen."""
        lost = self.lost
        known = bool(lost) and all(c.is_valid for c in lost)
        beyond = known and all(is_surely_beyond_limits(each, self.scenario) for each in lost)
        if len(self.kinds) == 1 and beyond:
            return next(iter(self.kinds))
        if self.decisive_ratio is None and self.is_without_gpu and self.best_cpu is not None:
            return "cpu"
        choice = choose(self.decisive_ratio)
        if choice != "unknown" or (medians := self.ahead_by_median) is None:
            return choice
        better, other = (each.case.device_kind for each in (medians.one, medians.other))
        return better if better != other else choice

    @cached_property
    def doubts(self) -> list[tuple[str | None, str]]:
        """Doubts that could change the pick but that no interval covers, the gravest first, each
        as the name of a candidate (None: the whole row) and the cause."""
        return [] if self.pick is None else list(self._doubts(self.pick))

    def _doubts(self, pick: Candidate) -> Iterator[tuple[str | None, str]]:
        of_row = [w for w in self.warnings if w.subject == self.row.plan.scenario]
        name, lead = pick.name, ratio_of(pick, self.rival)
        raced = {c.case.device_kind for c in self.for_the_pick if c.blocks}
        missed = {c.case.device_kind for c in self.missed}
        unmeasured = self.report.gaps(self.row)
        # Where both kinds of device raced, one more on the better kind could only add to its lead.
        if len(raced) == 1 or missed - {pick.case.device_kind}:
            unmeasured += self._unmeasured()
        yield from ((None, warning.message) for warning in unmeasured)
        if self.row.is_cut_short:
            yield None, "the run was cut short"
        if unknown := len(self.eligible) - len(self.ranked):
            what, of = COMPARED[self.scenario.objective], units.counted(unknown, "candidate")
            yield None, f"the {what} of {of} is unknown"
        if len(pick.blocks) == 1:
            yield name, "only one round was measured"
        if pick.eliminated:
            yield name, "it left the race before the end"
        if lead is None:
            is_near, is_small = bool(self.lost), False
        else:
            is_near = any(lead.low <= edge <= lead.high for edge in (EDGE, 1 / EDGE))
            is_small = lead.low < OVERLOADED_LEAD
        # One-time costs are measured once, so a disturbance is not averaged out.
        is_near = is_near or pick.objective == "time_to_result"
        for warning in of_row:
            counts = is_near or (is_small and warning.code == OVERLOADED_MACHINE)
            if counts and warning.code != "unmeasured":
                yield None, warning.message

    @property
    def confidence(self) -> str:
        """The word for the lead of the better device, or of the pick; doubts lower it by one."""
        pick, rival = self.pick, self.rival
        has_both = self.best_cpu is not None and self.best_gpu is not None
        # Where one kind of device could not race to its end, the other has not won.
        is_asked = self.row.plan.textbook or has_both or self.lost
        if pick is None or (self.choice == "unknown" and is_asked):
            return OPEN
        is_cut = self.row.is_cut_short and len(self.for_the_pick) > 1
        word = SURE  # without a rival nothing else can be picked
        if rival is not None:
            lead = Comparison.of(pick, rival)
            word = lead_word(lead.ratio, self._decisive(rival, pick))
            if was_far_behind(lead) or (word == OPEN and self.ahead_by_median is not None):
                word = LIKELY
        elif len(self.eligible) > 1 or any(w.code == "unmeasured" for w in self.warnings) or is_cut:
            word = OPEN
        return LOWERED.get(word, OPEN) if self.doubts else word

    @cached_property
    def warnings(self) -> list[Warning]:
        """Warnings about the row, and about the candidates that the verdict names."""
        named = [c for c in (self.pick, self.runner_up, self.best_cpu, self.best_gpu) if c]
        unique = {c.case.id: c for c in named}.values()
        return [
            *self.report.disturbances(self.row),
            *self.report.gaps(self.row),
            *self._unsettled(),
            *self._unmeasured(),
            *chain.from_iterable(measurement_warnings(c, self.report.machine) for c in unique),
        ]

    def _unsettled(self) -> Iterator[Warning]:
        """The pick is the best seen; warn where the rounds do not separate it from the next."""
        lead = self.lead
        if lead is None or lead.is_close or lead.is_proven or was_far_behind(lead):
            return
        ratio, remedy = "too few common rounds", "raise --budget"
        if self.row.ended_by == "rounds":  # more time would add none
            remedy = "run it again on a quiet machine: no race has more rounds"
        if lead.ratio is not None:
            ratio = units.apart(lead.ratio.value, lead.ratio.interval)
            if ratios.is_exhausted(lead.ratio):
                remedy = "start-up times vary that much: compare the break-even points instead"
        text = f"cannot be distinguished from {lead.other.name}: {ratio}"
        yield Warning("pick_unsettled", text, remedy, lead.one.case.id)

    def _unmeasured(self) -> Iterator[Warning]:
        deciding, missed = self.for_the_pick, self.missed
        if missed and (measured := [c for c in deciding if c.blocks]):
            price_s = len(missed) * (self.row.share_s or 0.0) / len(measured)
            more_s = max(1, math.ceil(price_s))
            take = "it takes" if len(missed) == 1 else "they take"
            again = f"{take} about {more_s} s more in this row: race it"
            # One that was not ready in time may take far longer than those that were.
            if any(c.reason is not None and c.reason.is_unready for c in missed):
                again = "race this row"
            started = self.report.started
            ways = [] if self.is_alone else ["alone"]
            # A resumed run had a part of the budget: twice that may be less than the whole.
            if not ways or started is None or started.resumes is None:
                ways.append(f"with --budget {self.larger_budget_s:g} or more")
            text = f"no time was left for {len(missed)} of {len(deciding)} candidates"
            remedy = f"{again} {', or '.join(ways)}"
            yield Warning("unmeasured", text, remedy, self.row.plan.scenario)


def first_on(kind: str, ranked: Sequence[Candidate]) -> Candidate | None:
    """The best candidate on a kind of device ("cpu", "gpu")."""
    return next((c for c in ranked if c.case.device_kind == kind), None)


def choose(ratio: Ratio | None) -> str:
    """`cpu`, `gpu`, `either` or `unknown` from the decisive ratio of CPU time to GPU time."""
    if ratio is None:
        return "unknown"
    if ratios.is_close(ratio):
        return "either"
    return "gpu" if ratio.low > 1 else "cpu" if ratio.high < 1 else "unknown"


def lead_word(ratio: Ratio | None, decisive: Ratio | None) -> str:
    """The word for the loser's time over the winner's; `decisive` is the same over all looks.

    - `sure`: it is above 5 % after all looks
    - `tie`: its 95 % interval lies within 5 %
    - `likely`: the interval lies above 1
    - `open`: anything else
    """
    if ratio is None or decisive is None:
        return OPEN
    if decisive.low > EDGE:
        return SURE
    return TIE if ratios.is_tie(ratio) else LIKELY if ratio.low > 1 else OPEN


def was_far_behind(lead: Comparison) -> bool:
    """Whether `lead.other` was eliminated by its first block for being far behind `lead.one`, so
    that their lead needs no interval."""
    reason = lead.other.reason
    is_early = lead.ratio is None and reason is not None and reason.code in BY_FIRST_BLOCK
    return is_early and (lead.estimate or 0.0) > ratios.UNDECIDED
