"""Plain sentences for a verdict, each from figures the report holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .. import units
from ..contender import Contender
from ..contract import Case
from ..document import Reason
from ..measure.statistics import Ratio, median
from ..report import Row
from .objective import start_up_s
from .scenarios import Scenario

NAMES = {"cpu": "the CPU", "gpu": "the GPU"}
COUNTED = {  # what a ratio is a ratio of, where it is not simply time per step
    "throughput": "",
    "latency": "",
    "latency_p99": " at the 99th percentile",
    "time_to_result": " from start-up to result",
    "cost": " in cost",
    "memory": " in peak memory",
    "energy": " in energy",
}


def short(case: Case) -> str:
    """A contender in words: `cpu torch bf16 t2`."""
    return case.label.replace("/", " ")


def times(ratio: Ratio) -> str:
    """`2.05x (95 %: 1.99-2.10)`."""
    value, interval = units.ratio_parts(ratio.value, ratio.interval)
    return f"{value} (95 %: {interval})"


@dataclass(frozen=True)
class Evidence:
    """What a verdict was reached by."""

    choice: str
    ratio: Ratio | None  # time on the best CPU contender over that on the best GPU one
    pick: Contender | None
    runner_up: Contender | None
    pick_ratio: Ratio | None
    absent: Reason | None  # why no GPU could take part
    kinds: set[str]  # of device, with a contender that could be picked


def reasons(row: Row, scenario: Scenario, evidence: Evidence) -> list[str]:
    """The outcome, then what stands behind it."""
    found = [_outcome(row, evidence)]
    pick, runner_up, pick_ratio = evidence.pick, evidence.runner_up, evidence.pick_ratio
    if pick is not None and runner_up is not None and pick_ratio is not None:
        found.append(_lead(pick, runner_up, pick_ratio) + COUNTED[scenario.objective] + ".")
    if scenario.objective == "time_to_result" and pick is not None:
        start_up = start_up_s(pick.setup)
        share = start_up / (start_up + median(pick.samples_s))
        found.append(
            f"Of {short(pick.case)}'s time to result, {share:.0%} is start-up and set-up "
            f"({units.duration(start_up)})."
        )
    found += _left_out(row, scenario)
    return found


def _outcome(row: Row, evidence: Evidence) -> str:
    choice, ratio, absent = evidence.choice, evidence.ratio, evidence.absent
    if absent is not None and "cpu" in evidence.kinds:
        hint = f": {absent.hint}" if absent.hint else ""
        return f"{absent.message[0].upper()}{absent.message[1:]}{hint}."
    if ratio is None:
        return _why_unknown(row, evidence.kinds)
    if choice == "either":
        return f"Too close to call: CPU time over GPU time is {times(ratio)}."
    if choice == "unknown":
        return f"Not settled: CPU time over GPU time is {times(ratio)}; it needs a larger budget."
    faster = ratio if choice == "gpu" else ratio.inverse()
    outcome = f"The {choice.upper()} is {times(faster)} faster"
    textbook = row.plan.textbook
    if textbook and textbook != choice:
        return f"{outcome}, against the textbook's answer."
    return f"{outcome}."


def _why_unknown(row: Row, kinds: set[str]) -> str:
    if len(kinds) == 2:
        return "Too few rounds for an interval; it needs a larger budget."
    lost = [c for c in row.contenders if c.case.device_kind not in kinds]
    told = next((c.reason.message for c in lost if c.reason), None)
    where = f" on {NAMES['gpu' if 'cpu' in kinds else 'cpu']}" if kinds else ""
    what = "could be picked" if any(c.blocks for c in lost) else "was measured"
    told = told or ("it has no contender here" if kinds else "it was not reached")
    return f"Nothing {what}{where}: {told}."


def _lead(pick: Contender, runner_up: Contender, ratio: Ratio) -> str:
    if ratio.low <= 1:
        return f"{short(pick.case)} is not told apart from {short(runner_up.case)}: {times(ratio)}"
    return f"{short(pick.case)} leads {short(runner_up.case)} by {times(ratio)}"


def _left_out(row: Row, scenario: Scenario) -> Iterator[str]:
    """Contenders that could not be picked, and why."""
    for contender in row.contenders:
        name, accuracy = short(contender.case), contender.accuracy
        if contender.state == "failed" and contender.reason:
            yield f"{name} failed: {contender.reason.message}."
        elif (
            accuracy is not None
            and scenario.max_error is not None
            and accuracy.metric != "test_accuracy"
            and accuracy.value > scenario.max_error
        ):
            off = "off the reference"
            if accuracy.metric == "disagreement":
                off = "of its largest entries elsewhere than the reference's"
            yield (
                f"{name} is {accuracy.value:.1%} {off}, "
                f"above the limit of {scenario.max_error:.1%}."
            )
