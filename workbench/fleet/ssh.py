"""Runs the jobs of a fleet over plain ssh, one process for each question.

A host that does not see the folder gets a copy of the job's files at the same path, and what it
writes there is fetched.
"""

import shlex
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..files.write import replace
from ..planning.usage import UsageError
from ..records import fleet as records
from ..records.fleet import JOBS, SUBMITTED, FleetJob, FleetPlan
from ..report.journal import MOST_BYTES
from ..text.sanitize import shown
from ..text.toml_file import TomlError, read
from .plan import BEGUN, Node

OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")  # a password prompt is an error
ANSWER_S, SLOWEST = 60.0, 1e6  # seconds, and bytes per second
# The files of a job, the last one first: where its exit code can be read, the others are whole.
FETCHED = (records.EXIT_CODE, records.DOCUMENT, records.JOURNAL, records.DOCTOR, records.LOG)
# Prints the size of each file on a line, empty if it is missing, then its contents.
FETCH = f"[ ! -e {SUBMITTED} ] && for name in {' '.join(FETCHED)}; do size=$(wc -c <$name);"
FETCH += " echo $size; head -c ${size:-0} $name; done 2>/dev/null; true"  # csh quotes no line break
PROBE = (  # cores, memory, processor (a line without a name on ARM), and a line for each GPU
    "nproc --all",
    "sed -n 's/^MemTotal: *//p' /proc/meminfo",
    """echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)\"""",
    # Without a driver it prints its failure where the names would stand.
    'gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) && echo "$gpus"; true',
)


def ssh_nodes(hosts: str | None, file: str | None) -> list[Node]:
    """The hosts of the options as they describe themselves; UsageError names one that cannot."""
    names: object = (hosts or "").split(",")
    if file is not None:
        try:
            names = read(Path(file)).tables.get("hosts")
        except TomlError as error:
            raise UsageError(f"--hosts-file {error}") from None
    if not (isinstance(names, list) and names and all(isinstance(n, str) and n for n in names)):
        raise UsageError('--hosts takes A,B and a --hosts-file has hosts = ["A", "B"]')
    return [
        parse_probe(name, ask(name, "; ".join(PROBE)).decode(errors="replace"))
        for name in dict.fromkeys(names)
    ]


def parse_probe(host: str, text: str) -> Node:
    """The node that the output of PROBE describes."""
    lines = text.splitlines()
    try:
        cores, memory = int(lines[0]), int(lines[1].split()[0]) << 10
    except (IndexError, ValueError):
        problem = f"{shown(host)} did not report its number of cores: {shown(' '.join(lines))}"
        raise UsageError(f"{problem}; a host needs Linux and a login that prints nothing") from None
    names = Counter(filter(None, lines[3:]))
    gpus = tuple(f"gpu:{name}:{count}" for name, count in names.items())
    return Node(host, cores, memory, tuple(filter(None, lines[2:3])), gpus)


def ask(host: str, command: str, stdin: bytes = b"") -> bytes:
    """The output of `command` on the host; UsageError says why there is none."""
    within_s = ANSWER_S + len(stdin) / SLOWEST
    # The login shell may be fish or csh.
    whole = ["ssh", *OPTIONS, "--", host, f"exec sh -c {shlex.quote(command)}"]
    try:
        done = subprocess.run(whole, input=stdin, capture_output=True, timeout=within_s)
    except FileNotFoundError:
        raise UsageError("there is no ssh here: install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{shown(host)} does not answer within {within_s:.0f} s") from None
    if done.returncode:
        why = shown(" ".join(done.stderr.decode(errors="replace").split()) or "no reason given")
        remedy = "; load a key that needs no password" if "Permission denied" in why else ""
        raise UsageError(f"{shown(host)} cannot be used over ssh: {why}{remedy}")
    return done.stdout


class Ssh:
    """The cluster of `--hosts`; the id of a job is `PID@HOST`."""

    def __init__(self, folder: Path, plan: FleetPlan) -> None:
        self._folder = folder
        self._mark = shlex.quote(f"{BEGUN}={shlex.quote(plan.created_at)}")

    def submit(self, job: FleetJob, script: Path) -> str:
        """Start the script in a session of its own, which outlives the connection."""
        names = "inputs", str(script.relative_to(self._folder))  # the script, once all is there
        packed = subprocess.run(["tar", "-cC", self._folder, *names], capture_output=True).stdout
        place, file = shlex.quote(str(self._folder)), shlex.quote(str(script))
        bring = f"[ -e {file} ] || {{ mkdir -p {place} && tar -xC {place}; }} || exit"
        other = f"echo another fleet lies in {place} there: remove it, or name another --into >&2"
        check = f"grep -qxF -e {self._mark} {file} || {{ {other}; exit 1; }}"
        start = f"setsid sh {file} >/dev/null 2>&1 </dev/null & echo $!"
        process = ask(job.node, f"{bring}; {check}; {start}", packed).decode(errors="replace")
        return f"{process.strip()}@{job.node}"  # two hosts may give the same number

    def states(self, jobs: Mapping[str, FleetJob]) -> dict[str, str]:
        """RUNNING or ENDED for each job by its id, without jobs of hosts that do not answer now."""
        found = {}
        for job_id, job in jobs.items():
            with suppress(UsageError, ValueError):
                question = f"kill -0 {_process(job_id)} 2>/dev/null && echo RUNNING; true"
                state = ask(job.node, question)
                self._fetch(job)
                found[job_id] = "RUNNING" if b"RUNNING" in state else "ENDED"
        return found

    def _fetch(self, job: FleetJob) -> None:
        """Copy what the job has written, unless the host sees our folder, and so SUBMITTED in it.

        To look for the job's files here would not do: a network file system may hide them for a
        minute.
        """
        place, found = self._folder / JOBS / job.name, dict[str, bytes]()
        rest = ask(job.node, f"cd {shlex.quote(str(place))} && {FETCH}")
        for name in FETCHED:
            size, _, rest = rest.partition(b"\n")
            if size.isdigit():
                content, rest = rest[: int(size)], rest[int(size) :]
                if int(size) <= MOST_BYTES:
                    found[name] = content
        with suppress(OSError):  # what fails is fetched again, as the exit code comes last
            for name in reversed(found):
                replace(place / name, found[name])

    def cancel(self, jobs: Mapping[str, FleetJob]) -> list[str]:
        """Cancel the jobs; returns the ids of those that may still run."""
        left = []
        for job_id, job in jobs.items():
            try:  # without `--`, which dash refuses after a signal
                ask(job.node, f"kill -TERM -{_process(job_id)} 2>/dev/null; true")
            except (UsageError, ValueError):
                left.append(job_id)
        return left


def _process(job_id: str) -> int:
    """The process id on the host; ValueError if there is none."""
    return int(job_id.partition("@")[0])
