"""A rank that dies ends its case with a reason, within seconds, and leaves nothing behind."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from support import LiveEngine

from workbench.records import events as ev

RUN = ("run", "scaling", "--budget", "60", "--set", "width=64", "--set", "world=2", "--batch", "8")


def ended(engine) -> ev.CaseFinished:
    (finished,) = [e for e in engine.rest() if isinstance(e, ev.CaseFinished)]
    assert engine.process.returncode == 1
    return finished


@pytest.mark.campaign
def test_a_rank_killed_while_it_is_measured(live_engine) -> None:
    engine = live_engine(*RUN, "--device", "cpu")
    engine.until(ev.BlockMeasured)
    family = engine.family()
    ranks = [p for p in family if "workloads._ranks.rank" in p.cmdline()]
    assert len(ranks) == 2
    ranks[0].kill()
    finished = ended(engine)
    assert finished.status == "failed"
    assert finished.reason.code == "rank_died"
    assert "killed by SIGKILL" in finished.reason.message
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.fixture
def under_srun(live_engine, environment) -> Iterator[tuple[LiveEngine, subprocess.Popen[bytes]]]:
    """Rank 0, and the process that follows it."""
    environment |= {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    engine = live_engine(*RUN)
    second = subprocess.Popen(
        [sys.executable, "-m", "workbench", *RUN],
        env={**environment, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield engine, second
    finally:
        second.kill()
        second.wait()


@pytest.mark.campaign
def test_under_srun_a_rank_killed_ends_the_run(under_srun) -> None:
    engine, second = under_srun
    engine.until(ev.BlockMeasured)
    (rank,) = psutil.Process(second.pid).children()
    rank.kill()
    finished = ended(engine)
    output, _ = second.communicate(timeout=10)
    assert (finished.status, finished.reason.code) == ("failed", "rank_died")
    assert "rank 1 of 2 died (killed by SIGKILL)" in finished.reason.message
    assert (second.returncode, output) == (1, b"")


@pytest.mark.campaign
def test_under_srun_a_worker_killed_is_rank_0s_to_report(under_srun) -> None:
    """A launcher would end rank 0 as soon as the other one failed."""
    engine, second = under_srun
    engine.until(ev.BlockMeasured)
    (worker,) = [p for p in engine.family() if "workbench.worker" in " ".join(p.cmdline())]
    worker.kill()
    finished = ended(engine)
    output, _ = second.communicate(timeout=10)
    assert (finished.status, finished.reason.code) == ("failed", "worker_died")
    assert (second.returncode, output) == (0, b"")
