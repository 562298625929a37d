"""A run under the real TUI on a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from workbench.records import events as ev
from workbench.report import journal
from workbench.stats.samples import median

SIZE = (40, 120)  # lines, columns
DEADLINE_S = 120.0


def median_under_the_screen(arguments: Sequence[str]) -> float:
    """Median seconds per step of the run's only case while the TUI draws it."""
    with tempfile.TemporaryDirectory() as state:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(XDG_STATE_HOME=state, TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(sys.executable, [sys.executable, "-m", "workbench", *arguments])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        threading.Thread(target=_read, args=(terminal,), daemon=True).start()
        events = _finished(Path(state))
        os.write(terminal, b"qq")  # the second is for a run whose end it has not read yet
        os.waitpid(pid, 0)
    blocks = [event.samples_s for event in events if isinstance(event, ev.BlockMeasured)]
    return median([sample for block in blocks for sample in block])


def _read(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 65536):
            pass


def _finished(state: Path) -> list[ev.AnyEvent]:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        time.sleep(1.0)
        for file in state.glob("workbench/runs/*.jsonl"):
            events = journal.read(file)
            if events and isinstance(events[-1], ev.RunFinished):
                return events
    raise SystemExit("the run under the TUI did not end")


if __name__ == "__main__":
    print(median_under_the_screen(sys.argv[1:]))
