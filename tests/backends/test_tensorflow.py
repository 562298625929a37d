"""TensorFlow and Keras themselves in the race: `make test-tensorflow` installs them."""

import pytest
from support import printed

from workbench.machine.packages.software import try_packages

for name in ("tensorflow", "keras"):
    pytest.importorskip(name, reason="make test-tensorflow installs it")


def test_they_race_and_train_as_torch_does(cli) -> None:
    libraries = ("--backend", "tensorflow", "--backend", "keras", "--backend", "torch")
    plain = ("--mode", "plain,xla", "--threads", "1,2")
    done = cli("run", "train_mlp_deep", *libraries, *plain, "--quick", "--budget", "80", "--json")
    found = {m["id"].partition("/")[2]: m for m in printed(done)["measurements"]}
    ways = ("tensorflow/fp32", "tensorflow/fp32/xla", "tensorflow/bf16", "keras/fp32", "torch/fp32")
    assert {*found} == {f"cpu/{way}/t{threads}" for way in ways for threads in (1, 2)}
    exact = [m for m in found.values() if m["case"]["precision"] == "fp32"]
    assert all(m["status"] == "ok" and m["n"] and m["accuracy"]["value"] < 1e-4 for m in exact)
    reduced = [m for m in found.values() if m not in exact]  # skipped where it is emulated
    assert all(m["status"] == "skipped" or m["accuracy"]["value"] > 1e-4 for m in reduced)


@pytest.mark.parametrize("workload", ["digits", "digits_to_accuracy"])
def test_tensorflow_learns_the_digits(cli, workload: str) -> None:
    done = cli("run", workload, "--backend", "tensorflow", "--budget", "15", "--json")
    (found,) = printed(done)["measurements"]
    assert found["status"] == "ok" and found["n"] and found["accuracy"]["value"] >= 0.95


def test_replicas_of_mirrored_strategy_train_as_torch_does(cli) -> None:
    worlds = ("--set", "world=1,2", "--set", "width=64", "--batch", "48", "--threads", "2")
    done = cli("run", "scaling", "--backend", "tensorflow", *worlds, "--budget", "30", "--json")
    found = printed(done)["measurements"]
    assert {m["case"]["tuning"]["world"] for m in found} == {1, 2}
    assert all(m["status"] == "ok" and m["n"] and m["accuracy"]["value"] < 1e-4 for m in found)


def test_the_doctor_sees_it_compute() -> None:
    found = try_packages(["tensorflow"])["tensorflow"]
    assert found.failure is None
    assert found.devices["cpu"] is None
