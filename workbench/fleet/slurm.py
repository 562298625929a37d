"""Nodes and jobs of a fleet under Slurm: `sinfo` lists the nodes, `sbatch` submits the jobs, and
`squeue` knows their states."""

import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..planning.usage import UsageError, unknown
from ..records.fleet import FleetJob, FleetPlan
from ..text.sanitize import shown
from .plan import Node, time_limit

# Name, partition, availability, partition (* if it is the default), sharing, state, CPUs, MB, GRES,
# features.
SINFO = ("sinfo", "--noheader", "--Node", "--format", "%N|%R|%a|%P|%h|%T|%c|%m|%G|%f")
USABLE = re.compile(r"(idle|mixed|allocated|completing|planned)[~#!%$@^+-]*")  # *: no answer
INHERITED = ("SLURM_", "SBATCH_", "PMIX_")  # from the job whose shell starts the fleet
OWN = ("SLURM_CONF", "SBATCH_ACCOUNT", "SBATCH_QOS")  # no job sets these
SQUEUE = ("squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r")


def slurm_nodes(partitions: Sequence[str]) -> list[Node]:
    """The usable nodes of Slurm, each in one partition and idle ones first."""
    if shutil.which("sinfo") is None:
        raise UsageError("sinfo was not found: run this where Slurm's commands are, or use --hosts")
    done = subprocess.run(SINFO, capture_output=True, text=True, errors="replace")
    if done.returncode:
        why = shown(" ".join(done.stderr.split()))
        raise UsageError(f"sinfo fails: {why}; is SLURM_CONF set and does the controller answer?")
    nodes = parse_sinfo(done.stdout)
    known = dict.fromkeys(node.partition or "" for node in nodes)
    for partition in partitions:
        if partition not in known:
            raise unknown("partition", partition, known)
    chosen: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda node: (not node.is_default, node.state != "idle")):
        if USABLE.fullmatch(node.state) and (not partitions or node.partition in partitions):
            chosen.setdefault(node.name, node)
    if not chosen:
        raise UsageError("no node is up in these partitions: look at `sinfo --Node --long`")
    return list(chosen.values())


def parse_sinfo(text: str) -> list[Node]:
    """The lines of SINFO; UsageError for a line of another format."""
    found = []
    for line in text.splitlines():
        try:
            name, partition, up, starred, sharing, state, cores, mb, gres, features = [
                part.strip() for part in line.split("|", 9)
            ]
            size = int(cores.rstrip("+")), int(mb.rstrip("+")) << 20
        except ValueError:
            raise UsageError(f"sinfo wrote a line that cannot be read: {shown(line)}") from None
        state = state.lower() if up == "up" else "down"
        listed = _words(features), _words(re.sub(r"\([^)]*\)", "", gres))  # (S:0-1): sockets
        shares = sharing.upper().startswith("FORCE")
        found.append(Node(name, *size, *listed, partition, state, starred.endswith("*"), shares))
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word not in ("", "(null)", "N/A"))


class Slurm:
    """The cluster of nodes that `sinfo` lists."""

    def __init__(self, plan: FleetPlan) -> None:
        for name in ("sbatch", "squeue"):
            if shutil.which(name) is None:
                raise UsageError(f"{name} was not found: run this where Slurm's commands are")
        self._types = {each.name: each for each in plan.node_types}
        self._minutes = math.ceil(time_limit(plan.budget_s) / 60)
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name in OWN or not name.startswith(INHERITED)
        }

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, errors="replace"
        )

    def submit(self, job: FleetJob, script: Path) -> str:
        node = self._types[job.node_type]
        options = [
            *("--parsable", "--no-requeue", "--output=/dev/null", "--error=/dev/null"),
            *(f"--job-name=workbench-{job.name}", f"--time={self._minutes}"),
            *(f"--partition={job.partition}", f"--nodelist={job.node}"),
            *(f"--nodes={job.nodes}", "--ntasks-per-node=1"),
        ]
        if job.exclusive:
            options += ["--exclusive", "--mem=0"]  # all of it, which --exclusive does not grant
        else:
            options.append(f"--cpus-per-task={node.cores}")
        if gpus := [entry for entry in node.gres if entry.startswith("gpu")]:
            options.append(f"--gres={','.join(gpus)}")
        done = self._run("sbatch", *options, str(script))
        if done.returncode:
            why = shown(done.stderr.strip())
            remedy = "; name it by `export SBATCH_ACCOUNT=...`" if "account" in why.lower() else ""
            raise UsageError(f"Slurm refuses it: {why}{remedy}")
        return done.stdout.strip().partition(";")[0]  # the name of the cluster may follow

    def states(self, jobs: Mapping[str, FleetJob]) -> dict[str, str]:
        """Slurm's state of each job by its id; ENDED if Slurm has forgotten it."""
        done = self._run(*SQUEUE)
        if done.returncode:
            return {}  # it does not answer now
        found = dict.fromkeys(jobs, "ENDED")
        for line in done.stdout.splitlines():
            job_id, _, rest = line.strip().partition("|")
            state, _, reason = rest.partition("|")
            if job_id in jobs:
                found[job_id] = state if reason in ("None", "") else f"{state} ({shown(reason)})"
        return found

    def cancel(self, jobs: Mapping[str, FleetJob]) -> list[str]:
        """Cancel the jobs; returns the ids of those that may still run."""
        return list(jobs) if self._run("scancel", "--quiet", *jobs).returncode else []
