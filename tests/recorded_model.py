"""A run of `advise --model` as a list of events: a small CNN whose static INT8 form wins.

Times and code are made up but plausible; ratios, verdict and explanations are the engine's own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.advisor.model.explain import ModelContext, explain
from workbench.advisor.verdict import decide
from workbench.contract import Case, OutputAccuracy, Work
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.document import AccuracyResult, OperatorShare, SetupTimes, Tool, WarmUp
from workbench.records.machine import Machine, Software
from workbench.records.model import Advice, Built, ModelFacts, Port, PreparationStep, Saved
from workbench.records.reason import Reason
from workbench.report.report import Report

FILE = "mobilenet_v2.onnx"
LIMIT = 0.02
ROUNDS, JOINED_AT = 8, 3
PROFILED_STEPS = 10
WEAK = (
    "the error was seen on random inputs, which is weak evidence: give real ones with "
    "--inputs data.npz"
)
SNIPPET = """\
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 2
session = ort.InferenceSession('best.onnx', options, providers=['CPUExecutionProvider'])
feeds = {'image': np.zeros((1, 3, 224, 224), 'float32')}  # your data
outputs = session.run(None, feeds)"""
SCENARIO = Scenario(
    id="model",
    title=FILE,
    question="Which form of the model to ship, and where to run it?",
    textbook="",
    workload="model",
    objective="latency",
    precisions=("fp32", "fp16", "int8"),
    max_error=LIMIT,
)
FACTS = ModelFacts(
    file=FILE,
    sha256="c0" * 32,
    size_bytes=13_964_571,
    ir_version=8,
    opset=13,
    producer="pytorch 2.3.1",
    precision="fp32",
    parameters=3_487_816,
    operators={"Conv": 52, "Clip": 35, "Add": 10, "GlobalAveragePool": 1, "Gemm": 1},
    control_flow=[],
    quantised=False,
    inputs=[Port("image", "float32", ["batch", 3, 224, 224], [1, 3, 224, 224], "random normal")],
    outputs=[
        Port("logits", "float32", ["batch", 1000]),
        Port("features", "float32", ["batch", 1280]),
    ],
    batch=1,
    samples=8,
    calibration_samples=8,
    inputs_from="random",
    step_s=0.0061,
    steps=[
        PreparationStep("as given", 13_964_571, 105),
        PreparationStep("opset 13", 13_964_571, 105),
        PreparationStep("simplified", 13_958_340, 99),
        PreparationStep(
            "fused", None, None, Reason("unsupported", "no such pattern in this graph")
        ),
    ],
    multiply_adds=300_774_272,
    weights_bytes=13_811_200,
    max_error=LIMIT,
)


@dataclass(frozen=True)
class PreparedCase:
    """One candidate: how long a run takes, how far off it is, and when and why it leaves."""

    step_s: float
    error: float
    top1: float
    kernels: Mapping[str, float]  # share of a run by kernel
    leaves: tuple[int, str] | None = None  # after so many rounds, by which reason
    joins: int = 0


def _case(quantization: str | None, threads: int) -> Case:
    precision = "fp32" if quantization is None else "int8"
    params = {"file": FILE}
    return Case("model", "cpu", "onnxruntime", precision, quantization, threads, 1, params)


_FLOAT = {"Conv": 0.84, "Clip": 0.03, "Add": 0.04, "ReorderInput": 0.02, "Gemm": 0.02}
_STATIC = {
    "QLinearConv": 0.66,
    "QLinearAdd": 0.06,
    "QuantizeLinear": 0.05,
    "DequantizeLinear": 0.02,
    "QGemm": 0.02,
    "QLinearGlobalAveragePool": 0.01,
}
_MIXED = {**_STATIC, "QLinearConv": 0.48, "Conv": 0.22}
_DYNAMIC = {"ConvInteger": 0.71, "DynamicQuantizeLinear": 0.09, "Mul": 0.09, "Cast": 0.06}
FP32, FP32_ALONE = _case(None, 2), _case(None, 1)
CHANNEL, TENSOR = _case("static-u8s8-channel", 2), _case("static-u8s8", 2)
DYNAMIC, MIXED = _case("dynamic", 2), _case("static-u8s8-mixed", 2)
RUNNERS = {
    FP32: PreparedCase(0.00441, 1.6e-7, 1.0, _FLOAT, (7, "beaten")),
    FP32_ALONE: PreparedCase(0.00788, 1.6e-7, 1.0, _FLOAT, (4, "beaten")),
    CHANNEL: PreparedCase(0.00229, 0.0091, 0.875, _STATIC),
    TENSOR: PreparedCase(0.00221, 0.0342, 0.625, _STATIC, (JOINED_AT, "error_limit")),
    DYNAMIC: PreparedCase(0.0163, 0.0124, 0.875, _DYNAMIC, (2, "beaten")),
    MIXED: PreparedCase(0.00263, 0.0163, 0.875, _MIXED, None, JOINED_AT),
}
FIRST = [case for case, runner in RUNNERS.items() if not runner.joins]
BUILT = [
    Built("int8-static-u8s8-channel", 2.46, 3_912_403, {"Conv": 52}, 0.998),
    Built("int8-static-u8s8", 0.96, 3_774_118, {"Conv": 52}, 0.998),
    Built(
        "int8-static-u8s8-products-channel",
        1.31,
        reason=Reason(
            "bad_model", "ONNX Runtime cannot run it: no kernel for QGemm with this scale", None
        ),
    ),
    Built("int8-dynamic", 0.45, 3_688_512, {"ConvInteger": 52}, 1.0),
]
BUILT_LATER = Built(
    "int8-static-u8s8-mixed",
    6.2,
    4_318_220,
    {"Conv": 52},
    0.86,
    ["features.0.0/Conv", "features.1.conv.0/Conv", "classifier.1/Gemm"],
)


def midway(machine: Machine, software: Software) -> list[ev.AnyEvent]:
    """Up to the fifth round: the mixed form has joined."""
    events = done(machine, software)
    sixth = next(
        n
        for n, event in enumerate(events)
        if isinstance(event, ev.BlockMeasured) and event.round == 5
    )
    return events[:sixth]


def inspected(machine: Machine, software: Software) -> list[ev.AnyEvent]:
    """The model is read, and two of its forms are made."""
    events = done(machine, software)
    planned = next(n for n, event in enumerate(events) if isinstance(event, ev.RacePlanned))
    return events[: planned - 2]


def done(machine: Machine, software: Software) -> list[ev.AnyEvent]:
    """From the start to the advice."""
    at_s = 0.6
    events: list[ev.AnyEvent] = [
        ev.RunStarted(
            at_s=0.2,
            schema_version=1,
            id="20261121-161002-7b1e",
            started_at="2026-11-21T16:10:02Z",
            budget_s=90.0,
            tool=Tool("workbench", "0.1.0", "workbench"),
        ),
        ev.HardwareDetected(at_s=at_s, machine=machine, software=software),
        ev.ModelInspected(at_s=3.1, facts=FACTS),
    ]
    for number, built in enumerate(BUILT):
        events.append(ev.ModelBuilt(at_s=5.0 + 1.5 * number, built=built))
    events += [
        ev.RacePlanned(
            at_s=10.1,
            scenario="model",
            title=FILE,
            question=SCENARIO.question,
            textbook="",
            objective="latency",
            reference_only=[],
            reproduce=f"workbench advise --model {FILE} --save-best best.onnx",
            workload="model",
            cases=FIRST,
            work=_work(FIRST),
        ),
        ev.RaceStarted(at_s=10.2, scenario="model", share_s=62.0),
        ev.WorkerStarted(at_s=10.7, worker="cpu/onnxruntime", pid=4201, import_s=0.4, versions={}),
    ]
    events += [_prepared(case, 11.0 + 0.3 * number) for number, case in enumerate(FIRST)]
    events += _race()
    events += [
        ev.CaseFinished(at_s=70.1, case=case.id, scenario="model", status="ok", reason=None)
        for case, runner in RUNNERS.items()
        if runner.leaves is None
    ]
    events.append(ev.RaceEnded(at_s=70.1, scenario="model", rounds=ROUNDS, ended_by="rounds"))
    verdict = decide(Report.of(events), SCENARIO)
    events.append(ev.VerdictReached(at_s=70.2, verdict=verdict))
    told = [CHANNEL, FP32, TENSOR, DYNAMIC, MIXED]
    events += [_profiled(case, 71.0 + number) for number, case in enumerate(told)]
    events.append(_advised(events, told, machine))
    events.append(
        ev.RunFinished(
            at_s=79.4,
            status="done",
            finished_at="2026-11-21T16:11:21Z",
            duration_s=79.4,
            exit_code=0,
        )
    )
    return events


def _work(cases: Sequence[Case]) -> dict[str, Work]:
    return {case.id: Work(6.0e8, None, 1.0, "samples", 3e7) for case in cases}


def _prepared(case: Case, at_s: float) -> ev.CasePrepared:
    runner = RUNNERS[case]
    outputs = [
        OutputAccuracy(
            "logits", runner.error, 1 - runner.error**2 / 2, runner.top1, 5, runner.error * 1.3
        ),
        OutputAccuracy(
            "features", runner.error * 0.7, 1 - runner.error**2 / 4, None, 2, runner.error * 0.9
        ),
    ]
    reference = "the model as given, not optimised, on 8 inputs"
    return ev.CasePrepared(
        at_s=at_s,
        case=case.id,
        setup=SetupTimes(import_s=0.4, compile_s=0.081),
        accuracy=AccuracyResult("relative_error", runner.error, reference, 1.0, True, outputs),
        warmup=WarmUp(12, 0.1, runner.step_s * 4, True),
        iterations_per_sample=1,
        memory_peak_bytes=61_000_000 if case.quantization else 92_000_000,
    )


def _race() -> list[ev.AnyEvent]:
    noise = random.Random(20261121)
    found: list[ev.AnyEvent] = []
    left = list(FIRST)
    for number in range(ROUNDS):
        at_s = 13.0 + 7.0 * number
        if number == JOINED_AT:
            found += [
                ev.ModelBuilt(at_s=at_s, built=BUILT_LATER),
                ev.CasesJoined(
                    at_s=at_s,
                    scenario="model",
                    cases=[MIXED],
                    work=_work([MIXED]),
                    after=JOINED_AT,
                ),
                _prepared(MIXED, at_s + 0.3),
            ]
            left.append(MIXED)
        drift = noise.gauss(1.0, 0.01)
        for place, case in enumerate(left):
            step_s = RUNNERS[case].step_s * drift
            found.append(
                ev.BlockMeasured(
                    at_s=round(at_s + 0.5 + 0.4 * place, 2),
                    case=case.id,
                    scenario="model",
                    round=number,
                    samples_s=[step_s * noise.lognormvariate(0.0, 0.02) for _ in range(20)],
                    lead_in_s=[],
                    loss=None,
                )
            )
        for case in list(left):
            leaves = RUNNERS[case].leaves
            if leaves is not None and leaves[0] == number + 1:
                left.remove(case)
                found.append(_left(case, leaves[1], at_s + 4.0))
    return found


def _left(case: Case, code: str, at_s: float) -> ev.CaseFinished:
    ratio = RUNNERS[case].step_s / RUNNERS[CHANNEL].step_s if code == "beaten" else None
    message = "its error is above the limit of 2.00%"
    if ratio is not None:
        message = f"{ratio:.3g}x slower than {CHANNEL.label}"
    reason = Reason(code, message)
    return ev.CaseFinished(
        at_s=at_s,
        case=case.id,
        scenario="model",
        status="ok",
        reason=reason,
        beaten_by=CHANNEL.id if ratio else None,
        ratio=ratio,
        ratio_bounds=(ratio * 0.97, ratio * 1.03) if ratio else None,
    )


def _profiled(case: Case, at_s: float) -> ev.CaseProfiled:
    runner = RUNNERS[case]
    total = sum(runner.kernels.values())
    operators = [
        OperatorShare(name, 10, share * runner.step_s * PROFILED_STEPS, share / total)
        for name, share in sorted(runner.kernels.items(), key=lambda each: -each[1])
    ]
    return ev.CaseProfiled(at_s=at_s, case=case.id, operators=operators, steps=PROFILED_STEPS)


def _advised(
    events: Sequence[ev.AnyEvent], told: Sequence[Case], machine: Machine
) -> ev.ModelAdvised:
    report = Report.of(events)
    built = {each.recipe: each for each in [*BUILT, BUILT_LATER]}
    known = ModelContext(FACTS, machine.cpu, LIMIT, built, None)
    candidates = [report.candidates[case.id] for case in told]
    beside = report.candidates[FP32.id]
    left_out = {
        "int8-static-s8s8": "on x86 ONNX Runtime makes signed activations unsigned where it can, "
        "and computes in FP32 elsewhere; --thorough measures it",
        "other calibrations": "ranges by percentile or entropy matter with outliers in real "
        "inputs; --thorough measures them",
    }
    return ev.ModelAdvised(
        at_s=78.8,
        advice=Advice(
            explanations=[
                explain(each, beside, each.case == CHANNEL, known) for each in candidates
            ],
            snippet=SNIPPET,
            weak_evidence=WEAK,
            saved=Saved("best.onnx", 3_912_403, 0.0),
        ),
        left_out=left_out,
    )
