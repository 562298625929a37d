"""A program on a pseudo-terminal of its own."""

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path


class PseudoTerminal:
    """A program and its terminal, from which only `read` takes what is written."""

    def __init__(
        self,
        command: Sequence[str | bytes],
        environ: Mapping[str, str],
        size: tuple[int, int],
        folder: Path | None = None,
    ) -> None:
        """Start `command` in `folder` on a terminal with this `size`: rows and columns."""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                self.fd = 0
                self.resize(*size)
                os.chdir(folder or ".")
                os.execve(command[0], [*command], environ)
            finally:
                os._exit(127)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, within_s: float) -> bytes:
        """The next output, b"" without any in that time; OSError once the program has ended."""
        ready, _, _ = select.select([self.fd], [], [], within_s)
        return os.read(self.fd, 1 << 16) if ready else b""
