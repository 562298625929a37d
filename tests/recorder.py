"""Writes the events of a made-up run: seeded noise, and ratios by the engine's own estimator."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from recorded_scenarios import BUDGET_S, Entry, Scenario

from workbench.contract import Work
from workbench.records import events as ev
from workbench.records.document import SCHEMA_VERSION, AccuracyResult, Telemetry, Tool, WarmUp
from workbench.records.machine import Machine, Software
from workbench.records.reason import Reason, Warning
from workbench.records.verdict import EqualPrecision, Verdict
from workbench.stats.objectives import block_value, fixed_parts_s
from workbench.stats.samples import Ratio, paired_ratio

ROUNDS = 8
TOLERANCE = 1.05


WATCHED = Telemetry(
    readings=5,
    clock_before_mhz=345.0,
    clock_mhz=1965.0,
    clock_after_mhz=1980.0,
    power_w=612.0,
    temperature_c=58.0,
    slowed={"sw_power_cap": 0.31},
)


@dataclass
class Recorder:
    """Writes events while a made-up clock runs."""

    random: random.Random = field(default_factory=lambda: random.Random(20261121))
    at_s: float = 0.0
    events: list[ev.AnyEvent] = field(default_factory=list)
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)

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
                reference_only=["fp64"] if scenario.id == "floating_point" else [],
                reproduce=scenario.command,
                workload=scenario.workload,
                point=dict(scenario.point),
                cases=[scenario.case(entry) for entry in entries.values()],
                work=dict.fromkeys(
                    entries, Work(scenario.flops, None, scenario.items, scenario.item, 1e7)
                ),
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
        best = {
            kind: min(
                (name for name in runs if runs[name].kind == kind),
                key=lambda name: runs[name].step_s,
                default="",
            )
            for kind in ("cpu", "gpu")
        }
        for number in range(rounds):
            drift = self.random.gauss(1.0, 0.01)
            for case_id, entry in list(runs.items()):
                self.block(scenario, case_id, entry, number, drift)
            for case_id, entry in list(runs.items()):
                if entry.leaves_after is not None and number + 1 >= entry.leaves_after:
                    self.drop(scenario, case_id, best[entry.kind])
                    del runs[case_id]

    def block(
        self, scenario: Scenario, case_id: str, entry: Entry, number: int, drift: float
    ) -> None:
        size = 30 if scenario.objective == "latency_p99" else 6
        samples = [
            entry.step_s * drift * self.random.lognormvariate(0.0, entry.noise) for _ in range(size)
        ]
        fixed_s = sum(fixed_parts_s(entry.setup, entry.step_s * 9, samples))
        value = block_value(scenario.objective, samples, fixed_s=fixed_s)
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
        assert ratio is not None
        rival = best.split("/", 1)[1]
        reason = Reason("beaten", f"{ratio.value:.3g}x slower than {rival}")
        self.finished.add(case_id)
        self.events.append(
            ev.CaseFinished(
                at_s=self.at_s,
                case=case_id,
                scenario=scenario.id,
                status="ok",
                reason=reason,
                beaten_by=best,
                ratio=ratio.value,
                ratio_bounds=ratio.interval,
            )
        )

    def end(self, scenario: Scenario, entries: Mapping[str, Entry]) -> None:
        """The row is over."""
        for case_id, entry in entries.items():
            if entry.fails is None and case_id not in self.finished:
                self.events.append(
                    ev.CaseFinished(
                        at_s=self.at_s,
                        case=case_id,
                        scenario=scenario.id,
                        status="ok",
                        reason=None,
                        telemetry=WATCHED if "/cuda:" in case_id else None,
                    )
                )

    def decide(
        self, scenario: Scenario, entries: Mapping[str, Entry], warnings: Sequence[Warning] = ()
    ) -> None:
        self.end(scenario, entries)
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
            question=scenario.question,
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
            reasons=reasons(scenario, choice, ratio, lead, pick, runner_up),
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
                    precision == "fp64",
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


def reasons(
    scenario: Scenario,
    choice: str,
    ratio: Ratio | None,
    lead: Ratio | None,
    pick: str,
    runner_up: str | None,
) -> list[str]:
    """In the words of `workbench.advisor.reasons`."""

    def times(found: Ratio) -> str:
        return f"{found.value:.3g}x (95 %: {found.low:.3g}-{found.high:.3g})"

    found = []
    if ratio is None:
        found.append("No GPU found (NVML: libnvidia-ml.so.1 was not found).")
    elif choice == "either":
        found.append(f"Too close to call: CPU time over GPU time is {times(ratio)}.")
    else:
        name = "GPU" if choice == "gpu" else "CPU"
        faster = ratio if choice == "gpu" else ratio.inverse()
        found.append(f"The {name} is {times(faster)} faster.")
    if lead is not None and runner_up is not None:
        first, second = (name.split("/", 1)[1].replace("/", " ") for name in (pick, runner_up))
        level = lead.low <= 1
        found.append(
            f"{first} and {second} are level: {times(lead)}."
            if level
            else f"{first} leads {second} by {times(lead)}."
        )
    return found if ratio is None else [*found, scenario.why]


def unanswered(scenario: Scenario) -> Verdict:
    return Verdict(
        scenario=scenario.id,
        title=scenario.title,
        question=scenario.question,
        textbook=scenario.textbook,
        objective=scenario.objective,
        choice="unknown",
        no_gpu=False,
        best_cpu=None,
        best_gpu=None,
        device_ratio=None,
        device_ratio_ci95=None,
        pick=None,
        runner_up=None,
        pick_ratio=None,
        pick_ratio_ci95=None,
        tie=False,
        equal_precision=[],
        basis="measured",
        crossover=None,
        reasons=["Nothing was measured: the run was cut short."],
        warnings=[],
        reproduce=f"workbench advise {scenario.id} --budget 60",
    )
