"""Tries a case in a process of its own: all that it starts stays below that process."""

import json
import os
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil

from . import leftovers
from .case import Case, Outcome
from .room import Room
from .subject import Subject


def tried(case: Case, subject: Subject, scratch: Path) -> Outcome:
    """The findings of the case, which writes below `scratch` only."""
    result, ended = scratch / "outcome.json", False
    pid = os.fork()
    if pid == 0:
        try:
            partial = result.with_suffix(".partial")
            partial.write_text(json.dumps(asdict(_inside(case, subject, scratch))))
            partial.rename(result)
        finally:
            os._exit(0)
    until = time.monotonic() + case.bound_s
    try:
        while not ended and time.monotonic() < until:
            time.sleep(0.02)
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
    finally:
        if not ended:
            _end_tree(pid)
    if not ended:
        return Outcome([("hang", f"not over after {case.bound_s:.0f} s")])
    return Outcome(**json.loads(result.read_text()))


def _inside(case: Case, subject: Subject, scratch: Path) -> Outcome:
    leftovers.adopt_orphans()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    room = Room(Path(tempfile.mkdtemp(prefix="room-", dir=scratch)), subject)
    try:
        case.run(room)
    except BaseException:  # the case itself broke: it judged nothing
        room.violation("campaign error", traceback.format_exc()[-500:])
    finally:
        room.close()
    return room.outcome


def _end_tree(pid: int) -> None:
    """Kill a case and all that it started, which are its descendants: it adopts orphans."""
    with suppress(psutil.Error):
        case = psutil.Process(pid)
        case.suspend()  # it starts nothing more
        while found := case.children(recursive=True):
            for process in found:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(0.02)
            if all(p.status() == psutil.STATUS_ZOMBIE for p in found if p.is_running()):
                break
        case.kill()
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
