"""Two sides in turns, on made-up workers of a machine whose speed drifts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from builders import machine, scenario
from fakes import IdleWorkload, ManualClock
from msgspec.structs import replace

from workbench.contract import Case
from workbench.engine import ab, opening
from workbench.engine.exit_codes import BEYOND, CUT_SHORT, FAILED, OK
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.pool.control import Cancelled, Control
from workbench.pool.pool import WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records.comparison import ABReport, ABResult, Side
from workbench.records.document import SCHEMA_VERSION, Tool
from workbench.records.events import Event, WarningRaised
from workbench.records.reason import Reason, Warning
from workbench.stats.samples import median
from workbench.worker.code import Code

A, B = Side("A", "--env X=0"), Side("B", "--env X=1")
CASE = Case("work", "cpu", "python", "fp32")
COMMAND = Case("work", "cpu", "command", "")
START_S, BLOCK_S = 1.5, 0.12  # seconds until a process is ready; of a turn
WALK, NOISE = 0.01, 0.02  # log standard deviations: drift in a second, a block
LUCK, SLOW, SLOW_SHARE = 0.008, 0.035, 0.1  # a process keeps it for life; docs/accuracy.md


class Machine:
    """The workers of both sides on a machine that drifts, as `Pool` offers them."""

    import_s: dict[WorkerKey, float]

    def __init__(self, slower: float = 0.0, seed: int | None = None) -> None:
        self.clock = ManualClock()
        self.clock.is_ending = False
        self.asked: list[tuple[str, str]] = []  # side and operation
        self.codes: dict[str, Code] = {}
        self.fails: dict[str, WorkerFailed] = {}  # side to what its preparation raises
        self.error = {"A": 0.0, "B": 0.0}
        self._slower = {"A": 0.0, "B": slower}
        self._random = random.Random(seed)
        self._noisy = seed is not None
        self._speed = 0.0
        self._luck: dict[str, float] = {}

    def pool(self, *_: object, **__: object) -> Machine:
        return self

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        pass

    def end(self, key: WorkerKey) -> None:
        self._pass(START_S)
        lot = SLOW if self._random.random() < SLOW_SHARE else 0.0
        self._luck[key.alone] = self._noisy * (lot + self._random.gauss(0, LUCK))

    def end_all(self, *, at_once: bool) -> None:
        pass

    def close(self) -> None:
        pass

    def _pass(self, seconds: float) -> None:
        self.clock.at_s += seconds
        self._speed += self._noisy * self._random.gauss(0, WALK * math.sqrt(seconds))

    def ask(self, key: WorkerKey, deadline_s: float, kind: object, **request: Any) -> object:
        side = key.alone
        self.asked.append((side, request["op"]))
        if request["op"] == "prepare":
            if side in self.fails:
                raise self.fails[side]
            if "code" in request["files"]:
                self.codes[side] = Code.of(request["files"]["code"])
            error = self.error[side]
            check = SimpleNamespace(
                passed=error < 1, metric="relative_error", value=error, limit=0.5, reference="it"
            )
            return SimpleNamespace(result=SimpleNamespace(accuracy=check))
        self._pass(BLOCK_S)
        burst = 0.4 if self._noisy and self._random.random() < 0.03 else 0.0
        logs = self._speed + self._luck[side] + self._noisy * self._random.gauss(burst, NOISE)
        samples = [1e-3 * (1 + self._slower[side]) * math.exp(logs)]
        block = SimpleNamespace(samples_s=samples, gap=False)
        return SimpleNamespace(result=block, interrupted=False)


HEAD = {"schema_version": SCHEMA_VERSION, "tool": Tool("workbench", "0", "ab")}
Race = Callable[..., ABReport]


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Race:
    """Run both sides on a machine; `found` are the rows."""

    def raced(world: Machine, *cases: Case, budget_s: float = 120.0, **options: Any) -> ABReport:
        files = options.pop("files", {})
        source = SimpleNamespace(files=lambda case: files)
        rows = [
            RowPlan(scenario(), IdleWorkload(), [case], source=source) for case in cases or (CASE,)
        ]
        software = SimpleNamespace(packages={})
        here = options.pop("here", machine())
        monkeypatch.setattr(opening, "detected", lambda *_, **__: (here, software))
        monkeypatch.setattr(opening, "Pool", world.pool)
        monkeypatch.setattr(ab, "row_source", lambda *_, **__: SimpleNamespace(rows=lambda: rows))
        control: Control = world.clock
        sides = options.pop("sides", (A, B))
        run = ab.ABRun(Request(budget_s=budget_s), sides, control)
        return run.run(rows, options.pop("fail_on", 0.02), HEAD)

    return raced


def test_at_2_percent_no_false_alarm_and_a_slowdown_of_5_percent_is_found(race: Race) -> None:
    """The goals of the campaign (`benchmarks/ab.py`), on simulated noise."""
    runs = 100
    same = [race(Machine(0.0, seed)) for seed in range(runs)]
    slow = [race(Machine(0.05, runs + seed)) for seed in range(runs)]
    assert sum(report.exit_code == BEYOND for report in same) <= 0.02 * runs
    assert sum(report.exit_code == BEYOND for report in slow) >= 0.95 * runs
    held = [found.ci95[0] <= 1 <= found.ci95[1] for r in same for found in r.results if found.ci95]
    assert 0.9 * runs <= sum(held) <= runs
    # One after the other, the medians of the same machine raise many more alarms.
    halves = [one_after_the_other(report.results[0]) for report in same]
    assert sum(ratio > 1.02 for ratio in halves) >= 0.1 * runs


def one_after_the_other(result: ABResult) -> float:
    """Side B in the second half of the run over side A in the first half."""
    half = len(result.a_s) // 2
    return median(result.b_s[half:]) / median(result.a_s[:half])


def test_sides_alternate_and_each_pair_has_fresh_processes(race: Race) -> None:
    world = Machine()
    report = race(world, budget_s=20.0)
    (found,) = report.results
    starts = [place for place, asked in enumerate(world.asked) if asked[1] == "prepare"]
    assert len(starts) == 2 * len(found.ratios)
    assert [world.asked[place][0] for place in starts[:4]] == ["A", "B", "B", "A"]
    turns = "".join(side for side, op in world.asked[2 : starts[2]] if op == "block")
    assert turns.startswith("ABBAABBA")
    assert len(turns) % 4 == 0
    assert world.clock.now() <= 20.0
    assert (found.word, round(found.ratio or 0, 6), report.exit_code) == ("SAME", 1.0, OK)


def test_a_gpu_that_admits_one_process_at_a_time_is_refused(race: Race) -> None:
    here, world = machine("cuda:0"), Machine()
    gpus = [replace(here.gpus[0], compute_mode="exclusive_process")]
    case = Case("work", "cuda:0", "torch", "fp32")
    report = race(world, case, CASE, here=replace(here, gpus=gpus), budget_s=20.0)
    refused, raced = report.results
    assert refused.reason.code == "exclusive_gpu"
    assert raced.word == "SAME"
    assert report.exit_code == FAILED


def test_a_warning_of_every_process_is_printed_once(
    race: Race, capsys: pytest.CaptureFixture[str]
) -> None:
    class New(Machine):
        def pool(self, *_: object, listener: Callable[[Event], None], **__: object) -> Machine:
            self.listener = listener
            return self

        def end(self, key: WorkerKey) -> None:
            super().end(key)
            self.listener(WarningRaised(at_s=0.0, warning=Warning("new", "torch is new", "wait")))

    assert len(race(New(), budget_s=20.0).results[0].ratios) > 2
    said = capsys.readouterr().err
    assert said.count("warning: torch is new; wait") == 1
    assert "work cpu python fp32: pair 1: B / A 1.000" in said


def test_each_step_of_a_command_is_a_process_already(race: Race) -> None:
    world = Machine()
    report = race(world, COMMAND, budget_s=20.0)
    assert len(report.results[0].ratios) > 3
    assert [asked for asked in world.asked if asked[1] == "prepare"] == [
        ("A", "prepare"),
        ("B", "prepare"),
    ]


def test_a_library_that_is_optional_races_where_it_is_installed(monkeypatch) -> None:
    world, software = Machine(), SimpleNamespace(packages={"xgboost": None})
    monkeypatch.setattr(opening, "detected", lambda *_, **__: (machine(), software))
    monkeypatch.setattr(opening, "Pool", world.pool)
    request = Request(workloads=("train_trees",), budget_s=20.0)
    run = ab.ABRun(request, (A, B), world.clock)
    (found,) = run.run(resolve(request, {}), 0.02, HEAD).results
    assert "/cpu/xgboost/" in found.case


def test_rows_share_the_budget(race: Race) -> None:
    other = Case("work", "cpu", "python", "fp64")
    first, second = race(Machine(0.1), CASE, other).results
    assert abs(len(first.ratios) - len(second.ratios)) <= 1
    assert first.word == second.word == "SLOWER"


def test_a_pair_that_the_end_of_the_budget_cuts_costs_nothing(race: Race) -> None:
    class Stalled(Machine):
        def ask(self, key: WorkerKey, deadline_s: float, kind: object, **request: Any) -> object:
            if request["op"] == "block" and self.clock.now() > 15.0:
                self._pass(deadline_s)
                raise WorkerFailed(Reason("timeout", "no answer"))
            return super().ask(key, deadline_s, kind, **request)

    report = race(Stalled(), budget_s=20.0)
    (found,) = report.results
    assert (found.reason, found.word, report.exit_code) == (None, "SAME", OK)


def test_a_run_that_is_cut_short_keeps_its_pairs(race: Race) -> None:
    class Cut(Machine):
        def ask(self, key: WorkerKey, deadline_s: float, kind: object, **request: Any) -> object:
            if len([op for _, op in self.asked if op == "prepare"]) == 10:  # the fifth pair begins
                self.clock.is_ending = True
                raise Cancelled("SIGINT")
            return super().ask(key, deadline_s, kind, **request)

    report = race(Cut())
    (found,) = report.results
    assert (len(found.ratios), found.word, report.exit_code) == (4, "SAME", CUT_SHORT)


def test_a_run_that_is_cut_short_too_early_does_not_blame_its_budget(race: Race) -> None:
    class Cut(Machine):
        def ask(self, key: WorkerKey, deadline_s: float, kind: object, **request: Any) -> object:
            self.clock.is_ending = True
            raise Cancelled("SIGINT")

    (found,) = race(Cut()).results
    assert (found.reason.code, "--budget" in found.reason.message) == ("cancelled", False)


def test_a_side_that_fails_is_named_and_costs_its_row_alone(race: Race) -> None:
    world = Machine()
    world.fails["B"] = WorkerFailed(Reason("user_code", "no weights", "train it first"))
    report = race(world)
    (found,) = report.results
    assert found.reason.message == "side B (--env X=1): no weights (train it first)"
    assert (found.word, report.exit_code) == (None, FAILED)


def test_sides_that_return_different_results_are_not_compared(race: Race) -> None:
    world = Machine()
    world.error["B"] = 0.7
    (found,) = race(world).results
    assert found.reason.code == "wrong_result"
    assert "side B (--env X=1): the results differ: 0.7 from it, limit 0.5" in found.reason.message
    assert found.ratios == []


def test_each_side_runs_its_own_code(race: Race) -> None:
    world = Machine()
    code = Code("command", "old", "/scratch", "/here")
    sides = (Side("A", "", command="old"), Side("B", "", path="/there", command="new"))
    race(world, files={"code": code.as_text()}, sides=sides)
    found = {name: (each.target, each.directory) for name, each in world.codes.items()}
    assert found == {"A": ("old", "/here"), "B": ("new", "/there")}


def test_a_budget_for_two_pairs_is_too_small(race: Race) -> None:
    report = race(Machine(), budget_s=9.0)
    (found,) = report.results
    assert 0 < len(found.ratios) < 3
    assert "raise --budget" in found.reason.message
    assert report.exit_code == FAILED


@pytest.mark.parametrize(
    ("low", "high", "fail_on", "code"),
    [
        (1.03, 1.06, 0.02, BEYOND),
        (1.01, 1.06, 0.02, OK),
        (1.03, 1.06, None, OK),
        (0.90, 0.95, 0.02, OK),
    ],
)
def test_the_whole_interval_must_lie_beyond_the_limit(low, high, fail_on, code) -> None:
    assert ab.exit_code([ABResult("one", ci95=(low, high))], fail_on) == code


def test_a_side_that_fails_in_one_row_does_not_hide_the_regression_of_another() -> None:
    failed = ABResult("two", reason=Reason("user_code", "no weights"))
    assert ab.exit_code([ABResult("one", ci95=(1.03, 1.06)), failed], 0.02) == BEYOND
    assert ab.exit_code([ABResult("one", ci95=(0.99, 1.01)), failed], 0.02) == FAILED
