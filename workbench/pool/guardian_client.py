"""The engine's side of `guardian`."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ..process import children
from . import guardian

CLOSE_S, REAP_S = 2.0, 0.1  # for it to end by itself; after SIGKILL


class Guardian:
    """The process that outlives the engine just long enough to end its workers."""

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
        """Have the process group `group` killed if the engine goes away."""
        self._write(f"+{group}")

    def remove_group(self, group: int) -> None:
        """Leave the group alone: it has ended, and its number may be used again."""
        self._write(f"-{group}")

    def own_folder(self, folder: Path) -> None:
        """Have `folder` removed at the end, whatever the end is."""
        if "\n" not in str(folder):  # which would be two lines
            self._write(str(folder))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None  # it was asked for
        with suppress(BrokenPipeError):
            self._process.stdin.write(os.fsencode(f"{line}\n"))

    def close(self, within_s: float = CLOSE_S) -> None:
        """Let it end what is left of the run, and wait for that."""
        assert self._process.stdin is not None  # it was asked for
        self._process.stdin.close()
        children.exit_code(self._process, within_s)

    def kill(self) -> None:
        """End it if it did not end by itself."""
        children.kill(self._process)
        children.reap(self._process, REAP_S)
