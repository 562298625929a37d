"""Whole races on simulated noise with a known truth, and how right their verdicts are.

The race is the real one, on a clock that only the fake workers move; the verdict is the real
`decide`.  Samples are true time x exp(common noise of the moment + noise of the block + noise of
the sample), and each candidate is off by a constant that no run can see (`ratios.RUN_TO_RUN`).
"""

import math
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from builders import case, context, events, scenario
from fakes import FakePool, IdleWorkload, ManualClock

from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.engine import race
from workbench.engine.schedule import RowTime
from workbench.planning.announcing import planned
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.records.verdict import Verdict
from workbench.report.report import Report
from workbench.stats import ratios

RIGHT = 1.05  # a pick within the tolerance of the best is right
TIED = 1.10  # a tie that the verdict claims is within this factor
PREPARE_STEPS = 3
WEAK = ("few_samples", "unstable")
MOST_SAMPLES = 5  # in a simulated block


class Noise:
    """The noise of one race, as logarithms; each family overrides a part of it.

    The noise of a block has a scale of 0.5 to 4 %, drawn anew for each race.
    """

    def __init__(self, rng: random.Random, budget_s: float) -> None:
        self.rng, self.budget_s = rng, budget_s
        self.own = math.exp(rng.uniform(math.log(0.005), math.log(0.04)))

    def common(self, at_s: float) -> float:
        """The noise that all blocks of a round share that begins at `at_s`."""
        return self.rng.gauss(0, 0.03)

    def drift(self, at_s: float) -> float:
        """The noise that all candidates share at the time `at_s`."""
        return 0.0

    def block(self, name: str) -> float:
        """The noise of a whole block of the candidate of this name."""
        return self.rng.gauss(0, self.own)

    def sample(self) -> float:
        return self.rng.gauss(0, self.own)


class Bursts(Noise):
    """One round in seven takes 1.3 to 3 times as long, not the same for all candidates."""

    burst = 0.0

    def common(self, at_s: float) -> float:
        self.burst = math.log(self.rng.uniform(1.3, 3)) if self.rng.random() < 0.15 else 0.0
        return super().common(at_s)

    def block(self, name: str) -> float:
        return super().block(name) + self.burst * self.rng.uniform(0.8, 1.2)


class HeavyTails(Noise):
    """Student's t with 3 degrees of freedom, by block and by sample."""

    def t3(self) -> float:
        return self.rng.gauss(0, 1) / math.sqrt(self.rng.gammavariate(1.5, 2) / 3)

    def block(self, name: str) -> float:
        return self.own * self.t3()

    def sample(self) -> float:
        return self.own * self.t3()


class TwoSpeeds(Noise):
    """Two blocks in five run 8 % slower, independently of each other."""

    def block(self, name: str) -> float:
        return super().block(name) + (0.08 if self.rng.random() < 0.4 else 0.0)


class Drift(Noise):
    """A slow swing of 30 % and a slope, which also act within a round."""

    def __init__(self, rng: random.Random, budget_s: float) -> None:
        super().__init__(rng, budget_s)
        self.period_s = rng.uniform(0.2, 2) * budget_s
        self.phase = rng.uniform(0, 2 * math.pi)
        self.slope = rng.uniform(-0.2, 0.2)

    def drift(self, at_s: float) -> float:
        swing = 0.15 * math.sin(2 * math.pi * at_s / self.period_s + self.phase)
        return swing + self.slope * at_s / self.budget_s


class OwnDrift(Noise):
    """Each candidate follows a course of its own: its neighbouring rounds correlate by 0.5."""

    def __init__(self, rng: random.Random, budget_s: float) -> None:
        super().__init__(rng, budget_s)
        self.courses: dict[str, float] = {}

    def block(self, name: str) -> float:
        step = super().block(name)
        if name in self.courses:
            step = 0.5 * self.courses[name] + math.sqrt(0.75) * step
        self.courses[name] = step
        return step


OWN_DRIFT = "own drift"
FAMILIES: dict[str, type[Noise]] = {
    "steady": Noise,
    "bursts": Bursts,
    "heavy tails": HeavyTails,
    "two speeds": TwoSpeeds,
    "drift": Drift,
}


class NoisyPool(FakePool):
    """A fake pool whose blocks take as long as the noise makes them."""

    def __init__(
        self, clock: ManualClock, steps_s: Mapping[Case, float], noise: Noise, rng: random.Random
    ) -> None:
        super().__init__(clock, steps_s, {})
        self.noise = noise
        self.bias = {name: rng.gauss(0, ratios.RUN_TO_RUN / math.sqrt(2)) for name in self.steps_s}
        self.had_a_turn: set[str] = set()
        self.common = noise.common(0.0)

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().prepare(request)
        step_s = self.steps_s[request["case"].id]
        self.clock.at_s += PREPARE_STEPS * step_s
        answer["warmup"]["iterations"] = max(1, round(2e-3 / step_s))
        return answer

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["case"]
        if name in self.had_a_turn:  # so this is a new round
            self.had_a_turn, self.common = set(), self.noise.common(self.clock.now())
        self.had_a_turn.add(name)
        answer = super().block({**request, "seconds": 0.0})
        felt = self.common + self.noise.drift(self.clock.now()) + self.noise.block(name)
        step_s = self.steps_s[name] * math.exp(felt + self.bias[name])
        fitting = max(1, request["min_samples"], round(request["seconds"] / max(step_s, 2e-3)))
        count = min(fitting, MOST_SAMPLES)
        answer["samples_s"] = [step_s * math.exp(self.noise.sample()) for _ in range(count)]
        self.clock.at_s += max(request["seconds"], step_s * count)
        return answer


@dataclass(frozen=True)
class Outcome:
    """The result of one race; None where the verdict makes no such claim."""

    regret: float
    rounds: int
    ended_by: str
    duration_s: float
    lead_wrong: bool | None  # the verdict claims a lead over the runner-up
    device_wrong: bool | None  # the verdict names one of two devices
    covered: bool | None  # the interval holds the true ratio of runner-up and pick
    tie_wrong: bool | None  # the verdict claims a tie of pick and runner-up
    either_wrong: bool | None  # the verdict claims a tie of the devices
    pick: str
    weak: bool  # the pick carries a warning about its samples
    is_clear: bool  # in truth, the best leads by more than the tolerance
    is_whole: bool  # every candidate had a turn; otherwise the verdict says so

    @property
    def right(self) -> bool:
        return self.regret <= RIGHT


def field(rng: random.Random) -> dict[Case, float]:
    """2 to 8 candidates with their true seconds a step: three in ten are near ties."""
    names = [f"cpu-{number}" for number in range(rng.randint(2, 8))]
    if rng.random() < 0.5:
        names = [name.replace("cpu", rng.choice(["cpu", "fake:0"])) for name in names]
    best = math.exp(rng.uniform(math.log(5e-4), math.log(0.3)))
    times = [best]
    for _ in names[1:]:
        near = rng.random() < 0.3
        times.append(best * (rng.uniform(1, 1.06) if near else math.exp(rng.uniform(0, 2.3))))
    rng.shuffle(times)
    return dict(zip(map(case, names), times, strict=True))


def simulate(family: str, seed: int, repeat: int = 0) -> Outcome:
    """One race, determined by its arguments; `repeat` counts runs on the same machine."""
    rng = random.Random(f"{family} {seed}")
    steps_s = field(rng)
    round_s = sum(max(0.2, step_s) for step_s in steps_s.values())
    rounds = rng.uniform(1.2, 5) if rng.random() < 0.3 else rng.uniform(5, 40)
    budget_s = PREPARE_STEPS * sum(steps_s.values()) + rounds * round_s
    rng = random.Random(f"{family} {seed} {repeat}")
    noise = (OwnDrift if family == OWN_DRIFT else FAMILIES[family])(rng, budget_s)
    report, verdict, clock = run(steps_s, noise, rng, budget_s)
    return judged(report, verdict, steps_s, clock)


def run(
    steps_s: Mapping[Case, float], noise: Noise, rng: random.Random, budget_s: float
) -> tuple[Report, Verdict, ManualClock]:
    clock, row = ManualClock(), scenario(textbook="")
    gpus = sorted({c.device for c in steps_s} - {"cpu"})
    report = Report.of(events({}, gpus=gpus)[:2])
    plan = RowPlan(row, IdleWorkload(), list(steps_s))
    report.apply(planned(plan, Request(), 0.0))
    with patch.object(race, "DisturbanceMonitor", Undisturbed):
        pool = NoisyPool(clock, steps_s, noise, rng)
        shared = context(pool, clock, report)
        race.Race(RowTime(plan, shared, budget_s, budget_s)).run()
    return report, decide(report, row), clock


class Undisturbed:
    """Stands for `DisturbanceMonitor`, which would read the machine that runs the tests."""

    paused = staticmethod(nullcontext)

    def __init__(self, *_: object) -> None:
        pass

    def warnings(self, subject: str) -> list[Any]:
        return []


def judged(
    report: Report, verdict: Verdict, steps_s: Mapping[Case, float], clock: ManualClock
) -> Outcome:
    true = {c.id: step_s for c, step_s in steps_s.items()}
    kinds = {
        kind: min((s for c, s in steps_s.items() if c.device_kind == kind), default=None)
        for kind in ("cpu", "gpu")
    }
    assert verdict.pick is not None
    lead_wrong = device_wrong = covered = tie_wrong = either_wrong = None
    if verdict.pick_ratio_ci95 is not None and verdict.runner_up is not None:
        low, high = verdict.pick_ratio_ci95
        ratio = true[verdict.runner_up] / true[verdict.pick]
        covered = low <= ratio <= high
        lead_wrong = ratio < 1 if low > 1 else None
        tie_wrong = not 1 / TIED <= ratio <= TIED if verdict.tie else None
    if None not in kinds.values() and verdict.choice in kinds:
        device_wrong = kinds[verdict.choice] != min(true.values())
    if verdict.choice == "either":
        either_wrong = max(kinds.values()) > TIED * min(kinds.values())
    row = report.rows["row"]
    is_whole = all(candidate.blocks for candidate in row.candidates)
    assert is_whole or verdict.confidence in ("likely", "open")
    assert is_whole or any(w.code == "unmeasured" for w in verdict.warnings)
    return Outcome(
        regret=true[verdict.pick] / min(true.values()),
        rounds=row.rounds,
        ended_by=row.ended_by or "",
        duration_s=clock.now(),
        lead_wrong=lead_wrong,
        device_wrong=device_wrong,
        covered=covered,
        tie_wrong=tie_wrong,
        either_wrong=either_wrong,
        pick=verdict.pick,
        weak=any(w.subject == verdict.pick and w.code in WEAK for w in verdict.warnings),
        is_clear=sorted(true.values())[1] > RIGHT * min(true.values()),
        is_whole=is_whole,
    )


@dataclass(frozen=True)
class Summary:
    """The results of many races; shares count only the races that make the claim."""

    races: int
    right: float
    mean_regret: float  # geometric
    worst_regret: float
    leads: int
    wrong_leads: float
    devices: int
    wrong_devices: float
    coverage: float
    with_interval: float
    ties: int
    wrong_ties: float
    weak: float
    median_rounds: float
    mean_rounds: float
    mean_s: float

    def line(self, name: str) -> str:
        return (
            f"{name:12} {self.races:6} races: right {self.right:.4f}, regret mean "
            f"{self.mean_regret:.4f} worst {self.worst_regret:.3f}, wrong leads "
            f"{self.wrong_leads:.2%} of {self.leads}, wrong devices {self.wrong_devices:.2%} of "
            f"{self.devices}, wrong ties {self.wrong_ties:.2%} of {self.ties}, interval in "
            f"{self.with_interval:.1%}, it holds the truth in {self.coverage:.1%}, few samples or "
            f"unstable {self.weak:.1%}, {self.median_rounds:.0f} rounds "
            f"(mean {self.mean_rounds:.2f}), {self.mean_s:.1f} s"
        )


def summary(outcomes: list[Outcome]) -> Summary:
    leads = [o.lead_wrong for o in outcomes if o.lead_wrong is not None]
    devices = [o.device_wrong for o in outcomes if o.device_wrong is not None]
    covered = [o.covered for o in outcomes if o.covered is not None]
    ties = [t for o in outcomes for t in (o.tie_wrong, o.either_wrong) if t is not None]
    share: Callable[[list[bool]], float] = lambda each: sum(each) / max(len(each), 1)  # noqa: E731
    return Summary(
        races=len(outcomes),
        right=share([o.right for o in outcomes]),
        mean_regret=math.exp(math.fsum(math.log(o.regret) for o in outcomes) / len(outcomes)),
        worst_regret=max(o.regret for o in outcomes),
        leads=len(leads),
        wrong_leads=share(leads),
        devices=len(devices),
        wrong_devices=share(devices),
        coverage=share(covered),
        with_interval=len(covered) / len(outcomes),
        ties=len(ties),
        wrong_ties=share(ties),
        weak=share([o.weak for o in outcomes]),
        median_rounds=sorted(o.rounds for o in outcomes)[len(outcomes) // 2],
        mean_rounds=sum(o.rounds for o in outcomes) / len(outcomes),
        mean_s=math.fsum(o.duration_s for o in outcomes) / len(outcomes),
    )
