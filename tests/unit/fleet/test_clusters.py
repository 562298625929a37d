"""The clusters with fake commands: what Slurm and ssh are asked, and how answers are read."""

import io
import os
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from workbench.fleet import slurm, ssh
from workbench.fleet.plan import Node, make_plan
from workbench.fleet.slurm import Slurm
from workbench.planning.request import Request
from workbench.planning.usage import UsageError
from workbench.records.fleet import FleetPlan

GPU = Node("g", 32, 64 << 30, (), ("gpu:a100:4", "nvme:1"), "big")


def plan(shared: bool = False):
    settings = {"per_type": 1, "python": "python", "deadline_s": 60.0}
    return make_plan([GPU], Request(budget_s=30), shared=shared, **settings)


@pytest.fixture
def sbatch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A fake Slurm that keeps the options of the latest command, and its environment."""
    seen = SimpleNamespace(options=set(), environment={}, refuses="")

    def run(command: list[str], env: dict[str, str], **_: object):
        seen.options, seen.environment = set(command[1:]), env
        return subprocess.CompletedProcess([], int(bool(seen.refuses)), "77;lab\n", seen.refuses)

    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    monkeypatch.setattr(slurm.subprocess, "run", run)
    return seen


def submit(folder: Path, made: FleetPlan | None = None, **changes: object) -> str:
    """Submit the only job of a plan to Slurm."""
    made = made or plan()
    return Slurm(made).submit(replace(made.jobs[0], **changes), folder / "run.sh")


def test_a_job_is_pinned_exclusive_and_limited(sbatch, tmp_path) -> None:
    assert submit(tmp_path) == "77"
    assert sbatch.options == {
        *("--parsable", "--no-requeue", "--output=/dev/null", "--error=/dev/null", "--time=6"),
        *("--job-name=workbench-big-32c-a100-4-1", "--partition=big", "--nodelist=g", "--nodes=1"),
        *("--ntasks-per-node=1", "--exclusive", "--mem=0", "--gres=gpu:a100:4"),
        str(tmp_path / "run.sh"),
    }


def test_a_job_of_two_nodes_asks_for_both(sbatch, tmp_path) -> None:
    submit(tmp_path, node="g,h", nodes=2)
    assert {"--nodes=2", "--nodelist=g,h", "--ntasks-per-node=1"} <= sbatch.options


def test_a_shared_job_asks_for_its_cores(sbatch, tmp_path) -> None:
    submit(tmp_path, plan(shared=True))
    assert "--cpus-per-task=32" in sbatch.options
    assert sbatch.options.isdisjoint(("--exclusive", "--mem=0"))


def test_nothing_of_an_outer_job_is_handed_on(sbatch, tmp_path, monkeypatch) -> None:
    inherited, own = {"SLURM_CPU_BIND", "SBATCH_CPU_BIND", "PMIX_RANK"}, {"SLURM_CONF", "HOME"}
    own |= {"SBATCH_ACCOUNT", "SBATCH_QOS"}
    for name in inherited | own:
        monkeypatch.setenv(name, "x")
    submit(tmp_path)
    assert inherited.isdisjoint(sbatch.environment)
    assert {sbatch.environment[name] for name in own} == {"x"}


def test_a_refusal_of_slurm_is_one_line(sbatch, tmp_path) -> None:
    sbatch.refuses = "sbatch: error: exclusive\nnot allowed\n"
    refusal = r"Slurm refuses it: sbatch: error: exclusive\\nnot allowed"
    with pytest.raises(UsageError, match=refusal):
        submit(tmp_path)


def test_a_job_without_an_account_is_refused_with_the_remedy(sbatch, tmp_path) -> None:
    sbatch.refuses = "sbatch: error: Invalid account or account/partition combination specified"
    with pytest.raises(UsageError, match="specified; name it by `export SBATCH_ACCOUNT="):
        submit(tmp_path)


def test_without_sbatch_the_machine_is_the_wrong_one(monkeypatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="sbatch was not found: run this where Slurm's comm"):
        Slurm(plan())


def test_states_are_words_with_reasons(sbatch, monkeypatch) -> None:
    listed = "1|RUNNING|None\n 2|PENDING|ReqNodeNotAvail, UnavailableNodes:g|x\n9|FAILED|None\n"
    says = subprocess.CompletedProcess([], 0, listed, "")
    monkeypatch.setattr(slurm.subprocess, "run", lambda *_, **__: says)
    cluster, (job,) = Slurm(plan()), plan().jobs
    assert cluster.states(dict.fromkeys("123", job)) == {
        "1": "RUNNING",
        "2": "PENDING (ReqNodeNotAvail, UnavailableNodes:g|x)",
        "3": "ENDED",
    }
    says.returncode = 1
    assert cluster.states({"1": job}) == {}


def test_a_job_that_scancel_does_not_reach_may_go_on(sbatch, monkeypatch) -> None:
    says = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(slurm.subprocess, "run", lambda *_, **__: says)
    cluster, jobs = Slurm(plan()), dict.fromkeys("12", plan().jobs[0])
    assert cluster.cancel(jobs) == []
    says.returncode = 1
    assert cluster.cancel(jobs) == ["1", "2"]


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
    assert seen[0][-3:] == ["--", "-oProxyCommand=x", "exec sh -c true"]


def test_a_host_understands_whatever_its_login_shell_is(monkeypatch) -> None:
    seen = ssh_that(monkeypatch, subprocess.CompletedProcess([], 0, b"", b""))
    ssh.ask("desk", f'gpus=$(echo "it\'s") && echo $gpus; {ssh.FETCH}')
    monkeypatch.undo()
    assert subprocess.check_output(["sh", "-c", seen[0][-1]]).startswith(b"it's\n")
    assert "\n" not in seen[0][-1], "csh quotes no line break"


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
    cluster, (job,) = ssh.Ssh(tmp_path, plan()), plan().jobs
    assert cluster.states({"12": job}) == {}
    jobs = {"12@desk": job, "no number": job}
    assert cluster.cancel(jobs) == list(jobs)


def test_processes_with_one_number_on_two_hosts_are_two_jobs(monkeypatch, tmp_path: Path) -> None:
    asked = list[tuple[str, str]]()
    monkeypatch.setattr(ssh, "ask", lambda node, text, *_: asked.append((node, text)) or b"17\n")
    cluster, (job,) = ssh.Ssh(tmp_path, plan()), plan().jobs
    nodes = (job, replace(job, node="h"))
    jobs = {cluster.submit(each, tmp_path / "run.sh"): each for each in nodes}
    asked.clear()
    assert cluster.cancel(jobs) == []
    assert asked == [(node, "kill -TERM -17 2>/dev/null; true") for node in "gh"]


class Host:
    """A host of which this machine's shell is that; where the launcher has `here`, it has `there`.

    The script of the only job does nothing but leave a mark.
    """

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.plan: FleetPlan = plan()
        (self.job,) = self.plan.jobs
        self.script = self.here / "jobs" / self.job.name / "run.sh"
        self.script.parent.mkdir(parents=True)
        self.script.write_text(f"#!/bin/sh\nbegun={self.plan.created_at}\n")
        (self.here / "inputs").mkdir()

    def ask(self, _: str, command: str, stdin: bytes = b"") -> bytes:
        command = command.replace(str(self.here), str(self.there))
        done = subprocess.run(["sh", "-c", command], input=stdin, capture_output=True, timeout=30)
        if done.returncode:
            raise UsageError(done.stderr.decode())
        return done.stdout

    def submit(self, plan: FleetPlan) -> str:
        return ssh.Ssh(self.here, plan).submit(self.job, self.script)

    def submitted(self) -> Path:
        """The folder of the job on the host."""
        self.submit(self.plan)
        (place,) = (self.there / "jobs").iterdir()
        return place

    def look(self) -> dict[str, str]:
        return ssh.Ssh(self.here, self.plan).states({"1": self.job})

    def files(self, folder: Path) -> dict[str, str]:
        place = folder / "jobs" / self.job.name
        return {file.name: file.read_text() for file in place.iterdir()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(ssh, "ask", made.ask)
    return made


def test_a_host_gets_the_files_of_its_job_once(host) -> None:
    assert host.submit(host.plan).partition("@")[0].isdecimal()
    assert host.files(host.there) == host.files(host.here)
    host.script.write_text("other")
    assert host.submit(host.plan).partition("@")[0].isdecimal()
    assert host.files(host.there) != host.files(host.here)


def test_a_host_with_another_fleet_in_a_folder_of_that_name_starts_nothing(host) -> None:
    host.submit(host.plan)
    again = replace(host.plan, created_at="2026-01-01T00:00:00+00:00")
    with pytest.raises(UsageError, match=r"another fleet lies in .*there: remove it, or name "):
        host.submit(again)


def test_what_a_job_writes_on_a_host_is_fetched(host) -> None:
    there = host.submitted()
    (there / "log.txt").touch()
    (there / "run.jsonl").write_text('{"event": 1}\n')
    host.look()
    files = host.files(host.here)
    assert files.keys() == {"run.sh", "log.txt", "run.jsonl"}
    assert (files["log.txt"], files["run.jsonl"]) == ("", '{"event": 1}\n')
    (there / "run.jsonl").write_text('{"event": 1}\n{"event": 2}\n')
    (there / "exit_code").write_text("0\n")
    host.look()
    assert host.files(host.here) == host.files(host.there)


def test_the_exit_code_is_read_first_and_written_last(host, monkeypatch) -> None:
    there = host.submitted()
    for name in ssh.FETCHED:
        (there / name).write_text(name)
    written = list[str]()
    monkeypatch.setattr(ssh, "replace", lambda path, content: written.append(content.decode()))
    host.look()
    assert written == ["log.txt", "doctor.json", "run.jsonl", "document.json", "exit_code"]
    assert ssh.FETCHED[0] == "exit_code"


def test_a_file_that_is_too_large_stays_and_those_after_it_come(host, monkeypatch) -> None:
    there = host.submitted()
    (there / "run.jsonl").write_text("x" * 99)
    (there / "log.txt").write_text("log")
    monkeypatch.setattr(ssh, "MOST_BYTES", 50)
    host.look()
    files = host.files(host.here)
    assert files["log.txt"] == "log" and "run.jsonl" not in files


def test_nothing_is_fetched_from_a_host_that_sees_the_folder(host) -> None:
    host.there.symlink_to(host.here)
    place = host.submitted()
    (place / "submitted.json").write_text("{}")
    (place / "run.jsonl").write_text("begun")
    before = (place / "run.jsonl").stat().st_ino
    host.look()
    assert (place / "run.jsonl").stat().st_ino == before  # the job holds it open


def _archive() -> bytes:
    """The first member is a link to another folder, the second a file below it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("log.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("log.txt/authorized_keys"))
    return packed.getvalue()


HOSTILE = {
    "an archive": _archive(),
    "a negative size": b"-1\nabc",
    "a large size": b"9" * 30 + b"\nabc",
    "no number": b"9" * 5000 + b"\n",
    "nothing": b"",
    "no files": b"\n" * 5,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_host_names_no_files(host, monkeypatch, answer: bytes) -> None:
    (host.here / "outside").mkdir()
    before = sorted(host.here.rglob("*"))
    monkeypatch.setattr(ssh, "ask", lambda *_: answer)
    host.look()
    assert sorted(host.here.rglob("*")) == before


@pytest.mark.parametrize(("ends_with", "gpus"), [(9, ()), (0, ("gpu:NVIDIA-SMI says:1",))])
def test_the_failure_of_nvidia_smi_is_no_gpu(tmp_path, monkeypatch, ends_with, gpus) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\necho NVIDIA-SMI says\nexit {ends_with}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["sh", "-c", "; ".join(ssh.PROBE)], capture_output=True, text=True)
    assert (done.returncode, ssh.parse_probe("a", done.stdout).gres) == (0, gpus)


def test_a_processor_without_a_name_is_none() -> None:
    node = ssh.parse_probe("a", "72\n65536 kB\n\nNVIDIA GH200\n")
    assert (node.features, node.gres) == ((), ("gpu:NVIDIA GH200:1",))
