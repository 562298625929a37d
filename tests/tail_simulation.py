"""Races about 99th percentiles on a machine whose stalls hit all candidates alike.

A longer step is hit more often, so the candidate with the shortest steps has the lowest percentile.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec
from builders import case, context, events, scenario
from fakes import FakePool, IdleWorkload, ManualClock
from simulation import Undisturbed

from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.engine import race
from workbench.engine.schedule import RowTime
from workbench.planning.announcing import planned
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.report.report import Report

SHARE_S = 7.0  # seconds of a row in the default table
STRETCH_S = 0.5  # mean time for which the machine stays calm or busy
BUSY = 0.25  # share of the time


class Machine:
    """Steps on a machine whose stalls hit all candidates alike, by the time that they take."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.calm, self.busy = rng.uniform(0.1, 2), rng.uniform(2, 15)  # stalls per second
        self.stall_s = math.exp(rng.uniform(math.log(1e-3), math.log(8e-3)))
        self.noise = math.exp(rng.uniform(math.log(0.01), math.log(0.08)))
        self.rng, self.until_s, self.is_busy = random.Random(f"run{seed}"), 0.0, False

    def step_s(self, at_s: float, step_s: float) -> float:
        while at_s >= self.until_s:
            self.is_busy = self.rng.random() < BUSY
            self.until_s = at_s + self.rng.expovariate(1 / STRETCH_S)
        took_s = step_s * math.exp(self.rng.gauss(0, self.noise))
        rate = self.busy if self.is_busy else self.calm
        if self.rng.random() < 1 - math.exp(-rate * step_s):
            took_s += self.stall_s * (0.3 + self.rng.expovariate(1))
        return took_s


class StallingPool(FakePool):
    """A fake pool whose blocks run on such a machine."""

    def __init__(self, clock: ManualClock, steps_s: Mapping[Case, float], machine: Machine) -> None:
        super().__init__(clock, steps_s, {})
        self.machine = machine

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().prepare(request)
        step_s = self.steps_s[request["case"].id]
        self.clock.at_s += 0.05 + 3 * step_s
        answer["warmup"]["iterations"] = max(1, round(2e-3 / step_s))
        return answer

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().block({**request, "seconds": 0.0})
        step_s, until_s = self.steps_s[request["case"]], self.clock.at_s + request["seconds"]
        answer["samples_s"] = samples = []
        while len(samples) < request["min_samples"] or self.clock.at_s < until_s:
            samples.append(self.machine.step_s(self.clock.at_s, step_s))
            self.clock.at_s += samples[-1]
        return answer


@dataclass(frozen=True)
class TailOutcome:
    """The device that a verdict states, and how good that is."""

    choice: str
    regret: float | None  # steps of the stated device over those of the other; None: none is stated


def simulate(seed: int) -> TailOutcome:
    """One race of 2 to 6 candidates on the CPU and 1 to 6 on a simulated GPU."""
    rng = random.Random(seed)
    best_s = math.exp(rng.uniform(math.log(1e-3), math.log(8e-3)))
    names = [f"cpu-{i}" for i in range(rng.randint(2, 6))]
    names += [f"fake:0-{i}" for i in range(rng.randint(1, 6))]
    apart = [rng.uniform(0, 0.06) if rng.random() < 0.3 else rng.uniform(0, 1.6) for _ in names]
    steps_s = {case(name): best_s * math.exp(x) for name, x in zip(names, apart, strict=True)}
    row = msgspec.structs.replace(scenario(textbook=""), objective="latency_p99")
    report, clock = Report.of(events({}, gpus=["fake:0"])[:2]), ManualClock()
    plan = RowPlan(row, IdleWorkload(), list(steps_s))
    report.apply(planned(plan, Request(), 0.0))
    pool = StallingPool(clock, steps_s, Machine(seed))
    with patch.object(race, "DisturbanceMonitor", Undisturbed):
        race.Race(RowTime(plan, context(pool, clock, report), SHARE_S, SHARE_S)).run()
    verdict, regret = decide(report, row), None
    if verdict.choice in ("cpu", "gpu"):
        stated, other = sorted(("cpu", "gpu"), key=verdict.choice.__ne__)
        regret = _shortest_s(steps_s, stated) / _shortest_s(steps_s, other)
    return TailOutcome(verdict.choice, regret)


def _shortest_s(steps_s: Mapping[Case, float], kind: str) -> float:
    """The shortest steps of a kind of device, which have its lowest percentile."""
    return min(step_s for each, step_s in steps_s.items() if each.device_kind == kind)
