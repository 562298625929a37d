"""The script of a node in a shell, with an interpreter of sh: traps before anything is measured."""

import os
import subprocess
from pathlib import Path

import pytest

from workbench import assets

STUB = """#!/bin/sh
[ "$1" = -P ] || exit 9  # else Python would import from the directory
case "$4" in
doctor) echo '{}' ;;
open) echo '{"document": true}' ;;
*)
  echo "$XDG_STATE_HOME" >../../state
  echo "$XDG_CONFIG_HOME" >../../config
  echo event
  exit ${CODE:-0}
  ;;
esac
"""


class Node:
    """A job's folder, and what the script makes of it."""

    def __init__(self, folder: Path) -> None:
        self.job = folder / "jobs" / "a-1"
        self.job.mkdir(parents=True)
        self.python = folder / "python"
        self.python.write_text(STUB)
        self.python.chmod(0o755)
        self.directory = self.job

    def run(self, nodes: int = 1, **variables: str) -> int:
        head = f"python={self.python}\njob={self.job}\ndirectory={self.directory}\n"
        head += f"nodes={nodes}\nwheels=\nset -- --jsonl\n"
        (self.job / "run.sh").write_text(head + assets.path("fleet/run.sh").read_text())
        clean = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(["sh", self.job / "run.sh"], env=clean, timeout=30).returncode

    def file(self, name: str) -> str:
        return (self.job / name).read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_run_leaves_its_files_and_the_exit_code_last(node, tmp_path) -> None:
    assert node.run(CODE="3") == 3
    assert (node.file("exit_code"), node.file("run.jsonl")) == ("3\n", "event\n")
    assert node.file("document.json") == '{"document": true}\n'
    assert not [each for each in node.job.iterdir() if each.name.startswith(".")]
    assert not Path((tmp_path / "state").read_text().strip()).exists()
    assert (tmp_path / "config").read_text() == (tmp_path / "state").read_text()


def test_a_job_runs_once(node) -> None:
    assert node.run() == 0
    (node.job / "exit_code").unlink()
    assert node.run() == 75
    assert not (node.job / "exit_code").exists()


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_threads_from_elsewhere_stop_it(node, name: str) -> None:
    assert node.run(**{name: "1"}) == 2
    assert node.file("log.txt").startswith(f"workbench: {name}=1 comes from elsewhere")
    assert not (node.job / "doctor.json").exists()


def test_a_run_over_several_nodes_starts_a_rank_on_each(node, tmp_path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$MASTER_ADDR $*" >"${0}_was"\nshift 7\nexec "$@"\n')
    srun.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert node.run(nodes=2, PATH=path, SLURM_CPUS_ON_NODE="1") == 0
    assert node.file("run.jsonl") == "event\n"
    seen = (tmp_path / "srun_was").read_text().split()
    assert seen[0] == os.uname().nodename
    assert seen[1:5] == [
        "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--cpu-bind=none",
    ]  # fmt: skip
    assert f"--error={node.job}/log.txt" in seen  # srun drops messages of ranks that it kills


def test_an_affinity_narrower_than_the_job_stops_it(node) -> None:
    usable = len(os.sched_getaffinity(0))
    assert node.run(SLURM_CPUS_ON_NODE=str(usable + 1)) == 2
    text = (
        f"the affinity mask allows {usable} of the {usable + 1} CPUs of this job: unset SLURM_CPU"
    )
    assert text in node.file("log.txt")


def test_cpus_of_another_job_stop_it(node) -> None:
    assert node.run(SLURM_CPUS_ON_NODE="1", SLURM_CPUS_PER_TASK="0") == 2
    assert "SLURM_CPUS_PER_TASK=0 in a job of 1 CPUs comes from elsewhere" in node.file("log.txt")


def test_the_usual_variables_of_a_job_do_not(node) -> None:
    assert node.run(SLURM_CPUS_ON_NODE="1", SLURM_CPUS_PER_TASK="1") == 0


def test_an_interpreter_that_says_nothing_is_named(node) -> None:
    node.python.write_text("#!/bin/sh\necho crash >&2\nexit 132\n")
    assert node.run() == 2
    crash, last = node.file("log.txt").splitlines()
    assert crash == "crash"
    assert last.startswith(f"workbench: {node.python} does not start workbench on ")


def test_a_directory_that_the_node_does_not_see_is_named(node, tmp_path) -> None:
    node.directory = tmp_path / "nowhere"
    assert node.run() == 2
    assert f"does not see {tmp_path}/nowhere" in node.file("log.txt").splitlines()[-1]
