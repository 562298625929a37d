"""A short-lived child process that answers in lines; its death and its silence are answers too.

NVML can crash or hang in a call on a lost GPU, and a foreign interpreter may be anything:
neither may take this process along.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, cast

# Death by SIGKILL is prompt, except in an uninterruptible system call: then we go on without.
_REAP_S = 2.0


@dataclass(frozen=True)
class Ended:
    """Why no line came: `kind` is "crashed", "silent" or "not_started"."""

    kind: str
    message: str


class Helper:
    """`argv`, running; nothing of it reaches our terminal."""

    def __init__(self, argv: list[str], *, environ: Mapping[str, str] | None = None) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=None if environ is None else dict(environ),
            )
        except (OSError, ValueError) as error:
            self._failure = f"could not be started: {getattr(error, 'strerror', None) or error}"
            return
        stdout = cast("IO[bytes]", self._process.stdout)
        # A thread waits for lines on every system alike; a pipe has no timeout on Windows.
        threading.Thread(
            target=_forward, args=(stdout, self._lines, self._closed), daemon=True
        ).start()

    def line(self, deadline_s: float) -> bytes | Ended:
        """The next line, waiting at most `deadline_s` for it; after `Ended` there is no other."""
        if self._process is None:
            return Ended("not_started", self._failure)
        try:
            line = self._lines.get(timeout=deadline_s)
        except queue.Empty:
            self.close()
            return Ended("silent", f"gave no answer within {deadline_s:g} s")
        return self._told(line)

    def poll(self) -> bytes | Ended | None:
        """The next line if it is there already, None if not."""
        if self._process is None:
            return Ended("not_started", self._failure)
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return None
        return self._told(line)

    def _told(self, line: bytes | None) -> bytes | Ended:
        if line is not None:
            return line
        process = cast("subprocess.Popen[bytes]", self._process)
        _reap(process)
        return Ended("crashed", _death(process.returncode))

    def close(self) -> None:
        """Kill the child if it still runs, and hear no more of what it may have left behind."""
        self._closed.set()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            _reap(self._process)


def _forward(
    stdout: IO[bytes], lines: queue.SimpleQueue[bytes | None], closed: threading.Event
) -> None:
    with stdout:
        for line in stdout:
            if closed.is_set():
                break
            lines.put(line)
    lines.put(None)


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_REAP_S)


def _death(returncode: int | None) -> str:
    if returncode is None:
        return "stopped answering"
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        return f"died of {signal.Signals(-returncode).name}"
    except ValueError:
        return f"died of signal {-returncode}"
