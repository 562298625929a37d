"""Small ONNX models for the lab's tests, and a lab folder around one."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import model, port

from workbench.worker.recipe import Recipe
from workloads._shared.session import cpu_session
from workloads.lab import agreement, samples
from workloads.lab.child import Lab

ROWS, TOKENS = (4, 16), (2, 6, 16)
STATIC = Recipe("int8", "static")


class Graph:
    """Collects nodes; weights are drawn from a seeded generator."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)

    def add(self, operator: str, *operands: str, outputs: int = 1, **attributes: Any) -> str:
        number = len(self.nodes)
        results = [f"{operator.lower()}_{number}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(operator, operands, results, f"{operator}_{number}", **attributes)
        )
        return results[0]

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 4)
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def model(
        self, shape: Sequence[int | str], result: str, opset: int = 17, *, as_nodes: bool = False
    ) -> Any:
        """A model from `x` to `result`; with `as_nodes`, weights are in Constant nodes."""
        constants = [
            helper.make_node("Constant", [], [weight.name], value=weight) for weight in self.weights
        ]
        nodes = [*constants, *self.nodes] if as_nodes else self.nodes
        weights = [] if as_nodes else self.weights
        return model(nodes, [port("x", shape=shape)], [port(result)], weights, opset=opset)


def convolutional(opset: int = 17, *, as_nodes: bool = False) -> Any:
    graph = Graph()
    x = graph.add("Relu", graph.add("Conv", "x", graph.weight(8, 3, 3, 3), graph.weight(8)))
    x = graph.add("Relu", graph.add("Conv", x, graph.weight(16, 8, 3, 3), graph.weight(16)))
    x = graph.add("Flatten", graph.add("GlobalAveragePool", x))
    x = graph.add("Gemm", x, graph.weight(10, 16), graph.weight(10), transB=1)
    return graph.model(("batch", 3, 16, 16), x, opset, as_nodes=as_nodes)


def perceptron(opset: int = 17) -> Any:
    graph = Graph()
    x = graph.add("Relu", graph.add("Gemm", "x", graph.weight(16, 32), graph.weight(1, 32)))
    x = graph.add("Add", graph.add("MatMul", x, graph.weight(32, 8)), graph.weight(8))
    return graph.model(("batch", 16), x, opset)


def transformer() -> Any:
    """One layer of attention and a norm, over 6 tokens of width 16."""
    graph = Graph()
    query, key, value = (graph.add("MatMul", "x", graph.weight(16, 16)) for _ in range(3))
    scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 2, 1]))
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    x = graph.add("Add", "x", graph.add("MatMul", mixed, graph.weight(16, 16)))
    x = graph.add("LayerNormalization", x, graph.weight(16), graph.weight(16), axis=-1)
    return graph.model(("batch", 6, 16), graph.add("MatMul", x, graph.weight(16, 4)))


def recurrent() -> Any:
    graph = Graph()
    x = graph.add("LSTM", "x", graph.weight(1, 32, 8), graph.weight(1, 32, 8), hidden_size=8)
    x = graph.add("MatMul", x, graph.weight(8, 4))
    return graph.model((5, "batch", 8), x)


def branching() -> Any:
    """A model with all its work inside an If, where static quantisation does not work."""
    graph = Graph()
    weight = graph.weight(16, 8)
    branches = []
    for name in ("then", "else"):
        product = helper.make_node("MatMul", ["x", weight], [name], f"MatMul_{name}")
        branches.append(helper.make_graph([product], name, [], [port(name)]))
    # The condition depends on the data, or it would be folded away.
    positive = graph.add(
        "Greater", graph.add("ReduceMax", "x", keepdims=0), graph.constant(np.float32(0))
    )
    x = graph.add("If", positive, then_branch=branches[0], else_branch=branches[1])
    return graph.model((2, 16), x)


def folder_of(model: Any, folder: Path, shape: Sequence[int], count: int = 4) -> Path:
    """Write `model.onnx` with inputs of `shape` and its answers into `folder`; the model's file."""
    file = folder / "model.onnx"
    onnx.save(model, str(file))
    random = np.random.default_rng(1)
    for name in (samples.INPUTS, samples.CALIBRATION):
        drawn = [[random.standard_normal(shape).astype(np.float32)] for _ in range(count)]
        samples.write(folder / name, drawn)
    session = cpu_session(file)
    answers = agreement.answers(session, samples.read(folder / samples.INPUTS))
    samples.write(folder / samples.REFERENCE, answers)
    return file


def error_of(file: str, folder: Path) -> float:
    """The relative error of a variant against the folder's reference."""
    inputs, right = (samples.read(folder / name) for name in (samples.INPUTS, samples.REFERENCE))
    return agreement.error(cpu_session(file), inputs, right)


def prepared(model: Any, folder: Path, shape: tuple[int, ...]) -> dict[str, Any]:
    return Lab().prepare(str(folder_of(model, folder, shape)), str(folder))


def build(folder: Path, recipe: Recipe) -> dict[str, Any]:
    return Lab().build(str(folder / "model.onnx"), str(folder), asdict(recipe))
