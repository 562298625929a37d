"""scikit-learn's forest and perceptron, through modules that stand in for them."""

import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tasks import losses

from workbench.contract import Case, Setup
from workloads import digits
from workloads._shared.optdigits import TRAINING
from workloads.digits import pictures
from workloads.digits_to_accuracy import WORKLOAD as FIT
from workloads.forest import WORKLOAD as FOREST

NODE = np.dtype([("left_child", int), ("right_child", int), ("feature", int), ("threshold", float)])


class Tree:
    """A tree that is unpickled as scikit-learn's are."""

    def __reduce__(self) -> Any:
        return Tree, (), {"nodes": np.zeros(1, NODE), "values": np.zeros((1, 1, 1))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes, self.values = state["nodes"], state["values"]
        assert len(self.nodes) == len(self.values) == state["node_count"]

    def answer(self, sample: Any) -> float:
        at = 0
        while (node := self.nodes[at])["left_child"] != -1:
            right = sample[node["feature"]] > node["threshold"]
            at = node["right_child" if right else "left_child"]
        return float(self.values[at, 0, 0])


class RandomForestRegressor:
    def __init__(self, count: int, max_depth: int, n_jobs: int | None) -> None:
        self.count, self.n_jobs = count, n_jobs

    def fit(self, data: Any, labels: Any) -> None:
        self.estimators_ = [SimpleNamespace(tree_=Tree()) for _ in range(self.count)]

    def predict(self, batch: Any) -> Any:
        answers = [[each.tree_.answer(sample) for each in self.estimators_] for sample in batch]
        return np.mean(answers, axis=1)


class MLPClassifier:
    """It recognises every digit once it has seen `needed` batches."""

    needed = 1

    def __init__(self, hidden: tuple[int, ...], **settings: Any) -> None:
        self.seen: list[Any] = []
        assert hidden == (128,)
        self.settings, self.loss_ = settings, 1.0

    def set_params(self, **settings: Any) -> None:
        self.settings |= settings

    def partial_fit(self, data: Any, labels: Any, classes: Any) -> None:
        whole = self.settings["shuffle"]  # it makes the batches
        rows = TRAINING if whole else self.settings["batch_size"]
        assert data.shape == (rows, 784) and {*labels} <= {*classes}
        self.seen.append(data)
        self.loss_ = 1 / len(self.seen)

    def predict(self, data: Any) -> Any:
        labels = pictures()[1][TRAINING:]
        return labels if len(self.seen) >= self.needed else np.zeros(len(data))


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, classes in {
        "sklearn": (),
        "sklearn.ensemble": (RandomForestRegressor,),
        "sklearn.neural_network": (MLPClassifier,),
    }.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # for torch's compiler, which looks for it
        vars(module).update({each.__name__: each for each in classes})
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(("trees", "depth"), [(1, 1), (5, 6)])
def test_its_forest_has_the_trees_that_all_candidates_have(trees: int, depth: int) -> None:
    params = {"trees": trees, "depth": depth}
    case = Case("forest", "cpu", "sklearn", "fp32", threads=2, batch=9, params=params)
    task: Any = FOREST.prepare(case, Setup(seed=3))
    task.step()
    assert task.check().passed
    assert task.model.n_jobs == 2
    task.model.estimators_[0].tree_.values += 0.01
    assert not task.check().passed


def test_its_perceptron_takes_a_batch_in_each_step_and_starts_again(monkeypatch) -> None:
    case = Case("digits", "cpu", "sklearn", "fp32", threads=1, batch=700)
    task: Any = digits.WORKLOAD.prepare(case, Setup(seed=0))
    monkeypatch.setattr(MLPClassifier, "needed", 20 * (TRAINING // 64))
    assert task.check().passed
    found = losses(task, 2 * digits.EPOCHS + 1)  # two steps an epoch
    assert found[0] == found[-1] == 1 > found[-2]
    assert np.array_equal(task.model.seen[0], task.data[next(digits.shuffled(700, 0))])
    monkeypatch.setattr(MLPClassifier, "needed", 1 + 20 * (TRAINING // 64))
    assert not task.check().passed


def test_a_whole_fit_ends_at_the_accuracy_that_its_weights_have(monkeypatch) -> None:
    case = Case("digits_to_accuracy", "cpu", "torch", "fp32", None, 1, 64, params={"target": 0.9})
    trained: Any = FIT.prepare(case, Setup(seed=0))
    trained.step()
    task: Any = FIT.prepare(replace(case, backend="sklearn"), Setup(seed=0))
    monkeypatch.setattr(MLPClassifier, "needed", 3)
    weights, biases = zip(*trained.weights(), strict=True)
    monkeypatch.setattr(MLPClassifier, "coefs_", [each.T for each in weights], raising=False)
    monkeypatch.setattr(MLPClassifier, "intercepts_", biases, raising=False)
    assert task.check().passed
    assert task.metrics() == {"epochs": 3, "test_accuracy": 1.0}
    monkeypatch.setattr(MLPClassifier, "coefs_", [-each.T for each in weights])
    assert not task.check().passed
