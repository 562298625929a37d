"""Plain runs as lists of events: a sweep over sizes, a profile, a search for the largest batch."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import recorded_machines as machines
from recorded import entries_of
from recorded_scenarios import SCENARIOS, Entry, Scenario
from recorder import ROUNDS, Recorder

from workbench.advisor.crossover import Measured, conclude
from workbench.advisor.verdict import decide
from workbench.planning.scenario import Scenario as PlannedScenario
from workbench.planning.scenario import Size
from workbench.records import events as ev
from workbench.records.document import BatchAttempt, LargestBatch, OperatorShare, Trace
from workbench.records.reason import Reason
from workbench.records.verdict import WhatIf
from workbench.report.report import Report

SIZES = (64, 4096, 512, 128, 1024, 256, 2048)  # coarse to fine, as the engine goes
PRICES = {"cpu": 0.1, "gpu": 2.99}
PRODUCTS = PlannedScenario(
    id="floating_point",
    title="Matrix product",
    question="Which?",
    textbook="gpu",
    workload="matmul",
    objective="throughput",
    precisions=("fp32", "bf16"),
    max_error=0.01,
    size=Size("n", 64, 1024),
)
ELSEWHERE = WhatIf(
    device="b200",
    name="NVIDIA B200",
    basis="estimated",
    id="matmul[n=512]/cuda:0/torch/bf16",
    step_s=5e-6,
    step_ci95_s=(4.5e-6, 5.5e-6),
    ratio=None,
    ratio_ci95=None,
    error=0.09,
    recorded_at="2026-11-20T10:00:00Z",
    source="b200-matmul.json",
)
NO_MEMORY = Reason("no_memory", "CUDA ran out of memory at batch 8,192", "try a smaller --batch")


def _product(n: int) -> Scenario:
    """Small products wait for launches on the GPU, large ones for arithmetic on the CPU."""
    flops = 2.0 * n**3

    def cpu(backend: str, precision: str, rate: float, start_s: float) -> Entry:
        return Entry("cpu", backend, precision, start_s + flops / rate, 16)

    def gpu(precision: str, rate: float) -> Entry:
        return Entry("cuda:0", "torch", precision, 9e-6 + flops / rate)

    return Scenario(
        id=f"matmul[n={n}]",
        title="Matrix product",
        question="Dense arithmetic is what a GPU is built for; precision decides how fast it goes.",
        textbook=None,
        objective="throughput",
        workload="matmul",
        max_error=0.01,
        item="products",
        items=1.0,
        flops=flops,
        why="",
        cpu=(
            cpu("numpy", "fp32", 1.0e12, 1.2e-6),
            cpu("torch", "fp32", 1.1e12, 2.4e-6),
            cpu("torch", "bf16", 2.4e12, 4.1e-6),
        ),
        gpu=(gpu("fp32", 5.1e13), gpu("bf16", 6.6e14)),
        params={"n": n},
        point={"n": n},
    )


def sweep(reached: int = len(SIZES), rounds_of_last: int = 0) -> list[ev.AnyEvent]:
    """A product at seven sizes; of the row after the `reached` ones `rounds_of_last` rounds."""
    recorder = Recorder()
    recorder.begin(*machines.gpu_server(), [])
    rows = [(scenario, entries_of(scenario, "cuda:0")) for scenario in map(_product, SIZES)]
    for scenario, entries in rows:
        recorder.plan(scenario, entries)
    known: set[str] = set()
    for number, (scenario, entries) in enumerate(rows):
        if number > reached or (number == reached and not rounds_of_last):
            break
        at_s = recorder.passed(0.05)
        recorder.events.append(ev.RaceStarted(at_s=at_s, scenario=scenario.id, share_s=7.6))
        recorder.prepare(scenario, entries, known)
        if number == reached:
            recorder.race(scenario, entries, rounds_of_last)
            break
        recorder.race(scenario, entries)
        recorder.end(scenario, entries)
    return recorder.finish() if reached == len(SIZES) else recorder.events


def sweep_midway() -> list[ev.AnyEvent]:
    """The same while the fourth size is raced."""
    return sweep(3, 4)


def profiled() -> list[ev.AnyEvent]:
    """Training with figures of its own and a profile of each candidate."""
    scenario = replace(SCENARIOS[0], id="train_cnn", textbook=None)
    entries = entries_of(scenario, "cuda:0")
    recorder = Recorder()
    recorder.begin(*machines.gpu_server(), [])
    recorder.plan(scenario, entries)
    recorder.events.append(ev.RaceStarted(at_s=recorder.at_s, scenario=scenario.id, share_s=50.0))
    recorder.prepare(scenario, entries, set())
    recorder.race(scenario, entries)
    recorder.events = [_telling(event) for event in recorder.events]
    names = ("aten::convolution_backward", "aten::mkldnn_convolution", "aten::native_batch_norm")
    operators = [
        OperatorShare(name, 12 >> number, 0.04 / (number + 1), share)
        for number, (name, share) in enumerate(zip(names, (0.52, 0.27, 0.081), strict=True))
    ]
    first = next(iter(entries))
    at_s = recorder.passed(0.5)
    recorder.events.append(ev.CaseProfiled(at_s=at_s, case=first, operators=operators))
    recorder.end(scenario, entries)
    trace = Trace("run.trace.json", "nsys profile -o run workbench run train_cnn")
    recorder.events.append(ev.TraceWritten(at_s=recorder.passed(0.1), trace=trace))
    return recorder.finish()


def _telling(event: ev.AnyEvent) -> ev.AnyEvent:
    if not isinstance(event, ev.BlockMeasured):
        return event
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return ev.BlockMeasured(**{**fields, "metrics": {"waiting_fraction": 0.12}})


def largest_batch() -> list[ev.AnyEvent]:
    """The largest batch of one candidate, found; of another it is looked for."""
    scenario = replace(SCENARIOS[0], id="train_cnn", textbook=None)
    entries = entries_of(scenario, "cuda:0")
    recorder = Recorder()
    recorder.begin(*machines.gpu_server(), [])
    recorder.plan(scenario, entries)
    first, second, *_ = reversed(entries)
    attempts = [
        BatchAttempt(64, 0.0021, 3 << 28, None),
        BatchAttempt(4096, 0.118, 34 << 30, None),
        BatchAttempt(8192, None, None, NO_MEMORY),
    ]
    for attempt in attempts:
        at_s = recorder.passed(2.0)
        recorder.events.append(ev.BatchTried(at_s=at_s, case=first, attempt=attempt))
    found = LargestBatch(case=first, batch=4096, ended_by="memory", attempts=attempts)
    recorder.events += [
        ev.LargestBatchFound(at_s=recorder.at_s, found=found),
        ev.CaseFinished(
            at_s=recorder.at_s, case=first, scenario=scenario.id, status="ok", reason=None
        ),
        ev.BatchTried(at_s=recorder.passed(2.0), case=second, attempt=attempts[0]),
    ]
    return recorder.events


def crossing() -> list[ev.AnyEvent]:
    """A product whose crossover was looked for, at prices, with a device that is elsewhere."""
    recorder = Recorder()
    recorder.begin(*machines.gpu_server(), [])
    base = replace(_product(512), id="floating_point", textbook="gpu", point={}, why="")
    points = [replace(_product(n), id=f"floating_point[n={n}]") for n in (64, 1024, 128, 256)]
    known: set[str] = set()
    for scenario in (base, *points):
        entries = entries_of(scenario, "cuda:0")
        recorder.plan(scenario, entries)
        changes = {"of": base.id} if scenario.point else {"prices": PRICES, "what_if": [ELSEWHERE]}
        recorder.events[-1] = msgspec.structs.replace(recorder.events[-1], **changes)
        at_s = recorder.passed(0.05)
        recorder.events.append(ev.RaceStarted(at_s=at_s, scenario=scenario.id, share_s=7.6))
        recorder.prepare(scenario, entries, known)
        recorder.race(scenario, entries)
        recorder.end(scenario, entries)
        ended = {"rounds": ROUNDS, "ended_by": "decided"}
        recorder.events.append(ev.RaceEnded(at_s=recorder.at_s, scenario=scenario.id, **ended))
        if scenario is base:
            verdict = decide(Report.of(recorder.events), PRODUCTS)
            recorder.events.append(ev.VerdictReached(at_s=recorder.at_s, verdict=verdict))
    raced = Report.of(recorder.events).rows
    measured = [
        Measured(float(row.candidates[0].case.params["n"]), row.candidates)
        for row in raced.values()
    ]
    found = conclude(measured, "n", whole=True)
    assert found is not None
    at_s = recorder.passed(0.1)
    recorder.events.append(ev.CrossoverFound(at_s=at_s, scenario=base.id, crossover=found))
    return recorder.finish()
