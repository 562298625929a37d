"""The document's part about verdicts: the answer of a row, and what it rests on.

Ratios are of what the row's objective counts, times unless it says otherwise; candidates are named
by their case ids.
"""

from __future__ import annotations

import msgspec

from .reason import Reason, Warning


class EqualPrecision(msgspec.Struct, frozen=True):
    """The best of each device at one precision, so that like is compared with like."""

    precision: str
    apart: bool  # True: raced among itself only and never picked
    best_cpu: str | None
    best_gpu: str | None
    device_ratio: float | None
    device_ratio_ci95: tuple[float, float] | None


# ------------------------------------------------------------------- race


class Elimination(msgspec.Struct, frozen=True):
    """A candidate that left the race, or never got into it."""

    id: str
    rounds: int  # it took part in
    code: str  # "beaten", "far_slower", "error_limit", "budget", or what it failed of
    message: str
    beaten_by: str | None = None
    ratio: float | None = None  # its time over that one's
    ratio_bounds: tuple[float, float] | None = None  # simultaneous over all looks and pairs


class RaceSummary(msgspec.Struct, frozen=True):
    """How the race of a row went: who fell when, and why it ended."""

    rounds: int  # of those that could be picked
    ended_by: str  # "decided", "budget", "rounds" (enough of them), "empty", "cancelled"
    joined: dict[str, int]  # candidates that came later, and after how many rounds
    left: list[Elimination]  # in the order of leaving
    stayed: list[str]  # to the end, fastest first


# -------------------------------------------------------------- crossover


class CrossoverPoint(msgspec.Struct, frozen=True):
    """One size that was raced: time of `below` over time of `above`, so over 1 `above` leads."""

    value: float
    ratio: float | None
    ci95: tuple[float, float] | None
    ratio_with_transfers: float | None  # with what goes in and out copied for every step


class Crossover(msgspec.Struct, frozen=True):
    """Where the lead changes over a size; `value` is None where it does not, within `searched`."""

    parameter: str  # "batch", or a parameter of the workload
    between: str  # "device": best CPU against best GPU; "candidate": two of one device
    below: str | None  # who leads at smaller sizes: "cpu", "gpu", or a candidate's label; None:
    # nobody beyond doubt
    above: str | None  # who takes over; None: nobody within `searched`
    value: float | None
    ci95: tuple[float, float] | None  # of `value`; beyond it either leads beyond doubt
    value_with_transfers: float | None  # None: not known, or it does not change
    searched: tuple[float, float]
    points: list[CrossoverPoint]
    # Without a change: from which to which of the `sizes` `below` leads beyond doubt at every one;
    # of what lies between two of them nothing is known.
    leads: tuple[float, float] | None = None
    back: tuple[float, float] | None = None  # between these `below` takes the lead again
    sizes: list[float] = []  # at which somebody who may be picked was measured, ascending
    then: tuple[float, str] | None = None  # the first size after the change at which `above` has
    # lost the lead beyond doubt or may not be picked, and who leads there; `back` says it instead


# --------------------------------------------------------- time to result


class Payoff(msgspec.Struct, frozen=True):
    """After how many steps what takes longer to set up has caught up.

    `fixed_s`: everything that comes once: start-up, set-up, compilation, transfer, first call.
    """

    id: str
    over: str
    fixed_s: float
    over_fixed_s: float
    step_s: float  # the median
    over_step_s: float  # step_s times the ratio of the two in their common rounds
    steps: float | None  # 0: ahead from the first; None: never
    steps_ci95: tuple[float, float] | None
    items: float | None  # those steps in the unit of the throughput
    step_ratio_ci95: tuple[float, float] | None = None  # of over_step_s / step_s, paired; None: not
    # known.  Where it holds 1 the two are not told apart, and `steps` promises nothing


# -------------------------------------------------------------- economics


class CaseCost(msgspec.Struct, frozen=True):
    """What a million items cost on one candidate, in the currency of the prices given."""

    id: str
    price_per_hour: float | None
    per_million: float | None  # items; of a whole run with its start-up where that is what counts
    joules_per_item: float | None  # of steady steps
    joules_from: str | None  # "energy counter" or "power readings"


class ObjectivePick(msgspec.Struct, frozen=True):
    """The best candidate by one baseline; `unknown` says why there is none."""

    objective: str  # "fastest", "cheapest", "most_frugal"
    pick: str | None
    value: float | None
    unit: str  # "s/step", "s/step at p99", "s/run", "per million samples", "J/sample"
    runner_up: str | None
    ratio: float | None  # of the runner-up's value over the pick's
    ratio_ci95: tuple[float, float] | None  # None for energy: a power's error is not known
    unknown: Reason | None = None


# ------------------------------------------------------ hardware elsewhere


class WhatIf(msgspec.Struct, frozen=True):
    """What a recorded run says of a device that is not here; `missing` says why it says nothing."""

    device: str  # as it was asked for
    name: str | None  # as the recording calls it
    basis: str | None  # "recorded", or "estimated" between the sizes of the recording
    id: str | None  # the recorded candidate
    step_s: float | None
    step_ci95_s: tuple[float, float] | None
    ratio: float | None  # time of the pick here over time there: above 1 it is faster there
    ratio_ci95: tuple[float, float] | None
    error: float | None  # of estimates, on held-out recorded points: the largest, relative
    recorded_at: str | None
    source: str | None  # the file
    missing: Reason | None = None
    warnings: list[Warning] = []  # that weaken the recording itself
    uncompared: Reason | None = None  # why `ratio` is None though `step_s` is known
    of_this_kind: bool = False  # a device of this machine has the same name

    def uncompared_yet(self) -> WhatIf:
        """The same before anything was measured on this machine."""
        return msgspec.structs.replace(
            self, ratio=None, ratio_ci95=None, uncompared=None, of_this_kind=False
        )


# ---------------------------------------------------------------- verdict


LOOK_FOR_CROSSOVER = "See at which "  # how the advice to look for one begins


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one scenario.

    `device_ratio` is the time of the best CPU candidate over that of the best GPU candidate:
    above 1 the GPU is faster.  `pick_ratio` is the time of `runner_up` over that of `pick`.
    """

    scenario: str
    title: str
    question: str
    textbook: str  # "cpu" or "gpu"
    objective: str
    choice: str  # "cpu", "gpu", "either", "unknown"
    no_gpu: bool  # True: none was found, so the choice is "cpu" for want of a rival
    best_cpu: str | None
    best_gpu: str | None
    device_ratio: float | None
    device_ratio_ci95: tuple[float, float] | None
    pick: str | None
    runner_up: str | None
    pick_ratio: float | None
    pick_ratio_ci95: tuple[float, float] | None
    tie: bool  # pick and runner-up are too close to call within the tolerance
    equal_precision: list[EqualPrecision]
    basis: str  # "measured", "simulated", "none" where nothing was measured; see also `what_if`
    crossover: Crossover | None
    reasons: list[str]
    warnings: list[Warning]
    reproduce: str
    textbook_source: str = ""
    next_best: str = ""  # what to try next, in one sentence
    race: RaceSummary | None = None
    payoffs: list[Payoff] = []
    by_objective: list[ObjectivePick] = []
    costs: list[CaseCost] = []
    prices: dict[str, float] = {}  # per hour as they were given, by kind of device or device
    what_if: list[WhatIf] = []

    def with_crossover(self, found: Crossover) -> Verdict:
        """The same once its crossover was looked for, which is no advice any more."""
        advice = "" if self.next_best.startswith(LOOK_FOR_CROSSOVER) else self.next_best
        return msgspec.structs.replace(self, crossover=found, next_best=advice)
