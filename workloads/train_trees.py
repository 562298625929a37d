"""Gradient boosting on a table: whole fits by scikit-learn, XGBoost and LightGBM."""

import json
from typing import Any

from workbench.contract import (
    Accuracy,
    Case,
    Parameter,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)
from workbench.worker.libraries import np

USED = 4  # columns that decide the class; the others are noise
LEAVES, RATE = 31, 0.1  # LightGBM's defaults, for all libraries
TESTED = 20_000  # rows that no fit sees
SHARE = 0.75  # least accuracy, as a share of the way from guessing the larger class to the best


class TrainTrees(Workload):
    """One step fits `trees` trees of 31 leaves, from a float32 array on the host to a model.
    Binning is part of it.  The class of a row is drawn with a known probability, so the best
    accuracy that any model can have is known as well."""

    name = "train_trees"
    title = "Gradient boosting on a table"
    teaches = "Histograms suit caches: a GPU pays off at many rows only, and libraries differ more."
    parameters = (
        Parameter("rows", 50_000, "rows of the table", minimum=1_000, maximum=100_000_000),
        Parameter("columns", 28, "columns of the table", minimum=USED, maximum=10_000),
        Parameter("trees", 50, "trees of a model", minimum=10, maximum=10_000),
    )
    quick = {"rows": 10_000}
    variants = (
        Variant("cpu", "sklearn", "fp32"),
        Variant("cpu", "xgboost", "fp32"),
        Variant("cpu", "lightgbm", "fp32"),
        Variant("gpu", "xgboost", "fp32"),
    )

    def work(self, case: Case) -> Work:
        rows, columns = int(case.params["rows"]), int(case.params["columns"])
        cells = rows * columns
        return Work(
            flops=None,  # sorting into bins and adding to histograms
            bytes_moved=None,
            items=rows,
            item="rows",
            memory_bytes=cells * (4.0 + 8.0 + 1.0) + 100.0 * rows,  # scikit-learn copies to float64
            transfers="step",
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        return Fit(case, setup)


class Fit(Task):
    waits = finishes = True

    def __init__(self, case: Case, setup: Setup) -> None:
        self.case, self.seed = case, setup.seed
        with setup.phase("build"):
            self.data, self.labels, _ = table(case, int(case.params["rows"]), setup.seed)
        self.model: Any = None

    def step(self) -> None:
        self.model = classifier(self.case, self.seed)
        self.model.fit(self.data, self.labels)

    def check(self) -> Accuracy:
        self.step()
        if self.case.computes_on != "cpu" and not on_gpu(self.model):
            text = f"XGBoost finds no {self.case.device} and trained on the CPU instead"
            raise WorkloadError(text, code="provider_fallback", hint="see `workbench doctor`")
        data, labels, chance = table(self.case, TESTED, self.seed + 1)
        best, least = float(np.maximum(chance, 1 - chance).mean()), float(labels.mean())
        least = max(least, 1 - least)
        found = float((self.model.predict(data) == labels).mean())
        floor = least + SHARE * (best - least)
        reference = f"{TESTED} other rows; the best possible accuracy is {best:.3f}"
        return Accuracy("test_accuracy", found, reference, floor, found >= floor)


def table(case: Case, rows: int, seed: int) -> tuple[Any, Any, Any]:
    """Data (rows, columns), the classes 0 and 1, and the probability of class 1 of each row."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((rows, int(case.params["columns"])), dtype=np.float32)
    a, b, c, d = data[:, :USED].astype(np.float64).T
    chance = 1 / (1 + np.exp(-4 * (np.sin(2 * a) + a * b + np.abs(c) - 0.8 + 0.5 * d)))
    return data, (rng.random(rows) < chance).astype(np.int8), chance


def classifier(case: Case, seed: int) -> Any:
    """An untrained model with the same number, size and rate of trees in every library."""
    trees, threads = int(case.params["trees"]), case.threads
    common: dict[str, Any] = {"learning_rate": RATE, "random_state": seed}
    if case.backend == "sklearn":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=trees, max_leaf_nodes=LEAVES, early_stopping=False, **common
        )
    common |= {"n_estimators": trees, "n_jobs": threads}
    if case.backend == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(num_leaves=LEAVES, verbosity=-1, **common)
    from xgboost import XGBClassifier

    return XGBClassifier(
        max_leaves=LEAVES,
        max_depth=0,  # only leaves limit a tree, as in the other libraries
        grow_policy="lossguide",
        tree_method="hist",
        device=case.computes_on,
        verbosity=0,
        **common,
    )


def on_gpu(model: Any) -> bool:
    """Whether a model of XGBoost trained on a GPU: without one it warns and takes the CPU."""
    learner = json.loads(model.get_booster().save_config())["learner"]
    return bool(learner["generic_param"]["device"] != "cpu")


WORKLOAD = TrainTrees()
