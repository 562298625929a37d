"""`workbench fleet` on a real Slurm: two partitions, three node types, and what goes wrong."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BOTH = ("--per-type", "2")
JOBS = ["big-2c-1", "small-1c-1", "small-2c-1", "small-2c-2"]
HERE = Path(__file__).resolve().parent
STUB = HERE / "stub_python"
DOCUMENT = HERE.parent / "fixtures" / "documents" / "advise-prices.json"
OWN = (HERE / "own.toml").read_text()
needs_two_cores = pytest.mark.skipif(os.cpu_count() == 1, reason="the lab's types need two cores")


def stub(folder: Path, text: str) -> Path:
    """An interpreter of another kind: a shell script that may go on as the usual stub."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_every_type_and_replica_runs_on_its_node(fleet) -> None:
    code, err = fleet.run(*BOTH)
    assert code == 0, err
    assert err.startswith("small-2c: 2 cores, ") and "\nneeded: nodes see the folder" in err
    assert sorted(path.name for path in (fleet.folder / "jobs").iterdir()) == JOBS
    nodes = {n: json.loads((fleet.job(n) / "run.jsonl").read_text())["node"] for n in JOBS}
    assert nodes == dict(zip(JOBS, ["big1", "old1", "cpu1", "cpu2"], strict=True))
    for name in JOBS:
        assert (fleet.job(name) / "exit_code").read_text() == "0\n"
        assert json.loads((fleet.job(name) / "document.json").read_text())["verdicts"]
        assert json.loads((fleet.job(name) / "submitted.json").read_text())["job_id"].isdecimal()
    assert err.count(": done") == 4


def test_real_runs_leave_documents(fleet) -> None:
    scenario = fleet.folder.parent / "own.toml"
    scenario.write_text(OWN)
    options = ("--partition", "big", "--budget", "20", "--scenarios", str(scenario))
    code, err = fleet.run(*options, python=Path(sys.executable))
    assert code == 0, err
    place = fleet.job("big-2c-1")
    document = json.loads((place / "document.json").read_text())
    assert document["run"]["status"] == "done"
    assert any(each["n"] for each in document["measurements"])
    assert json.loads((place / "doctor.json").read_text())["checks"]
    lines = (place / "run.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == "RunFinished"


def by_node(folder: Path, answer: str) -> Path:
    """The usual stub, except that big1's document is what the shell command `answer` prints."""
    on_big = f'[ "$4" = open ] && [ "$SLURMD_NODENAME" = big1 ] && {{ {answer}; exit; }}'
    return stub(folder, f'{on_big}\nexec {STUB} "$@"')


def shown(fleet, folder: Path | None = None) -> dict[str, Any]:
    """The document that `fleet show --json` prints."""
    command = [sys.executable, "-m", "workbench", "fleet", "show", str(folder or fleet.folder)]
    done = subprocess.run(
        [*command, "--json"], env=fleet.environment, capture_output=True, text=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["state"] for node in found["nodes"]}


def test_a_document_that_is_cut_off_is_named_and_the_others_count(fleet, tmp_path) -> None:
    code, err = fleet.run(*BOTH, python=by_node(tmp_path, f"head -c 3000 {DOCUMENT}"))
    assert code == 1
    assert "big-2c-1 on big1: failed: document.json is not usable: it is empty or ends" in err
    found = shown(fleet)
    assert states(found) == {n: "failed" if n == "big-2c-1" else "done" for n in JOBS}
    types = {cell["node_type"] for row in found["rows"] for cell in row["cells"]}
    assert types == {"small-1c", "small-2c"}


def test_a_node_with_another_version_is_incomparable_and_the_others_count(fleet, tmp_path) -> None:
    version = json.loads(DOCUMENT.read_text())["tool"]["version"]
    other = f'sed \'s/"{version}"/"9.9.9"/\' {DOCUMENT}'
    code, err = fleet.run(*BOTH, python=by_node(tmp_path, other))
    assert code == 1, err
    found = shown(fleet)
    assert states(found) == {n: "incomparable" if n == "big-2c-1" else "done" for n in JOBS}
    (reason,) = [node["reason"]["message"] for node in found["nodes"] if node["reason"]]
    assert reason == f"it was run by workbench 9.9.9, not {version}"
    assert {cell["nodes"] for row in found["rows"] for cell in row["cells"]} == {1, 2}


def test_two_fleets_at_once_in_one_folder_are_named_each(fleet, reads, tmp_path) -> None:
    """The second lies in the folder of the first; into the same one it is refused."""
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    second = type(fleet)(fleet.folder / "again", fleet.environment)
    second.folder.mkdir()
    python = by_node(tmp_path, f"head -c 3000 {DOCUMENT}")
    one = fleet.start("--quick", "--python", str(STUB), "--partition", "small")
    two = second.start("--quick", "--python", str(python), "--partition", "big", "--every", "2")
    reads(one, "submitted")
    same = fleet.start("--quick", "--python", str(STUB), "--partition", "big")
    code, err = fleet.end(same)
    (fleet.folder / "hold").unlink()
    assert code == 2, err
    assert f"go on with --into alone, or name {fleet.folder}/NEW" in err
    assert [fleet.end(one)[0], fleet.end(two)[0]] == [0, 1]
    found = shown(fleet)
    assert states(found) == {
        "small-1c-1": "done", "small-2c-1": "done", "small-2c-2": "done",
        "again/big-2c-1": "failed",
    }  # fmt: skip
    assert states(shown(fleet, second.folder)) == {"big-2c-1": "failed"}


def test_scaling_over_two_nodes_is_a_job_of_its_own(fleet, tmp_path) -> None:
    """Real ranks by srun, which meet at the first node; the other jobs are those of the stub."""
    real = f'exec {sys.executable} "$@"'
    python = stub(tmp_path, f'case "$4 $PWD" in run*|*/scaling) {real} ;; esac\nexec {STUB} "$@"')
    options = ("--partition", "small", "--per-type", "1", "--scaling", "small-2c")
    code, err = fleet.run(*options, "--budget", "30", python=python)
    assert code == 0, err + (fleet.job("scaling") / "log.txt").read_text()
    assert "scaling: 2 nodes at once, a rank on each: cpu1,cpu2: workbench run scaling" in err
    assert "scaling on cpu1,cpu2: done" in err
    (node,) = [each for each in shown(fleet)["nodes"] if each["name"] == "scaling"]
    assert [each["ranks"] for each in node["run"]["scaling"]] == [2, 1]
    assert all(each["median_s"] > 0 for each in node["run"]["scaling"])
    assert node["run"]["scaling"][0]["efficiency"] > 0


def test_a_rank_that_cannot_start_ends_the_job_at_once(fleet, tmp_path) -> None:
    real = f'exec {sys.executable} "$@"'
    # srun may lose what a task writes just before its end, so this one ends when that has arrived.
    arrived = f'tail -n +1 -f {fleet.job("scaling") / "log.txt"} | grep -qm 1 "no libc"'
    broken = f'[ "$SLURM_PROCID" = 0 ] && {real}; echo "no libc" >&2; {arrived}; exit 1'
    cases = f'case "$4 $PWD" in run*) {broken} ;; */scaling) {real} ;; esac'
    python = stub(tmp_path, f'{cases}\nexec {STUB} "$@"')
    options = ("--partition", "small", "--per-type", "1", "--scaling", "small-2c")
    code, err = fleet.run(*options, python=python)
    assert code == 1
    assert "scaling on cpu1,cpu2: failed" in err
    assert "no libc" in (fleet.job("scaling") / "log.txt").read_text()


def test_a_node_installs_the_wheels_of_a_bundle(fleet, wheels) -> None:
    options = ("--partition", "big", "--wheels", str(wheels))
    code, err = fleet.run(*options, python=Path(sys.executable))
    assert code == 0, err
    assert f"each node installs workbench for its run from a copy of {wheels}" in err
    (event,) = (fleet.job("big-2c-1") / "run.jsonl").read_text().splitlines()
    assert json.loads(event)["installed"] == ["cpu-gpu-workbench", "dependency"]
    inputs = json.loads((fleet.folder / "fleet.json").read_text())["inputs"]
    assert len(inputs) == 2
    assert {len(each["sha256"]) for each in inputs.values()} == {64}


def test_wheels_that_a_node_cannot_install_are_named(fleet, wheels) -> None:
    next(wheels.glob("dependency*")).unlink()
    options = ("--partition", "big", "--wheels", str(wheels))
    code, err = fleet.run(*options, python=Path(sys.executable))
    assert code == 1
    assert f"workbench: {sys.executable} installs no wheels on" in err


@pytest.mark.parametrize(("answer", "said"), [("y", "are cancelled"), ("n", "the jobs go on")])
def test_ctrl_c_in_a_terminal_asks_whether_to_cancel(fleet, answer: str, said: str) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    options = ["--quick", "--python", str(STUB), "--partition", "big", "--every", "1"]
    command = [sys.executable, "-m", "workbench", "fleet", "run", "--into", str(fleet.folder)]
    terminal, inside = pty.openpty()
    started = subprocess.Popen(
        [*command, *options], env=fleet.environment, stdin=inside, stderr=inside,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(inside)

    def until(text: str) -> str:
        seen = ""
        while text not in seen:
            seen += os.read(terminal, 4096).decode()
        return seen

    until("RUNNING")
    os.kill(started.pid, signal.SIGINT)
    assert "to wait again: workbench fleet run --into" in until("cancel them? [y/N]: ")
    os.write(terminal, f"{answer}\n".encode())
    until(said)
    assert started.wait(30) == 130
    os.close(terminal)
    job = json.loads((fleet.job("big-2c-1") / "submitted.json").read_text())["job_id"]
    gone = not fleet.slurm("squeue", "-h", "-t", "RUNNING", "-j", job)
    assert gone is (answer == "y")
    assert states(shown(fleet))["big-2c-1"] == ("failed" if answer == "y" else "running")
    (fleet.folder / "hold").unlink()


def test_a_killed_job_is_named_and_the_others_answer(fleet, reads) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    started = fleet.start("--quick", "--python", str(STUB), "--per-type", "1")
    seen = reads(started, "big-2c-1 on big1: RUNNING")
    if "small-2c-1 on cpu1: RUNNING" not in seen:
        reads(started, "small-2c-1 on cpu1: RUNNING")
    job_id = json.loads((fleet.job("big-2c-1") / "submitted.json").read_text())["job_id"]
    fleet.slurm("scancel", job_id)
    reads(started, "big-2c-1 on big1: CANCELLED")
    (fleet.folder / "hold").unlink()
    code, err = fleet.end(started)
    assert code == 1
    assert (
        "big-2c-1 on big1: failed: it ended without a document; its last state was CANCELLED" in err
    )
    assert err.count(": done") == 2


def test_a_node_that_goes_down_costs_its_job_which_does_not_start_again(fleet, reads) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    started = fleet.start("--quick", "--python", str(STUB), "--partition", "big")
    reads(started, "RUNNING")
    fleet.slurm("scontrol", "update", "NodeName=big1", "State=DOWN", "Reason=test")
    code, err = fleet.end(started)
    assert code == 1
    assert "big-2c-1 on big1: failed: " in err and "its last state was NODE_FAIL" in err
    assert "PENDING" not in err


def test_a_full_partition_is_waited_for_until_the_deadline(fleet) -> None:
    fleet.slurm("sbatch", "-p", "big", "--exclusive", "--output=/dev/null", "--wrap=sleep 60")
    code, err = fleet.run("--partition", "big", "--deadline", "4s")
    assert code == 1
    assert "big-2c-1 on big1: PENDING (" in err
    assert "lost: no document by the deadline" in err
    assert "big-2c-1" not in fleet.slurm("squeue", "--noheader", "--format=%j")


def test_a_launcher_that_is_killed_goes_on(fleet, reads) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    started = fleet.start("--quick", "--python", str(STUB), "--per-type", "1")
    reads(started, "small-1c-1 on old1: submitted")
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    (fleet.folder / "hold").unlink()
    code, err = fleet.go_on()
    assert code == 0, err
    assert err.count(": done") == 3
    assert "small-1c-1 on old1: submitted" not in err
    assert len(fleet.slurm("squeue", "-h", "--states=all", "--format=%j").split()) >= 3


def test_two_launchers_in_one_folder_run_each_job_once(fleet, reads) -> None:
    code, err = fleet.run("--detach", "--partition", "big")
    assert code == 0, err
    (fleet.job("big-2c-1") / "submitted.json").unlink()  # as a second one sees it a moment before
    code, err = fleet.go_on()
    assert code == 0, err
    assert len((fleet.job("big-2c-1") / "run.jsonl").read_text().splitlines()) == 1
    code, err = fleet.run("--partition", "small")
    assert code == 2
    assert "holds a fleet: go on with --into alone" in err


def test_what_a_job_would_inherit_is_scrubbed(fleet) -> None:
    traps = {"SLURM_CPU_BIND": "mask_cpu:0x1", "SBATCH_PARTITION": "small", "PMIX_RANK": "3"}
    code, err = fleet.run("--partition", "big", SLURM_CPUS_PER_TASK="1", **traps)
    assert code == 0, err
    inherited = (fleet.folder / "environment").read_text()
    assert not [name for name in (*traps, "SLURM_CPUS_PER_TASK") if f"{name}=" in inherited]
    assert "SLURM_CONF=" in inherited


@needs_two_cores
def test_an_affinity_narrower_than_the_allocation_is_an_error(fleet, slurm) -> None:
    """Slurm's daemon hands its own binding on, as an inherited SLURM_CPU_BIND does in a step."""
    daemon = int((Path(slurm["SLURM_CONF"]).parent / "big1.pid").read_text())
    before = os.sched_getaffinity(daemon)
    threads = [int(each.name) for each in Path(f"/proc/{daemon}/task").iterdir()]
    for thread in threads:
        os.sched_setaffinity(thread, {min(before)})
    try:
        code, err = fleet.run("--partition", "big")
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, before)
    assert code == 1
    assert "exit code 2" in err and "the affinity mask allows 1 of the 2 CPUs" in err
    assert not (fleet.job("big-2c-1") / "doctor.json").exists()


def test_threads_from_elsewhere_are_an_error(fleet) -> None:
    code, err = fleet.run("--partition", "big", OMP_NUM_THREADS="1")
    assert code == 1
    assert "OMP_NUM_THREADS=1 comes from elsewhere" in err


def test_an_interpreter_that_does_not_start_is_named(fleet, tmp_path) -> None:
    python = stub(tmp_path, "echo 'Illegal instruction' >&2; exit 132")
    code, err = fleet.run("--partition", "big", python=python)
    assert code == 1
    assert f"{python} does not start workbench on" in err


def test_a_folder_that_the_nodes_do_not_see_is_found_at_once(fleet, tmp_path) -> None:
    """The launcher stands in a mount namespace of its own, so that its folder is nowhere else."""
    fleet.folder.mkdir()
    launcher = [sys.executable, "-m", "workbench", "fleet", "run", "--into", str(fleet.folder)]
    run = shlex.join(
        [*launcher, "--quick", "--python", str(STUB), "--partition", "big", "--every=1"]
    )
    hidden = f"mount -t tmpfs none {shlex.quote(str(fleet.folder))} && {run}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hidden],
        env=fleet.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert "big-2c-1 on big1: failed: " in done.stderr
    assert "the node may not see it, so name a shared folder" in done.stderr


def test_ctrl_c_leaves_the_jobs_and_says_so(fleet, reads) -> None:
    fleet.folder.mkdir()
    (fleet.folder / "hold").touch()
    started = fleet.start("--quick", "--python", str(STUB), "--partition", "big")
    reads(started, "RUNNING")
    os.kill(started.pid, signal.SIGINT)
    code, err = fleet.end(started)
    assert code == 130
    assert f"the jobs go on; to wait again: workbench fleet run --into {fleet.folder}" in err
    (fleet.folder / "hold").unlink()
    assert fleet.go_on()[0] == 0
