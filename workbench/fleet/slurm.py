"""Nodes and jobs of a fleet under Slurm: `sinfo` lists the nodes, psij-python submits the jobs, and
`squeue` knows their states.

psij-python's own states are not used: a reason that it does not know fails all jobs, and a launcher
that is started again would have to attach to each of them.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
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
NEVER_S = 10**6
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

    def __init__(self, folder: Path, plan: FleetPlan) -> None:
        try:
            from psij import JobExecutor
            from psij.executors.batch.slurm import SlurmExecutorConfig
        except ImportError:
            remedy = "install it: pip install 'cpu-gpu-workbench[fleet]'"
            raise UsageError(f"jobs are submitted by psij-python, {remedy}") from None
        if shutil.which("squeue") is None:
            raise UsageError("squeue was not found: run this where Slurm's commands are")
        for name in [each for each in os.environ if each.startswith(INHERITED)]:
            if name != "SLURM_CONF":
                del os.environ[name]  # sbatch hands it on
        os.environ["SBATCH_NO_REQUEUE"] = "1"  # psij-python has no option for --no-requeue
        self._types = {each.name: each for each in plan.node_types}
        self._limit = timedelta(seconds=time_limit(plan.budget_s))
        config = SlurmExecutorConfig(None, folder / "psij", NEVER_S, NEVER_S)
        self._executor = JobExecutor.get_instance("slurm", config=config)

    def submit(self, job: FleetJob, script: Path) -> str:
        from psij import Job, JobAttributes, JobSpec, ResourceSpecV1, SubmitException

        node = self._types[job.node_type]
        custom: dict[str, object] = {"slurm.nodelist": job.node}
        custom["slurm.job-name"] = f"workbench-{job.name}"
        if job.exclusive:
            custom["slurm.mem"] = "0"  # all of it, which --exclusive does not grant
        if gpus := [entry for entry in node.gres if entry.startswith("gpu")]:
            custom["slurm.gres"] = ",".join(gpus)
        cores = None if job.exclusive else node.cores
        spec = JobSpec(executable="/bin/sh", arguments=[str(script)])
        spec.attributes = JobAttributes(self._limit, job.partition, custom_attributes=custom)
        spec.resources = ResourceSpecV1(job.nodes, None, 1, cores, exclusive_node_use=job.exclusive)
        submitted = Job(spec)
        try:
            self._executor.submit(submitted)
        except SubmitException as error:
            raise UsageError(f"Slurm refuses it: {shown(str(error).strip())}") from None
        return str(submitted.native_id)

    def states(self, jobs: Mapping[str, FleetJob]) -> dict[str, str]:
        """Slurm's state of each job by its id; ENDED if Slurm has forgotten it."""
        done = subprocess.run(SQUEUE, capture_output=True, text=True, errors="replace")
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
        done = subprocess.run(["scancel", "--quiet", *jobs], capture_output=True)
        return list(jobs) if done.returncode else []
