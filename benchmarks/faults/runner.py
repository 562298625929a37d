"""Runs the cases of a part, each in a process of its own: whatever it starts stays below it."""

import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from . import leftovers
from .case import Case, Outcome, Part
from .room import Room
from .subject import Subject


@dataclass(frozen=True)
class Ended:
    """A case that has ended."""

    number: int
    name: str
    outcome: Outcome


@dataclass
class Lane:
    """A case that runs now."""

    number: int
    case: Case
    pid: int
    result: Path
    began: float = field(default_factory=time.monotonic)


class Runner:
    """Runs parts; everything that they write is below `scratch`."""

    def __init__(self, subject: Subject, seed: int, scratch: Path) -> None:
        self._subject, self._seed, self._scratch = subject, seed, scratch
        self._lanes: list[Lane] = []

    def run(
        self, part: Part, seconds: float, least: int, only: int | None = None
    ) -> Iterator[Ended]:
        """The cases of `part` as they end: those that begin within `seconds`, but as many as make
        `least` things tried; or the one that has the number `only`."""
        until = time.monotonic() + seconds
        number, tried, last = only or 0, 0, False
        try:
            while True:
                while not last and len(self._lanes) < part.lanes:
                    late = time.monotonic() >= until and tried >= least
                    case = None if late and number else self._case(part, number)
                    last = case is None or only is not None
                    if case is None:
                        break
                    self._lanes.append(self._start(part, number, case))
                    number += 1
                if not self._lanes:
                    return
                for ended in self._ended():
                    tried += ended.outcome.tried
                    yield ended
        finally:
            for lane in self._lanes:
                _end_tree(lane.pid)
            self._lanes.clear()

    def _case(self, part: Part, number: int) -> Case | None:
        return part.case_of(number, self._seed)

    def _start(self, part: Part, number: int, case: Case) -> Lane:
        result = self._scratch / f"{part.name}-{number}.json"
        result.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            outcome = Outcome()
            try:
                outcome = self._inside(case)
            except BaseException:
                outcome.violations.append(("campaign error", traceback.format_exc()[-500:]))
            finally:
                partial = result.with_suffix(".partial")
                partial.write_text(json.dumps(outcome.as_fields()))
                partial.rename(result)
                os._exit(0)
        return Lane(number, case, pid, result)

    def _inside(self, case: Case) -> Outcome:
        """The case, in the process that it has for itself."""
        leftovers.adopt_orphans()
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        root = Path(tempfile.mkdtemp(prefix="room-", dir=self._scratch))
        room = Room(root, self._subject)
        try:
            case.run(room)
        except BaseException:
            room.violation("campaign error", traceback.format_exc()[-500:])
        finally:
            room.close()
        return room.outcome

    def _ended(self) -> list[Ended]:
        """Wait until cases end, or have to be ended."""
        found: list[Ended] = []
        while not found:
            for lane in list(self._lanes):
                done, _ = os.waitpid(lane.pid, os.WNOHANG)
                if not done and time.monotonic() - lane.began < lane.case.bound_s:
                    continue
                self._lanes.remove(lane)
                if not done:
                    _end_tree(lane.pid)
                found.append(Ended(lane.number, lane.case.name, _outcome(lane)))
            time.sleep(0.02)
        return found


def _outcome(lane: Lane) -> Outcome:
    try:
        fields = json.loads(lane.result.read_text())
    except OSError:
        return Outcome(violations=[("hang", f"not over after {lane.case.bound_s:.0f} s")])
    return Outcome(**{**fields, "violations": [tuple(v) for v in fields["violations"]]})


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
