"""The engine's side of `guardian`."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ..process import children
from . import guardian

CLOSE_S, REAP_S = 2.0, 0.1  # to wait for its end: after its pipe closed, and after SIGKILL


class Guardian:
    """The process that outlives the engine to end its workers."""

    def __init__(self, run_id: str) -> None:
        children.adopt_orphans()
        self._process = children.start(
            [sys.executable, "-I", "-S", guardian.__file__, run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            outlives_us=True,
        )

    def add_group(self, group: int) -> None:
        """Have this process group killed if the engine goes away."""
        self._write(f"+{group}")

    def remove_group(self, group: int) -> None:
        """Forget a group that has ended, since its number may be reused."""
        self._write(f"-{group}")

    def own_folder(self, folder: Path) -> None:
        """Have `folder` removed at the end, however the engine ends."""
        if "\n" not in str(folder):  # the protocol is one line each
            self._write(str(folder))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None  # it was asked for
        with suppress(BrokenPipeError):
            self._process.stdin.write(os.fsencode(f"{line}\n"))

    def close(self, within_s: float = CLOSE_S) -> None:
        """Let it end what is left of the run, and wait for its end."""
        assert self._process.stdin is not None  # it was asked for
        self._process.stdin.close()
        children.exit_code(self._process, within_s)

    def kill(self) -> None:
        """Kill it if it has not ended by itself."""
        children.kill(self._process)
        children.reap(self._process, REAP_S)
