"""The libraries of boosted trees in the race: `make test-backends` installs them."""

import pytest
from support import printed

from workloads.train_trees import on_gpu

NAMES = ("sklearn", "xgboost", "lightgbm")
for name in NAMES:
    pytest.importorskip(name, reason="make test-backends installs it")


def test_they_fit_the_same_table_to_the_same_accuracy(cli) -> None:
    done = cli("advise", "tabular", "--quick", "--budget", "100", "--json")
    document = printed(done)
    found = {m["case"]["backend"]: m for m in document["measurements"]}
    assert {*found} == {*NAMES}
    assert all(m["status"] == "ok" and m["n"] for m in found.values())
    scores = [m["accuracy"]["value"] for m in found.values()]
    assert max(scores) - min(scores) < 0.02
    assert document["verdicts"][0]["choice"] == "cpu"


@pytest.mark.parametrize("workload", ["forest", "digits", "digits_to_accuracy"])
def test_scikit_learn_races_where_torch_does(cli, workload: str) -> None:
    libraries = ("--backend", "sklearn", "--backend", "torch")
    done = cli("run", workload, *libraries, "--quick", "--budget", "40", "--json")
    document = printed(done)
    assert {m["case"]["backend"] for m in document["measurements"]} == {"sklearn", "torch"}
    for found in document["measurements"]:
        assert found["status"] == "ok" and found["n"] and found["accuracy"]["passed"]
    assert "untested_version" not in {warning["code"] for warning in document["warnings"]}


def test_xgboost_says_where_it_trained() -> None:
    import numpy as np
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=2, tree_method="hist", device="cuda:0", verbosity=0)
    model.fit(np.random.default_rng(0).random((50, 4)), np.arange(50) % 2)
    assert on_gpu(model) == bool(xgboost.build_info()["USE_CUDA"])
