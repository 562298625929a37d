"""Real child processes for tests: the command line, and an engine to watch."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import schemas

from workbench.records import events as ev

SPIN_S, MOST_BUSY = 0.05, 4.0  # processor seconds to see how busy it is; longest stretch
WORKLOADS = Path(__file__).resolve().parent / "fixtures" / "workloads"


def budget(idle_s: float) -> tuple[str, str]:
    """The option for a budget that suffices on an idle machine, longer by as much as this one is
    busy with other processes now."""
    began, cpu_began = time.monotonic(), time.process_time()
    while time.process_time() - cpu_began < SPIN_S:
        pass
    busy = (time.monotonic() - began) / SPIN_S
    return "--budget", f"{idle_s * min(max(busy, 1.0), MOST_BUSY):.1f}"


def until(holds: Callable[[], object], within_s: float = 30.0) -> bool:
    """Whether something that nothing announces holds in time; return as soon as it does."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def lives(pid: int) -> bool:
    """Whether a process goes on; a zombie has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_pending(pid: int, number: int) -> bool:
    """Whether a signal has not been delivered yet (proc_pid_status(5), SigPnd and ShdPnd)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def stop(pids: Iterable[int]) -> None:
    """Freeze children of this process, and return once each of them has stopped."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)


def go_on(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


class Cli:
    """Runs the command line as a user would."""

    def __init__(self, environment: dict[str, str], cwd: Path | None = None) -> None:
        self.environment = environment
        self.cwd = cwd

    @property
    def runs(self) -> Path:
        return Path(self.environment["XDG_STATE_HOME"]) / "workbench" / "runs"

    def __call__(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *arguments],
            cwd=self.cwd,
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        schemas.check_output(arguments, done.stdout)
        return done


def printed(done: subprocess.CompletedProcess[str], exit_code: int = 0) -> dict[str, Any]:
    """The JSON that a command has printed."""
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class LiveEngine:
    """An engine in another process whose events a test reads as they happen."""

    def __init__(self, environment: dict[str, str], *arguments: str, **popen: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *arguments, "--jsonl", "--control"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **popen,
        )
        self.seen: list[ev.AnyEvent] = []

    def until(self, kind: type, count: int = 1) -> ev.AnyEvent:
        """Read events up to the `count`-th of `kind` from now, and return it."""
        for line in self.process.stdout:
            schemas.checked_events([line])
            event = ev.decode(line)
            self.seen.append(event)
            count -= isinstance(event, kind)
            if count == 0:
                return event
        raise AssertionError(f"the engine ended without {kind.__name__}: {self.errors()}")

    def rest(self) -> list[ev.AnyEvent]:
        """Read to the end; returns everything seen from the start."""
        lines = self.process.stdout.readlines()
        schemas.checked_events(lines)
        self.seen += map(ev.decode, lines)
        self.process.wait(30)
        return self.seen

    def say(self, word: str) -> None:
        self.process.stdin.write(b'{"control": "%s"}\n' % word.encode())
        self.process.stdin.flush()

    def errors(self) -> str:
        return self.process.stderr.read().decode()

    @property
    def run_id(self) -> str:
        return next(event.id for event in self.seen if isinstance(event, ev.RunStarted))

    def family(self) -> list[psutil.Process]:
        """Every process of the run: workers, their children, the guardian, the engine."""
        return [*marked(self.run_id), psutil.Process(self.process.pid)]

    def close(self) -> None:
        with suppress(Exception):
            for process in self.family():
                process.kill()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                stream.close()


def marked(run_id: str) -> list[psutil.Process]:
    """The processes that carry the run's id, in their environment or as an argument."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("WORKBENCH_RUN_ID") == run_id or run_id in process.cmdline():
                found.append(process)
    return found
