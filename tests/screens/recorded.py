"""Runs as lists of events, the same at every call: what the screens are shown in tests.

Times are made up but plausible, the noise is seeded, and the ratios follow from the samples by
the same estimator that the engine uses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import recorded_machines as machines
from recorded_scenarios import SCENARIOS, Entry, Scenario

from workbench import events as ev
from workbench.advisor.objective import block_value
from workbench.contract import Case
from workbench.document import (
    SCHEMA_VERSION,
    AccuracyResult,
    EqualPrecision,
    Machine,
    Reason,
    SetupTimes,
    Software,
    Tool,
    Verdict,
    WarmUp,
    Warning,
)
from workbench.measure.statistics import Ratio, paired_ratio

ROUNDS = 8
BUDGET_S = 60.0
TOLERANCE = 1.05

UNSTABLE = Warning(
    code="busy_machine",
    message="another process uses 1.9 cores",
    remedy="rerun with it stopped",
    subject="branching",
)
CPU_BUILD = Warning(
    code="cpu_build",
    message="an NVIDIA GPU is here, but this torch is a CPU build",
    remedy="install a CUDA build: pip install torch --index-url https://download.pytorch.org/whl/cu130",
)


@dataclass
class Recorder:
    """Writes events while a made-up clock runs."""

    random: random.Random = field(default_factory=lambda: random.Random(20261121))
    at_s: float = 0.0
    events: list[ev.AnyEvent] = field(default_factory=list)
    values: dict[str, dict[int, float]] = field(default_factory=dict)

    def passed(self, seconds: float) -> float:
        self.at_s = round(self.at_s + seconds, 4)
        return self.at_s

    def begin(self, machine: Machine, software: Software, warnings: Sequence[Warning]) -> None:
        tool = Tool("workbench", "0.1.0", "workbench")
        self.events.append(
            ev.RunStarted(
                at_s=self.passed(0.2),
                schema_version=SCHEMA_VERSION,
                id="20261121-153012-4f3a",
                started_at="2026-11-21T15:30:12Z",
                budget_s=BUDGET_S,
                tool=tool,
            )
        )
        self.events.append(
            ev.HardwareDetected(at_s=self.passed(0.7), machine=machine, software=software)
        )
        for warning in warnings:
            self.events.append(ev.WarningRaised(at_s=self.at_s, warning=warning))

    def plan(self, scenario: Scenario, entries: Mapping[str, Entry]) -> None:
        self.events.append(
            ev.RacePlanned(
                at_s=self.passed(0.01),
                scenario=scenario.id,
                title=scenario.title,
                question=scenario.question,
                textbook=scenario.textbook,
                objective=scenario.objective,
                cases=[scenario.case(entry) for entry in entries.values()],
                item=scenario.item,
                items_per_step=dict.fromkeys(entries, scenario.items),
                flops_per_step=dict.fromkeys(entries, scenario.flops),
            )
        )

    def prepare(self, scenario: Scenario, entries: Mapping[str, Entry], known: set[str]) -> None:
        """Start the workers that are missing, and load every case or say why not."""
        for case_id, entry in entries.items():
            worker = f"{entry.device}/{entry.backend}"
            if worker not in known:
                known.add(worker)
                self.events.append(
                    ev.WorkerStarted(
                        at_s=self.passed(1.1),
                        worker=worker,
                        pid=4200 + len(known),
                        import_s=1.1,
                        versions={},
                    )
                )
            if entry.fails is not None:
                self.events.append(
                    ev.CaseFinished(
                        at_s=self.passed(0.05),
                        case=case_id,
                        scenario=scenario.id,
                        status=entry.ends,
                        reason=entry.fails,
                    )
                )
                continue
            self.events.append(
                ev.CasePrepared(
                    at_s=self.passed(0.15),
                    case=case_id,
                    setup=entry.setup,
                    accuracy=AccuracyResult(
                        "relative_error", entry.error, "float64", scenario.max_error, True
                    ),
                    warmup=WarmUp(12, 0.1, entry.step_s * 9, True),
                    iterations_per_sample=1,
                    memory_peak_bytes=None,
                )
            )

    def race(self, scenario: Scenario, entries: Mapping[str, Entry], rounds: int = ROUNDS) -> None:
        runs = {name: entry for name, entry in entries.items() if entry.fails is None}
        best = min(runs, key=lambda name: runs[name].step_s)
        for number in range(rounds):
            drift = self.random.gauss(1.0, 0.01)
            for case_id, entry in list(runs.items()):
                self.block(scenario, case_id, entry, number, drift)
            for case_id, entry in list(runs.items()):
                if entry.leaves_after is not None and number + 1 >= entry.leaves_after:
                    self.drop(scenario, case_id, best)
                    del runs[case_id]

    def block(
        self, scenario: Scenario, case_id: str, entry: Entry, number: int, drift: float
    ) -> None:
        size = 30 if scenario.objective == "latency_p99" else 6
        samples = [
            entry.step_s * drift * self.random.lognormvariate(0.0, entry.noise) for _ in range(size)
        ]
        value = block_value(scenario.objective, samples, entry.setup)
        self.values.setdefault(case_id, {})[number] = value
        loss = None
        if scenario.trains:
            loss = 2.3 * (0.86 ** (number * entry.learns)) + self.random.uniform(0.0, 0.06)
        self.events.append(
            ev.BlockMeasured(
                at_s=self.passed(0.08),
                case=case_id,
                scenario=scenario.id,
                round=number,
                samples_s=samples,
                lead_in_s=samples[:2],
                loss=loss,
            )
        )

    def ratio(self, slow: str, fast: str) -> Ratio | None:
        shared = sorted(self.values[slow].keys() & self.values[fast].keys())
        return paired_ratio(
            [self.values[slow][number] for number in shared],
            [self.values[fast][number] for number in shared],
        )

    def drop(self, scenario: Scenario, case_id: str, best: str) -> None:
        ratio = self.ratio(case_id, best)
        self.events.append(
            ev.CaseDropped(
                at_s=self.at_s,
                case=case_id,
                scenario=scenario.id,
                reason=Reason("beaten", "clearly slower"),
                beaten_by=best,
                ratio=ratio.value if ratio else None,
                ratio_bounds=ratio.interval if ratio else None,
            )
        )

    def decide(
        self, scenario: Scenario, entries: Mapping[str, Entry], warnings: Sequence[Warning] = ()
    ) -> None:
        for case_id, entry in entries.items():
            if entry.fails is None:
                self.events.append(
                    ev.CaseFinished(
                        at_s=self.at_s,
                        case=case_id,
                        scenario=scenario.id,
                        status="ok",
                        reason=None,
                    )
                )
        verdict = self.verdict(scenario, entries, list(warnings))
        self.events.append(ev.VerdictReached(at_s=self.passed(0.02), verdict=verdict))

    def best(self, entries: Mapping[str, Entry], kind: str, precision: str = "") -> str | None:
        found = {
            name: median(self.values[name].values())
            for name, entry in entries.items()
            if name in self.values and entry.kind == kind and precision in ("", entry.precision)
        }
        return min(found, key=lambda name: found[name]) if found else None

    def verdict(
        self, scenario: Scenario, entries: Mapping[str, Entry], warnings: list[Warning]
    ) -> Verdict:
        cpu, gpu = self.best(entries, "cpu"), self.best(entries, "gpu")
        ratio = self.ratio(cpu, gpu) if cpu and gpu else None
        order = sorted(
            (name for name in entries if name in self.values),
            key=lambda name: median(self.values[name].values()),
        )
        pick, runner_up = order[0], order[1] if len(order) > 1 else None
        lead = self.ratio(runner_up, pick) if runner_up else None
        tie = lead is not None and lead.low < TOLERANCE
        choice = "cpu"
        if ratio is not None:
            close = 1 / TOLERANCE < ratio.value < TOLERANCE
            choice = "either" if close else "gpu" if ratio.value > 1 else "cpu"
        simulated = any(entry.device.startswith("fake") for entry in entries.values())
        return Verdict(
            scenario=scenario.id,
            title=scenario.title,
            textbook=scenario.textbook,
            objective=scenario.objective,
            choice=choice,
            no_gpu=gpu is None,
            best_cpu=cpu,
            best_gpu=gpu,
            device_ratio=ratio.value if ratio else None,
            device_ratio_ci95=ratio.interval if ratio else None,
            pick=pick,
            runner_up=runner_up,
            pick_ratio=lead.value if lead else None,
            pick_ratio_ci95=lead.interval if lead else None,
            tie=tie,
            equal_precision=self.equal_precision(entries),
            basis="simulated" if simulated else "measured",
            crossover=None,
            reasons=[scenario.why_no_gpu if gpu is None else scenario.why],
            warnings=warnings,
            reproduce=f"workbench advise {scenario.id} --budget 60",
        )

    def equal_precision(self, entries: Mapping[str, Entry]) -> list[EqualPrecision]:
        pairs = []
        for precision in dict.fromkeys(entry.precision for entry in entries.values()):
            cpu = self.best(entries, "cpu", precision)
            gpu = self.best(entries, "gpu", precision)
            ratio = self.ratio(cpu, gpu) if cpu and gpu else None
            pairs.append(
                EqualPrecision(
                    precision,
                    cpu,
                    gpu,
                    ratio.value if ratio else None,
                    ratio.interval if ratio else None,
                )
            )
        return pairs

    def finish(self, status: str = "done", exit_code: int = 0) -> list[ev.AnyEvent]:
        self.events.append(
            ev.RunFinished(
                at_s=self.passed(0.3),
                status=status,
                finished_at="2026-11-21T15:31:10Z",
                duration_s=self.at_s,
                exit_code=exit_code,
            )
        )
        return self.events


def entries_of(scenario: Scenario, device: str | None) -> dict[str, Entry]:
    """The contenders by case id; `device` is the name of the GPU, None without one."""
    return {scenario.case(entry).id: entry for entry in scenario.entries_on(device)}


def _run(
    device: str | None,
    machine: tuple[Machine, Software],
    warnings: Sequence[Warning] = (),
    *,
    full_rows: int = len(SCENARIOS),
    rounds_of_last: int = 0,
) -> Recorder:
    """`full_rows` rows with a verdict, then one of `rounds_of_last` rounds without."""
    recorder = Recorder()
    recorder.begin(*machine, warnings)
    rows = [(scenario, entries_of(scenario, device)) for scenario in SCENARIOS]
    for scenario, entries in rows:
        recorder.plan(scenario, entries)
    known: set[str] = set()
    for number, (scenario, entries) in enumerate(rows):
        if number > full_rows or (number == full_rows and not rounds_of_last):
            break
        started = ev.RaceStarted(at_s=recorder.passed(0.05), scenario=scenario.id, share_s=9.4)
        recorder.events.append(started)
        recorder.prepare(scenario, entries, known)
        if number == full_rows:
            recorder.race(scenario, entries, rounds_of_last)
            break
        recorder.race(scenario, entries)
        recorder.decide(scenario, entries, [UNSTABLE] if scenario.id == "branching" else [])
    return recorder


def cpu_only() -> list[ev.AnyEvent]:
    """Six rows finished on two cores, no GPU anywhere."""
    return _run(None, machines.cpu_server()).finish()


def h200() -> list[ev.AnyEvent]:
    """Six rows finished on an EPYC with an H200: all kinds of answers."""
    return _run("cuda:0", machines.gpu_server()).finish()


def midway() -> list[ev.AnyEvent]:
    """The same machine while the fifth row is raced: two of seven contenders are left."""
    return _run("cuda:0", machines.gpu_server(), full_rows=4, rounds_of_last=5).events


def training_midway() -> list[ev.AnyEvent]:
    """The first row is raced: loss curves grow."""
    return _run("cuda:0", machines.gpu_server(), full_rows=0, rounds_of_last=6).events


def cancelled() -> list[ev.AnyEvent]:
    """Stopped by the user in the third row."""
    recorder = _run("cuda:0", machines.gpu_server(), full_rows=2, rounds_of_last=3)
    scenario = SCENARIOS[2]
    for case_id, entry in entries_of(scenario, "cuda:0").items():
        if entry.fails is None:
            recorder.events.append(
                ev.CaseFinished(
                    at_s=recorder.at_s,
                    case=case_id,
                    scenario=scenario.id,
                    status="cancelled",
                    reason=Reason("cancelled", "cancelled by the user"),
                )
            )
    return recorder.finish("cancelled", 130)


def simulated() -> list[ev.AnyEvent]:
    """Six rows finished against the test device `fake:0`."""
    return _run("fake:0", machines.fake_server()).finish()


def warned() -> list[ev.AnyEvent]:
    """Only detection, with a GPU that this torch cannot use."""
    machine, _ = machines.gpu_server()
    _, software = machines.cpu_server()
    recorder = Recorder()
    recorder.begin(machine, software, [CPU_BUILD])
    return recorder.events


def setup_of(build_s: float, transfer_s: float | None, compile_s: float | None) -> SetupTimes:
    return SetupTimes(
        import_s=1.1,
        build_s=build_s,
        transfer_s=transfer_s,
        transfer_out_s=None if transfer_s is None else transfer_s / 2,
        compile_s=compile_s,
    )


def case_ids(events: Sequence[ev.AnyEvent], scenario: str) -> list[str]:
    """The case ids of one planned row."""
    plans = (event for event in events if isinstance(event, ev.RacePlanned))
    cases: list[Case] = next(plan.cases for plan in plans if plan.scenario == scenario)
    return [case.id for case in cases]
