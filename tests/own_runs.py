"""Runs of the user's own code as lists of events: a gallery of what can come out."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
from builders import changed, events, scenario, steady

from workbench.advisor.own.overview import flips, script_gain
from workbench.advisor.own.snippet import snippet
from workbench.advisor.verdict import decide
from workbench.contract import Accuracy, Case
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.code import CalledModule, CodeAdvice, CodeFacts, CodeInput, SavedCode
from workbench.records.reason import Reason
from workbench.report.report import Report
from workloads.own.function import FIRST

Events = list[ev.AnyEvent]

LIMITS = {"fp32": 1e-4, "bf16": 0.01, "fp16": 0.01, "int8": 0.02}  # the last is the row's own
BROKEN = Reason("user_code", "net:build: ValueError: no weights (net.py:12)")
NET_QUESTION = OwnQuestion("torch", "net:build")
SCRIPT = OwnQuestion("torch", "train.py::fc", arguments=("--epochs", "1"))
FUNCTION = OwnQuestion("function", "stats:work")
COMMAND = OwnQuestion(
    "command",
    "python train.py --device {device} --workers {workers}",
    over=("device=cpu", "workers=0,2,4"),
)
QUESTIONS = (NET_QUESTION, SCRIPT, FUNCTION, COMMAND)
ENDED = {"status": "done", "finished_at": "2026-11-22T00:01:00.000Z", "exit_code": 0}


def case(label: str, batch: int | None = 1, code: str = "net:build", **tuning: object) -> Case:
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
        tuning,
    )


def row(question: OwnQuestion, batch: int | None = None) -> Scenario:
    title = question.scenario().title
    return scenario(
        id="own" if batch is None else f"own[batch={batch}]",
        title=title if batch is None else f"{title} at batch {batch}",
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
    question: OwnQuestion,
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
    command = shlex.join(["workbench", *Request(question=question).arguments()])
    found = events(blocks, gpus=gpus, row=planned)
    found = changed(found, ev.RacePlanned, workload="own", reproduce=command)
    for each in times:
        error, limit = errors.get(each.label), LIMITS.get(each.precision, 0.0)
        result = Accuracy("relative_error", error, "float64", limit, True) if error else None
        found = changed(found, ev.CasePrepared, each, accuracy=result)
        if seconds := (resident or {}).get(each.id):
            found = changed(found, ev.BlockMeasured, each, metrics={"resident_s": seconds})
        if each in over:
            why = Reason("error_limit", "its error is above the limit")
            found = changed(found, ev.CaseFinished, each, reason=why)
    return found


def finished(
    question: OwnQuestion,
    facts: CodeFacts,
    races: Sequence[tuple[Scenario, Events]],
    **further: object,
) -> Events:
    """The whole run: the code is examined, every row raced and decided, advice given each time."""
    first = races[0][1]
    found: Events = [*first[:2], ev.CodeExamined(at_s=0.25, facts=facts), *first[2:]]
    for number, (planned, race) in enumerate(races):
        found += race[2:] if number else []
        verdict = decide(Report.of(found), planned)
        found.append(ev.VerdictReached(at_s=9.2, verdict=verdict))
        found.append(advised(question, Report.of(found), **further))
    return [*found, ev.RunFinished(at_s=60.0, duration_s=60.0, **ENDED)]


def advised(
    question: OwnQuestion,
    report: Report,
    saved: SavedCode | None = None,
    left_out: dict[str, str] | None = None,
    **further: object,
) -> ev.CodeAdvised:
    """The advice of a run; `further` are other fields of the event."""
    own = report.subject_rows[0]
    pick = report.candidates[own.verdict.pick]
    advice = CodeAdvice(
        snippet=snippet(report.code.facts, pick.case, question),
        flips=flips(report, trains=question.train),
        share=script_gain(report, own, pick),
        saved=saved,
    )
    return ev.CodeAdvised(at_s=9.4, advice=advice, left_out=left_out or {}, **further)


# --------------------------------------------------------- a module, six candidates

NET = CodeFacts(
    kind="torch",
    name="net:build",
    code_sha256="ab" * 32,
    inputs_sha256="cd" * 32,
    parameters=25_557_032,
    inputs=[CodeInput("0", "float32", [1, 3, 224, 224], "inputs[0]")],
    batch=1,
    resizable=True,
    step_s=0.0051,
    convolves=True,
    reference="eager in float64",
    floor=2e-7,
    notes=["it was in training mode; its inference is measured in evaluation mode"],
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


def _net_races() -> list[tuple[Scenario, Events]]:
    races = []
    for batch, figures in MILLISECONDS.items():
        planned = row(NET_QUESTION, None if batch == 1 else batch)
        cases = [case(label, batch) for label in ERRORS]
        times = {c: ms / 1e3 for c, ms in zip(cases, figures, strict=True)}
        races.append((planned, raced(NET_QUESTION, planned, times, ERRORS)))
    return races


def net() -> Events:
    """A module at two batches, where the answer flips; INT8 is above its limit."""
    dynamic = "ONNX Runtime does not optimise ConvInteger, which its convolutions would use"
    return finished(
        replace(NET_QUESTION, save_best="best"),
        NET,
        _net_races(),
        saved=SavedCode("best", ["inputs.pt", "model.pt2", "reproduce.py"]),
        left_out={"int8-dynamic": f"{dynamic}; --thorough measures it"},
        breaks=["3x Tensor.item()", "2x print", "1x branch on the values of a tensor"],
        compile_calls=4_210.0,
    )


def net_racing() -> Events:
    """The same in the middle of the first race."""
    found = net()
    end = next(n for n, e in enumerate(found) if isinstance(e, ev.CaseFinished))
    return found[: end + 20]


# ----------------------------------------------------------- the rest of the gallery


def script() -> Events:
    """A script with three modules, of which the one raced is a fifth of its time."""
    modules = [
        CalledModule("Encoder", 120, 6.2, 0.62, ["32x512"]),
        CalledModule("fc", 120, 2.0, 0.20, ["32x512", "8x512"], chosen=True),
        CalledModule("Head#2", 40, 0.3, 0.03, ["32x64"]),
    ]
    name = SCRIPT.target
    facts = msgspec.structs.replace(
        NET,
        name=name,
        parameters=2_048,
        inputs=[CodeInput("0", "float32", [32, 512], "inputs[0]")],
        batch=32,
        convolves=False,
        modules=modules,
        notes=["the script left 1 thread running"],
    )
    planned = row(SCRIPT)
    labels = {"cpu/torch/fp32/t2": 2e-7, "cpu/torch/bf16/t2": 2e-3, "cpu/torch/fp32/t1": 2e-7}
    times = {case(n, 32, name): s for n, s in zip(labels, (4e-3, 4e-4, 6e-3), strict=True)}
    depends = "its control flow or shapes depend on the values of its inputs"
    left_out = {
        "onnx": f"fc cannot be exported: {depends}",
        "compile": "compiling may take 52 s, but only 20 s were left; raise --budget",
    }
    race = raced(SCRIPT, planned, times, labels)
    return finished(SCRIPT, facts, [(planned, race)], left_out=left_out)


def function() -> Events:
    """A function that is best as it is written."""
    name = FUNCTION.target
    facts = CodeFacts("function", name, "ab" * 32, "cd" * 32, precision="", reference=FIRST)
    planned = row(FUNCTION)
    times = {
        case("cpu/python/fp32/t2", None, name): 0.1,
        case("cpu/python/fp32/t1", None, name): 0.13,
    }
    return finished(FUNCTION, facts, [(planned, raced(FUNCTION, planned, times, {}))])


def command() -> Events:
    """A command over two axes."""
    facts = CodeFacts("command", COMMAND.target, "ab" * 32, "", precision="")
    planned = row(COMMAND)
    seconds = {("cpu", "0"): 4.1, ("cpu", "2"): 2.7, ("cpu", "4"): 2.9}
    plain = case("cpu/command/fp32", None)
    times = {
        replace(plain, params={}, tuning={"device": device, "workers": workers}): s
        for (device, workers), s in seconds.items()
    }
    return finished(COMMAND, facts, [(planned, raced(COMMAND, planned, times, {}))])


def gpu() -> Events:
    """A GPU that wins, with the times of calls whose inputs are there already."""
    planned = row(NET_QUESTION)
    labels = {"cpu/torch/fp32/t8": 2e-7, "cuda:0/torch/fp32": 3e-7, "cuda:0/torch/fp16/graph": 6e-4}
    cases = [case(label) for label in labels]
    times = dict(zip(cases, (5.1e-3, 3.2e-3, 2.1e-3), strict=True))
    resident = {cases[1].id: 2.4e-3, cases[2].id: 1.4e-3}
    race = raced(NET_QUESTION, planned, times, labels, ["cuda:0"], resident)
    return finished(NET_QUESTION, NET, [(planned, race)])


def raised() -> Events:
    """The code raised when it was examined: its row has no measurement."""
    planned, command = row(NET_QUESTION), "workbench advise --torch net:build"
    found = events({case("cpu/torch/fp32/t2"): []}, row=planned)
    failed = changed(found, ev.CaseFinished, status="failed", reason=BROKEN)
    failed = changed(failed, ev.RacePlanned, workload="own", reproduce=command)
    verdict = decide(Report.of(failed), planned)
    end = ev.RunFinished(at_s=3.0, duration_s=3.0, **{**ENDED, "exit_code": 1})
    return [*failed, ev.VerdictReached(at_s=2.9, verdict=verdict), end]


GALLERY = {
    "net": net,
    "script": script,
    "function": function,
    "command": command,
    "gpu": gpu,
    "raised": raised,
}
