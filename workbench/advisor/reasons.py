"""Plain sentences for a verdict, each from figures the report holds.

At most three: what came out, why, and what bounds it.  The same report gives the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..planning.scenario import Scenario
from ..records.reason import Reason, Warning
from ..report.candidate import Candidate
from ..report.names import short
from ..report.report import Report
from ..report.row import Row
from ..stats import ratios
from ..stats.samples import Ratio, median
from ..text import units
from ..text.units import as_sentence, times
from .limits import beyond_limits, uncounted
from .race_summary import SENT_AWAY, is_cut_short

NAMES = {"cpu": "the CPU", "gpu": "the GPU"}
COUNTED = {  # what a ratio is a ratio of, where it is not simply time per step
    "latency_p99": " at the 99th percentile",
    "time_to_result": " from start-up to result",
    "cost": " in cost",
    "memory": " in peak memory",
    "energy": " in energy",
}
BETTER = {"memory": "lower", "energy": "lower", "cost": "lower"}  # where not faster
MOST = 3  # sentences of a verdict
# What a ratio of paired rounds does not show in its own interval; a wide median it does.
WEAK = ("few_samples", "drifting")
DATA = 1.0  # of a step: copying that takes longer is told beside the ratio of steps


@dataclass(frozen=True)
class Evidence:
    """What a verdict was reached by."""

    report: Report
    row: Row
    scenario: Scenario
    choice: str
    ratio: Ratio | None  # time on the best CPU candidate over that on the best GPU one
    best_cpu: Candidate | None
    best_gpu: Candidate | None
    pick: Candidate | None
    runner_up: Candidate | None
    pick_ratio: Ratio | None
    tie: bool  # of these two
    absent: Reason | None  # why no GPU could take part
    decisive: Ratio | None  # as `ratio`, with the interval that decides: wider for every look
    eligible: list[Candidate]  # that could be picked, by id
    over_limit: list[Candidate] = field(default_factory=list)  # measured; above the error limit
    warnings: list[Warning] = field(default_factory=list)  # of the row and of those named above

    @property
    def kinds(self) -> set[str]:
        """Of device, with a candidate that could be picked."""
        return {candidate.case.device_kind for candidate in self.eligible}

    @property
    def for_the_pick(self) -> list[Candidate]:
        """Those that race for it, whatever became of them."""
        apart = self.scenario.reference_only
        return [c for c in self.row.candidates if c.case.precision not in apart]

    @property
    def cut_short(self) -> bool:
        return is_cut_short(self.row)

    @property
    def rival(self) -> Candidate | None:
        """What the pick is explained against: the best of the other device, or else the next."""
        if self.pick is None or self.best_cpu is None or self.best_gpu is None:
            return self.runner_up
        return self.best_gpu if self.pick is self.best_cpu else self.best_cpu


# ---------------------------------------------------------------- sentences


def reasons(found: Evidence, causes: Sequence[str]) -> list[str]:
    """The outcome first, then of the `causes` as many as there is room for, then the bounds."""
    bounds = list(_bounds(found))
    told = causes[: MOST - 1 - bool(bounds)]
    if bounds:
        told = [*told, "; ".join(bounds)]
    return [as_sentence(text) for text in (_outcome(found), *told)]


def doubts(found: Evidence) -> list[str]:
    """Why the figures are no firm ground, the gravest first; empty where they are."""
    told = []
    if found.cut_short:
        told.append("the run was cut short")
    if found.pick is not None and len(found.pick.blocks) == 1:
        told.append(f"{short(found.pick.case)} was measured in one round only")
    if found.pick is not None and found.pick.dropped is not None:
        told.append(f"{short(found.pick.case)} left the race before its end")
    of_row = [w for w in found.warnings if w.subject == found.row.plan.scenario]
    told += [warning.message for warning in of_row]
    by_id = {candidate.case.id: candidate for candidate in found.row.candidates}
    for warning in found.warnings:
        candidate = by_id.get(warning.subject or "")
        if candidate is not None and warning.code in WEAK and not _is_beaten(candidate):
            told.append(f"of {short(candidate.case)}, {warning.message}")
    return told


def _is_beaten(candidate: Candidate) -> bool:
    """Whether it was sent away for being slower: how little it was measured is then no doubt."""
    reason = candidate.reason
    return reason is not None and reason.code in ("beaten", *SENT_AWAY)


def _outcome(found: Evidence) -> str:
    ratio, choice = found.ratio, found.choice
    if found.pick is None and found.eligible:
        return f"Nothing could be compared: the {_unread(found)} is known of no candidate"
    if found.absent is not None and "cpu" in found.kinds:
        return f"{_absent(found.absent)}; {_alone(found)}{_weak(found)}"
    if ratio is None:
        return _within(found) if choice in NAMES else _why_unknown(found)
    counted = COUNTED.get(found.scenario.objective)
    noun = f"CPU over GPU{counted}" if counted else "CPU time over GPU time"
    noun = f"{noun} is {times(ratio.value, ratio.interval)}"
    if choice == "either":
        return f"Too close to call: {noun}{_weak(found)}"
    if choice == "unknown":
        return f"Not settled: {noun}{_widened(found, ratio)}"
    return f"{_winner(found, ratio)}{_lead_within(found)}{_textbook(found, ratio)}{_weak(found)}"


def _widened(found: Evidence, ratio: Ratio) -> str:
    """The interval that decides, where it alone leaves the answer open."""
    if found.decisive is None or ratio.low <= 1 <= ratio.high:
        return ""
    _, interval = units.ratio_parts(found.decisive.value, found.decisive.interval)
    return f"; what decides is {interval}, widened for having looked after every round"


def _within(found: Evidence) -> str:
    """Of the other device all were measured, and none keeps the limits."""
    lost = [c for c in found.for_the_pick if c.case.device_kind != found.choice]
    told = f"Only {NAMES[found.choice]} keeps the limits ({'; '.join(_lost(lost, found))})"
    lead = f"; there {_lead(found)}" if found.runner_up is not None else ""
    return f"{told}{lead}{_weak(found)}"


def _absent(reason: Reason) -> str:
    """Why no GPU took part; where there is none, `workbench detect` tells who looked for it."""
    return reason.message.partition(" (")[0] if reason.code == "no_gpu" else reason.message


def _winner(found: Evidence, ratio: Ratio) -> str:
    faster = ratio if found.choice == "gpu" else ratio.inverse()
    name, than = found.choice.upper(), ""
    if found.best_gpu is not None and found.best_gpu.simulated:
        name, than = ("simulated GPU", "") if name == "GPU" else (name, " than a simulated GPU")
    how = "came out" if doubts(found) else "is"
    return f"The {name} {how} {times(faster.value, faster.interval)} {better(found.scenario)}{than}"


def better(scenario: Scenario) -> str:
    """`faster`, `faster at the 99th percentile`, `lower in cost`: what follows a ratio."""
    objective = scenario.objective
    return f"{BETTER.get(objective, 'faster')}{COUNTED.get(objective, '')}"


def _alone(found: Evidence) -> str:
    """What came out where the CPU has no rival."""
    pick = found.pick
    assert pick is not None  # noqa: S101 - a candidate of the CPU could be picked
    if found.runner_up is None:
        others = [c for c in found.for_the_pick if c is not pick]
        had = "could be picked" if any(c.blocks for c in others) or not others else "was measured"
        return f"{short(pick.case)} is the only candidate that {had}"
    return f"on the CPU, {_lead(found)}"


def _lead_within(found: Evidence) -> str:
    """By how much the pick leads the next on its own device."""
    pick, runner_up = found.pick, found.runner_up
    if pick is None or runner_up is None:
        return ""
    if pick.case.device_kind != found.choice or runner_up.case.device_kind != found.choice:
        return ""
    return f"; there {_lead(found)}"


def _lead(found: Evidence) -> str:
    pick, runner_up, ratio = found.pick, found.runner_up, found.pick_ratio
    assert pick is not None and runner_up is not None  # noqa: S101 - who asks has seen to it
    first, next_ = short(pick.case), short(runner_up.case)
    counted = COUNTED.get(found.scenario.objective, "")
    if ratio is None:
        if runner_up.reason is not None and runner_up.reason.code in SENT_AWAY:
            why = runner_up.reason.message
            return f"{first} leads, and {next_} was sent away: {why}"
        return f"{first} is ahead of {next_}, in too few rounds for an interval"
    measured = times(ratio.value, ratio.interval)
    if found.tie:
        return f"{first} and {next_} are too close to call: {measured}{counted}"
    if ratio.low <= 1:
        return (
            f"{first} is not told apart from {next_}: {times(ratio.value, ratio.interval)}{counted}"
        )
    return f"{first} leads {next_} by {times(ratio.value, ratio.interval)}{counted}"


def _textbook(found: Evidence, ratio: Ratio) -> str:
    """What the textbook says, where this is something else."""
    textbook = found.row.plan.textbook
    if textbook not in NAMES or textbook == found.choice:
        return ""
    faster = ratio if found.choice == "gpu" else ratio.inverse()
    simulated = any(candidate.simulated for candidate in found.row.candidates)
    if faster.low > 1 + ratios.TOLERANCE and not doubts(found) and not simulated:
        return ", against the textbook's answer"
    return f"; the textbook says {textbook.upper()}, and this does not settle it"


def _weak(found: Evidence) -> str:
    told = doubts(found)
    if not told:
        return ""
    others = len(told) - 1
    more = f" (and {others} more reason{'' if others == 1 else 's'})" if others else ""
    return f", on a weak basis: {told[0]}{more}"


# ------------------------------------------------------------------ unknown


def _why_unknown(found: Evidence) -> str:
    if len(found.kinds) == 2 and (found.best_cpu is None or found.best_gpu is None):
        where = NAMES["cpu" if found.best_cpu is None else "gpu"]
        return (
            f"Nothing could be compared: the {_unread(found)} is known of no candidate on {where}"
        )
    if len(found.kinds) == 2:
        return "Not settled: too few rounds for an interval of CPU time over GPU time"
    lost = [c for c in found.row.candidates if c.case.device_kind not in found.kinds]
    where = f" on {NAMES['gpu' if 'cpu' in found.kinds else 'cpu']}" if found.kinds else ""
    what = "was measured"
    if any(c.blocks for c in lost):
        what, lost = "could be picked", [c for c in lost if c in found.for_the_pick]
    if not lost:
        why = "it has no candidate here" if found.kinds else "it was not reached"
        return f"Nothing {what}{where}: {why}"
    return f"Nothing {what}{where}: {'; '.join(_lost(lost, found))}"


def _lost(lost: Sequence[Candidate], found: Evidence) -> Iterator[str]:
    """Why each of these is out: one clause a kind, with the first of it."""
    over = sorted((c for c in lost if c in found.over_limit), key=_error)
    others = sorted((c for c in lost if c not in found.over_limit), key=lambda c: c.case.id)
    if over:
        name = short(over[0].case)
        which = name if len(over) == 1 else f"the most accurate of {len(over)}, {name},"
        yield f"{which} {over_text(over[0], found.scenario)}"
    messages: dict[str, int] = {}
    for candidate in others:
        why = why_out(candidate, found.scenario)
        messages[why] = messages.get(why, 0) + 1
    for number, (message, count) in enumerate(messages.items()):
        if number == 2:
            yield f"and {sum(list(messages.values())[2:])} more candidates"
            return
        yield message if count == 1 else f"{message} ({count} candidates)"


def _unread(found: Evidence) -> str:
    return {"memory": "peak memory", "latency_p99": "latency"}.get(
        found.scenario.objective, found.scenario.objective
    )


def why_out(candidate: Candidate, scenario: Scenario) -> str:
    """Why it cannot be picked, in the words of its reason or of the limit it does not keep."""
    why = None if candidate.state == "failed" else beyond_limits(candidate, scenario)
    if why is not None:
        return f"of {short(candidate.case)}, {why}"
    if (why := uncounted(candidate)) is not None:
        return why
    if candidate.reason is not None:
        return candidate.reason.message.rstrip(".")
    return "it was not reached" if not candidate.blocks else "it is beyond a limit of the row"


def over_text(candidate: Candidate, scenario: Scenario) -> str:
    """How far it is above the error limit, as a predicate."""
    accuracy = candidate.accuracy
    assert accuracy is not None  # noqa: S101 - above a limit is only who was checked
    off = f"is {units.share(accuracy.value)} off the reference"
    if accuracy.metric == "disagreement":
        off = (
            f"has {units.share(accuracy.value)} of its largest entries elsewhere than the reference"
        )
    return f"{off}, above the limit of {units.share(scenario.max_error or 0.0)}"


def _error(candidate: Candidate) -> tuple[float, str]:
    value = candidate.accuracy.value if candidate.accuracy else 0.0
    return value, candidate.case.id


# ------------------------------------------------------------------- bounds


def _bounds(found: Evidence) -> Iterator[str]:
    """What the answer leaves out: who could not be picked, and what is not counted in it."""
    if not found.eligible:
        return  # the outcome says it all
    out = [f"{short(c.case)} {over_text(c, found.scenario)}" for c in _by_id(found.over_limit)]
    for candidate in _by_id(found.for_the_pick):
        why = beyond_limits(candidate, found.scenario) or uncounted(candidate)
        here = candidate.state != "failed" and candidate.case.device_kind in found.kinds
        if why and here and candidate not in found.over_limit:
            out.append(f"of {short(candidate.case)}, {why}")
    for state, did in (("failed", "failed"), ("skipped", "was skipped")):
        for candidate in _by_id(found.for_the_pick):
            reason = candidate.reason
            told = candidate.state == state and candidate.case.device_kind in found.kinds
            if told and reason is not None and reason.code not in SENT_AWAY:
                out.append(f"{short(candidate.case)} {did}: {reason.message.rstrip('.')}")
    if len(out) > 2:
        yield f"{len(out)} candidates could not be picked, such as: {out[0]}; {out[1]}"
    elif out:
        yield f"not picked: {'; '.join(out)}"
    yield from _copying(found)


def _copying(found: Evidence) -> Iterator[str]:
    """What goes in and out of a GPU, where only steps are compared."""
    gpu = found.best_gpu
    if gpu is None or not gpu.blocks or found.scenario.objective == "time_to_result":
        return
    if gpu.work.transfers == "step":
        return  # it is counted in each
    seconds = (gpu.setup.transfer_s or 0.0) + (gpu.setup.transfer_out_s or 0.0)
    step_s = median(gpu.samples_s)
    if seconds > DATA * step_s:
        yield (
            f"copying to {gpu.case.device} and back once takes {units.duration(seconds)}, "
            f"as long as {units.significant(seconds / step_s)} of its steps, and is not counted"
        )


def _by_id(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: candidate.case.id)
