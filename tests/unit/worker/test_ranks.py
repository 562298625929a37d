"""The rank of this process, from torchrun's variables and from Slurm's."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from workbench import catalog
from workbench.contract import Case
from workbench.pool.pool import _other_ranks
from workbench.worker.launcher import LaunchedRank, launch_of, ranks_here
from workbench.worker.ranks import complete

STEP = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"},
            LaunchedRank("torchrun", 1, 4),
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, LaunchedRank("RANK and WORLD_SIZE", 0, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "0"}, None),
        ({"RANK": "first", "WORLD_SIZE": "2"}, None),
        (STEP, LaunchedRank("srun", 1, 4)),
        # A batch script runs once, whatever the number of tasks of its job.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        # torchrun under srun: its own variables count.
        ({**STEP, "RANK": "0", "WORLD_SIZE": "1"}, None),
    ],
)
def test_the_launcher_is_found(environment: dict[str, str], expected: LaunchedRank | None) -> None:
    assert launch_of(environment) == expected


@pytest.mark.parametrize(
    ("environment", "world", "here"),
    [
        ({}, 4, 4),
        ({"RANK": "1", "WORLD_SIZE": "64", "LOCAL_WORLD_SIZE": "8"}, 64, 8),
        ({"RANK": "1", "WORLD_SIZE": "64", "LOCAL_WORLD_SIZE": "8"}, 2, 2),
        ({"RANK": "1", "WORLD_SIZE": "64"}, 64, 64),
        ({"RANK": "1", "WORLD_SIZE": "64", "LOCAL_WORLD_SIZE": "many"}, 64, 64),
        ({**STEP, "SLURM_STEP_NUM_NODES": "3"}, 4, 2),
    ],
)
def test_only_the_ranks_of_this_machine_share_its_memory(
    environment: dict[str, str], world: int, here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ranks_here(environment, world) == here
    monkeypatch.setattr(os, "environ", environment)
    scaling = catalog.load("scaling")
    params = scaling.values({})
    case = Case("scaling", "cpu", "torch", "fp32", batch=64, params=params, tuning={"world": world})
    one = scaling.work(replace(case, device="cuda:0")).memory_bytes - 1e9 + 250e6
    assert scaling.work(case).memory_bytes == pytest.approx(here * one)


def test_slurm_variables_become_torch_variables() -> None:
    environment = {
        **STEP,
        "SLURM_STEP_NUM_NODES": "3",
        "SLURM_STEP_NODELIST": "node[003-004,9],gpu1",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "2",
    }
    assert complete(environment) == []
    assert environment["RANK"] == "1"
    assert environment["WORLD_SIZE"] == "4"
    assert environment["LOCAL_RANK"] == "1"
    assert environment["MASTER_ADDR"] == "node003"
    assert 10_000 <= int(environment["MASTER_PORT"]) < 30_000
    again = {**environment, "SLURM_STEP_ID": "3"}
    del again["MASTER_PORT"], again["RANK"]
    complete(again)
    assert again["MASTER_PORT"] != environment["MASTER_PORT"]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu1,gpu2", "gpu1"), ("a[7,9]", "a7"), ("n[01-02]-ib[5-6],x", "n01-ib5"), ("solo", "solo")],
)
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    environment = {**STEP, "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_NODELIST": nodes}
    complete(environment)
    assert environment["MASTER_ADDR"] == first


def test_variables_of_the_user_stay_and_missing_ones_are_named() -> None:
    environment = {**STEP, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    complete(environment)
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert complete({"RANK": "0", "WORLD_SIZE": "2"}) == ["MASTER_ADDR", "MASTER_PORT"]


def test_other_ranks_of_the_launcher_belong_to_the_run() -> None:
    siblings = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) for _ in range(2)]
    try:
        found = _other_ranks([siblings[0].pid])
        assert {os.getpid(), *(s.pid for s in siblings)} <= set(found)
    finally:
        for sibling in siblings:
            sibling.communicate(b"\n")
