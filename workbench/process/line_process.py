"""Children that speak in lines: `QueryProcess` only answers, `LineProcess` also takes requests.

NVML can crash or hang on a lost GPU, a workload can run out of memory, and a foreign interpreter
can do anything; none of that may harm this process.
"""

import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from . import children
from .children import empty_if_long, ending, log_tail

_REAP_S = 2.0  # ample, since SIGKILL ends a process promptly
# A signal just before a wait does not interrupt it, so its handler runs after this slice.
_SLICE_S = 0.1
_BUFFER_BYTES = 1 << 20  # the kernel grants what net.core.wmem_max allows (socket(7))

MOST_LINE_BYTES = 64 << 20  # in one answer; the profile of a large model takes a few MiB

_Answer = TypeVar("_Answer")


class LineTooLong(Exception):
    """The other end has sent more than MOST_LINE_BYTES without ending the line."""


@dataclass(frozen=True)
class Ended:
    """Why no line came."""

    kind: str  # "crashed", "silent" or "not_started"
    message: str  # continues a sentence that begins with the name of the process


class LineChannel:
    """Lines in both directions over one socket, which may lead to another machine."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._incomplete = bytearray()

    def send(self, line: bytes) -> None:
        self.socket.sendall(line + b"\n")

    def receive(self) -> list[bytes]:
        """The lines completed by what has arrived; EOFError when the other end is gone,
        BlockingIOError when nothing has arrived, LineTooLong for a line without end."""
        try:
            data = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError:
            data = b""
        if not data:
            raise EOFError
        self._incomplete += data
        if len(self._incomplete) > MOST_LINE_BYTES:
            raise LineTooLong
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._incomplete).split(b"\n")
        self._incomplete = bytearray(rest)
        return lines

    def _arrives(self, within_s: float) -> bool:
        """Whether anything, or the end, arrives within this time, but at most `_SLICE_S`."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(1e3 * min(within_s, _SLICE_S)))


class QueryProcess(LineChannel):
    """Runs `argv`, which answers in lines on its standard output; its stderr is discarded."""

    def __init__(self, argv: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._began, self._lines = time.monotonic(), list[bytes]()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: Ended | None = None
        with theirs:
            # Room for readings that are not yet read.
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            try:
                self._process = children.start(
                    argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL
                )
            except (OSError, ValueError) as error:
                text = f"could not be started: {getattr(error, 'strerror', None) or error}"
                self._ended = Ended("not_started", text)

    def line(self, deadline_s: float, *, since_start: bool = False) -> bytes | Ended:
        """The next line within `deadline_s` from now or the child's start; none after `Ended`."""
        waited_s = time.monotonic() - self._began if since_start else 0.0
        line = self.poll(max(0.0, deadline_s - waited_s))
        if line is None:
            self.close()
            return Ended("silent", f"gave no answer within {round(deadline_s, 2):g} s")
        return line

    def poll(self, wait_s: float = 0.0) -> bytes | Ended | None:
        """The next line if it comes within `wait_s`, else None."""
        until = time.monotonic() + wait_s
        while not self._lines and self._ended is None:
            left_s = max(0.0, until - time.monotonic())
            if self._arrives(left_s):
                try:
                    self._lines += self.receive()
                except LineTooLong:
                    self._lines.append(b"")  # no decoder accepts it
                except EOFError:  # it is ending
                    self._end(_REAP_S)
            elif not left_s:
                return None
        return self._lines.pop(0) if self._lines else self._ended

    def answer(
        self, decode: Callable[[bytes], _Answer], deadline_s: float, *, since_start: bool = False
    ) -> _Answer | Ended:
        """The only line decoded, after which the child is ended; see `line` and `parse`."""
        found = self.parse(self.line(deadline_s, since_start=since_start), decode)
        self.close()
        return found

    def parse(self, line: bytes | Ended, decode: Callable[[bytes], _Answer]) -> _Answer | Ended:
        """`line` decoded; a line that `decode` rejects ends the child."""
        if isinstance(line, Ended):
            return line
        try:
            return decode(line)
        except Exception:
            self.close()
            return Ended("crashed", "gave an unreadable answer")

    def close(self) -> None:
        """Kill the child and what it started; unread lines are discarded."""
        self._lines.clear()
        self._end()

    def _end(self, within_s: float = 0.0) -> None:
        """Kill it unless it ends by itself `within_s`."""
        if self._process is not None and self._ended is None:
            children.exit_code(self._process, within_s)
            children.kill(self._process)
            code = children.reap(self._process, _REAP_S)
            self._ended = Ended("crashed", ending("ended without an answer", code))
        self.socket.close()


class LineProcess(LineChannel):
    """A child at the other end of a socket; its output goes to an unnamed log file."""

    def __init__(
        self,
        command: Sequence[str],
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> None:
        """Start `command` followed by the file descriptor of its socket and `arguments`."""
        # Unlinked from the start, so it needs no cleaning up.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        with theirs:
            self.process = children.start(
                [*command, str(theirs.fileno()), *arguments],
                environ=environ,
                new_session=new_session,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
            )

    def line(self, until: float) -> bytes:
        """The next line; TimeoutError if none comes before `until` on the monotonic clock."""
        while (left_s := until - time.monotonic()) > 0:
            if self._arrives(left_s) and (lines := self.receive()):
                return lines[0]
        raise TimeoutError

    def signal_group(self, number: int) -> None:
        """Send a signal to the group that the child leads, if it still exists."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def exit_code(self, within_s: float = 0.0) -> int | None:
        """The exit code if the child ends in time, else None."""
        return children.exit_code(self.process, within_s)

    def kill(self) -> None:
        """Kill the child and its group, without waiting for them as `reap` does."""
        children.kill(self.process)

    def log_tail(self) -> str:
        """The last lines that the child and its libraries wrote."""
        return log_tail(self._log)

    def empty_log_if_long(self) -> None:
        empty_if_long(self._log.fileno())

    def reap(self, within_s: float = _REAP_S) -> int | None:
        """The exit code of a killed child, whose log and socket are closed; None if it lives on."""
        self.socket.close()
        self._log.close()
        return children.reap(self.process, within_s)
