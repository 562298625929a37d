"""Submits the jobs of a plan, and reports their states.

A launcher knows nothing that is not in the folder, so another one can go on after it was killed.
It reports what `fleet.reader` sees there, and takes no lock: a job that two launchers submit runs
once (`assets/fleet/run.sh`).
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ..advisor.recordings import why
from ..files.write import replace
from ..planning.usage import UsageError
from ..records import fleet as records
from ..records.fleet import JOBS, FleetInput, FleetJob, FleetPlan, Submitted
from ..text.sanitize import shown
from ..worker.code import KINDS
from .plan import now, script
from .reader import decoded, job_node, read_plan
from .slurm import Slurm
from .ssh import Ssh

FILES = ("--model", "--inputs", "--scenarios", "--prices")  # options whose files travel along
OWN_CODE = {f"--{kind}" for kind in KINDS}


def plan_in(folder: Path) -> FleetPlan | None:
    """The plan in the folder; None if there is none."""
    try:
        return read_plan(folder)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise UsageError(f"{folder / records.PLAN} cannot be read: {shown(why(error))}") from None


def begin(folder: Path, plan: FleetPlan) -> FleetPlan:
    """Make the folder: copies of the files that the options name, the scripts, then the plan, which
    never changes.  If two launchers try, one succeeds.  Own code runs in the current folder."""
    arguments, inputs = list(plan.arguments), dict[str, FleetInput]()
    # What follows `--` is for the user's script.
    ours = arguments[: arguments.index("--")] if "--" in arguments else plan.arguments
    directory = folder if OWN_CODE.isdisjoint(ours) else Path.cwd()

    def copied(name: str, source: Path) -> str:
        file = f"inputs/{name}{source.suffix}"
        shutil.copyfile(source, new / file)
        inputs[name] = FleetInput(file, hashlib.sha256((new / file).read_bytes()).hexdigest())
        return str(folder / file)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=folder) as made:
            new = Path(made)
            (new / "inputs" / "wheels").mkdir(parents=True)
            for value, option in enumerate(ours[:-1], start=1):
                if option in FILES:
                    arguments[value] = copied(option[2:], Path(arguments[value]))
            for wheel in Path(plan.wheels or new).glob("*.whl"):
                copied(f"wheels/{wheel.stem}", wheel)
            plan = msgspec.structs.replace(plan, arguments=arguments, inputs=inputs)
            for job in plan.jobs:
                (new / JOBS / job.name).mkdir(parents=True)
                text = script(plan, job, folder, directory)
                replace(new / JOBS / job.name / records.SCRIPT, os.fsencode(text))
            for name in ("inputs", JOBS):
                (new / name).rename(folder / name)  # fails if another launcher was here
            replace(folder / records.PLAN, msgspec.json.encode(plan))
    except OSError as error:
        text = f"--into {folder}: {error.strerror}: {error.filename2 or error.filename}"
        if error.errno == errno.ENOTEMPTY:  # two launchers at once, or one that was killed here
            text += "; go on with --into alone, or name another folder if it holds no plan"
        raise UsageError(text) from None
    return plan


class Launcher:
    """Submits and watches the jobs of one folder; `say` gets a line for each change."""

    def __init__(self, folder: Path, plan: FleetPlan, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._plan = plan
        self._say = say
        self._cluster = Ssh(folder, plan) if plan.cluster == "ssh" else Slurm(plan)
        self._submitted: dict[str, Submitted] = {}  # by the name of the job
        self._ended: set[str] = set()
        self._suspects: set[str] = set()  # jobs that ended, but so far only the cluster says so

    @property
    def waiting(self) -> dict[str, FleetJob]:
        """The jobs that were submitted and have not ended, by id."""
        left = [job for job in self._plan.jobs if job.name in self._submitted.keys() - self._ended]
        return {self._submitted[job.name].job_id: job for job in left}

    @property
    def _left_s(self) -> float:
        """Seconds to the deadline."""
        begun = datetime.fromisoformat(self._plan.created_at).timestamp()
        return begun + self._plan.deadline_s - time.time()

    def submit(self) -> bool:
        """Submit each job that was not submitted yet; False if any was refused."""
        for job in self._plan.jobs:
            place = self._folder / JOBS / job.name
            with suppress(Exception):  # a damaged file: a job that is submitted twice runs once
                known = decoded(place / records.SUBMITTED, Submitted)
                if known.job_id:
                    self._submitted[job.name] = known
                    continue
            try:
                job_id = self._cluster.submit(job, place / records.SCRIPT)
            except UsageError as error:
                self._note(job, Submitted("", now()), f"REFUSED ({error})")
                self._ended.add(job.name)
            else:
                self._note(job, Submitted(job_id, now()))
        return not self._ended

    def watch(self, every_s: float) -> None:
        """Return when all jobs have ended; at the deadline cancel the rest."""
        while self.look():
            if self._left_s <= 0:
                self._stop()
                for job in self.waiting.values():
                    self._end(job)
            time.sleep(min(every_s, max(0.0, self._left_s)))

    def cancel(self) -> bool:
        """Cancel the jobs that have not ended, and note it in the folder; False if some go on."""
        stopped = self._stop()
        for job in stopped:
            self._note(job, self._submitted[job.name], "CANCELLED")
        return len(stopped) == len(self.waiting)

    def _stop(self) -> list[FleetJob]:
        """Cancel the jobs that have not ended; returns those cancelled, and reports the others."""
        waiting = self.waiting
        for job_id in self._cluster.cancel(waiting):
            job = waiting.pop(job_id)
            self._say(f"{job.name} on {job.node}: it could not be cancelled and may go on")
        return list(waiting.values())

    def look(self) -> bool:
        """Report every change; returns whether jobs are still to be waited for."""
        waiting = self.waiting
        states = self._cluster.states(waiting) if waiting else {}
        for job_id, job in waiting.items():
            before, state = self._submitted[job.name], states.get(job_id, "")
            known = before.native_state or ""
            # A forgotten job keeps the reason for its end; after the deadline it counts as lost.
            forgotten = state == "ENDED" and (known.startswith(records.ENDED) or self._left_s <= 0)
            if not forgotten and state not in ("", known):
                self._note(job, before, state)
            # A file on a shared disk may appear late: the cluster's word counts the second time.
            ended = (self._folder / JOBS / job.name / records.EXIT_CODE).exists()
            if not ended and state.startswith(records.ENDED):
                ended = job.name in self._suspects
                self._suspects.add(job.name)
            if ended:
                self._end(job)
        return bool(self.waiting)

    def _end(self, job: FleetJob) -> None:
        self._ended.add(job.name)
        node = job_node(self._folder, self._plan, job, time.time())
        said = [node.state, *([node.reason.message] if node.reason else []), *node.log[-1:]]
        self._say(f"{job.name} on {job.node}: {': '.join(said)}")

    def _note(self, job: FleetJob, known: Submitted, state: str | None = None) -> None:
        known = msgspec.structs.replace(known, native_state=state)
        self._submitted[job.name] = known
        replace(self._folder / JOBS / job.name / records.SUBMITTED, msgspec.json.encode(known))
        self._say(f"{job.name} on {job.node}: {state or 'submitted'}")
