"""The program on a pseudo-terminal whose screen we read, or leave unread."""

import os
import re
import select
import signal
import time
from contextlib import suppress

from benchmarks.terminal import PseudoTerminal

from .room import Finished, Room

SIZE = (24, 80)  # rows, columns
LEFT = b"\x1b[?1049l"  # leaving the alternate screen


class Terminal(PseudoTerminal):
    """One program on a terminal; nothing is read but in `pump` and what calls it."""

    def __init__(self, room: Room, *arguments: str, size: tuple[int, int] = SIZE, **environ: str):
        self._words = " ".join(["tty:", *arguments])
        self._room = room
        self.screen = bytearray()
        room.begin()
        self._began = time.monotonic()
        command = [os.fsencode(word) for word in room.subject.command(*arguments)]
        super().__init__(command, {**room.environ, **environ}, size, room.cwd)

    def press(self, keys: bytes) -> None:
        """Type; what does not fit, because no one reads, is lost, as on a real terminal."""
        _, ready, _ = select.select([], [self.fd], [], 0.5)
        if ready:
            with suppress(OSError):
                os.write(self.fd, keys)

    def pump(self, seconds: float, until: bytes | None = None) -> bool:
        """Read the screen for a while; whether `until` appeared."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self.screen += self.read(left)
            except OSError:  # the other side is closed
                time.sleep(min(left, 0.01))
                return until is not None and until in self.screen
            if until is not None and until in self.screen:
                return True
        return False

    def hang_up(self) -> None:
        """Close the terminal, as its window does."""
        os.close(self.fd)
        self.fd = -1

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def alive(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, seconds: float) -> Finished:
        """Wait for the end, reading meanwhile; after `seconds` it is killed."""
        until, code = time.monotonic() + seconds, None
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > until:
                self.send(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            if self.fd >= 0:
                self.pump(0.02)
            else:
                time.sleep(0.02)
        wall_s = time.monotonic() - self._began
        if self.fd >= 0:
            self.pump(0.05)
            self.hang_up()
        # On a screen only what stands after the alternate screen can be read as text.
        rest = bytes(self.screen).rpartition(LEFT)[2]
        text = b"\n".join(line.strip(b"\r") for line in rest.split(b"\n"))
        errors = text if any(word in text for word in (b"Traceback", b"internal error")) else b""
        if b"Traceback (most recent call last)" in self.screen and not errors:
            errors = b"workbench: Traceback (most recent call last) on the screen"
        return Finished(self._words, code, b"", _without_escapes(errors), wall_s)

    def leave(self, within: float, codes: tuple[int, ...], keys: bytes = b"q") -> Finished:
        """Leave with a key, pressed again every few seconds, and judge the end."""
        began = time.monotonic()
        while time.monotonic() - began < within:
            self.press(keys)
            self.pump(2.0)
            if not self.alive():
                break
        finished = self.wait(1.0)
        self._room.judge(finished, codes, 600.0)
        return finished


def _without_escapes(text: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|[\x00-\x09\x0b-\x1f\x7f]", b"", text)
