"""JAX itself in the race: `make test-backends` installs it."""

from dataclasses import replace

import numpy as np
import pytest
from support import printed
from tasks import losses

from workbench.contract import Case, Setup
from workbench.machine.packages.software import try_packages
from workloads import digits, matmul, train_mlp
from workloads._shared.training import train_step

pytest.importorskip("jax", reason="make test-backends installs it")


@pytest.mark.parametrize(
    ("workload", "precisions"),
    [
        ("matmul", {"fp32", "bf16", "fp64"}),
        ("train_mlp", {"fp32"}),
        ("infer_cnn", {"fp32"}),
        ("digits", {"fp32"}),
        ("digits_to_accuracy", {"fp32"}),
    ],
)
def test_it_races_and_computes_right_answers(cli, workload: str, precisions: set[str]) -> None:
    done = cli("run", workload, "--backend", "jax", "--quick", "--budget", "30", "--json")
    measured = printed(done)["measurements"]
    assert {m["case"]["precision"] for m in measured} == precisions
    assert all(m["status"] == "ok" and m["n"] and m["accuracy"]["passed"] for m in measured)
    assert all(m["setup"]["compile_s"] > 0 for m in measured)


def test_cases_of_one_process_keep_their_own_precision() -> None:
    tasks = [
        matmul.WORKLOAD.prepare(
            Case("matmul", "cpu", "jax", precision, threads=1, params={"n": 64}), Setup()
        )
        for precision in ("fp64", "fp32")
    ]
    for task in (*tasks, *tasks):
        task.activate()
        found = task.check()
        assert found.passed
        assert (found.value < 1e-12) == (task is tasks[0])


def test_each_training_starts_from_the_same_weights() -> None:
    params = {"samples": 200, "steps": 5}
    case = Case("train_mlp", "cpu", "jax", "fp32", threads=1, params=params)
    first, second = losses(train_mlp.WORKLOAD.prepare(case, Setup()), 2)
    assert first == second


def test_digits_train_as_in_torch_and_start_again() -> None:
    case = Case("digits", "cpu", "jax", "fp32", threads=1, batch=700)
    task = digits.WORKLOAD.prepare(case, Setup())
    found = losses(task, 2 * digits.EPOCHS + 1)  # two steps an epoch
    assert found[0] == found[-1] > found[-2]
    state = task.initial
    rows = np.arange(64)
    expected = digits.WORKLOAD.prepare(replace(case, backend="torch"), Setup())
    for _ in range(3):
        found, state = task.update(state, *task.data, rows)
        data = expected.pictures[:64], expected.labels[:64]
        right = train_step(expected.network, expected.optimiser, *data)
        assert float(found) == pytest.approx(float(right), rel=1e-4)


def test_the_doctor_sees_it_compute() -> None:
    found = try_packages(["jax"])["jax"]
    assert found.failure is None
    assert found.devices["cpu"] is None
