"""Every failure of a part is data in the report, with a reason; the other cases go on."""

import json

import pytest
from support import budget

TROUBLES = {
    "die": "worker_died",
    "raise": "failed",
    "wrong": "wrong_result",
    "nan": "non_finite",
    "prepare": "unsupported",
    "hang": "budget",
    "allocate": "no_memory",
    "instant": "impossible_rate",
}


@pytest.mark.parametrize(
    ("troubles", "idle_s", "code"),
    [
        (["die", "raise", "wrong", "nan", "allocate", "instant"], 9, 1),
        (["prepare"], 3, 0),  # it says that it cannot, which is no failure
        pytest.param(["hang"], 8, 0, marks=pytest.mark.campaign),  # cut off after five seconds
    ],
)
def test_trouble_in_one_case_is_told_and_costs_no_other(cli, troubles, idle_s, code) -> None:
    listed = ",".join(troubles)
    done = cli("run", "spin", *budget(idle_s), "--json", "--set", f"trouble={listed}")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["status"] == "done"
    found = {
        (measured["case"]["params"]["trouble"], measured["case"]["precision"]): measured
        for measured in document["measurements"]
    }
    for trouble in troubles:
        fp32, bf16 = found[trouble, "fp32"], found[trouble, "bf16"]
        assert fp32["status"] == ("failed" if code else "skipped")
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
