"""Runs of the user's own code as lists of events: a gallery of what can come out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
from builders import events, scenario, steady

from workbench.advisor.own.overview import share_sentence
from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.code import (
    CalledModule,
    CodeAdvice,
    CodeFacts,
    CodeInput,
    SavedCode,
)
from workbench.records.document import AccuracyResult
from workbench.records.reason import Reason
from workbench.report.report import Report

Events = list[ev.AnyEvent]

LIMITS = {"fp32": 1e-4, "bf16": 0.01, "fp16": 0.01, "int8": 0.02}  # the last is the row's own
BROKEN = Reason("user_code", "net.py:build raised ValueError: no weights", "mend it, run it again")
ENDED = {"status": "done", "finished_at": "2026-11-22T00:01:00.000Z", "exit_code": 0}


def case(label: str, batch: int | None = 1, code: str = "net.py:build", **tuning: object) -> Case:
    """`cpu/torch/bf16/nhwc/t2` as a case."""
    device, backend, precision, *rest = label.split("/")
    precision, _, quantization = precision.partition("-")
    precision = "" if backend in ("python", "command") else precision
    threads = int(rest.pop()[1:]) if rest and rest[-1][1:].isdigit() else None
    return Case(
        "own",
        device,
        backend,
        precision,
        quantization or None,
        threads,
        batch,
        {"code": code},
        rest[0] if rest else None,
        tuning,  # type: ignore[arg-type]
    )


def row(title: str, batch: int | None = None) -> Scenario:
    return scenario(
        id="own" if batch is None else f"own[batch={batch}]",
        title=title,
        question="Where and how should this code run?",
        textbook="",
        workload="own",
        objective="latency",
        precisions=("fp32", "tf32", "bf16", "fp16", "int8"),
        reference_only=(),
        max_error=0.02,
        modes=None,
        params={},
    )


def raced(
    planned: Scenario,
    times: Mapping[Case, float],
    errors: Mapping[str, float],
    gpus: Sequence[str] = (),
    resident: Mapping[str, float] | None = None,
) -> Events:
    """The race of one row, its errors by label; one above its limit leaves after a block."""
    blocks = {c: steady(seconds) for c, seconds in times.items()}
    over = {c for c in times if errors.get(c.label, 0.0) > LIMITS.get(c.precision, 0.0)}
    blocks |= {c: blocks[c][:1] for c in over}
    first, found = next(iter(times)), list[ev.AnyEvent]()
    for event in events(blocks, gpus=gpus, row=planned):
        if isinstance(event, ev.RacePlanned):
            option = {"python": "function", "command": "command"}.get(first.backend, "torch")
            command = f"workbench advise --{option} {shlex.quote(planned.title)}"
            event = msgspec.structs.replace(event, workload="own", reproduce=command)
        if isinstance(event, ev.CasePrepared):
            this = next(c for c in times if c.id == event.case)
            error, limit = errors.get(this.label), LIMITS.get(this.precision, 0.0)
            result = error and AccuracyResult("relative_error", error, "float64", limit, True)
            event = msgspec.structs.replace(event, accuracy=result or None)
        if isinstance(event, ev.BlockMeasured) and (resident or {}).get(event.case):
            event = msgspec.structs.replace(event, metrics={"resident_s": resident[event.case]})
        if isinstance(event, ev.CaseFinished) and event.case in {c.id for c in over}:
            why = Reason("error_limit", "its error is above the limit")
            event = msgspec.structs.replace(event, reason=why)
        found.append(event)
    return found


def finished(
    facts: CodeFacts,
    races: Sequence[tuple[Scenario, Events]],
    advised: ev.CodeAdvised,
) -> Events:
    """The whole run: the code is examined, every row raced and decided, advice given each time."""
    first = races[0][1]
    found: Events = [*first[:2], ev.CodeExamined(at_s=0.25, facts=facts), *first[2:]]
    for number, (planned, race) in enumerate(races):
        found += race[2:] if number else []
        verdict = decide(Report.of(found), planned)
        found += [ev.VerdictReached(at_s=9.2, verdict=verdict), advised]
    return [*found, ev.RunFinished(at_s=60.0, duration_s=60.0, **ENDED)]  # type: ignore[arg-type]


def advised(snippet: str, **fields: object) -> ev.CodeAdvised:
    """Advice; fields of `CodeAdvice` and of the event by name."""
    event = {k: fields.pop(k) for k in ("left_out", "breaks", "compile_calls") if k in fields}
    advice = CodeAdvice(snippet, **fields)  # type: ignore[arg-type]
    return ev.CodeAdvised(at_s=9.4, advice=advice, **{"left_out": {}, **event})  # type: ignore[arg-type]


# --------------------------------------------------------- a module, six candidates

NET = CodeFacts(
    kind="torch",
    name="net.py:build",
    code_sha256="ab" * 32,
    inputs_sha256="cd" * 32,
    parameters=25_557_032,
    inputs=[CodeInput("x", "float32", [1, 3, 224, 224])],
    batch=1,
    resizable=True,
    step_s=0.0051,
    convolves=True,
    reference="eager in float64",
    floor=2e-7,
    notes=["It was in training mode: a copy in eval mode races."],
)
ERRORS = {
    "cpu/torch/fp32/t2": 2.1e-7,
    "cpu/torch/fp32/t1": 2.1e-7,
    "cpu/torch/bf16/t2": 3.1e-3,
    "cpu/torch/bf16/nhwc/t2": 3.3e-3,
    "cpu/torch/fp32/compile/t2": 1.9e-7,
    "cpu/onnxruntime/int8-static-u8s8/t2": 0.081,
}
MILLISECONDS = {1: (5.1, 8.3, 3.4, 2.8, 4.1, 1.9), 8: (31.0, 55.0, 22.0, 21.0, 18.0, 14.0)}
SNIPPET = """import torch

torch.set_num_threads(2)
model = model.eval().to(memory_format=torch.channels_last)
with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
    output = model(x)"""
NOT_EXPORTED = "torch.export failed: data-dependent branch in forward (net.py:41)"


def _net_races() -> list[tuple[Scenario, Events]]:
    races = []
    for batch, figures in MILLISECONDS.items():
        planned = row("net.py:build", None if batch == 1 else batch)
        cases = [case(label, batch) for label in ERRORS]
        times = {c: ms / 1e3 for c, ms in zip(cases, figures, strict=True)}
        races.append((planned, raced(planned, times, ERRORS)))
    return races


def net() -> Events:
    """A module at two batches, where the answer flips; INT8 is above its limit."""
    advice = advised(
        SNIPPET,
        flips=["At batch 8 torch.compile is ahead: cpu torch fp32 compile t2."],
        saved=SavedCode("best", ["model.pt2", "run.py"]),
        left_out={"onnxruntime fp32": NOT_EXPORTED, "GPU": "none found"},
        breaks=["Tensor.item() at net.py:41", "print at net.py:52", "call of a C function"],
        compile_calls=4_210.0,
    )
    return finished(NET, _net_races(), advice)


def net_racing() -> Events:
    """The same in the middle of the first race."""
    found = net()
    end = next(n for n, e in enumerate(found) if isinstance(e, ev.CaseFinished))
    return found[: end + 20]


# ----------------------------------------------------------- the rest of the gallery


def script() -> Events:
    """A script with three modules, of which the one raced is a fifth of its time."""
    modules = [
        CalledModule("Encoder", 120, 6.2, 0.62, ["[32,512] float32"]),
        CalledModule("fc", 120, 2.0, 0.20, ["[32,512] float32", "[8,512] float32"], chosen=True),
        CalledModule("Head#2", 40, 0.3, 0.03, ["[32,64] float32"]),
    ]
    name = "train.py::fc"
    facts = msgspec.structs.replace(
        NET,
        name=name,
        parameters=2_048,
        inputs=[CodeInput("features", "float32", [32, 512])],
        batch=32,
        convolves=False,
        modules=modules,
        cut=True,
        notes=["train.py did not end: it was cut after 20 s."],
    )
    planned = row(name)
    labels = {"cpu/torch/fp32/t2": 2e-7, "cpu/torch/bf16/t2": 2e-3, "cpu/torch/fp32/t1": 2e-7}
    times = {case(n, 32, name): s for n, s in zip(labels, (4e-3, 4e-4, 6e-3), strict=True)}
    share = share_sentence("fc", 0.2, 10.0)
    advice = advised("torch.set_num_threads(2)", share=share, left_out={"GPU": "none found"})
    return finished(facts, [(planned, raced(planned, times, labels))], advice)


def function() -> Events:
    """A function that is best as it is written."""
    name = "stats.py:work"
    facts = CodeFacts("function", name, "ab" * 32, "cd" * 32, batch=None)
    planned = row(name)
    times = {
        case("cpu/python/fp32/t2", None, name): 0.1,
        case("cpu/python/fp32/t1", None, name): 0.13,
    }
    return finished(facts, [(planned, raced(planned, times, {}))], advised("work()"))


def command() -> Events:
    """A command over two axes."""
    name = "python train.py --device {device} --workers {workers}"
    facts, planned = CodeFacts("command", name, "ab" * 32, ""), row(name)
    seconds = {("cpu", 0): 4.1, ("cpu", 2): 2.7, ("cpu", 4): 2.9}
    plain = case("cpu/command/fp32", None)
    times = {
        replace(plain, params={}, tuning={"device": device, "workers": workers}): s
        for (device, workers), s in seconds.items()
    }
    advice = advised("python train.py --device cpu --workers 2")
    return finished(facts, [(planned, raced(planned, times, {}))], advice)


def gpu() -> Events:
    """A GPU that wins, with the times of calls whose inputs are there already."""
    planned = row("net.py:build")
    labels = {"cpu/torch/fp32/t8": 2e-7, "cuda:0/torch/fp32": 3e-7, "cuda:0/torch/fp16/graph": 6e-4}
    cases = [case(label) for label in labels]
    times = dict(zip(cases, (5.1e-3, 3.2e-3, 2.1e-3), strict=True))
    resident = {cases[1].id: 2.4e-3, cases[2].id: 1.4e-3}
    race = raced(planned, times, labels, ["cuda:0"], resident)
    return finished(NET, [(planned, race)], advised('model.to("cuda")'))


def raised() -> Events:
    """The code raised when it was examined: its row has no measurement."""
    planned = row("net.py:build")
    found = events({case("cpu/torch/fp32/t2"): []}, row=planned)
    failed = [
        msgspec.structs.replace(e, status="failed", reason=BROKEN)
        if isinstance(e, ev.CaseFinished)
        else msgspec.structs.replace(e, workload="own")
        if isinstance(e, ev.RacePlanned)
        else e
        for e in found
    ]
    verdict = decide(Report.of(failed), planned)
    end = ev.RunFinished(at_s=3.0, duration_s=3.0, **{**ENDED, "exit_code": 1})  # type: ignore[arg-type]
    return [*failed, ev.VerdictReached(at_s=2.9, verdict=verdict), end]


GALLERY = {
    "net": net,
    "script": script,
    "function": function,
    "command": command,
    "gpu": gpu,
    "raised": raised,
}
