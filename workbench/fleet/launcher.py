"""Submits the jobs of a plan, and says what becomes of them.

A launcher knows nothing that is not in the folder, so another one can go on after it was killed.
It takes no lock either: a job that two of them submit runs once (`assets/fleet/run.sh`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..files.read import whole
from ..files.write import replace
from ..planning.usage import UsageError
from ..records import fleet as records
from ..records.fleet import JOBS, FleetInput, FleetJob, FleetPlan, Submitted
from ..text.sanitize import shown
from ..worker.code import KINDS
from .plan import now, script
from .slurm import Slurm
from .ssh import Ssh

FILES = ("--model", "--inputs", "--scenarios", "--prices")  # options whose files travel along
OWN_CODE = {f"--{kind}" for kind in KINDS}
ALIVE = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING")
ANSWERS = ("0", "3")  # exit codes of a run; 3: --strict
MOST_BYTES = 16 << 20


def read_plan(folder: Path) -> FleetPlan | None:
    """The plan in the folder; None where there is none."""
    try:
        return msgspec.json.decode(whole(folder / records.PLAN, MOST_BYTES), type=FleetPlan)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{folder / records.PLAN} cannot be read: {shown(str(error))}") from None


def begin(folder: Path, plan: FleetPlan) -> FleetPlan:
    """Make the folder: copies of the files that the arguments name, the scripts, then the plan, for
    good.  Of two launchers one succeeds.  The user's own code is found where the user stands."""
    arguments, inputs = list(plan.arguments), {}
    directory = folder if OWN_CODE.isdisjoint(arguments) else Path.cwd()
    try:
        (folder / "inputs").mkdir(parents=True, exist_ok=True)
        for value, option in enumerate(arguments[:-1], start=1):
            if option in FILES:
                source = Path(arguments[value])
                file = f"inputs/{option[2:]}{source.suffix}"
                shutil.copyfile(source, folder / file)
                digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
                inputs[option[2:]] = FleetInput(file, digest)
                arguments[value] = str(folder / file)
        plan = msgspec.structs.replace(plan, arguments=arguments, inputs=inputs)
        for job in plan.jobs:
            place = folder / JOBS / job.name
            place.mkdir(parents=True, exist_ok=True)
            text = script(plan, job, folder, directory)
            replace(place / records.SCRIPT, os.fsencode(text))
        new = folder / f".plan-{os.getpid()}"
        replace(new, msgspec.json.encode(plan))
        os.link(new, folder / records.PLAN)
        new.unlink()
    except OSError as error:
        raise UsageError(f"--into {folder}: {error.strerror}: {error.filename}") from None
    return plan


class Launcher:
    """Submits and watches the jobs of one folder; `say` gets a line for each change."""

    def __init__(self, folder: Path, plan: FleetPlan, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._plan = plan
        self._say = say
        self._engine = Ssh(folder) if plan.engine == "ssh" else Slurm(folder, plan)
        self._submitted: dict[str, Submitted] = {}  # by the name of the job
        self._answered: dict[str, bool] = {}  # of the jobs that have ended
        self._suspects: set[str] = set()  # ended by the engine's word alone

    @property
    def waiting(self) -> dict[str, FleetJob]:
        """The jobs that were submitted and have not ended, by id."""
        left = [job for job in self._plan.jobs if job.name not in self._answered]
        return {self._submitted[j.name].job_id: j for j in left if j.name in self._submitted}

    @property
    def all_answered(self) -> bool:
        return all(self._answered.get(job.name) for job in self._plan.jobs)

    def submit(self) -> None:
        """Submit each job that was not submitted yet; one that is refused costs only itself."""
        for job in self._plan.jobs:
            place = self._folder / JOBS / job.name
            with suppress(FileNotFoundError):
                text = whole(place / records.SUBMITTED, MOST_BYTES)
                self._submitted[job.name] = msgspec.json.decode(text, type=Submitted)
                continue
            try:
                job_id = self._engine.submit(job, place / records.SCRIPT)
            except UsageError as error:
                self._end(job, f"not submitted: {error}")
            else:
                self._note(job, Submitted(job_id, now()), "submitted")

    def watch(self, every_s: float) -> None:
        """Return when all jobs have ended; at the deadline cancel the rest."""
        begun = datetime.fromisoformat(self._plan.created_at)
        while self.look():
            age_s = (datetime.now(UTC) - begun).total_seconds()
            if age_s >= self._plan.deadline_s:
                self.cancel()
                for job in self.waiting.values():
                    self._end(job, "lost: the deadline has passed, and it was cancelled")
            time.sleep(min(every_s, max(0.0, self._plan.deadline_s - age_s)))

    def cancel(self) -> None:
        self._engine.cancel(self.waiting)

    def look(self) -> bool:
        """Report every change; returns whether jobs are still to be waited for."""
        waiting = self.waiting
        states = self._engine.states(waiting) if waiting else {}
        for job_id, job in waiting.items():
            before, state = self._submitted[job.name], states.get(job_id, "")
            if state not in ("", before.native_state):
                self._note(job, msgspec.structs.replace(before, native_state=state), state)
            self._judge(job, state)
        return bool(self.waiting)

    def _judge(self, job: FleetJob, state: str) -> None:
        """End a job that has ended: by its exit code, or by the engine's word twice in a row,
        since a file on a shared disk may appear late."""
        place = self._folder / JOBS / job.name
        if (place / records.EXIT_CODE).exists():
            code = shown((place / records.EXIT_CODE).read_text(errors="replace").strip(), 20)
            answers = code in ANSWERS and (place / records.DOCUMENT).exists()
            text = "answered" if answers else f"failed, exit code {code}{_tail(place)}"
            self._end(job, text, answers=answers)
        elif state and state.split(" ")[0] not in ALIVE:
            if job.name in self._suspects:
                lost = f": nothing in {place}; does the node see it? name a shared folder"
                self._end(job, f"failed, {state}{_tail(place) or lost}")
            self._suspects.add(job.name)

    def _end(self, job: FleetJob, text: str, *, answers: bool = False) -> None:
        self._answered[job.name] = answers
        self._say(f"{job.name} on {job.node}: {text}")

    def _note(self, job: FleetJob, state: Submitted, text: str) -> None:
        self._submitted[job.name] = state
        replace(self._folder / JOBS / job.name / records.SUBMITTED, msgspec.json.encode(state))
        self._say(f"{job.name} on {job.node}: {text}")


def _tail(place: Path) -> str:
    """The last line of a job's log."""
    with suppress(OSError):
        lines = (place / records.LOG).read_text(errors="replace").split("\n")
        return f": {shown(next(filter(str.strip, reversed(lines)), 'its log is empty'))}"
    return ""
