"""Ends everything a run started once the engine is gone: `python guardian.py RUN_ID`.

The engine writes to this process's stdin which process groups live (`+PGID`), which have ended
(`-PGID`), and which folders are scratch (`/...`).  When the engine ends, even by kill -9, the pipe
closes; frozen groups cannot notice that themselves.  Standard library only, no imports of ours.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

RUN_ID_VARIABLE = "WORKBENCH_RUN_ID"


def main(run_id: str) -> None:
    ignored = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    scratch = list[bytes]()
    for line in sys.stdin.buffer:
        if line.startswith(b"/"):
            scratch.append(line.rstrip(b"\n"))
            continue
        group = int(line[1:])
        groups.add(group) if line.startswith(b"+") else groups.discard(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)  # reaches stopped processes too
    kill_strays(f"{RUN_ID_VARIABLE}={run_id}".encode())
    for folder in scratch:
        shutil.rmtree(folder, ignore_errors=True)


def kill_strays(mark: bytes) -> None:
    """Kill processes that left their group but carry the run's id in their environment (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
