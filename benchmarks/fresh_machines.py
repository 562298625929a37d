"""`make run` on machines that are fresh in an odd way: does it work, or say what is missing?

`make fresh ARGS=FOLDER` clones HEAD below FOLDER (default: a temporary one), with virtual
environments that need up to 6 GB one after the other, a network and 10 to 30 minutes.  Conditions
that this machine or user cannot make are left out.
"""

from __future__ import annotations  # a class names itself in its methods

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
ODD = "Käse & Brot $HOME #1"
TOOLS = "cat cksum cp env flock grep head ls make mkdir rm sed sh tail touch uname"
IS_ROOT = os.geteuid() == 0
ORDINARY_ID = 65534
ORDINARY = ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups"]
OFFLINE = [shutil.which("unshare") or "unshare", "--net"]  # in full, for a path without it
# Python as Debian has it without python3-venv.
NO_ENSUREPIP = """#!/bin/sh
case "$*" in *ensurepip*) exit 1 ;; esac
exec "$REAL" "$@"
"""

Condition = tuple[str, Callable[[], str]]


class Machine:
    """A clone of HEAD, and how it is used."""

    def __init__(self, folder: Path, python: str, **environment: str) -> None:
        self.folder = folder
        kept = ("PATH", "LANG", "PIP_CERT", "SSL_CERT_FILE", "PIP_FIND_LINKS")
        basic = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment = {**basic, "HOME": str(folder), "PYTHON": python, **environment}
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)

    def run(self, *prefix: str, limit_s: float | None = None, **extra: str) -> str:
        """What `make run` came to; at the limit it is interrupted as by Ctrl-C."""
        process = subprocess.Popen(
            [*prefix, "make", "run", "ARGS=--json --quick"],
            cwd=self.folder,
            env=self.environment | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        try:
            return judged(*process.communicate(timeout=limit_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate()
            return "interrupted"

    def moved(self, name: str) -> Machine:
        self.folder = self.folder.rename(self.folder.with_name(name))
        return self


def judged(stdout: str, stderr: str) -> str:
    """Works, the one line that says what is missing, or the end of an answer that is neither."""
    said = [line for line in stderr.splitlines() if line.startswith("setup: ")]
    said = [line.removeprefix("setup: ") for line in said if "a few minutes" not in line]
    try:
        measured = json.loads(stdout)["measurements"]
    except (ValueError, KeyError):
        rest = [line for line in stderr.splitlines() if not line.startswith(("setup: ", "make: "))]
        whole = len(said) == 1 and not rest and not stdout
        return f"says: {said[0]}" if whole else f"FAULT: {stderr[-200:]!r}"
    return f"works: {sum(each['status'] == 'ok' for each in measured)} measured"


def pythons() -> Iterator[tuple[str, str]]:
    """(version, path) of one Python per minor version, on the path or from pyenv."""
    found: dict[str, str] = {}
    folders = [*os.get_exec_path(), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
    for path in [p for folder in folders for p in sorted(Path(folder).glob("python3.*"))]:
        if re.fullmatch(r"python3\.\d+", path.name):
            # A wrapper stands for another file.
            ask = [str(path), "-c", "import sys; print(sys.executable)"]
            if answer := subprocess.run(ask, capture_output=True, text=True).stdout.strip():
                found.setdefault(path.name.removeprefix("python"), answer)
    yield from sorted(found.items(), key=lambda each: int(each[0].partition(".")[2]))


def old(version: str) -> bool:
    return tuple(map(int, version.split("."))) < OLDEST


def conditions(scratch: Path) -> Iterator[Condition]:
    found = dict(pythons())
    new = [path for version, path in found.items() if not old(version)]
    count = iter(range(100))

    def machine(python: str = new[0], name: str = "", **environment: str) -> Machine:
        return Machine(scratch / (name or f"checkout {next(count)}"), python, **environment)

    yield "no Python", machine("python3.99").run
    for path in [path for version, path in found.items() if old(version)][-1:]:
        yield f"only {Path(path).name}", machine(path).run
    wrapper = scratch / "python3"
    wrapper.write_text(NO_ENSUREPIP)
    wrapper.chmod(0o755)
    yield "no ensurepip", machine(str(wrapper), REAL=new[0]).run
    yield "a checkout with a colon", machine(name="a:b").run
    if IS_ROOT:
        yield from privileged(scratch, machine)
    odd = machine(name=ODD, PATH=str(programs(scratch / "programs")))
    yield "no compiler, an odd path", odd.run
    yield "then moved", lambda: odd.moved("moved").run()
    if IS_ROOT:
        yield "then moved and offline", lambda: odd.moved("moved again").run(*OFFLINE)
    shutil.rmtree(odd.folder)
    torn = machine()
    yield "interrupted after 15 s", partial(torn.run, limit_s=15)
    yield "then run again", torn.run
    shutil.rmtree(torn.folder)
    for path in new[1:]:
        other = machine(path)
        yield Path(path).name, other.run
        shutil.rmtree(other.folder)


def privileged(scratch: Path, machine: Callable[..., Machine]) -> Iterator[Condition]:
    """What only root can make: no network, a full disk, another user."""
    yield "no network", partial(machine().run, *OFFLINE)
    small = scratch / "small disk"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode == 0:
        yield "a full disk", partial(machine().run, VENV=str(small / "venv"))
        subprocess.run(["umount", str(small)], check=True)
    home = scratch / "home"
    home.mkdir()
    shutil.chown(home, ORDINARY_ID, ORDINARY_ID)
    theirs = machine("/usr/bin/python3", HOME=str(home))
    yield "another user's checkout", partial(theirs.run, *ORDINARY)
    yield "then VENV elsewhere", partial(theirs.run, *ORDINARY, VENV=str(home / "my venv"))
    shutil.rmtree(home)


def programs(folder: Path) -> Path:
    """A path without a compiler, and with little else."""
    folder.mkdir()
    for tool in TOOLS.split():
        if path := shutil.which(tool):
            (folder / tool).symlink_to(path)
    return folder


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if run in the background
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        Path(folder).chmod(0o755)
        faults = 0
        for name, check in conditions(Path(folder)):
            began = time.monotonic()
            outcome = check()
            faults += outcome.startswith("FAULT")
            print(f"{name:26} {time.monotonic() - began:4.0f} s  {outcome}", flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
