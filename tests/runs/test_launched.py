"""workbench itself started under torchrun: rank 0 speaks, the others follow and stay silent."""

import subprocess
import sys

import pytest
from support import printed

TWO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


@pytest.mark.campaign
def test_torchrun_gives_one_document_and_ends_well(environment) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--standalone", "-m", "workbench",
            "run", "scaling", "--quick", "--budget", "11", "--set", "width=64",
            "--set", "world=2", "--batch", "8", "--json",
        ],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    document = printed(done)
    (measured,) = document["measurements"]
    assert measured["status"] == "ok"
    assert "world=2" in measured["id"]
    assert measured["figures"]["allreduce_bytes_per_s"] > 0
    assert "not_frozen" not in {warning["code"] for warning in document["warnings"]}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "matmul"], "only `run scaling`"),
        (["advise"], "only `run scaling`"),
        (["ceilings", "--again"], "only `run scaling`"),
        (["run", "scaling", "--device", "cpu", "--device", "fake:0"], "one kind of device"),
        (["run", "scaling", "--set", "width=0"], "width"),
    ],
)
def test_the_first_rank_tells_what_is_wrong_and_all_end(cli, arguments, complaint) -> None:
    first = cli(*arguments, **TWO)
    second = cli(*arguments, **{**TWO, "RANK": "1"})
    assert (first.returncode, second.returncode) == (2, 2)
    assert complaint in first.stderr
    assert first.stderr.count("\n") == 1
    assert (first.stdout, second.stdout, second.stderr) == ("", "", "")


def test_a_launcher_that_says_too_little(cli) -> None:
    done = cli("run", "scaling", RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2
    assert "MASTER_ADDR and MASTER_PORT" in done.stderr


def test_more_ranks_than_the_launcher_started(cli) -> None:
    options = ("--set", "world=4", "--backend", "torch", "--device", "cpu")
    done = cli("run", "scaling", "--quick", "--json", *options, **TWO)
    (measured,) = printed(done, 1)["measurements"]
    assert measured["reason"]["code"] == "bad_input"
    assert "started 2 ranks, not 4" in measured["reason"]["message"]
