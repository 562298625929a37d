"""A run of `advise --model` on a made-up machine: engine, lab and advisor are the real ones, while
the lab's child and the timings are invented."""

from dataclasses import asdict
from itertools import takewhile
from typing import Any

import machines
import msgspec
from msgspec.structs import replace
from recorded_model import BUILT, FACTS, FILE
from scenes import made_once, until
from simulated_run import SimulatedMachine, SimulatedPool, run

from workbench import catalog
from workbench.contract import Case, OutputAccuracy
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.worker.recipe import Recipe

FLOAT = {"Conv": 0.84, "Clip": 0.03, "Add": 0.04, "ReorderInput": 0.02, "Gemm": 0.02}
STATIC = {
    "QLinearConv": 0.66,
    "QLinearAdd": 0.06,
    "QuantizeLinear": 0.05,
    "DequantizeLinear": 0.02,
    "QGemm": 0.02,
    "QLinearGlobalAveragePool": 0.01,
}
DYNAMIC = {"ConvInteger": 0.71, "DynamicQuantizeLinear": 0.09, "Mul": 0.09, "Cast": 0.06}
# By quantisation: milliseconds of a run on two threads, error, top-1 agreement, share by kernel.
FORMS: dict[str | None, tuple[float, float, float, dict[str, float]]] = {
    None: (4.41, 1.6e-7, 1.0, FLOAT),
    "static-u8s8-channel": (2.29, 0.0091, 0.875, STATIC),
    "static-u8s8": (2.02, 0.0342, 0.625, STATIC),
    "static-u8s8-mixed": (2.63, 0.0163, 0.875, {**STATIC, "QLinearConv": 0.48, "Conv": 0.22}),
    "dynamic": (16.3, 0.0124, 0.875, DYNAMIC),
}
BUILD_S = {built.recipe: built.seconds for built in BUILT}
MIXED_NODES = ("features.0.0/Conv", "features.1.conv.0/Conv", "classifier.1/Gemm")


class SimulatedLab(SimulatedPool):
    """Also answers as the lab's child, which reads, quantises and saves models."""

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        if key.backend == catalog.LAB:
            self.control.check()
            answer = getattr(self, f"lab_{request['op']}")(request)
            return Answer(msgspec.convert(answer, kind), False)
        return super().ask(key, deadline_s, kind, **request)

    def step_s(self, case: Case) -> float:
        slower = 1.0 if case.threads == 2 else 1.79
        return FORMS[case.quantization][0] * 1e-3 * slower * (1.35 if case.mode else 1.0)

    def memory_bytes(self, case: Case) -> int:
        return 61_000_000 if case.quantization else 92_000_000

    def accuracy(self, case: Case) -> dict[str, Any]:
        _, error, top1, _ = FORMS[case.quantization]
        logits = ("logits", error, 1 - error**2 / 2, top1, 5, error * 1.3)
        features = ("features", 0.7 * error, 1 - error**2 / 4, None, 2, 0.9 * error)
        return {
            "metric": "relative_error",
            "value": error,
            "reference": "the model as given, not optimised, on 8 inputs",
            "limit": 1.0,
            "passed": True,
            "outputs": [asdict(OutputAccuracy(*output)) for output in (logits, features)],
        }

    def profile(self, request: dict[str, Any]) -> dict[str, Any]:
        case, steps = self.cases[request["case"]], request["steps"]
        shares = FORMS[case.quantization][3]
        step_s = self.step_s(case)
        operators = [
            {"name": name, "calls": steps, "self_s": share * step_s * steps}
            for name, share in shares.items()
        ]
        total_s = sum(operator["self_s"] for operator in operators)
        return {"operators": operators, "total_s": total_s, "fallback_s": 0.0, "events": []}

    # ------------------------------------------------------------------ the child

    def lab_inspect(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 1.4
        return msgspec.to_builtins(FACTS) | {"forms": [], "multiply_adds": None, "weights_bytes": 0}

    def lab_prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 1.1
        return {
            "forms": FACTS.steps,
            "multiply_adds": FACTS.multiply_adds,
            "weights_bytes": FACTS.weights_bytes,
            "products": {"Conv": 52},
        }

    def lab_providers(self, request: dict[str, Any]) -> dict[str, str]:
        return {}

    def lab_build(self, request: dict[str, Any]) -> dict[str, Any]:
        label = Recipe.of(request["recipe"]).label
        built = next(each for each in BUILT if each.recipe == label)
        self.control.at_s += built.seconds
        if built.reason is not None:
            raise WorkerFailed(built.reason)
        return {
            "file": f"{label}.onnx",
            "size_bytes": built.size_bytes,
            "operators": built.operators,
            "coverage": built.coverage,
        }

    def lab_mixed(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 3.2
        recipe = {**request["recipe"], "excluded": MIXED_NODES}
        return {
            "recipe": recipe,
            "file": "mixed.onnx",
            "size_bytes": 4_318_220,
            "operators": {"Conv": 52},
            "coverage": 0.86,
        }

    def lab_save(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"size_bytes": 3_912_403, "difference": 0.0}


QUESTION = ModelQuestion(FILE, save_best="best.onnx")
SCENARIO = replace(QUESTION.scenario(), precisions=("fp32", "fp16", "int8"), batch=FACTS.batch)


@made_once
def done() -> list[ev.AnyEvent]:
    """From the start to the advice."""
    where = SimulatedMachine(*machines.cpu_server(), noise={"model": 0.004})
    return run(Request(question=QUESTION), where, pool=SimulatedLab)


def inspected() -> list[ev.AnyEvent]:
    """The model is read; no row is planned yet."""
    return list(takewhile(lambda event: not isinstance(event, ev.RacePlanned), done()))


def building() -> list[ev.AnyEvent]:
    """The first INT8 form is made while the model as given is raced."""
    number = next(n for n, event in enumerate(done()) if isinstance(event, ev.ModelBuilding))
    return done()[: number + 1]


def midway() -> list[ev.AnyEvent]:
    """Up to the seventh round, in which the mixed form takes part."""
    return until(done(), "model", 6)
