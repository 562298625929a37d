"""Runs the jobs of a fleet under Slurm: psij-python submits them, `squeue` knows their states.

psij-python's own states are not used: a reason that it does not know fails all jobs, and a launcher
that is started again would have to attach to each of them.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from ..planning.usage import UsageError
from ..records.fleet import FleetJob, FleetPlan
from ..text.sanitize import shown
from .plan import time_limit

INHERITED = ("SLURM_", "SBATCH_", "PMIX_")  # from the job whose shell starts the fleet
NEVER_S = 10**6
SQUEUE = ("squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r")


class Slurm:
    """The engine of nodes that `sinfo` lists."""

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
        os.environ["SBATCH_NO_REQUEUE"] = "1"  # psij-python has no word for --no-requeue
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
        """Slurm's word for each job by its id; ENDED if Slurm has forgotten it."""
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
        """Cancel them; returns the ids of those that may still run."""
        done = subprocess.run(["scancel", "--quiet", *jobs], capture_output=True)
        return list(jobs) if done.returncode else []
