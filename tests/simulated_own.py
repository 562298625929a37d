"""A run of `advise --torch` on a made-up machine: engine, search and advisor are the real ones,
while the workers' answers and the timings are invented."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import machines
from simulated_lab import SimulatedLab
from simulated_run import SimulatedMachine, run

from workbench.contract import Case, Work
from workbench.engine import own_exports
from workbench.planning.questions import OwnQuestion
from workbench.planning.request import Request
from workbench.pool.pool import WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason

FACTS: dict[str, Any] = {
    "kind": "torch",
    "name": "shop.model:build",
    "code_sha256": "c0de" * 16,
    "inputs_sha256": "da7a" * 16,
    "parameters": 3_504_872,
    "inputs": [{"name": "0", "type": "float32", "shape": [1, 3, 224, 224]}],
    "batch": 1,
    "resizable": True,
    "step_s": 0.021,
    "convolves": True,
    "reference": "eager in float64",
    "floor": 4.1e-7,
}
DIED = Reason("worker_died", "the worker process died", "look at its log")
GPU_S = 0.009
EXPORT_S, BUILD_S, BREAKS_S = 4.2, 0.9, 1.1
# Milliseconds of a call at batch 1 with all threads, and the relative error, by way.
WAYS: dict[tuple[str, str, str | None], tuple[float, float]] = {
    ("torch", "fp32", None): (21.0, 4.1e-7),
    ("torch", "fp32", "nhwc"): (19.1, 4.3e-7),
    ("torch", "bf16", None): (15.4, 0.0061),
    ("torch", "bf16", "nhwc"): (11.8, 0.0062),
    ("torch", "fp16", None): (18.2, 0.0008),
    ("torch", "fp16", "nhwc"): (16.5, 0.0008),
    ("torch", "fp32", "compile"): (16.9, 4.4e-7),
    ("torch", "bf16", "compile"): (12.9, 0.0060),
    ("torch", "fp16", "compile"): (17.0, 0.0008),
    ("onnxruntime", "fp32", None): (12.4, 4.6e-7),
    ("onnxruntime", "int8", None): (6.3, 0.0124),
}
_SCRATCH = tempfile.TemporaryDirectory(prefix="workbench-simulated-")  # removed at the end
LARGE = {"onnxruntime": 7.4, "torch": 5.1}  # time of batch 8 over that of batch 1


def way(case: Case) -> tuple[float, float]:
    """The milliseconds and error of a case; options of ONNX Runtime share those of its variant."""
    mode = None if case.backend == "onnxruntime" else case.mode
    return WAYS[case.backend, case.precision, mode]


class SimulatedOwn(SimulatedLab):
    """Also answers what is asked about the user's module."""

    facts: ClassVar[dict[str, Any]] = FACTS
    failures: ClassVar[dict[str, Reason]] = {}  # question to why it fails
    dynamic = True
    size: ClassVar = {"operations": 60, "convolutions": 0}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scratch = Path(tempfile.mkdtemp(dir=_SCRATCH.name))
        self.asked: list[str] = []

    def consult(self, request: dict[str, Any]) -> dict[str, Any]:
        question = request["question"]
        self.asked.append(question)
        if (why := self.failures.get(question)) is not None:
            self.control.at_s += 0.5
            raise WorkerFailed(why)
        answer: dict[str, Any] = getattr(self, f"consult_{question}")(request)
        return answer

    def consult_examine(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += 1.3
        return self.facts

    def consult_export(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += EXPORT_S
        return {"model": "model.onnx", "dynamic": self.dynamic, **self.size}

    def consult_breaks(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += BREAKS_S
        return {"reasons": ["2x Tensor.item()"], **self.size}

    def consult_save(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"files": ["model.onnx", "reproduce.py"]}

    def lab_build(self, request: dict[str, Any]) -> dict[str, Any]:
        self.control.at_s += BUILD_S
        size = {"size_bytes": 3_700_000, "operators": {"QLinearConv": 52}, "coverage": 0.98}
        return {"file": "int8.onnx", **size}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["case"].is_compiled:
            self.control.at_s += 9.0
        return super().prepare(request)

    def work(self, case: Case) -> Work:
        return Work(None, None, items=case.batch or 1, item="samples", memory_bytes=0.0)

    def step_s(self, case: Case) -> float:
        if case.device != "cpu":  # it takes nearly the same time for any batch
            return GPU_S * (1.1 if case.batch == 8 else 1.0)
        slower = {2: 1.0, 1: 1.7}.get(case.threads or 2, 1.0)
        if case.quantization and "channel" not in case.quantization:
            slower *= 1.2
        grown = LARGE[case.backend] if case.batch == 8 else 1.0
        if case.backend == "onnxruntime" and case.mode is not None:
            slower *= 1.05
        return way(case)[0] * 1e-3 * slower * grown

    def memory_bytes(self, case: Case) -> int | None:
        return None

    def accuracy(self, case: Case) -> dict[str, Any]:
        if case.device != "cpu":
            return {**super().accuracy(case), "value": 1e-6, "limit": 1e-4}
        limit = 0.02 if case.precision in ("bf16", "fp16", "int8") else 1e-4
        return {
            "metric": "relative_error",
            "value": way(case)[1],
            "reference": "eager in float64",
            "limit": limit,
            "passed": True,
        }


def raced(
    pool: type[SimulatedOwn] = SimulatedOwn,
    takes: Callable[[Case], float] = lambda _: 1.0,
    failures: Mapping[str, Reason] | None = None,
    facts: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[ev.AnyEvent]:
    """The events of a whole run on two cores with BF16 and VNNI.

    A step of a case takes `takes` times as long, the questions in `failures` fail, and `facts` are
    otherwise than usual.
    """
    changes = {
        "step_s": lambda self, case: pool.step_s(self, case) * takes(case),
        "failures": {**pool.failures, **(failures or {})},
        "facts": {**pool.facts, **(facts or {})},
    }
    changed = type(pool.__name__, (pool,), changes)
    question = options.pop("own", OwnQuestion("torch", "shop.model:build"))
    detected = machines.gpu_server() if options.pop("gpu", False) else machines.cpu_server()
    where = SimulatedMachine(*detected, noise={"own": 0.004})
    with patch.object(own_exports, "knows_compiler", lambda: True):
        return run(Request(question=question, **options), where, pool=changed)
