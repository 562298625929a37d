"""Starts, limits and ends child processes, and says in words how one ended.

A child takes modules from its interpreter and from PYTHONPATH, never from the current directory.
It ends with this process, and so does its process group, if it leads one.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..text.sanitize import shown

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap.py"
POLL_S = 0.002
LOG_TAIL_BYTES = 16_384
MOST_LOGGED = 1 << 20  # bytes, above which a log is emptied
# Signals whose handlers may raise.
_RAISING: list[int] = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM]

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

_groups: list[subprocess.Popen[bytes]] = []  # children that lead a group and may still live
_outliving: list[subprocess.Popen[bytes]] = []  # children that end after this process
_adopting = False


def command(
    target: str | Path, *arguments: str, python: str | None = None, bound: bool = True
) -> list[str]:
    """The command line for `target`, a module of ours with a `main` or a file to run.

    `python` is its interpreter if it is not this one; a `bound` child ends with this process.
    """
    # --python may name a script that starts an interpreter; then the script is the parent.
    parent = "-" if python not in (None, sys.executable) else str(os.getpid())
    life = parent if bound else "free"
    return [python or sys.executable, str(BOOTSTRAP), life, str(target), *arguments]


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the empty entries of PYTHONPATH, which mean the current directory."""
    kept = dict(environ)
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, kept["PYTHONPATH"].split(os.pathsep)))
    return kept


def start(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    new_session: bool = True,
    outlives_us: bool = False,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Start a child.  With a session of its own, its whole group is killed when it is, and at the
    latest when this process exits, unless it `outlives_us`.

    The calling thread must live as long as the child should (see `bootstrap.end_with`).
    """
    environ = clean(os.environ if environ is None else environ)
    with _signals_held_back():
        process: subprocess.Popen[bytes] = subprocess.Popen(
            argv, env=environ, start_new_session=new_session, **streams
        )
        known = _outliving if outlives_us else _groups if new_session else []
        known[:] = [other for other in known if other.returncode is None]
        known.append(process)
    return process


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Defer the handlers of signals until the end of the block, since an exception from one would
    leave a child that is not in `_groups`.  (A child would inherit a mask of blocked signals.)"""
    held: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other thread runs handlers
        for number in _RAISING:
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: held.append(number))
        yield
    finally:
        _set_all(dict(handlers))
        for number in held:
            handlers[number](number, None)


def _set_all(handlers: dict[int, Any]) -> None:
    """Set each handler, even if one that is already set raises meanwhile."""
    try:
        for number in list(handlers):
            signal.signal(number, handlers[number])
            del handlers[number]
    finally:
        if handlers:
            _set_all(handlers)


def limit(pid: int, **bounds: int | None) -> None:
    """Keep process `pid` from bringing the machine down (Linux): `DATA=1` is one byte of
    RLIMIT_DATA, None sets no limit.  Beyond one an allocation or a write fails, with a reason."""
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # first to be killed (proc(5))
    for name, most in bounds.items():
        with suppress(OSError, ValueError):  # a lower limit is already set
            if most is not None:
                resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"), (most, most))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its group, and the group.

    Nothing is sent once the child has been waited for, since its number may belong to others.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def exit_code(process: subprocess.Popen[bytes], within_s: float = 0.0) -> int | None:
    """The exit code if the child ends in time, else None; not reaped, so `kill` still works."""
    until = time.monotonic() + within_s
    while process.returncode is None:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return process.poll() if within_s <= 0 else reap(process, within_s)
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if time.monotonic() >= until:
            break
        time.sleep(POLL_S)
    return process.returncode


def reap(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    """The exit code of a killed child; None if the kernel does not end it in time, as in an
    uninterruptible system call."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(within_s)
    return None


def offspring(pid: int) -> list[int]:
    """The children of a process (Linux)."""
    # This reads one process, unless the kernel lacks CONFIG_PROC_CHILDREN.
    found: list[int] = []
    if not Path("/proc/thread-self/children").exists():
        for listed in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, IndexError):
                if listed.read_text(errors="replace").rpartition(")")[2].split()[1] == str(pid):
                    found.append(int(listed.parent.name))
        return found
    for listed in Path("/proc").glob(f"{pid}/task/*/children"):
        with suppress(OSError):
            found += map(int, listed.read_text().split())
    return found


def family(pid: int) -> list[int]:
    """A process and its descendants (Linux; elsewhere the process alone)."""
    members, to_visit = [], [pid]
    while to_visit:
        members.append(to_visit.pop())
        to_visit += offspring(members[-1])
    return members


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants (Linux), so that `kill_all` finds even those that
    left their group and cleared their environment.

    Not if this process already has children, as after a shell's exec: their orphans are not ours.
    """
    global _adopting
    if sys.platform != "linux" or _strays():
        return
    import ctypes  # screens start without it

    with suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _strays() -> list[int]:
    """The children that `start` did not start."""
    return list(set(offspring(os.getpid())) - {p.pid for p in (*_groups, *_outliving)})


def kill_all() -> None:
    """Kill every group that this process started and that still lives."""
    for process in _groups:
        kill(process)


@atexit.register
def _kill_family() -> None:
    """Kill the same, and every adopted process."""
    kill_all()
    for stray in _strays() if _adopting else ():
        for pid in family(stray):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def describe_exit(code: int) -> str:
    """An exit code in words: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def log_tail(log: IO[bytes]) -> str:
    """The last lines of a log that may still grow, read without moving the writer's position."""
    log.flush()
    size = os.fstat(log.fileno()).st_size
    start = max(0, size - LOG_TAIL_BYTES)
    return os.pread(log.fileno(), size - start, start).decode(errors="replace").strip()


def empty_if_long(log: int) -> None:
    """Empty a long log, a file descriptor: code that prints all the time would fill the disk."""
    if os.fstat(log).st_size > MOST_LOGGED:
        os.ftruncate(log, 0)
        os.lseek(log, 0, os.SEEK_SET)


def ending(text: str, code: int | None, log: str = "") -> str:
    """`text` with the exit code, if known, and the last three lines of the log."""
    message = text if code is None else f"{text} ({describe_exit(code)})"
    lines = [shown(line.strip(), 200) for line in log.splitlines()[-3:]]
    return f"{message}; its log ends: {' | '.join(lines)}" if lines else message
