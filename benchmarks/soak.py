"""Load: many runs one after the other, many at once, and sessions that last.

`python -m benchmarks.soak` takes about 25 minutes; `--scale 0.1` a tenth of everything.  It prints
what was measured against its bound, and exits 1 if a bound is broken.
"""

import argparse
import atexit
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from .faults import leftovers
from .faults.room import Finished, Room
from .faults.subject import Subject
from .faults.terminal import Terminal

RUNS, OPENS, LAUNCHES, TABLES, SESSIONS, SNAPSHOTS = 200, 50, 20, 4, 20, 240
GROWTH = 1.1  # of the memory of the last runs over that of the first
SESSION_GROWTH_MIB = 20.0  # of one process from its second run to its last
OPEN_S, OPEN_MB = 5.0, 500.0  # for a journal of 200 MB
OPENED = re.compile(r"^(.*): ([\d.]+) s, (\d+) MB$", re.MULTILINE)  # what big_journal.py prints


@dataclass(frozen=True)
class Measured:
    """One line of the table."""

    what: str
    value: float
    most: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.most

    def row(self) -> str:
        word = "" if self.holds else "BROKEN"
        return f"| {self.what} | {self.value:g} {self.unit} | {self.most:g} {self.unit} | {word} |"


class Watched:
    """A room whose leftovers are counted while it is in use."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._shm = leftovers.shared_memory()

    def journals(self) -> int:
        return len(list((self.room.root / "state/workbench/runs").glob("*.jsonl")))

    def left(self, what: str) -> Iterator[Measured]:
        """What stays behind although everything has ended."""
        yield Measured(f"{what}: processes left", len(leftovers.processes()), 0)
        yield Measured(f"{what}: files left in TMPDIR", len(leftovers.files(self.room.tmp)), 0)
        shm = set(leftovers.unused(leftovers.shared_memory() - self._shm))
        yield Measured(f"{what}: shared memory left", len(shm), 0)
        others = [
            self.room.home,
            self.room.cwd,
            self.room.root / "cache",
            self.room.root / "config",
        ]
        yield Measured(f"{what}: other files left", sum(len(leftovers.files(f)) for f in others), 0)


def one_after_the_other(watched: Watched, count: int) -> Iterator[Measured]:
    peaks: list[float] = []
    failed = 0
    for _ in range(count):
        running = watched.room.start("run", "spin", "--budget", "3", "--json")
        _, status, usage = os.wait4(running.process.pid, 0)
        running.process.returncode = os.waitstatus_to_exitcode(status)
        failed += running.process.returncode != 0
        peaks.append(usage.ru_maxrss / 1024)
    some = max(1, count // 10)
    first, last = statistics.median(peaks[:some]), statistics.median(peaks[-some:])
    yield Measured(f"{count} runs: failed", failed, 0)
    yield Measured(
        f"{count} runs: memory of the last", round(last, 1), round(GROWTH * first, 1), "MiB"
    )
    yield Measured(
        f"{count} runs: journals too many or too few", abs(watched.journals() - count), 0
    )
    yield from watched.left(f"{count} runs")


def at_once(
    watched: Watched, count: int, words: tuple[str, ...], codes: tuple[int, ...], most_s: float
) -> Iterator[Measured]:
    what = f"{count} x {words[0]} {Path(words[1]).name} at once"
    before = len(watched.room.outcome.violations)
    began = time.monotonic()
    running = [watched.room.start(*words) for _ in range(count)]
    for each in running:
        finished = each.wait(max(1.0, began + 2 * most_s - time.monotonic()))
        watched.room.judge(finished, codes, most_s)
        if finished.code == 0 and not finished.stdout.startswith(b"{"):
            watched.room.violation("lost result", "exit 0 without a document")
    yield Measured(f"{what}: the slowest", round(time.monotonic() - began, 1), most_s, "s")
    yield Measured(f"{what}: violations", len(watched.room.outcome.violations) - before, 0)
    yield from watched.left(what)


def tables_at_once(watched: Watched, count: int) -> Iterator[Measured]:
    """Tables of all scenarios next to each other, each with an engine of its own."""
    shown = [Terminal(watched.room, "--quick") for _ in range(count)]
    ended: list[Finished] = []

    def watch(one: Terminal) -> None:
        one.pump(40, until=b"done")
        ended.append(one.leave(30, (0, 1, 130)))

    threads = [threading.Thread(target=watch, args=(one,)) for one in shown]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bad = [one for one in ended if one.code not in (0, 1, 130)]
    yield Measured(f"{count} tables at once: badly ended", len(bad) + count - len(ended), 0)
    yield from watched.left(f"{count} tables")


def long_watch(watched: Watched, count: int) -> Iterator[Measured]:
    words = ("watch", "--json", "--every", "0.5", "--count", str(count))
    running = watched.room.start(*words)
    sizes: list[float] = []
    process = psutil.Process(running.process.pid)
    while running.process.poll() is None:
        with suppress(psutil.Error):
            sizes.append(process.memory_info().rss / 2**20)
        time.sleep(1)
    settled = sizes[min(10, len(sizes) // 2) :]
    growth = round(settled[-2] - settled[0], 1) if len(settled) > 2 else 0.0
    yield Measured(f"watch of {count} snapshots: growth", growth, SESSION_GROWTH_MIB, "MiB")
    yield from watched.left("watch")


def long_session(watched: Watched, count: int) -> Iterator[Measured]:
    """One table that starts its run again and again."""
    before = watched.journals()
    shown = Terminal(watched.room, "run", "spin", "--budget", "3")
    process, sizes = psutil.Process(shown.pid), list[float]()
    for number in range(1, count + 1):
        until = time.monotonic() + 30
        while not _finished(watched, before + number) and time.monotonic() < until:
            shown.pump(0.2)
        shown.pump(0.5)
        sizes.append(process.memory_info().rss / 2**20)
        if number < count:
            shown.press(b"s")
    shown.leave(20, (0, 1))
    yield Measured("session: runs that did not end", count - (watched.journals() - before), 0)
    growth = round(sizes[-1] - sizes[min(1, len(sizes) - 1)], 1)
    yield Measured(f"session of {count} runs: growth", growth, SESSION_GROWTH_MIB, "MiB")
    yield from watched.left("session")


def _finished(watched: Watched, count: int) -> bool:
    """Whether so many runs have ended, by their journals."""
    paths = sorted((watched.room.root / "state/workbench/runs").glob("*.jsonl"))
    return len(paths) >= count and b"RunFinished" in paths[-1].read_bytes()[-4000:]


def big_journal(watched: Watched) -> Iterator[Measured]:
    """A journal of 200 MB, by the script that makes one and times `open`."""
    subject = watched.room.subject
    script = subject.tree / "benchmarks" / "big_journal.py"
    words = [subject.python, str(script)]
    done = subprocess.run(
        words, env=watched.room.environ, cwd=subject.tree, capture_output=True, text=True
    )
    lines = OPENED.findall(done.stdout)
    yield Measured("a journal of 200 MB: not opened", int(done.returncode != 0 or not lines), 0)
    if done.returncode:
        watched.room.violation("lost result", done.stderr[-300:])
    for what, seconds, megabytes in lines:
        yield Measured(what, float(seconds), OPEN_S, "s")
        yield Measured(what, float(megabytes), OPEN_MB, "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of each number")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter of the program tested"
    )
    parser.add_argument("--step", help="only the steps with this word in their name")
    asked = parser.parse_args()

    def many(count: int) -> int:
        return max(2, round(asked.scale * count))

    subject = Subject.of(asked.python)
    journal = str(subject.fixtures / "journals" / "run-sweep.jsonl")
    launch = ("run", "launch", "--budget", "12", "--json")
    steps: dict[str, Callable[[Watched], Iterator[Measured]]] = {
        "runs": lambda watched: one_after_the_other(watched, many(RUNS)),
        "opens": lambda watched: at_once(
            watched, many(OPENS), ("open", journal, "--json"), (0,), 60
        ),
        "launches": lambda watched: at_once(watched, many(LAUNCHES), launch, (0, 1), 120),
        "tables": lambda watched: tables_at_once(watched, TABLES),
        "watch": lambda watched: long_watch(watched, many(SNAPSHOTS)),
        "session": lambda watched: long_session(watched, many(SESSIONS)),
        "journal": big_journal,
    }
    leftovers.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    atexit.register(leftovers.processes, 0.0)  # nothing outlives an interrupted load
    broken = False
    print("| what | measured | at most | |\n|---|--:|--:|---|", flush=True)
    for name, step in steps.items():
        if asked.step and asked.step not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
            room = Room(Path(folder), subject)
            for measured in step(Watched(room)):
                print(measured.row(), flush=True)
                broken = broken or not measured.holds
            for kind, text in room.outcome.violations:
                print(f"{kind}: {text}", flush=True)
                broken = True
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
