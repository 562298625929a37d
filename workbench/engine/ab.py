"""Two sides of one job in turns: two interpreters, settings, checkouts or commands.

Both race in the same rounds, so a machine that changes speed slows them alike.  A process can be
slow for its whole life, so each pair of fresh processes gives one ratio, and the interval comes
from the spread of these.  Only the budget ends a run: to stop once decided would find false
differences.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .. import catalog
from ..contract import Case, kind_of
from ..planning.admission import taken
from ..planning.plan import RowPlan
from ..planning.questions import OwnQuestion
from ..planning.request import Request
from ..planning.usage import UsageError
from ..pool.answers import Block, Prepared
from ..pool.control import Cancelled, Control
from ..pool.pool import Answer, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records import events as ev
from ..records.comparison import ABReport, ABResult, Side
from ..records.reason import BUDGET, Reason
from ..report.journal import new_run_id
from ..report.names import sized_name
from ..report.report import Report
from ..stats import ratios
from ..stats.paired import paired_ratio
from ..stats.samples import median
from ..text.output import say
from ..worker.code import COMMAND, Code
from .exit_codes import BEYOND, CUT_SHORT, FAILED, OK
from .opening import opened, row_source
from .overhead import OverheadMeter
from .workers import to_prepare

SHARED = "both sides need it"  # a GPU that may admit one process at a time
FEW = Reason(BUDGET, "too few pairs of processes: raise --budget")
CUT = Reason("cancelled", "the run was cut short after too few pairs of processes")
BLOCK_S = 0.1
RACE_S = 1.0  # for each pair of processes; more pairs narrow the interval more than longer ones
WARM_UP_S = 0.5  # at most, since each fresh process warms up

T = TypeVar("T")


@dataclass
class ABRun:
    """A whole run of `workbench ab`."""

    request: Request
    sides: Sequence[Side]
    control: Control

    def __post_init__(self) -> None:
        self._report, overhead = Report(), OverheadMeter(None, self.control.now)
        # A examines the user's own code.
        by_name = {"": self.sides[0], **{side.name: side for side in self.sides}}
        self._context = opened(
            self.request, new_run_id(), self.control, self._take, self._report, overhead, by_name
        )
        self._pool = self._context.pool

    def _take(self, event: ev.AnyEvent) -> None:
        """Note the machine, and print each warning once; failures of workers are raised as well."""
        if isinstance(event, ev.HardwareDetected):
            self._report.apply(event)
        elif isinstance(event, ev.WarningRaised) and event.warning not in self._report.warnings:
            self._report.apply(event)
            say(f"warning: {event.warning.one_line}")

    def run(self, rows: list[RowPlan], fail_on: float | None, head: Mapping[str, Any]) -> ABReport:
        """Race `rows`, which have no candidates yet, until the budget is used, and report."""
        try:
            rows = row_source(self._context, rows).rows()[: len(rows)]  # own code at its own batch
            for row in rows:
                row.cases = sorted(row.cases, key=lambda case: case.is_compiled)[:1]
            results = [
                ABResult(
                    row.cases[0].id,
                    reason=row.refused or taken(row.cases[0].device, self._context.machine, SHARED),
                    basis="simulated" if kind_of(row.cases[0].device).simulated else "measured",
                )
                for row in rows
            ]
            with suppress(Cancelled):
                self._race(rows, results)
        except UsageError as error:
            is_own = isinstance(self.request.question, OwnQuestion)
            raise UsageError(f"side A: {error}" if is_own else str(error)) from None
        finally:
            self._pool.end_all(at_once=self.control.is_ending)
            self._pool.close()
        tolerance = fail_on or ratios.TOLERANCE
        few = CUT if self.control.is_ending else FEW
        for result in results:
            conclude(result, tolerance, few)
        members: Any = {"results": results, "tolerance": tolerance, "fail_on": fail_on}
        code = CUT_SHORT if self.control.is_ending else exit_code(results, fail_on)
        return ABReport(**head, **members, sides=list(self.sides), exit_code=code)

    def _race(self, rows: Sequence[RowPlan], results: Sequence[ABResult]) -> None:
        """A pair of processes for each row in turn, as long as another pair fits."""
        longest_s = 0.0
        while not all(result.reason for result in results):
            for row, result in zip(rows, results, strict=True):
                began_s = self.control.now()
                if self._context.left_s <= longest_s:
                    return
                try:
                    if result.reason is None:
                        self._race_pair(row, row.cases[0], result)
                except WorkerFailed as failure:
                    if failure.reason.code == "timeout" and self._context.left_s <= 0:
                        return  # the budget ran out during this pair
                    result.reason = failure.reason
                longest_s = max(longest_s, self.control.now() - began_s)

    def _race_pair(self, row: RowPlan, case: Case, result: ABResult) -> None:
        """Start a process on each side, race them in turns, and add their ratio."""
        number = len(result.ratios)
        order = self.sides[:: -1 if number % 2 else 1]
        if number == 0 or case.backend != COMMAND:  # each step of a command is a process
            for side in order:
                self._load(row, case, side)
        blocks: dict[str, dict[int, float]] = {side.name: {} for side in order}
        began_s, turn = self.control.now(), 0
        while turn % 2 or not turn or self.control.now() < began_s + RACE_S:
            for side in order[:: -1 if turn % 2 else 1]:
                blocks[side.name][turn] = self._block_s(case, side)
            turn += 1
        result.ratios.append(ratios.relative(blocks["B"], blocks["A"]))
        result.a_s.append(median(list(blocks["A"].values())))
        result.b_s.append(median(list(blocks["B"].values())))
        say(f"{sized_name(result.case)}: pair {number + 1}: B / A {result.ratios[-1]:.3f}")

    def _load(self, row: RowPlan, case: Case, side: Side) -> None:
        """Have a fresh process prepare a case; own code must return the same as on side A."""
        request = to_prepare(case, row, self._context, WARM_UP_S)
        if "code" in request["files"]:
            code = Code.of(request["files"]["code"])
            target, folder = side.command or code.target, side.path or code.directory
            of_side = replace(code, target=target, directory=folder)
            request["files"] = {**request["files"], "code": of_side.as_text()}
        self._pool.end(self._key(case, side))
        check = self._ask(case, side, Prepared, **request).result.accuracy
        if not check.passed or (check.metric == "relative_error" and check.value > check.limit):
            text = f"the results differ: {check.value:.3g} from {check.reference}"
            raise _failure(side, Reason("wrong_result", f"{text}, limit {check.limit:g}"))

    def _block_s(self, case: Case, side: Side) -> float:
        """The median step of one turn in seconds; a turn with a pause or a suspend is repeated."""
        block = {"case": case.id, "min_samples": 1, "settle_s": kind_of(case.device).settle_s}
        while True:
            answer = self._ask(case, side, Block, op="block", seconds=BLOCK_S, **block)
            if not (answer.interrupted or answer.result.gap):
                return median(answer.result.samples_s) / self._context.speed(case.device)

    def _ask(self, of: Case, side: Side, kind: type[T], /, **request: Any) -> Answer[T]:
        key = self._key(of, side)
        try:
            self._pool.start(key, max(1.0, self._context.left_s))
            return self._pool.ask(key, max(1.0, self._context.left_s), kind, **request)
        except WorkerFailed as failure:
            raise _failure(side, failure.reason) from None

    def _key(self, case: Case, side: Side) -> WorkerKey:
        return WorkerKey(*catalog.process_of(case), side.name)


def _failure(side: Side, reason: Reason) -> WorkerFailed:
    return WorkerFailed(Reason(reason.code, f"side {side.name} ({side.label}): {reason.one_line}"))


def conclude(result: ABResult, tolerance: float, few: Reason) -> None:
    """Fill in the ratio over all pairs, with its interval and word, or `few` as the reason."""
    found = paired_ratio(result.ratios, [1.0] * len(result.ratios))
    if found is not None:
        result.ratio, result.ci95 = found.value, found.interval
        result.word = found.word(tolerance).upper()
    elif result.reason is None:
        result.reason = few


def exit_code(results: Sequence[ABResult], fail_on: float | None) -> int:
    """BEYOND if a whole interval shows B slower than `fail_on` allows, FAILED without a result."""
    most = 1 + fail_on if fail_on else math.inf
    if any(result.ci95 and result.ci95[0] > most for result in results):
        return BEYOND
    return FAILED if any(result.reason for result in results) else OK
