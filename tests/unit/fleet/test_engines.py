"""The engines with fake commands: what Slurm and ssh are asked, and how answers are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest

from workbench.fleet import slurm, ssh
from workbench.fleet.nodes import Node
from workbench.fleet.plan import make_plan
from workbench.fleet.slurm import Slurm
from workbench.planning.request import Request
from workbench.planning.usage import UsageError

GPU = Node("g", 32, 64 << 30, (), ("gpu:a100:4", "nvme:1"), "big")


def plan(shared: bool = False):
    settings = {"per_type": 1, "python": "python", "deadline_s": 60.0}
    return make_plan([GPU], Request(budget_s=30), shared=shared, **settings)


class SubmitException(Exception):  # noqa: N818 - psij's name
    pass


@pytest.fixture
def psij(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A fake psij that keeps what was submitted, and in which environment."""
    seen = SimpleNamespace(specs=[], environments=[], refuses="")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)

    def keep(*arguments: object, **names: object) -> SimpleNamespace:
        return SimpleNamespace(given=arguments, **names)

    class Executor:
        def submit(self, job: SimpleNamespace) -> None:
            seen.environments.append(dict(os.environ))
            if seen.refuses:
                raise SubmitException(seen.refuses)
            seen.specs.append(job.given[0])
            job.native_id = "77"

    made = ModuleType("psij")
    made.JobExecutor = SimpleNamespace(get_instance=lambda *_, **__: Executor())
    made.Job = made.JobAttributes = made.ResourceSpecV1 = keep
    made.JobSpec = keep
    made.SubmitException = SubmitException
    executors = ModuleType("psij.executors.batch.slurm")
    executors.SlurmExecutorConfig = keep
    for name, module in (
        ("psij", made),
        ("psij.executors", ModuleType("psij.executors")),
        ("psij.executors.batch", ModuleType("psij.executors.batch")),
        ("psij.executors.batch.slurm", executors),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return seen


def custom_of(psij: SimpleNamespace) -> dict[str, str]:
    return psij.specs[-1].attributes.custom_attributes


def test_a_job_is_pinned_exclusive_and_limited(psij, tmp_path) -> None:
    engine = Slurm(tmp_path, plan())
    (job,) = plan().jobs
    assert engine.submit(job, tmp_path / "run.sh") == "77"
    assert custom_of(psij) == {
        "slurm.nodelist": "g",
        "slurm.job-name": "workbench-big-32c-a100-4-1",
        "slurm.mem": "0",
        "slurm.gres": "gpu:a100:4",
    }
    spec = psij.specs[-1]
    assert spec.resources.given == (1, None, 1, None)
    assert spec.resources.exclusive_node_use is True
    assert spec.attributes.given[0].total_seconds() == 360
    assert spec.attributes.given[1] == "big"


def test_a_job_of_two_nodes_asks_for_both(psij, tmp_path) -> None:
    both = msgspec.structs.replace(plan().jobs[0], node="g,h", nodes=2)
    Slurm(tmp_path, plan()).submit(both, tmp_path / "run.sh")
    assert psij.specs[-1].resources.given == (2, None, 1, None)
    assert custom_of(psij)["slurm.nodelist"] == "g,h"


def test_a_shared_job_asks_for_its_cores(psij, tmp_path) -> None:
    (job,) = plan(shared=True).jobs
    Slurm(tmp_path, plan(shared=True)).submit(job, tmp_path / "run.sh")
    assert psij.specs[-1].resources.given == (1, None, 1, 32)
    assert psij.specs[-1].resources.exclusive_node_use is False
    assert "slurm.mem" not in custom_of(psij)


def test_nothing_of_an_outer_job_is_handed_on(psij, tmp_path, monkeypatch) -> None:
    for name in ("SLURM_CPU_BIND", "SBATCH_ACCOUNT", "PMIX_RANK", "SLURM_CONF", "HOME"):
        monkeypatch.setenv(name, "x")
    (job,) = plan().jobs
    Slurm(tmp_path, plan()).submit(job, tmp_path / "run.sh")
    (inside,) = psij.environments
    assert {"SLURM_CPU_BIND", "SBATCH_ACCOUNT", "PMIX_RANK"}.isdisjoint(inside)
    assert (inside["SLURM_CONF"], inside["SBATCH_NO_REQUEUE"]) == ("x", "1")


def test_a_refusal_of_slurm_is_one_line(psij, tmp_path) -> None:
    psij.refuses = "sbatch: error: exclusive\nnot allowed\n"
    (job,) = plan().jobs
    with pytest.raises(
        UsageError, match=r"Slurm refuses it: sbatch: error: exclusive\\nnot allowed"
    ):
        Slurm(tmp_path, plan()).submit(job, tmp_path / "run.sh")


def test_without_psij_the_extra_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "psij", None)
    with pytest.raises(UsageError, match=r"install it: pip install 'cpu-gpu-workbench\[fleet\]'"):
        Slurm(tmp_path, plan())


def test_without_squeue_the_machine_is_the_wrong_one(psij, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="there is no squeue here: go where Slurm's commands are"):
        Slurm(tmp_path, plan())


def test_states_are_words_with_reasons(psij, tmp_path, monkeypatch) -> None:
    says = subprocess.CompletedProcess(
        [],
        0,
        "1|RUNNING|None\n 2|PENDING|ReqNodeNotAvail, UnavailableNodes:g|x\n9|FAILED|None\n",
        "",
    )
    monkeypatch.setattr(slurm.subprocess, "run", lambda *_, **__: says)
    engine, (job,) = Slurm(tmp_path, plan()), plan().jobs
    assert engine.states(dict.fromkeys("123", job)) == {
        "1": "RUNNING",
        "2": "PENDING (ReqNodeNotAvail, UnavailableNodes:g|x)",
        "3": "ENDED",
    }
    says.returncode = 1
    assert engine.states({"1": job}) == {}


def ssh_that(monkeypatch: pytest.MonkeyPatch, result: object) -> list[list[str]]:
    """A fake ssh that ends with `result`, and the commands it got."""
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        seen.append(command)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(ssh.subprocess, "run", run)
    return seen


def test_a_host_is_no_option_and_never_asked_for_a_password(monkeypatch) -> None:
    seen = ssh_that(monkeypatch, subprocess.CompletedProcess([], 0, b"ok", b""))
    assert ssh.ask("-oProxyCommand=x", "true") == b"ok"
    assert "BatchMode=yes" in seen[0]
    assert seen[0][-3:] == ["--", "-oProxyCommand=x", "true"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (FileNotFoundError(), "there is no ssh here: install openssh-client"),
        (subprocess.TimeoutExpired("ssh", 60), "desk does not answer within 60 s"),
        (
            subprocess.CompletedProcess([], 255, b"", b"me@desk: Permission denied (publickey).\n"),
            "desk cannot be used over ssh: me@desk: Permission denied (publickey).;"
            " load a key that needs no password",
        ),
        (subprocess.CompletedProcess([], 1, b"", b"\x1b[2J"), "over ssh: \\x1b[2J"),
        (subprocess.CompletedProcess([], 1, b"", b""), "over ssh: no reason given"),
    ],
)
def test_a_host_that_does_not_answer_is_one_line(monkeypatch, result: object, text: str) -> None:
    ssh_that(monkeypatch, result)
    with pytest.raises(UsageError) as error:
        ssh.ask("desk", "true")
    assert text in str(error.value)


def test_a_host_that_is_silent_now_has_no_word(monkeypatch, tmp_path: Path) -> None:
    ssh_that(monkeypatch, subprocess.TimeoutExpired("ssh", 60))
    engine, (job,) = ssh.Ssh(tmp_path), plan().jobs
    assert engine.states({"12": job}) == {}
    engine.cancel({"12": job, "no number": job})
