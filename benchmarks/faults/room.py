"""The temporary folder of one case: a home of its own, the commands run in it, the findings."""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import judge, leftovers
from .case import Outcome
from .subject import Subject

FOLDERS = ("home", "tmp", "state", "config", "cache", "data", "cwd")
KEPT = ("state/", "streams/")  # may change: our state folder, and what the harness writes
SPIN = ("run", "spin", "--budget", "4")
SCRIPT_S = 280.0


@dataclass(frozen=True)
class Finished:
    """A command that ended, or was ended because it hung (`code` is None)."""

    words: str
    code: int | None
    stdout: bytes
    stderr: bytes
    wall_s: float


class Running:
    """A command, with its standard output and error in files: no full pipe can stop it."""

    def __init__(self, room: "Room", number: int, arguments: Collection[str | bytes], options: Any):
        self.words = " ".join(ascii(word)[1:-1] if word else "''" for word in map(_text, arguments))
        self._files = [room.root / "streams" / f"{name}-{number}" for name in ("out", "err")]
        environ = {**room.environ, **options.pop("environ", {})}
        environ = {name: value for name, value in environ.items() if value is not None}
        limits: Mapping[int, int] = options.pop("limits", {})

        def set_limits() -> None:
            for name, most in limits.items():
                resource.setrlimit(name, (most, most))

        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                room.subject.command(*arguments),
                **{
                    "stdin": subprocess.DEVNULL,
                    "stdout": out,
                    "stderr": err,
                    "cwd": room.cwd,
                    "env": environ,
                    "start_new_session": True,
                    "preexec_fn": set_limits if limits else None,
                    **options,
                },
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def pump(self, seconds: float) -> None:
        """Wait; on a terminal the screen is read meanwhile."""
        time.sleep(seconds)

    def send(self, number: int, *, group: bool = False) -> None:
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float) -> Finished:
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(seconds)
        wall_s = time.monotonic() - self.began
        if code is None:
            self.send(signal.SIGKILL)
            self.process.wait()
        out, err = (file.read_bytes() for file in self._files)
        return Finished(self.words, code, out, err, wall_s)


class Room:
    """What a case gets: where it may write, how it starts the program, where its findings go."""

    def __init__(self, root: Path, subject: Subject) -> None:
        self.root, self.subject = root, subject
        for name in (*FOLDERS, "streams"):
            (root / name).mkdir()
        self.cwd, self.tmp, self.home = root / "cwd", root / "tmp", root / "home"
        self.environ: dict[str, str] = {
            "PATH": f"{Path(subject.python).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            **{f"XDG_{name.upper()}_HOME": str(root / name) for name in FOLDERS[2:6]},
            "WORKBENCH_WORKLOADS": str(subject.fixtures / "workloads"),
        }
        self.outcome = Outcome()
        self.expected: set[str] = set()  # files that the case asks for, relative to the root
        self.judges_files = True
        self._started = 0
        self._shm = leftovers.shared_memory()
        self._before: dict[str, tuple[int, int]] | None = None

    # ------------------------------------------------------------------ findings

    def violation(self, kind: str, text: str) -> None:
        line = " ".join(text.replace(str(self.root), "ROOM").split())
        self.outcome.violations.append((kind, line[:600]))

    def skip(self, why: str) -> None:
        self.outcome.skipped = why

    # ------------------------------------------------------------------ commands

    def start(self, *arguments: str | bytes, **options: Any) -> Running:
        """Start the program; `environ`, `limits` and everything of Popen may be given.  Files that
        are there at the first start are the case's own."""
        if self._before is None:
            self._before = leftovers.files(self.root)
        self._started += 1
        return Running(self, self._started, arguments, options)

    def begin(self) -> None:
        """For programs that are not started by `start`: files that are there now are the case's."""
        self._before = leftovers.files(self.root)

    def python(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a script under the interpreter of the program."""
        self.begin()
        return subprocess.run(
            [self.subject.python, *map(str, words)],
            env=self.environ,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=SCRIPT_S,
        )

    def run(
        self,
        *arguments: str | bytes,
        codes: Collection[int] = (judge.OK,),
        within: float = 20.0,
        **options: Any,
    ) -> Finished:
        """Run the program to its end and judge it."""
        finished = self.start(*arguments, **options).wait(2 * within + 20)
        self.judge(finished, codes, within)
        return finished

    def judge(self, finished: Finished, codes: Collection[int], within: float) -> None:
        """Exit code, words and time of a command; `within` counts from its start."""
        if finished.code is None:
            self.violation("hang", f"{finished.words}: no end after {finished.wall_s:.0f} s")
        elif finished.wall_s > within:
            late = f"{finished.words}: {finished.wall_s:.1f} s, due after {within:.0f} s"
            self.violation("late", late)
        if wrong := judge.wrong_code(finished.code, codes):
            said = judge.tail(finished.stderr.decode(errors="backslashreplace"), 200)
            self.violation("wrong exit code", f"{finished.words}: {wrong}; {said}")
        for kind, text in judge.wrong_words(finished.stderr, finished.code, self.subject.tree):
            self.violation(kind, f"{finished.words}: {text}")

    # ---------------------------------------------------------------------- end

    def close(self) -> None:
        """Look for what stayed behind, and remove everything."""
        for words in leftovers.processes():
            self.violation("leftover process", words)
        for name in leftovers.unused(leftovers.shared_memory() - self._shm):
            self.violation("leftover file", f"/dev/shm/{name}")
        if self._before is not None and self.judges_files:
            new = leftovers.files(self.root).keys() - self._before.keys() - self.expected
            for path in sorted(new):
                folder = path.rpartition("/")[0]
                if not path.startswith(KEPT) and folder not in new:
                    self.violation("leftover file", path)
        self.judge_journals()
        shutil.rmtree(self.root, ignore_errors=True)

    def judge_journals(self) -> None:
        """Every journal opens: one that was written is a result."""
        for path in sorted((self.root / "state/workbench/runs").glob("*.jsonl"))[-3:]:
            if not path.stat().st_size:
                continue
            plain = {"environ": self.environ, "cwd": "/"}
            opened = self.start("open", str(path), "--json", **plain).wait(60)
            if opened.code != 0:
                said = judge.tail(opened.stderr.decode(errors="backslashreplace"))
                self.violation("lost result", f"the journal does not open: {said}")


def _text(word: str | bytes) -> str:
    return os.fsdecode(word)
