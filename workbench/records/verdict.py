"""The part of the JSON document on verdicts: the answer of a row and its grounds.

Ratios are those of the row's objective, which is time unless it says otherwise.  Candidates appear
by their case ids.
"""

from __future__ import annotations

import msgspec

from .reason import Reason, Warning

CHOICES = ("cpu", "gpu", "either", "unknown")
CONFIDENCES = SURE, LIKELY, TIE, OPEN, UNRATED = ("sure", "likely", "tie", "open", "unrated")


class EqualPrecision(msgspec.Struct, frozen=True):
    """The best candidate of each device at one precision."""

    precision: str
    # True if the precision races among itself and is never picked.
    reference_only: bool = msgspec.field(name="apart")
    best_cpu: str | None
    best_gpu: str | None
    device_ratio: float | None  # see `Verdict`
    device_ratio_ci95: tuple[float, float] | None


class Elimination(msgspec.Struct, frozen=True):
    """A candidate that left the race before its end, or never entered it."""

    id: str
    rounds: int  # number of rounds in which it was measured
    code: str  # "beaten", "far_slower", "error_limit", "budget", or the code of a failure
    message: str
    beaten_by: str | None = None  # id of the case that eliminated it by a paired comparison
    ratio: float | None = None  # its time over that case's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs


class RaceSummary(msgspec.Struct, frozen=True):
    """The race of a row: its eliminations and its end."""

    rounds: int  # number of rounds, those of reference-only precisions not counted
    ended_by: str  # "decided", "budget", "rounds" (enough of them), "empty", "cancelled"
    joined: dict[str, int]  # later candidate to the number of rounds before it joined
    left: list[Elimination]  # in the order of leaving
    stayed: list[str]  # candidates left at the end, fastest first


class CrossoverPoint(msgspec.Struct, frozen=True):
    """One size that was raced."""

    value: float  # size
    ratio: float | None  # time of `below` over time of `above`; over 1 `above` leads
    ci95: tuple[float, float] | None  # interval of `ratio`
    ratio_with_transfers: float | None  # `ratio` with inputs and outputs copied in every step


class Crossover(msgspec.Struct, frozen=True):
    """The size at which the lead changes, if it does within `searched`."""

    parameter: str  # "batch", or a parameter of the workload
    between: str  # "device": best CPU against best GPU; "candidate": two of one device
    # Leader at smaller sizes, "cpu", "gpu", or a candidate's label; None if there is no clear one.
    # With neither `leads` nor `value` it is the only candidate that could be picked.
    below: str | None
    above: str | None  # leader at larger sizes; None if the lead does not change
    value: float | None  # size of the change; None if there is none
    ci95: tuple[float, float] | None  # interval of `value`; outside it the leader is clear
    value_with_transfers: float | None  # None if unknown or if there is no change
    searched: tuple[float, float]  # smallest and largest size of the search
    points: list[CrossoverPoint]
    # Without a change: first and last of the `sizes` at which `below` leads beyond doubt, with all
    # `sizes` between them.  Other sizes stay unknown.
    leads: tuple[float, float] | None = None
    back: tuple[float, float] | None = None  # sizes between which `below` takes the lead again
    sizes: list[float] = []  # sizes at which candidates were compared, ascending
    # First size after the change at which `above` no longer leads or may not be picked, and the
    # leader there; None if `back` covers it.
    then: tuple[float, str] | None = None
    # Last size before the change at which `below` does not lead or may not be picked, and the
    # leader there.
    before: tuple[float, str] | None = None


class Payoff(msgspec.Struct, frozen=True):
    """The break-even of two candidates: the steps after which a longer set-up has paid off."""

    id: str  # candidate with the longer set-up
    over: str  # candidate it is compared with
    fixed_s: float  # one-off seconds: start-up, set-up, compilation, transfer, first call
    over_fixed_s: float  # the same for `over`
    step_s: float  # median seconds per step
    over_step_s: float  # `step_s` times the ratio of the two in their common rounds
    steps: float | None  # number of steps to the break-even; None if it never pays off
    steps_ci95: tuple[float, float] | None  # interval of `steps`
    items: float | None  # the same number in the unit of the throughput
    # 95 % interval of over_step_s / step_s, from pairs; None if unknown.  If it contains 1, the
    # two cannot be distinguished and `steps` means nothing.
    step_ratio_ci95: tuple[float, float] | None = None


class CaseCost(msgspec.Struct, frozen=True):
    """Price and energy of the items on one candidate, in the currency of the given prices."""

    id: str
    price_per_hour: float | None
    # Price of a million items; with start-up if the objective counts whole runs.
    per_million: float | None
    joules_per_item: float | None  # in steady steps
    joules_from: str | None  # "energy counter" or "power readings"


class ObjectivePick(msgspec.Struct, frozen=True):
    """The best candidate by one measure."""

    objective: str  # "fastest", "cheapest", "most_frugal"
    pick: str | None
    value: float | None  # value of the pick in `unit`
    unit: str  # "s/step", "s/step at p99", "s/run", "per million samples", "J/sample"
    runner_up: str | None
    ratio: float | None  # runner-up's value over the pick's
    ratio_ci95: tuple[float, float] | None  # None for energy: the error of a power is unknown
    unknown: Reason | None = None  # cause of a missing pick


class WhatIf(msgspec.Struct, frozen=True):
    """The result of a device that is not in this machine, from a recorded run."""

    device: str  # name in the request
    name: str | None  # name in the recording
    basis: str | None = None  # "recorded", or "estimated" between the sizes of the recording
    id: str | None = None  # case id of the recorded candidate
    step_s: float | None = None  # seconds there, of what the row's objective counts
    step_ci95_s: tuple[float, float] | None = None  # interval of `step_s`
    ratio: float | None = None  # time of the pick here over that there; above 1 it is faster there
    ratio_ci95: tuple[float, float] | None = None
    error: float | None = None  # estimates only: largest relative error on held-out recorded points
    recorded_at: str | None = None  # ISO 8601, UTC
    source: str | None = None  # file name
    missing: Reason | None = None  # cause of a missing result
    warnings: list[Warning] = []  # warnings of the recorded measurements
    uncompared: Reason | None = None  # cause of a missing `ratio` although `step_s` is known
    of_this_kind: bool = False  # True if a device of this machine has the same name
    # Standard deviation of the logarithm from run to run, measured where several recordings of the
    # device answer.
    spread: float = 0.015

    def uncompared_yet(self) -> WhatIf:
        """The same result before anything was measured on this machine."""
        return msgspec.structs.replace(
            self, ratio=None, ratio_ci95=None, uncompared=None, of_this_kind=False
        )


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one scenario.

    `device_ratio` is the time of the best CPU candidate over that of the best GPU candidate:
    above 1 the GPU is faster.  `pick_ratio` is the time of `runner_up` over that of `pick`.
    """

    scenario: str
    title: str
    question: str
    textbook: str  # usual advice: "cpu" or "gpu"
    objective: str
    choice: str  # "cpu", "gpu", "either", "unknown"
    no_gpu: bool  # True if no GPU was found, so that only the CPU could be chosen
    best_cpu: str | None
    best_gpu: str | None
    device_ratio: float | None
    device_ratio_ci95: tuple[float, float] | None
    pick: str | None
    runner_up: str | None
    pick_ratio: float | None
    pick_ratio_ci95: tuple[float, float] | None
    tie: bool  # True if pick and runner-up are level, or not distinguished and at most 25% apart
    equal_precision: list[EqualPrecision]
    basis: str  # "measured", "simulated", or "none" if nothing was measured
    crossover: Crossover | None
    reasons: list[str]  # sentences, the answer first
    warnings: list[Warning]
    reproduce: str  # command that measures this row again
    textbook_source: str = ""  # origin of the usual advice
    next_best: str = ""  # advice on the next step, one sentence
    race: RaceSummary | None = None
    payoffs: list[Payoff] = []
    by_objective: list[ObjectivePick] = []
    costs: list[CaseCost] = []
    prices: dict[str, float] = {}  # kind of device, or device, to its given price per hour
    what_if: list[WhatIf] = []
    # "sure", "likely", "tie" or "open": see docs/advisor.md; "unrated" by a version without them.
    confidence: str = UNRATED

    @property
    def is_open(self) -> bool:
        """Whether the lead is not known."""
        return self.confidence in (OPEN, UNRATED)

    @property
    def lead(self) -> tuple[float | None, tuple[float, float] | None]:
        """The ratio that `confidence` rates, with its 95 % interval: the time of the best candidate
        of the other device over that of the pick where both devices raced, else `pick_ratio`."""
        if self.best_cpu is None or self.best_gpu is None:
            return self.pick_ratio, self.pick_ratio_ci95
        ratio, bounds = self.device_ratio, self.device_ratio_ci95
        if ratio is None or self.pick != self.best_cpu:
            return ratio, bounds
        return 1 / ratio, bounds and (1 / bounds[1], 1 / bounds[0])

    def with_crossover(self, crossover: Crossover) -> Verdict:
        """The same verdict after the search for its crossover, without the advice to search."""
        search = f"`{self.reproduce} --crossover`"
        advice = "" if search in self.next_best else self.next_best
        return msgspec.structs.replace(self, crossover=crossover, next_best=advice)
