"""The table of known difficulty, and a model that must learn it."""

import json
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.contract import Case, Setup, WorkloadError
from workloads._backends.xgboost import BACKEND as XGBOOST
from workloads.train_trees import WORKLOAD, table

PARAMS = {"rows": 2000, "columns": 6, "trees": 10}


def case(backend: str, device: str = "cpu", threads: int | None = 2) -> Case:
    return Case("train_trees", device, backend, "fp32", threads=threads, params=PARAMS)


class Model:
    """A library's classifier that answers with what `knows` makes of the data."""

    made: dict[str, Any]
    knows: Any

    def __init__(self, **settings: Any) -> None:
        type(self).made = settings

    def fit(self, data: Any, labels: Any) -> None:
        assert data.dtype == np.float32 and {*labels} == {0, 1}

    def predict(self, data: Any) -> Any:
        return type(self).knows(data)


@pytest.fixture
def library(monkeypatch) -> type[Model]:
    module = ModuleType("xgboost")
    module.XGBClassifier = Model
    monkeypatch.setitem(sys.modules, "xgboost", module)
    return Model


def test_classes_are_drawn_with_the_probability_that_is_returned() -> None:
    data, labels, chance = table(case("xgboost"), 50_000, 1)
    assert data.shape == (50_000, 6)
    for low in (0.0, 0.25, 0.5, 0.75):
        rows = (chance >= low) & (chance < low + 0.25)
        assert labels[rows].mean() == pytest.approx(chance[rows].mean(), abs=0.03)
    again = table(case("xgboost"), 50_000, 1)
    assert all((a == b).all() for a, b in zip(again, (data, labels, chance), strict=True))


def test_what_learns_passes_and_what_guesses_does_not(library) -> None:
    truth = {}

    def best(data: Any) -> Any:
        return truth[data.shape] > 0.5

    task = WORKLOAD.prepare(case("xgboost"), Setup(seed=0))
    data, labels, chance = table(case("xgboost"), 20_000, 1)
    truth[data.shape] = chance
    library.knows = best
    found = task.check()
    assert found.passed and found.value == pytest.approx(0.9, abs=0.02)
    library.knows = lambda data: np.ones(len(data))
    assert not task.check().passed
    library.knows = lambda data: labels == 0
    assert not task.check().passed


def test_xgboost_gets_the_device_and_threads_of_its_case(library) -> None:
    library.knows = lambda data: np.ones(len(data))
    for device, threads in (("cpu", 2), ("cuda:1", None)):
        WORKLOAD.prepare(case("xgboost", device, threads), Setup(seed=0)).step()
        assert (library.made["device"], library.made["n_jobs"]) == (device, threads)
        assert library.made["n_estimators"] == 10


def test_memory_grows_with_the_table() -> None:
    small, large = (
        WORKLOAD.work(Case("train_trees", "cpu", "sklearn", "fp32", params={**PARAMS, "rows": n}))
        for n in (1000, 10_000)
    )
    assert large.memory_bytes == 10 * small.memory_bytes
    assert large.items == 10_000


@pytest.mark.parametrize(("used", "fails"), [("cuda:0", False), ("cpu", True)])
def test_a_fit_that_fell_back_to_the_cpu_is_no_result(library, used: str, fails: bool) -> None:
    config = json.dumps({"learner": {"generic_param": {"device": used}}})
    library.get_booster = lambda self: SimpleNamespace(save_config=lambda: config)
    library.knows = staticmethod(lambda data: np.zeros(len(data)))
    task = WORKLOAD.prepare(case("xgboost", "cuda:0", None), Setup())
    with pytest.raises(WorkloadError) if fails else nullcontext() as found:
        task.check()
    assert not fails or found.value.code == "provider_fallback"


def test_a_build_without_cuda_does_not_start_on_a_gpu(library) -> None:
    built = {"USE_CUDA": False}
    sys.modules["xgboost"].build_info = lambda: built
    sys.modules["xgboost"].__version__ = "3.2.0"
    with pytest.raises(WorkloadError, match=r"XGBoost 3\.2\.0 has no CUDA"):
        XGBOOST.start("cuda:0")
    built["USE_CUDA"] = True
    XGBOOST.start("cuda:0")
