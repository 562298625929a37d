"""Facts about a user's model, processors and candidates for tests of the engine and advisor."""

from collections.abc import Mapping, Sequence
from typing import Any

import builders
import msgspec
from msgspec.structs import replace

from workbench.advisor.model.candidates import ModelSpace
from workbench.contract import Accuracy, Case, OutputAccuracy, Work
from workbench.records.document import OperatorShare
from workbench.records.machine import Cpu, Isa
from workbench.records.model import Built, ModelFacts
from workbench.report.candidate import Candidate

VNNI = Isa(avx2=True, avx512f=True, avx512_vnni=True, avx_vnni=False, amx_int8=False)
NO_VNNI = Isa(avx2=True, avx512f=False, avx512_vnni=False, avx_vnni=False, amx_int8=False)

# Answers of `inspect`, and the nodes that can be quantised, by kind of model.
KINDS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "cnn": ({"operators": {"Conv": 9, "Relu": 9, "Gemm": 1}}, {"Conv": 9, "Gemm": 1}),
    "mlp": ({"operators": {"Gemm": 3, "Relu": 2}}, {"Gemm": 3}),
    "transformer": ({"operators": {"MatMul": 12, "Softmax": 2}}, {"MatMul": 8}),
    "lstm": ({"operators": {"LSTM": 1}}, {"LSTM": 1}),
    "quantised": (
        {"operators": {"QLinearConv": 3}, "quantised": True, "precision": "int8"},
        {"MatMul": 1},
    ),
    "fp16": ({"operators": {"Conv": 2, "MatMul": 1}, "precision": "fp16"}, {"Conv": 2}),
    "branching": ({"operators": {"If": 1, "Conv": 2}, "control_flow": ["If"]}, {}),
    "plain": ({"operators": {"Add": 2}}, {}),
}


def answer(kind: str = "cnn", **changes: Any) -> dict[str, Any]:
    """The answer of the lab's worker to `inspect`."""
    fields = {
        "file": "net.onnx",
        "sha256": "0" * 64,
        "size_bytes": 1000,
        "ir_version": 8,
        "opset": 17,
        "producer": "",
        "precision": "fp32",
        "parameters": 250,
        "operators": {},
        "control_flow": [],
        "quantised": False,
        "inputs": [
            {
                "name": "x",
                "type": "float32",
                "shape": ["batch", 4],
                "run_shape": [1, 4],
                "values": "random normal",
            }
        ],
        "outputs": [{"name": "y", "type": "float32", "shape": [None, 3]}],
        "batch": 1,
        "samples": 8,
        "calibration_samples": 8,
        "inputs_from": "random",
        "step_s": 0.001,
        "forms": [{"step": "as given", "size_bytes": 1000, "nodes": 3}],
        "multiply_adds": None,
        "weights_bytes": 0,
    }
    return {**fields, **KINDS[kind][0], **changes}


def facts(kind: str = "cnn", **changes: Any) -> ModelFacts:
    return msgspec.convert(answer(kind, **changes), ModelFacts)


def cpu(isa: Isa = VNNI, cores: int = 8, architecture: str = "x86_64", **changes: Any) -> Cpu:
    fields = {"physical_cores": cores, "logical_cores": cores, "effective_cores": cores}
    changed = {**fields, "isa": isa, "architecture": architecture, **changes}
    return replace(builders.machine().cpu, **changed)


ARM = cpu(Isa(neon=True, asimddp=True, bf16=False), architecture="aarch64")


def space(kind: str = "cnn", **changes: Any) -> ModelSpace:
    """Eight cores with VNNI, and the counts 8 and 1."""
    given = {"facts": facts(kind), "products": KINDS[kind][1], "cpu": cpu(), "threads": (8, 1)}
    return ModelSpace(**{**given, **changes})


def case(
    variant: str = "fp32", *, threads: int | None = 8, mode: str | None = None, device: str = "cpu"
) -> Case:
    """`variant` is a label, such as `int8-static-u8s8`."""
    precision, _, quantization = variant.partition("-")
    return Case(
        "model",
        device,
        "onnxruntime",
        precision,
        quantization=quantization or None,
        threads=threads,
        batch=1,
        params={"file": "net.onnx"},
        mode=mode,
    )


def accuracy(value: float, *outputs: tuple[str, float], metric: str = "relative_error"):
    listed = [OutputAccuracy(name, error, None, None, 0, error) for name, error in outputs]
    return Accuracy(metric, value, "the model as given", 1.0, True, listed)


def candidate(
    which: Case,
    step_s: float,
    kernels: Mapping[str, float] | None = None,
    *,
    rounds: int = 8,
    error: float = 1e-6,
    samples: Sequence[Sequence[float]] | None = None,
) -> Candidate:
    """A candidate measured at `step_s` and profiled; `kernels` are seconds of one run by name."""
    blocks = samples if samples is not None else builders.steady(step_s, rounds)
    steps = 10
    operators = [
        OperatorShare(name, steps, seconds * steps, 0.0)
        for name, seconds in (kernels or {}).items()
    ]
    return Candidate(
        case=which,
        scenario="model",
        objective="latency",
        work=Work(None, None, 1.0, "samples", 0.0),
        state="ok",
        accuracy=accuracy(error),
        blocks=[builders.block(which, number, found) for number, found in enumerate(blocks)],
        operators=operators,
        profiled_steps=steps,
    )


def built(recipe: str, **changes: Any) -> Built:
    return Built(recipe, 0.1, **changes)
