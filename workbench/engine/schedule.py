"""The plan of a race: when its cases enter, how long its blocks are, whether further rounds fit,
and the time of a row beyond its share, which only a run without --budget has."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import zip_longest

from ..advisor.stopping import PATIENCE
from ..contract import Case, kind_of
from ..planning.admission import small_probe_of
from ..planning.plan import RowPlan
from ..planning.scenario import Scenario
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.machine import Cpu
from ..records.reason import Reason
from ..stats.samples import MIN_PAIRS
from ..worker.block import LEAD_IN_CAP_S, LEAD_IN_SAMPLES
from .context import RunContext

BLOCK_S = 0.2  # block length if the budget allows it: a resumed worker starts 3-6 % slow
# In a shared worker, which is never frozen, and for tails, where more blocks catch more stalls.
SHORT_BLOCK_S = 0.1
SHORTEST_BLOCK_S = 0.03
ROUNDS_WANTED = 8
TAIL_ROUNDS_WANTED = 16
TAIL_SAMPLES = 34  # per block: three blocks have the 100 samples that a 99th percentile needs
LONGEST_TAIL_BLOCK_S = 1.0
LEAST_ROUNDS = 2  # rounds of a candidate that races alone
OVERDRAFT = 0.05  # share of the run's time left that the rounds for an interval may borrow
ROOM_SHARE = 0.5  # most of the run's extension that one row may take while others wait
LEAST_EXTENSION_S = 1.0  # shortest extension for rounds, since less would settle nothing


def entry_order(plan: RowPlan, cpu: Cpu) -> tuple[list[Case], list[Case], list[Case]]:
    """The cases that enter the race at once, those that enter late, and those for reference only.

    - Late are precisions that this CPU only emulates: preparing one can take a hundred times as
      long, and a timeout kills the worker that it shares with others.
    - Reference-only precisions race last, among themselves, in the time that the decision leaves.
    - All enter at once in a row that ends without a pick, or that would begin without any case.

    Compiled ones come last in each group, so that the others are ready if compiling takes too long.
    """
    cases = sorted(plan.cases, key=lambda case: case.is_compiled)
    if not plan.decides:
        return cases, [], []
    reference_only = [c for c in cases if c.precision in plan.scenario.reference_only]
    if len(reference_only) == len(cases):
        reference_only = []
    deciding = [case for case in cases if case not in reference_only]
    late = [case for case in deciding if small_probe_of(case, plan.workload, cpu)]
    if len(late) == len(deciding):
        late = []
    return [case for case in deciding if case not in late], late, reference_only


def by_promise(cases: Iterable[Case]) -> list[Case]:
    """The cases, those on GPUs ordered by how fast their mode and precision promise to be."""
    rank = {precision: -at for at, precision in enumerate(("fp32", "tf32", "fp16", "bf16"))}

    def place(case: Case) -> tuple[bool, bool, int]:
        words = case.mode_words
        return "graph" not in words, "nhwc" not in words, rank.get(case.precision, 0)

    return sorted(cases, key=lambda c: place(c) if c.device_kind == "gpu" else (True, True, 0))


def in_turns(cases: Iterable[Case]) -> list[Case]:
    """One case of each kind of device in turn, compiled ones last, so that each kind has some ready
    if time runs out while they are prepared."""
    of_kind: dict[str, list[Case]] = {}
    for case in cases:
        of_kind.setdefault(case.device_kind, []).append(case)
    mixed = [case for rank in zip_longest(*of_kind.values()) for case in rank if case is not None]
    return sorted(mixed, key=lambda case: case.is_compiled)


def longest_lead_in_s(device: str, sample_s: float) -> float:
    """Seconds that a turn may take before its timed samples; long samples have no lead-in."""
    if sample_s > LEAD_IN_CAP_S:
        return 0.0
    return max(LEAD_IN_SAMPLES * sample_s, kind_of(device).settle_s)


def least_samples(scenario: Scenario, sample_s: float) -> int:
    """The least number of samples in a block, however long they take."""
    if not scenario.measures_tails:
        return 1
    return max(1, min(TAIL_SAMPLES, int(LONGEST_TAIL_BLOCK_S / max(sample_s, 1e-9))))


def timed_s(scenario: Scenario, sample_s: float, block_s: float = SHORTEST_BLOCK_S) -> float:
    """Predicted seconds of a block that is `block_s` long at least."""
    return max(block_s, least_samples(scenario, sample_s) * sample_s)


@dataclass
class PreparedCase:
    """A case that a worker holds ready to race, with the figures that its scheduling needs."""

    case: Case
    key: WorkerKey
    step_s: float = 0.0
    iterations: int = 1  # steps per sample
    restore_s: float = 0.0  # untimed before each sample, to restore inputs that a call changes
    lead_in_s: float | None = None  # length of the last turn's lead-in; None before the first turn
    deferred: Reason | None = None  # why it would have left the race if it were not protected
    is_only_baseline: bool = False  # cannot win, but stays because the others are compared with it

    @property
    def sample_s(self) -> float:
        return self.step_s * self.iterations

    @property
    def passing_s(self) -> float:
        """Seconds from the start of one sample to the start of the next."""
        return self.sample_s + self.restore_s


class RowTime:
    """The time of one row: plans blocks and rounds within it, lengthens the row, and the run with
    it, and returns what the row does not need.

    The row ends at `until_s` and all rows at `end_s`, on the run's clock; `rows` are still to race,
    with this one, and share the extension of the run.
    """

    def __init__(
        self, plan: RowPlan, context: RunContext, until_s: float, end_s: float, rows: int = 1
    ) -> None:
        self.plan, self.context = plan, context
        self.until_s, self.end_s, self.rows = until_s, end_s, rows
        self._added_s = 0.0  # beyond its share so far
        self.is_for_source = False  # added for a candidate of the source that lacked time
        tails = plan.scenario.measures_tails
        self._longest_block_s = SHORT_BLOCK_S if plan.source is not None or tails else BLOCK_S
        self._rounds_wanted = TAIL_ROUNDS_WANTED if tails else ROUNDS_WANTED

    @property
    def left_s(self) -> float:
        return self.until_s - self.context.now()

    @property
    def left_to_all_s(self) -> float:
        return self.end_s - self.context.now()

    def block_s(self, field: Collection[PreparedCase]) -> float:
        """Length of a block at which the wanted number of rounds of `field` fits, within bounds."""
        fitting_s = self.left_s / (self._rounds_wanted * len(field))
        return min(self._longest_block_s, max(SHORTEST_BLOCK_S, fitting_s))

    def turn_s(self, prepared: PreparedCase, field: Collection[PreparedCase]) -> float:
        """Predicted seconds of one turn in a race of `field`, lead-in included."""
        lead_in_s = prepared.lead_in_s
        if lead_in_s is None:
            lead_in_s = longest_lead_in_s(prepared.case.device, prepared.passing_s)
        lead_in_s += prepared.restore_s  # once before the first
        return timed_s(self.plan.scenario, prepared.passing_s, self.block_s(field)) + lead_in_s

    def round_s(self, field: Collection[PreparedCase]) -> float:
        """Predicted seconds of one round of `field`."""
        return sum(self.turn_s(prepared, field) for prepared in field)

    def first_round_s(self, field: Collection[PreparedCase]) -> float:
        """Seconds to reserve for a first round of `field` while more cases are prepared.

        A second candidate may use the time of the rows to come, since a race needs two.
        """
        spare_s = self.end_s - self.until_s
        return 2 * self.round_s(field) - spare_s if len(field) == 1 else self.round_s(field)

    def fits(self, field: Collection[PreparedCase], *, after: int, rounds: int = 1) -> bool:
        """Whether `rounds` more rounds of `field` fit, after `after` rounds."""
        return rounds * self.round_s(field) <= self.usable_s(field, after=after)

    def usable_s(self, field: Collection[PreparedCase], *, after: int) -> float:
        """Seconds that the row may use after `after` rounds.

        It may borrow from the rows to come while the rounds are too few for an interval, or while a
        lone candidate has a single round, which shows no spread.
        """
        may_borrow = after < (MIN_PAIRS if len(field) > 1 else LEAST_ROUNDS)
        borrowed_s = OVERDRAFT * self.left_to_all_s if may_borrow else 0.0
        return max(self.left_s, borrowed_s)

    # --------------------------------------------------- beyond the share

    def _spare_s(self, least_share: float = 0.0) -> float:
        """Seconds for more rounds, which rows of a table and lengthened ones may get."""
        plan = self.plan
        may_grow = plan.scenario.owes_verdict and (plan.source is None or self.is_for_source)
        return self.lent_s(least_share) if may_grow else 0.0

    def room_s(self) -> float:
        """Seconds for a first turn of each candidate."""
        return self._spare_s(ROOM_SHARE)

    def settling_s(self, field: Collection[PreparedCase], *, after: int) -> float:
        """Seconds in which further rounds of `field` may settle what is open after `after` rounds;
        0 if that is unlikely, or if the run may not last that much longer."""
        round_s, spare_s, left_s = self.round_s(field), self._spare_s(), self.left_s
        if after >= PATIENCE or max(1, MIN_PAIRS - after) * round_s - left_s > spare_s:
            return 0.0
        # More time also makes rounds longer, which were short for lack of it.
        more_s = min(spare_s, max(LEAST_EXTENSION_S, (PATIENCE - after) * round_s - left_s))
        return more_s if more_s >= LEAST_EXTENSION_S else 0.0

    def lent_s(self, least_share: float) -> float:
        """Seconds of the run's extension for this row: an equal share, at least `least_share`."""
        of_others_s = self.context.report.extended_s - self._added_s
        whole_s = self.context.request.extension_s - of_others_s
        return max(least_share, 1 / self.rows) * whole_s - self._added_s

    def take(self, by_s: float) -> None:
        """Lengthen the row and the run, or shorten them."""
        if by_s:
            self.until_s += by_s
            self.end_s += by_s
            self._added_s += by_s
            self.context.record(ev.BudgetExtended, scenario=self.plan.scenario.id, by_s=by_s)

    def give_back(self, keep_s: float = 0.0) -> None:
        """Return the time beyond its share that the row does not need: all but `keep_s`."""
        self.take(-min(self._added_s, max(0.0, self.left_s - keep_s)))

    def make_up(self) -> None:
        """Lengthen the run by the time that this row took from the rows to come."""
        over_s = min(-self.left_s, self.room_s())
        if self.rows > 1 and over_s >= LEAST_EXTENSION_S:
            self.take(over_s)
