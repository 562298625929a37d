"""Every failure of a part is data in the report, with a reason; the other cases go on."""

from __future__ import annotations

import json

import pytest

TROUBLES = {
    "die": "worker_died",
    "raise": "failed",
    "wrong": "wrong_result",
    "nan": "non_finite",
    "prepare": "unsupported",
    "hang": "timeout",
    "allocate": "no_memory",
    "instant": "impossible_rate",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_in_one_case_is_told_and_costs_no_other(cli, trouble: str) -> None:
    budget = "8" if trouble == "hang" else "4"  # a hang is known as one after five seconds
    done = cli("run", "spin", "--budget", budget, "--json", "--set", f"trouble={trouble}")
    refused = trouble == "prepare"  # it says that it cannot, which is no failure
    assert done.returncode == (0 if refused else 1)
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["status"] == "done"
    fp32, bf16 = document["measurements"]
    assert fp32["status"] == ("skipped" if refused else "failed")
    assert fp32["reason"]["code"] == TROUBLES[trouble]
    assert fp32["reason"]["message"]
    assert bf16["status"] == "ok"
    assert bf16["n"] >= 10


def test_too_little_memory_is_found_before_anything_is_loaded(cli) -> None:
    done = cli("run", "matmul", "--set", "n=65536", "--precision", "fp64", "--json")
    assert done.returncode == 1
    for measured in json.loads(done.stdout)["measurements"]:
        assert measured["status"] == "skipped"
        assert measured["reason"]["code"] == "no_memory"
        assert "GiB" in measured["reason"]["message"]
